"""What each command does. Their signatures are the options; `cli.py` turns them into a command line."""

import csv
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tcm.analysis.cost import costs_notes, costs_table, count_costs
from tcm.bench.config import SuiteConfig
from tcm.bench.finished import in_order
from tcm.bench.plan import suite_benchmark
from tcm.bench.runner import run_suite
from tcm.classifier.predict import predict_folder
from tcm.classifier.selection import collapse_warning
from tcm.classifier.train import TrainConfig, evaluate_run, train_classifier
from tcm.data.check import check, check_root, render
from tcm.data.task import DataConfig, default_cache, load_task, read_domains
from tcm.errors import InputError, printable
from tcm.methods.tcm.proxy import head_metrics, head_remarks
from tcm.nn.backbone import BackboneConfig
from tcm.pipeline import FitConfig, fit_pipeline
from tcm.results.formats import FORMATS, Format, terminal
from tcm.results.store import read_rows
from tcm.results.table import result_tables
from tcm.training.run_config import Device
from tcm.training.run_folder import Run, is_replaced, read_json, write_atomically


def demo(out: Path = Path("runs/demo"), seed: int = 0, steps: int = 600, quiet: bool = False) -> int:
    """Train source-only, DANN, the paper's Baseline and TCM on the built-in digits and compare them.

    Args:
        out: Folder for the runs and the report.
        seed: Every random choice follows from it.
        steps: Training steps of each method.
        quiet: No progress, only the result.
    """
    from tcm.cli.demo import run_demo

    folders, page = run_demo(out, seed, steps, quiet)
    summaries = [read_json(folder / "evaluation.json") for folder in folders]
    console = Console()
    console.print(scores_table(summaries))
    console.print(f"The report: {page}", soft_wrap=True, highlight=False, markup=False)
    return 0


def data_check(root: Path | None = None, data: DataConfig = DataConfig(), quiet: bool = False) -> int:
    """Read every image of a data set and report what is wrong with it; exit code 1 if anything is.

    Args:
        root: Folder with one subfolder per domain (the same as --data.root without domain names).
        data: Where the domains are.
        quiet: No progress, only the result.
    """
    data = data.resolved()
    if data.is_digits:
        raise InputError("the built-in digits are made, not read: there are no files to check")
    if root is not None or (data.root and not (data.source or data.target or data.source_list or data.target_list)):
        found = check_root(Path(root or data.root or "."), quiet)
    else:
        found = check(read_domains(data), quiet=quiet)
    Console().print(render(found))
    return 1 if found.problems else 0


def data_pack(data: DataConfig, quiet: bool = False) -> int:
    """Decode and resize the images of a task into the cache, so that training starts at once.

    Args:
        data: Where the domains are.
        quiet: No progress, only the result.
    """
    data = data.resolved()
    task = load_task(data, quiet)
    for store in task:
        print(f"{printable(store.name)}: {len(store)} images of side {store.size} in {store.folder}")
    if data.cache is None and not quiet:
        print(f"The cache is {default_cache()}; --data.cache chooses another.")
    return 0


def train_method(name: str, config: TrainConfig[Any], out: Path, quiet: bool = False) -> int:
    """Trains, or goes on where the folder stopped, and prints the result."""
    if not train_classifier(name, config, out, quiet):
        print(f"{out} is finished; nothing to do. tcm report {out} shows it.")
        return 0
    Console().print(scores_table([read_json(out / "evaluation.json")]))
    print_remarks(out)
    if not quiet:
        print(f"The model: {Run(out).model_file}; a page about it: tcm report {out}")
    return 0


