"""All jobs of a suite in one table: on the terminal while it runs, and for a suite that was left."""

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tcm.bench.jobs import is_finished, job_progress, log_file
from tcm.bench.launchers.launcher import JobState
from tcm.bench.launchers.worker import STARTED, last_line, machine_of
from tcm.bench.plan import Job
from tcm.errors import printable
from tcm.progress import ProgressDisplay, format_duration

REFRESH = 1.0  # seconds between looks at the files of running jobs
STYLES = {"done": "green", "running": "bold", "failed": "red", "started": "yellow", "waiting": "dim"}
FIRST = ("failed", "running", "started", "waiting", "done")  # the order when not all jobs fit on the screen
MARGIN = 8  # lines of the screen that the table leaves free


def status_table(jobs: Sequence[Job], out: Path, states: Mapping[str, JobState], height: int | None = None) -> Table:
    """One row per job: its state, step, last sign of life, and machine or reason. With a `height`, only so many rows:
    those that matter most."""
    found = {job.name: states.get(job.name, JobState("waiting")) for job in jobs}
    counts = Counter(str(state.status) for state in found.values())
    parts = [f"{counts[name]} {name}" for name in ("running", "failed", "waiting") if counts[name]]
    caption = ", ".join([f"{counts['done']} of {len(jobs)} done", *parts])
    table = Table(box=SIMPLE_HEAD, caption=caption, caption_justify="left", pad_edge=False)
    for title in ("run", "state", "step", "last row", "where"):
        table.add_column(title, overflow="fold" if title == "where" else "ellipsis", no_wrap=title != "where")
    shown = sorted(jobs, key=lambda job: FIRST.index(found[job.name].status))[:height] if height else jobs
    names = {job.name for job in shown}
    for job in jobs:
        if job.name in names:
            state = found[job.name]
            table.add_row(job.name, Text(state.status, STYLES[state.status]), *progress_cells(job, out, state))
    return table


def progress_cells(job: Job, out: Path, state: JobState) -> tuple[str, str, Text]:
    """Step, time since the last row, and machine or reason."""
    if state.status in ("waiting", "done"):
        return "", "", Text("")
    progress = job_progress(job, out)
    age = f"{format_duration(max(time.time() - progress.written, 0))} ago" if progress.written else ""
    return f"{progress.step}/{progress.steps}", age, Text(printable(state.reason or state.where))


def states_on_disk(jobs: Sequence[Job], out: Path) -> dict[str, JobState]:
    """What the files of a suite say about its jobs. Whether a process still works on one, they do not say."""
    found = {}
    for job in jobs:
        log = log_file(job, out)
        last = last_line(log)
        if is_finished(job, out):
            found[job.name] = JobState("done")
        elif last.startswith("error: "):
            found[job.name] = JobState("failed", reason=last.removeprefix("error: "))
        elif last:
            where = machine_of(log)
            found[job.name] = JobState("running", where if last.startswith(STARTED) else f"{where}: {last}")
        else:
            found[job.name] = JobState("waiting")
    return found


class SuiteDisplay:
    """The table of a running suite on a terminal; elsewhere a line from time to time, and nothing when quiet."""

    def __init__(self, jobs: Sequence[Job], out: Path, quiet: bool):
        console = Console(stderr=True)
        self.jobs, self.out, self.drawn = jobs, out, 0.0
        self.live = Live(console=console, auto_refresh=False) if console.is_terminal and not quiet else None
        done = sum(is_finished(job, out) for job in jobs)
        self.lines = ProgressDisplay("suite", len(jobs), unit="run", done=done, quiet=quiet or self.live is not None)

    def update(self, states: Mapping[str, JobState], done: Collection[str]) -> None:
        """Shows these states; jobs in `done` may have been finished before."""
        whole = {**dict.fromkeys(done, JobState("done")), **states}
        ended = sum(state.status in ("done", "failed") for state in whole.values())
        running = ", ".join(name for name, state in whole.items() if state.status == "running")
        self.lines.update(ended, running)
        if self.live and (time.monotonic() - self.drawn > REFRESH or ended == len(self.jobs)):
            self.drawn = time.monotonic()
            height = max(self.live.console.height - MARGIN, 1)
            self.live.update(status_table(self.jobs, self.out, whole, height), refresh=True)

    def __enter__(self) -> "SuiteDisplay":
        self.lines.__enter__()
        if self.live:
            self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.live:
            self.live.stop()
        self.lines.__exit__(kind, value, trace)
