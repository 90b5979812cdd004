import pytest

from tcm.data.reading import read_all


@pytest.mark.parametrize("at_once", [1, 3, 16, 1000])
def test_results_come_in_the_order_of_the_items(at_once: int):
    assert list(read_all(str, range(500), "read", at_once=at_once, quiet=True)) == [str(n) for n in range(500)]
    assert list(read_all(str, [], "read", at_once=at_once, quiet=True)) == []


def test_only_a_few_items_are_read_ahead():
    read: list[int] = []
    results = read_all(read.append, range(10**9), "read", at_once=2, quiet=True)
    for _ in range(3):
        next(results)
    results.close()
    assert len(read) < 10_000


def test_an_error_ends_the_reading():
    results = read_all(lambda number: 1 // (number - 20), range(100), "read", quiet=True)
    with pytest.raises(ZeroDivisionError):
        list(results)


def test_progress_counts_what_was_done_before(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tcm.progress.LINE_EVERY", 0.0)
    list(read_all(str, range(4), "read", done=6, at_once=1))
    assert "read: 7/10 images" in capsys.readouterr().err
