"""tcm bench and tcm table."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from tcm.bench.config import SuiteConfig, has_small_images, method_settings
from tcm.bench.finished import in_order
from tcm.bench.plan import suite_benchmark
from tcm.bench.runner import run_suite
from tcm.cli.app import with_options
from tcm.cli.show import require_writable
from tcm.errors import InputError
from tcm.results.formats import FORMATS, Format, terminal
from tcm.results.store import read_rows
from tcm.results.table import result_tables
from tcm.training.files import write_atomically

SUFFIXES = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "html": ".html"}


def bench_command(parsed: tuple[str, SuiteConfig] | None) -> Callable[..., int]:
    """The command that runs a suite; `parsed` is what the options say so far, on which their defaults depend."""
    small = parsed is not None and has_small_images(suite_benchmark(parsed[0]), parsed[1])
    start = method_settings(small)

    def bench(
        benchmark: Annotated[str, tyro.conf.Positional],
        out: Path,
        config: Annotated[SuiteConfig, tyro.conf.arg(name="")] = SuiteConfig(),
        method: Annotated[Any, tyro.conf.arg(constructor=type(start))] = start,
        jobs: int | None = None,
        report: bool = True,
        quiet: bool = False,
    ) -> int:
        """Run a whole benchmark: tasks x methods x seeds. An interrupted suite continues when it is repeated.

        Args:
            benchmark: office-home, imageclef-da, visda-2017, office-31 or digits.
            out: Folder of the suite. Repeating the command continues it.
            method: The settings of each method.
            jobs: Runs at once. Default: on a CPU one per core, on a GPU one.
            report: Draw the figures and write the report.
            quiet: No progress, only the table.
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
    """Runs a suite, writes its tables, figures and report into its folder and prints the table; 1 if a run failed."""
    benchmark = suite_benchmark(benchmark)
    store, finished, failed = run_suite(benchmark, config, settings, out, jobs, quiet)
    for name, said in failed.items():
        print(f"failed: {name}: {with_options(said)}", file=sys.stderr)
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


def table(
    stores: tuple[Path, ...],
    benchmark: str | None = None,
    format: Format = "terminal",
    selection: str = "last",
    quoted: bool = True,
    out: Path | None = None,
    quiet: bool = False,
) -> int:
    """Print results as the paper does: one row per method, one column per task, mean ± deviation over seeds.

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
        require_writable(out, "out")
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
