"""What a line of progress says, and what it leaves out."""

import io
import time

import pytest
from rich.console import Console

from tcm import progress
from tcm.progress import ProgressDisplay, format_duration, format_rate


def test_a_line_has_no_time_left_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "LINE_EVERY", -1.0)
    with ProgressDisplay("suite", 13, unit="run", done=2) as show:
        show.update(2, "erm-s0")
        assert capsys.readouterr().err == "suite: 2/13 runs, erm-s0\n"
        show.started -= 30
        show.update(3)
        assert capsys.readouterr().err == "suite: 3/13 runs, 2.0/min, 5 min left, erm-s0\n"


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


@pytest.mark.parametrize("title", ["tcm photos → cliparts", "mechanisms digits source ↔ digits target"])
def test_a_narrow_terminal_shows_the_numbers_and_cuts_the_text(title: str, monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda stderr: terminal)
    with ProgressDisplay(title, 50000, unit="step") as show:
        show.started = time.monotonic() - 1000
        show.update(37500, "classification 1.487  agreement 1.606  alignment 0.759  lr 0.0031")
    last = screen.getvalue().splitlines()[-2]
    assert title[:20] in last
    assert "37500/50000 37.5 step/s" in last
    assert "━" in last


def test_a_part_is_the_short_text_of_the_display_around_it(monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=160, color_system=None)
    monkeypatch.setattr(progress, "Console", lambda stderr: terminal)
    with ProgressDisplay("train", 10, unit="step") as outer:
        outer.update(3, "loss 0.5")
        with ProgressDisplay.of_part("computing features", 40, unit="image") as part:
            part.started -= 10
            part.update(20)
            assert outer.done == 3
            assert outer.text == "computing features: 20/40 images, 2.0/s, 10 s left"
        assert outer.text == "loss 0.5"


def test_a_part_prints_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    with ProgressDisplay("train", 10, unit="step"), ProgressDisplay.of_part("features", 40, unit="image") as part:
        part.last_line -= 60
        part.started -= 10
        part.update(20)
        assert capsys.readouterr().err == "features: 20/40 images, 2.0/s, 10 s left\n"


def test_a_part_of_quiet_work_or_of_no_shown_work_is_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "LINE_EVERY", -1.0)
    with ProgressDisplay.of_part("features", 40, unit="image") as alone:
        alone.update(20)
    quiet = ProgressDisplay("train", 10, unit="step", quiet=True)
    with quiet, ProgressDisplay.of_part("features", 40, unit="image") as part:
        part.update(20)
    assert capsys.readouterr().err == ""
