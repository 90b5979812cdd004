"""Rows that are gathered ahead of time, on the CPU, on a stand-in for a GPU and, where there is one, on a GPU."""

import gc
import random
import threading
import time
from collections.abc import Callable

import pytest
import torch
from support.late_gpu import LateGPU
from torch import Tensor

from tcm.data import feeding
from tcm.data.feeding import Feeder

CPU, GPU = torch.device("cpu"), torch.device("cuda")
MOST = 12
STEPS = (0, 1, 2, 3, 9, 4, 5, 5, 6, 100, 7, *range(8, 40))  # in order, then jumping as a resumed run does


def parts() -> list[Tensor]:
    """Rows of two sizes, of which each is known by its values."""
    torch.manual_seed(0)
    return [torch.randint(256, (50, 4, 3), dtype=torch.uint8), torch.randint(256, (70, 500), dtype=torch.uint8)]


def chosen(step: int) -> list[Tensor]:
    """Some rows for each step: of the first part always MOST, of the second between none and MOST."""
    generator = torch.Generator().manual_seed(step)
    rows = torch.randint(50, (2, MOST), generator=generator)
    return [rows[0], rows[1, : int(torch.randint(MOST + 1, (), generator=generator))]]


def expected(step: int) -> list[Tensor]:
    return [part[rows] for part, rows in zip(parts(), chosen(step), strict=True)]


def differ(found: list[Tensor], step: int) -> bool:
    return any(not torch.equal(a[: len(b)].cpu(), b) for a, b in zip(found, expected(step), strict=True))


def waited_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 10
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def test_a_step_has_the_rows_that_were_chosen_for_it():
    feeder = Feeder(parts(), MOST, CPU)
    for step in STEPS:
        with feeder.rows(step, chosen) as found:
            assert not differ(found, step)


@pytest.mark.parametrize(("training", "copying"), [(0.003, 0.0), (0.0, 0.003), (0.002, 0.002)])
def test_no_buffer_is_overwritten_while_it_is_read(monkeypatch: pytest.MonkeyPatch, training: float, copying: float):
    """The host is ahead of the training stream, or this waits for copies."""
    gpu = LateGPU(training, copying).replace(monkeypatch)
    read: list[tuple[int, list[Tensor]]] = []
    with gpu:
        feeder = Feeder(parts(), MOST, GPU)

        def use(step: int, found: list[Tensor]) -> None:
            read.append((step, [rows.clone() for rows in found]))

        for step in STEPS:
            with feeder.rows(step, chosen) as found:
                gpu.training.work.put(lambda step=step, found=found: use(step, found))
    gpu.training.synchronize()
    assert [step for step, _ in read] == list(STEPS)
    assert [step for step, found in read if differ(found, step)] == []


def test_rows_that_are_no_longer_wanted_are_out_of_the_way():
    """Each step wants others than those that are being gathered, which takes a while."""
    large = torch.arange(50, dtype=torch.uint8)[:, None].repeat(1, 1_000_000)
    feeder, draw = Feeder([large], MOST, CPU), random.Random(0)
    for step in draw.sample(range(1000), 20):
        rows = chosen(step)[0]
        with feeder.rows(step, lambda step: chosen(step)[:1]) as (found,):
            assert torch.equal(found[:, ::1000], rows[:, None].byte().expand(-1, 1000))


def test_an_error_of_a_thread_is_raised_where_its_rows_are_needed():
    def wrong(step: int) -> list[Tensor]:
        return [torch.tensor([50]) if step == 5 else rows for rows in chosen(step)]

    feeder = Feeder(parts(), MOST, CPU)
    for step in range(5):
        with feeder.rows(step, wrong) as found:
            assert not differ(found, step)
    with pytest.raises(AssertionError, match="there is no such row"), feeder.rows(5, wrong):
        pass


def test_the_slots_have_a_bounded_size_and_the_steps_ahead_a_bounded_number(monkeypatch: pytest.MonkeyPatch):
    size = MOST * (12 + 500)
    for memory, count in ((0, feeding.FEWEST), (6 * size, 6), (100 * size, feeding.MOST)):
        monkeypatch.setattr(feeding, "MEMORY", memory)
        feeder, asked = Feeder(parts(), MOST, CPU), []

        def record(step: int, asked: list[int] = asked) -> list[Tensor]:
            asked.append(step)
            return chosen(step)

        for step in range(10):
            with feeder.rows(step, record):
                assert max(asked) == step + count - 2
        assert sum(buffer.nbytes for slot in feeder.slots for buffer in slot.buffers) == count * size
        assert len(asked) == len(set(asked))  # nothing is gathered twice


def test_the_threads_end_with_the_feeder():
    before, feeder = set(threading.enumerate()), Feeder(parts(), MOST, CPU)
    with feeder.rows(0, chosen):
        started = set(threading.enumerate()) - before
    assert 0 < len(started) <= feeding.THREADS
    del feeder
    gc.collect()
    assert waited_for(lambda: not any(thread.is_alive() for thread in started))


@pytest.mark.gpu
@pytest.mark.parametrize("busy", [False, True])
def test_a_gpu_reads_the_rows_that_were_chosen(busy: bool):
    """Large rows, and a training stream that is behind the host where it is `busy`."""
    torch.manual_seed(0)
    images = torch.randint(256, (300, 128, 128, 3), dtype=torch.uint8)
    feeder, draw, wrong = Feeder([images], 64, GPU), random.Random(0), []
    steps = [*range(30), *(draw.randrange(100) for _ in range(20)), *range(200, 230)]

    def rows(step: int) -> list[Tensor]:
        return [torch.randint(300, (64,), generator=torch.Generator().manual_seed(step))]

    resident, places = images.to(GPU), {step: rows(step)[0].to(GPU) for step in steps}
    for step in steps:
        with feeder.rows(step, rows) as (found,):
            if busy:
                torch.cuda._sleep(5_000_000)  # some milliseconds
            wrong.append((found != resident[places[step]]).any())
    assert not torch.stack(wrong).any()