def fit(config: FitConfig, out: Path, quiet: bool = False) -> int:
    """Runs both stages, or what is left of them, and prints the result."""
    from tcm.report import write_report

    stages, worked = fit_pipeline(config, out, quiet)
    if not worked:
        print(f"{out} is finished; nothing to do. tcm report {stages.classifier} shows it.")
        return 0
    page = write_report([stages.classifier, stages.mechanisms], out / "report")
    Console().print(scores_table([read_json(stages.classifier / "evaluation.json")]))
    print_remarks(stages.classifier)
    if not quiet:
        print(f"The model: {Run(stages.classifier).model_file}; tcm predict {stages.classifier} classifies new images")
        print(f"The report: {page}")
    return 0


def print_remarks(run: Path) -> None:
    """What is wrong with the run's predictions or its causal head, one line each; nothing where all is well."""
    rows, classes = Run(run).metrics(), read_json(run / "evaluation.json")["classes"]
    found = head_metrics(rows)
    for remark in filter(None, [collapse_warning(rows, len(classes)), *(head_remarks(found) if found else [])]):
        print(remark)


def cost(backbone: BackboneConfig = BackboneConfig(), classes: int = 65, k: int = 4, quiet: bool = False) -> int:
    """Count what each method costs beside its backbone, next to the paper's figures (its appendix).

    Args:
        backbone: The feature extractor; no weights are fetched.
        classes: Number of classes. 65: Office-Home.
        k: Mechanisms of the methods that use counterfactuals; the Baseline has one.
        quiet: No notes, only the table.
    """
    found = count_costs(backbone, classes, k)
    Console().print(costs_table(found))
    for note in [] if quiet else costs_notes(found):
        print(note)
    return 0


def evaluate(run: Path, device: Device = "auto", quiet: bool = False) -> int:
    """Score a finished run on its target domain.

    Args:
        run: The run's folder.
        device: Where to compute.
        quiet: No progress, only the result.
    """
    Console().print(scores_table([evaluate_run(run, device, quiet)]))
    return 0


def predict(
    run: Path,
    folder: Path,
    csv: Path | None = None,
    fast: bool = False,
    device: Device = "auto",
    quiet: bool = False,
) -> int:
    """Classify every image below a folder with a finished run.

    Args:
        run: The run's folder.
        folder: Folder of images; subfolders are read too.
        csv: File for the result; without it, it is printed.
        fast: Gives up each image's own counterfactuals; saves making all k of them and a pass of the backbone each.
            The run's report tells what that does to its accuracy. Most methods use none: for them nothing changes.
        device: Where to compute.
        quiet: No progress, only the result.
    """
    if csv is not None:
        require_writable(csv, "--csv")
    rows, bad = predict_folder(run, folder, device, quiet, fast)
    if csv is None:
        write_rows(sys.stdout, rows)
    else:
        text = io.StringIO(newline="")
        write_rows(text, rows)
        write_atomically(csv, text.getvalue().encode("utf-8", "surrogateescape"))
        print(f"{len(rows)} images classified in {csv}")
    for path, reason in bad:
        print(f"not classified: {printable(path)}: {reason}", file=sys.stderr)
    return 0


def require_writable(file: Path, option: str) -> None:
    """Finds out before the work whether its result can be written, without touching a file that is there."""
    place = os.path.realpath(file)
    needed = [place] * os.path.exists(place) + [os.path.dirname(place)] * is_replaced(file)
    if os.path.isdir(file) or not all(os.access(path, os.W_OK) for path in needed):
        reason = "it is a folder" if os.path.isdir(file) else "its folder is missing or may not be written to"
        raise InputError(f"{option} {file} cannot be written: {reason}; choose another file")


def write_rows(file: Any, rows: Sequence[tuple[str, str, float]]) -> None:
    """path, class, confidence as CSV."""
    writer = csv.writer(file)
    writer.writerow(["path", "class", "confidence"])
    writer.writerows([path, name, f"{confidence:.4f}"] for path, name, confidence in rows)


