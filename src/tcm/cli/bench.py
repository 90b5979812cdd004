"""tcm bench and tcm table."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from tcm.bench.config import SuiteConfig, has_small_images, method_settings
from tcm.bench.finished import in_order
from tcm.bench.runner import run_suite
from tcm.bench.tasks import suite_benchmark
from tcm.cli.arguments import OptionalInt, OptionalOutput, OptionalText, Output, Quiet, Stores
from tcm.cli.folders import store_of
from tcm.cli.messages import with_options
from tcm.cli.show import require_writable
from tcm.errors import InputError
from tcm.results.formats import FORMATS, Format, terminal
from tcm.results.store import read_rows
from tcm.results.table import result_tables
from tcm.training.files import write_atomically
from tcm.training.launch import require_one_process

SUFFIXES = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "html": ".html"}


def bench_command(parsed: Mapping[str, Any] | None) -> Callable[..., int]:
    """The command that runs a suite, with defaults that fit the arguments parsed so far."""
    if parsed is None:
        start = method_settings(small=False)
    else:
        chosen = suite_benchmark(parsed["benchmark"])
        config = parsed["config"]
        start = method_settings(has_small_images(chosen, config), chosen, config.recipe)

    def bench(
        benchmark: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="BENCHMARK")],
        out: Output,
        config: Annotated[SuiteConfig, tyro.conf.arg(name="")] = SuiteConfig(),
        method: Annotated[Any, tyro.conf.arg(constructor=type(start))] = start,
        jobs: OptionalInt = None,
        report: bool = True,
        quiet: Quiet = False,
    ) -> int:
        """Run a whole benchmark: tasks x methods x seeds. Repeat the command to continue an interrupted suite.

        Args:
            benchmark: office-home, imageclef-da, visda-2017, office-31 or digits.
            out: Folder of the suite.
            method: The settings of each method.
            jobs: Number of runs at the same time. Default: one per core on a CPU, at most 8; one on a GPU.
            report: Draw the figures and write the report.
            quiet: Print only the table, no progress.
        """
        return run_benchmark(benchmark, config, method, out, jobs, report, quiet)

    return bench


def run_benchmark(
    benchmark: str,
    config: SuiteConfig,
    settings: Any,
    out: Path,
    jobs: int | None = None,
    report: bool = True,
    quiet: bool = False,
) -> int:
    """Runs a suite, writes its tables and report, and prints the table. Returns 1 if a run failed."""
    benchmark = suite_benchmark(benchmark)
    require_one_process("tcm bench")
    store, finished, failed = run_suite(benchmark, config, settings, out, jobs, quiet)
    for name, reason in failed.items():
        print(f"failed: {name}: {with_options(reason)}", file=sys.stderr)
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
        print("The targets have no labels, so there are no accuracies, tables or report.", file=sys.stderr)
    if not quiet:
        print(f"The results: {out / store.name}")
    if report and labelled:
        from tcm.bench.report import write_suite_report

        page = write_suite_report(benchmark, config, store, rows, tables, failed, quiet)
        if not quiet:
            print(f"The report: {out / page.relative_to(store.parent)}")
    return 1 if failed else 0


def table(
    stores: Stores,
    benchmark: OptionalText = None,
    format: Format = "terminal",
    selection: str = "last",
    quoted: bool = True,
    out: OptionalOutput = None,
    quiet: Quiet = False,
) -> int:
    """Print results like the paper: one row per method, one column per task, mean ± standard deviation over seeds.

    Args:
        stores: Folders of suites (tcm bench), or files of results such as their results.csv.
        benchmark: Benchmark to print, such as Office-Home. Default: one table per benchmark in the files.
        format: Format of the table.
        selection: Rule that selected the models. Results of the oracle are added in grey.
        quoted: Add the numbers that the paper prints.
        out: File to write the table to. Default: print it.
        quiet: Do not print where the table was written.
    """
    if not stores:
        raise InputError("there are no results to print; name at least one folder of a suite or CSV file of results")
    if out is not None:
        require_writable(out, "out")
    tables = result_tables(in_order(read_rows(map(store_of, stores))), selection, benchmark, quoted)
    if out is not None:
        write_atomically(out, FORMATS[format](tables).encode())
        if not quiet:
            print(out)
    elif format == "terminal" and sys.stdout.isatty():
        print(terminal(tables, Console().width), end="")
    else:
        print(FORMATS[format](tables), end="")
    return 0
