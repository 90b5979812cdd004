"""What a line of progress says, and what it leaves out."""

import pytest

from tcm import progress
from tcm.progress import ProgressDisplay, pace, span


def test_a_line_tells_no_time_left_before_anything_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "LINE_EVERY", -1.0)
    with ProgressDisplay("suite", 13, unit="run", done=2) as show:
        show.update(2, "erm-s0")
        assert capsys.readouterr().err == "suite: 2/13 runs, erm-s0\n"
        show.started -= 30
        show.update(3)
        assert capsys.readouterr().err == "suite: 3/13 runs, 2.0/min, 5 min left, erm-s0\n"


def test_nothing_is_said_at_the_end_of_work_that_did_not_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(progress, "LINE_EVERY", -1.0)
    with pytest.raises(KeyboardInterrupt), ProgressDisplay("suite", 13, unit="run"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("rate", "words"), [(2.5, "2.5 run/s"), (0.05, "3.0 run/min"), (0.001, "3.6 run/h")])
def test_a_slow_pace_is_told_by_the_minute_or_hour(rate: float, words: str):
    assert pace(rate, "run") == words


@pytest.mark.parametrize(("seconds", "words"), [(0, "0 s"), (99, "99 s"), (2700, "45 min"), (12600, "3.5 h")])
def test_a_long_time_is_told_in_minutes_or_hours(seconds: float, words: str):
    assert span(seconds) == words