def report(runs: tuple[Path, ...], out: Path | None = None, quiet: bool = False) -> int:
    """Write one self-contained HTML page about one or more runs.

    Args:
        runs: Run folders.
        out: Folder for index.html. Default: report inside the run; for several runs, ./report.
        quiet: Print nothing.
    """
    # Imported here, because only this command and the demo need the plotting library.
    from tcm.report import write_report

    page = write_report(runs, out or (runs[0] / "report" if len(runs) == 1 else Path("report")))
    if not quiet:
        print(page)
    return 0


def bench(
    benchmark: str,
    config: SuiteConfig,
    settings: Any,
    out: Path,
    jobs: int | None = None,
    report: bool = True,
    quiet: bool = False,
) -> int:
    """Runs a suite, writes its tables, figures and report into its folder and prints the table; 1 if a run failed."""
    benchmark = suite_benchmark(benchmark)
    store, finished, failed = run_suite(benchmark, config, settings, out, jobs, quiet)
    for name, said in failed.items():
        print(f"failed: {name}: {said}", file=sys.stderr)
    if not finished:
        return 1 if failed else 0
    rows = in_order(read_rows([store]))
    labelled = any(row["accuracy"] for row in rows)
    tables = result_tables(rows, "last", None, quoted=True) if labelled else []
    if labelled:
        for format in ("markdown", "latex", "csv", "html"):
            write_atomically(store.with_name("table" + SUFFIXES[format]), FORMATS[format](tables).encode())
        print(terminal(tables, Console().width) if sys.stdout.isatty() else FORMATS["terminal"](tables), end="")
    else:
        print("The targets have no labels, so there are no accuracies: no tables, no report.", file=sys.stderr)
    if not quiet:
        print(f"The results: {out / store.name}")
    if report and labelled:
        from tcm.bench.report import write_suite_report

        page = write_suite_report(benchmark, config, store, rows, tables, failed, quiet)
        if not quiet:
            print(f"The report: {out / page.relative_to(store.parent)}")
    return 1 if failed else 0


SUFFIXES = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "html": ".html"}


def table(
    stores: tuple[Path, ...],
    benchmark: str | None = None,
    format: Format = "terminal",
    selection: str = "last",
    quoted: bool = True,
    out: Path | None = None,
    quiet: bool = False,
) -> int:
    """Results as the paper prints them: a line a method, a column a task, mean ± deviation over seeds.

    Args:
        stores: CSV files of results.
        benchmark: The benchmark, such as Office-Home. Default: a table for each one in the stores.
        format: How to write the table.
        selection: The rule by which models were selected. Those of the oracle are shown beside it, in grey.
        quoted: Show the paper's figures beside ours.
        out: File for the table. Default: print it.
        quiet: Do not say where the table is.
    """
    if not stores:
        raise InputError("no results are named; name at least one CSV of results")
    if out is not None:
        require_writable(out, "--out")
    tables = result_tables(in_order(read_rows(stores)), selection, benchmark, quoted)
    if out is not None:
        write_atomically(out, FORMATS[format](tables).encode())
        if not quiet:
            print(out)
    elif format == "terminal" and sys.stdout.isatty():
        print(terminal(tables, Console().width), end="")
    else:
        print(FORMATS[format](tables), end="")
    return 0


def scores_table(summaries: Sequence[dict[str, Any]]) -> Table:
    """One row a run: accuracy in the target, by its two names, with the selection rule."""
    source, target = summaries[0]["source"]["name"], summaries[0]["target"]["name"]
    table = Table(title=f"{printable(source)} → {printable(target)}", title_style="bold")
    for heading in ("method", "target accuracy", "mean per class", "source accuracy", "selected by", "time"):
        table.add_column(heading, justify="left" if heading in ("method", "selected by") else "right")
    for summary in summaries:
        accuracy = [summary["target"][key] for key in ("accuracy", "mean_class_accuracy")]
        cells = ["no labels" if value is None else f"{100 * value:.1f} %" for value in accuracy]
        on_source = f"{100 * summary['source']['accuracy']:.1f} %"
        table.add_row(summary["method"], *cells, on_source, summary["selection"], f"{summary['seconds']:.0f} s")
    return table
