"""Progress of long work: a bar on a terminal, a plain line from time to time elsewhere, nothing when quiet."""

import sys
import time
from types import TracebackType
from typing import ClassVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

LINE_EVERY = 10.0  # seconds between plain lines
WIDE = 120  # columns of a terminal with room for everything


class ProgressDisplay:
    """Shows `done` of `total` with rate, time left and a short text. Use it as a context manager.

    A display that opens while another one is open has no bar of its own: it replaces the short text of that one.
    """

    _open: ClassVar[list["ProgressDisplay"]] = []  # the innermost last

    def __init__(self, title: str, total: int, *, unit: str, done: int = 0, quiet: bool = False):
        self.title, self.total, self.unit = title, total, unit
        self._outer = self._open[-1] if self._open else None
        self.quiet = quiet or (self._outer is not None and self._outer.quiet)
        self.first, self.done, self.text = done, done, ""
        self.started = self.last_line = time.monotonic()
        console = Console(stderr=True)
        self._bar: Progress | None = None
        if console.is_terminal and not self.quiet and self._outer is None:
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
            self._task = self._bar.add_task(title, total=total, completed=done, rate="", text="")

    @classmethod
    def of_part(cls, title: str, total: int, *, unit: str) -> "ProgressDisplay":
        """A display of a part of the work that an open display shows; silent if none is open."""
        return cls(title, total, unit=unit, quiet=not cls._open)

    @property
    def rate(self) -> float:
        """Units per second since the display opened."""
        return (self.done - self.first) / max(time.monotonic() - self.started, 1e-9)

    def update(self, done: int, text: str | None = None) -> None:
        """Shows that `done` units are done; `text` replaces the short text beside the bar."""
        self.done, self.text = done, self.text if text is None else text
        if self._bar is not None:
            rate = format_rate(self.rate, self.unit) if self.rate else ""
            self._bar.update(self._task, completed=done, rate=rate, text=self.text)
        elif self._outer is not None and self.has_bar:
            self._outer.update(self._outer.done, self._summary())
        elif not self.quiet and time.monotonic() - self.last_line >= LINE_EVERY:
            self._line()

    @property
    def has_bar(self) -> bool:
        """Whether it is shown on a terminal, by itself or in the display around it."""
        return self._bar is not None or (self._outer is not None and not self.quiet and self._outer.has_bar)

    def _line(self) -> None:
        self.last_line = time.monotonic()
        print(self._summary(), file=sys.stderr, flush=True)

    def _summary(self) -> str:
        parts = [f"{self.title}: {self.done}/{self.total} {self.unit}s"]
        if self.rate:  # otherwise the time left is unknown
            parts += [format_rate(self.rate), f"{format_duration((self.total - self.done) / self.rate)} left"]
        return ", ".join([*parts, self.text] if self.text else parts)

    def __enter__(self) -> "ProgressDisplay":
        self._open.append(self)
        self._text_around = self._outer.text if self._outer else ""
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.remove(self)
        if self._bar is not None:
            self._bar.stop()
        elif self._outer is not None and self.has_bar:
            self._outer.update(self._outer.done, self._text_around)
        elif not self.quiet and kind is None and time.monotonic() - self.started > LINE_EVERY:
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
