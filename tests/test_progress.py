"""What a line of progress says, and what it leaves out."""

import io

import pytest
from rich.console import Console

from tcm import progress
from tcm.progress import ProgressDisplay, format_duration, format_rate, format_size


class Clock:
    """A clock that a test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.now = 1000.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Lines come with every update."""
    monkeypatch.setattr(progress, "LINE_EVERY", -1.0)
    return Clock(monkeypatch)


def test_a_line_has_no_time_left_before_the_rate_is_known(capsys: pytest.CaptureFixture[str], clock: Clock):
    with ProgressDisplay("suite", 13, unit="run", done=2) as show:
        show.update(2, "erm-s0")
        assert capsys.readouterr().err == "suite: 2/13 runs, erm-s0\n"
        clock.now += 30
        show.update(3)
        assert capsys.readouterr().err == "suite: 3/13 runs, 2.0/min, 5 min left, erm-s0\n"


def test_a_slow_first_step_does_not_count(capsys: pytest.CaptureFixture[str], clock: Clock):
    with ProgressDisplay("erm", 4100, unit="step") as show:
        clock.now += 55  # networks are compiled
        show.update(1)
        assert capsys.readouterr().err == "erm: 1/4100 steps\n"
        clock.now += 10
        show.update(401)
        assert capsys.readouterr().err == "erm: 401/4100 steps, 40.0/s, 92 s left\n"


def test_the_end_is_said_once(capsys: pytest.CaptureFixture[str], clock: Clock):
    with ProgressDisplay("erm", 2, unit="step") as show:
        show.update(1)
        show.update(2)
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == ["1/2", "2/2"]


def test_the_rate_is_that_of_the_last_minute(clock: Clock):
    with ProgressDisplay("erm", 10_000, unit="step") as show:
        done = 0
        for steps_a_second, seconds in ((10, 100), (50, 60)):
            for _ in range(seconds):
                show.update(done)
                done += steps_a_second
                clock.now += 1
        show.update(done)
        assert show.rate == pytest.approx(50)
        assert len(show.seen) < 70
        clock.now += 1000  # a pause
        show.update(done + 50)
        assert show.rate < 1


def test_work_that_fails_ends_without_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(progress, "LINE_EVERY", -1.0)
    with pytest.raises(KeyboardInterrupt), ProgressDisplay("suite", 13, unit="run"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("rate", "words"), [(2.5, "2.5 run/s"), (0.05, "3.0 run/min"), (0.001, "3.6 run/h")])
def test_a_slow_rate_is_per_minute_or_hour(rate: float, words: str):
    assert format_rate(rate, "run") == words


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (99, "99 s"), (2700, "45 min"), (12600, "3.5 h")])
def test_a_long_time_is_in_minutes_or_hours(seconds: float, words: str):
    assert format_duration(seconds) == words


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0.1 kB"), (18_902, "18.9 kB"), (600_000, "0.6 MB"), (94_300_000, "94.3 MB"), (3e9, "3.0 GB")],
)
def test_a_size_is_in_the_unit_that_suits_it(count: float, words: str):
    assert format_size(count) == words


@pytest.mark.parametrize("title", ["tcm photos → cliparts", "mechanisms digits source ↔ digits target"])
def test_a_narrow_terminal_shows_the_numbers_and_cuts_the_text(
    title: str, monkeypatch: pytest.MonkeyPatch, clock: Clock
):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda stderr: terminal)
    with ProgressDisplay(title, 50000, unit="step") as show:
        show.update(0)
        clock.now += 1000
        show.update(37500, "classification 1.487  agreement 1.606  alignment 0.759  lr 0.0031")
    last = screen.getvalue().splitlines()[-2]
    assert title[:20] in last
    assert "37500/50000 37.5 step/s" in last
    assert "━" in last
