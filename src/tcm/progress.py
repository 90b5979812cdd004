"""Progress of long work: a bar on a terminal, a plain line from time to time elsewhere, nothing when quiet."""

import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

LINE_EVERY = 10.0  # seconds between plain lines
WIDE = 120  # columns of a terminal with room for everything
RECENT = 60.0  # seconds over which the rate is measured


class StageProgress:
    """The stages of a longer work, such as a fit. Displays that open inside a stage say its number, and add the time
    that is left of all stages."""

    def __init__(self, seconds: Mapping[str, float]):
        """`seconds` are estimates of how long each stage takes, by name and in their order."""
        self.seconds, self.current = dict(seconds), ""

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Inside the block, this stage is the current one."""
        self.current = name
        token = _STAGES.set(self)
        try:
            yield
        finally:
            _STAGES.reset(token)

    @property
    def place(self) -> str:
        """The number of the current stage: [2/5]."""
        return f"[{[*self.seconds].index(self.current) + 1}/{len(self.seconds)}]"

    @property
    def later(self) -> float:
        """The estimated seconds of all stages after the current one."""
        return sum([*self.seconds.values()][[*self.seconds].index(self.current) + 1 :])


# Which stages and which display the work of this thread belongs to.
_STAGES: ContextVar[StageProgress | None] = ContextVar("stages", default=None)
_OUTER: ContextVar["ProgressDisplay | None"] = ContextVar("outer", default=None)


class ProgressDisplay:
    """Shows `done` of `total` with rate, time left and a short text. Use it as a context manager.

    A display that opens while another is open is a further line below it, and quiet if the other is.
    """

    def __init__(self, title: str, total: int, *, unit: str, done: int = 0, quiet: bool = False):
        outer, self.stages = _OUTER.get(), _STAGES.get()
        self.title = f"{self.stages.place} {title}" if self.stages else title
        self.total, self.unit, self.quiet = total, unit, quiet or (outer is not None and outer.quiet)
        self.done, self.text = done, ""
        self.said = -1  # what was done at the last plain line
        self.started = self.last_line = time.monotonic()
        self.seen: deque[tuple[float, int]] = deque()  # when so many units were done, over the last RECENT seconds
        self._bar: Progress | None = outer._bar if outer else None
        self._inner = outer is not None
        if outer is None and not quiet:
            self._open_bar()
        if self._bar is not None:
            self._task = self._bar.add_task(self.title, total=total, completed=done, rate="", text="")

    def _open_bar(self) -> None:
        console = Console(stderr=True)
        if console.is_terminal:
            # A narrow terminal cuts the short text first, then the end of a long title, and never the numbers.
            narrow = console.width < WIDE
            titles = Column(no_wrap=True, overflow="ellipsis", max_width=28 if narrow else None)
            texts = Column(no_wrap=True, ratio=1)
            self._bar = Progress(
                TextColumn("{task.description}", markup=False, table_column=titles),
                BarColumn(bar_width=10 if narrow else 24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[rate]}"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}", style="dim", markup=False, table_column=texts),
                console=console,
                expand=True,
            )

    @property
    def rate(self) -> float:
        """Units per second in the last minute; 0 if it is unknown.

        The time before the first update does not count: networks may be compiled in it.
        """
        if not self.seen:
            return 0.0
        since, done = self.seen[0]
        return (self.done - done) / max(time.monotonic() - since, 1e-9)

    def update(self, done: int, text: str | None = None) -> None:
        """Shows that `done` units are done; `text` replaces the short text beside the bar."""
        self.done, self.text = done, self.text if text is None else text
        self._note(time.monotonic())
        if self._bar is not None:
            rate = format_rate(self.rate, self.unit) if self.rate else ""
            text = "  ".join(filter(None, [self.left_of_all, self.text]))
            self._bar.update(self._task, completed=done, rate=rate, text=text)
        elif not self.quiet and time.monotonic() - self.last_line >= LINE_EVERY:
            self._line()

    def _note(self, now: float) -> None:
        """Remembers what is done by now, at most once a second, and forgets what is not recent."""
        if not self.seen or now - self.seen[-1][0] >= 1:
            self.seen.append((now, self.done))
        while len(self.seen) > 1 and now - self.seen[1][0] >= RECENT:
            self.seen.popleft()

    @property
    def left(self) -> float | None:
        """Seconds until `total`; None if the rate is unknown."""
        return (self.total - self.done) / self.rate if self.rate else None

    @property
    def left_of_all(self) -> str:
        """The time left of all stages, in words; empty if it is unknown, or this is the only or the last stage."""
        if self.stages is None or self.left is None or not self.stages.later:
            return ""
        return f"{format_duration(self.left + self.stages.later)} left in all"

    def _line(self) -> None:
        self.last_line, self.said = time.monotonic(), self.done
        parts = [f"{self.title}: {self.done}/{self.total} {self.unit}s"]
        if self.left is not None:
            parts += [format_rate(self.rate), f"{format_duration(self.left)} left"]
        parts += filter(None, [self.left_of_all])
        print(", ".join([*parts, self.text] if self.text else parts), file=sys.stderr, flush=True)

    def __enter__(self) -> "ProgressDisplay":
        self._token = _OUTER.set(self)
        if self._bar is not None and not self._inner:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        _OUTER.reset(self._token)
        if self._bar is not None and self._inner:
            self._bar.remove_task(self._task)
        elif self._bar is not None:
            self._bar.stop()
        elif not self.quiet and kind is None and self.said < self.done and time.monotonic() - self.started > LINE_EVERY:
            self._line()


def format_rate(rate: float, unit: str = "") -> str:
    """A rate in units per second, as text per second, minute or hour: 2.5 step/s, 3.0 run/min."""
    seconds, name = next(((s, name) for s, name in ((1, "s"), (60, "min")) if rate * s >= 1), (3600, "h"))
    return f"{rate * seconds:.1f} {unit}/{name}".replace(" /", "/")


def format_duration(seconds: float) -> str:
    """A duration in a suitable unit: 99 s, 45 min, 3.5 h."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def format_size(count: float) -> str:
    """A number of bytes in a suitable unit: 18.9 kB, 0.6 MB, 1.2 GB."""
    if count < 1e5:
        return f"{max(count / 1e3, 0.1):.1f} kB"
    return f"{count / 1e6:.1f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"
