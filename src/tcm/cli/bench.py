"""tcm bench and tcm table."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from tcm.bench.config import SuiteConfig, has_small_images, method_settings
from tcm.bench.finished import in_order
from tcm.bench.launchers.launcher import Launcher
from tcm.bench.launchers.ray_cluster import RayConfig, RayLauncher
from tcm.bench.launchers.slurm import SlurmConfig, SlurmLauncher
from tcm.bench.launchers.slurm_jobs import states_in_slurm
from tcm.bench.plan import plan_jobs
from tcm.bench.progress_table import states_on_disk, status_table
from tcm.bench.runner import STORE, run_suite
from tcm.bench.tasks import suite_benchmark
from tcm.cli.arguments import Log, OptionalInt, OptionalOutput, OptionalText, Output, Quiet, Rates, Stores
from tcm.cli.folders import store_of
from tcm.cli.messages import with_options
from tcm.cli.show import print_log, require_writable
from tcm.errors import InputError
from tcm.results.formats import FORMATS, Format, terminal
from tcm.results.store import read_rows
from tcm.results.table import result_tables
from tcm.training.files import write_atomically
from tcm.training.launch import require_one_process
from tcm.training.tracking import TrackerName

LauncherName = Literal["local", "ray", "slurm"]
USED = {"local": ("jobs",), "ray": ("address", "ray"), "slurm": ("slurm",)}  # which options each launcher has
SUFFIXES = {"markdown": ".md", "latex": ".tex", "csv": ".csv", "html": ".html"}


def bench_command(parsed: Mapping[str, Any] | None) -> Callable[..., int]:
    """The command that runs a suite, with defaults that fit the arguments parsed so far."""
    if parsed is None or parsed["benchmark"] is None:  # None: only its settings are printed
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
        launcher: LauncherName = "local",
        address: OptionalText = None,
        ray: RayConfig = RayConfig(),
        slurm: SlurmConfig = SlurmConfig(),
        plan: bool = False,
        rates: Rates = (),
        status: bool = False,
        report: bool = True,
        log: Log = None,
        quiet: Quiet = False,
    ) -> int:
        """Run a whole benchmark: tasks x methods x seeds. Repeat the command to continue an interrupted suite.

        Args:
            benchmark: office-home, imageclef-da, visda-2017, office-31 or digits.
            out: Folder of the suite.
            method: The settings of each method.
            jobs: Number of runs at the same time. Default: one per core on a CPU, at most 8; one on a GPU. Several GPUs
                are shared out.
            launcher: Where the runs go: processes of this machine, a Ray cluster, or Slurm.
            address: HOST:PORT of the head of the Ray cluster. Default: the cluster of this machine.
            ray: What each run needs of a Ray cluster.
            slurm: What each run asks of Slurm.
            plan: Print how many runs, hours of the device and how much disk the suite needs, and do not run it.
            rates: Suites or CSV files whose rows say how long a step takes, for --plan, besides those of the suite.
                Where no row does, 20 steps are taken on this machine.
            status: Print how far the runs of the suite are, and do not run it.
            report: Draw the figures and write the report.
            log: Also send the metrics of all runs to a tracker; csv: files in each run.
            quiet: Print only the table, no progress.
        """
        if plan:
            return print_plan(benchmark, config, method, out, rates, quiet)
        if status:
            return print_status(benchmark, config, method, out)
        chosen = launcher_named(launcher, config, jobs, address, ray, slurm)
        return run_benchmark(benchmark, config, method, out, jobs, report, quiet, chosen, log)

    return bench


def run_benchmark(
    benchmark: str,
    config: SuiteConfig,
    settings: Any,
    out: Path,
    jobs: int | None = None,
    report: bool = True,
    quiet: bool = False,
    launcher: Launcher | None = None,
    log: TrackerName | None = None,
) -> int:
    """Runs a suite, writes its tables and report, and prints the table. Returns 1 if a run failed."""
    benchmark = suite_benchmark(benchmark)
    require_one_process("tcm bench")
    store, finished, failed = run_suite(benchmark, config, settings, out, jobs, quiet, launcher, log)
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
        print_log(log, out)
    if report and labelled:
        from tcm.bench.report import write_suite_report

        page = write_suite_report(benchmark, config, store, rows, tables, failed, quiet)
        if not quiet:
            print(f"The report: {out / page.relative_to(store.parent)}")
    return 1 if failed else 0


def launcher_named(
    name: LauncherName, config: SuiteConfig, jobs: int | None, address: str | None, ray: RayConfig, slurm: SlurmConfig
) -> Launcher | None:
    """The launcher of that name; None for the processes of this machine. Settings of another one are errors."""
    given = {
        "jobs": (jobs, None),
        "address": (address, None),
        "ray": (ray, RayConfig()),
        "slurm": (slurm, SlurmConfig()),
    }
    for field, (value, default) in given.items():
        if value != default and field not in USED[name]:
            raise InputError(field, f"is not used with `launcher={name}`; leave it out")
    on_gpu = config.device != "cpu"
    if name == "ray":
        return RayLauncher(ray, "auto" if address is None else address, on_gpu, config.devices)
    return SlurmLauncher(slurm, on_gpu, config.devices) if name == "slurm" else None


def print_plan(
    benchmark: str, config: SuiteConfig, settings: Any, out: Path, stores: Sequence[Path], quiet: bool
) -> int:
    """Prints what a suite costs before anything starts. Nothing is written to its folder."""
    from tcm.bench.forecast import described, forecast, forecast_table
    from tcm.bench.rates import kind_of, probed_rates, rates_of_rows

    out, benchmark = Path(os.path.abspath(out.expanduser())), suite_benchmark(benchmark)
    if config.devices > 1:
        raise InputError("devices", f"is {config.devices}, but --plan counts hours of one device; leave it out")
    jobs = plan_jobs(benchmark, config, settings, out)
    own = [out / STORE] if (out / STORE).exists() else []
    known = rates_of_rows(jobs, read_rows([*map(store_of, stores), *own]))
    unknown = [kind for kind in dict.fromkeys(map(kind_of, jobs)) if kind not in known]
    found = forecast(benchmark, jobs, out, {**known, **probed_rates(jobs, unknown, quiet)})
    Console(width=None if sys.stdout.isatty() else 200).print(forecast_table(found))
    print(*described(found, out), sep="\n")
    return 0


def print_status(benchmark: str, config: SuiteConfig, settings: Any, out: Path) -> int:
    """Prints one row per job of a suite, from its files and from Slurm if it has its jobs."""
    out = Path(os.path.abspath(out.expanduser()))
    jobs = plan_jobs(suite_benchmark(benchmark), config, settings, out)
    states = {**states_on_disk(jobs, out), **states_in_slurm(out)}
    Console(width=None if sys.stdout.isatty() else 200).print(status_table(jobs, out, states))
    return 0


def table(
    stores: Stores,
    benchmark: OptionalText = None,
    format: Format = "terminal",
    selection: str = "last",
    quoted: bool = True,
    out: OptionalOutput = None,
    quiet: Quiet = False,
) -> int:
    """Print results as in the paper: one row per method, one column per task, mean ± standard deviation over seeds.

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
