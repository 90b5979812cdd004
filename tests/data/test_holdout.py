"""Source images that training never sees: which they are, and that no batch has them."""

from dataclasses import replace

import pytest
import torch

from tcm.data.augment import View
from tcm.data.holdout import held_out_images, require_share
from tcm.data.store import ImageStore
from tcm.data.stream import Stream
from tcm.data.task import Task
from tcm.errors import InputError

CPU, VIEW = torch.device("cpu"), View(32, False, 0)


def with_classes(store: ImageStore, *sizes: int) -> ImageStore:
    """The first images of the store, so many of each class."""
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    names = tuple("abcdef"[: len(sizes)])
    count = len(labels)
    return replace(store, images=store.images[:count], labels=labels, paths=store.paths[:count], classes=names)


def test_of_each_class_the_same_share_is_held_out(digits: Task):
    store = with_classes(digits.source, 10, 25, 3, 0)
    held_out = held_out_images(store, 0.2, seed=0)
    assert held_out.dtype == torch.bool
    assert [int(held_out[store.labels == label].sum()) for label in range(4)] == [2, 5, 1, 0]


def test_the_choice_depends_on_the_seed(digits: Task):
    one, same, other = (held_out_images(digits.source, 0.2, seed) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert int(one.sum()) == int(other.sum())


def test_a_share_of_0_holds_nothing_out(digits: Task):
    assert not held_out_images(digits.source, 0.0, seed=0).any()


@pytest.mark.parametrize("share", [-0.1, 0.91, float("nan")])
def test_a_share_out_of_range_is_refused(share: float):
    with pytest.raises(InputError, match=r"give a share from 0 to 0.9") as error:
        require_share(share)
    assert error.value.field == "held_out"


def test_every_class_keeps_an_image_to_train_on(digits: Task):
    with pytest.raises(InputError, match=r"0.6 leaves no image of b to train on: digits source has 1") as error:
        held_out_images(with_classes(digits.source, 10, 1), 0.6, seed=0)
    assert error.value.field == "held_out"


def test_classes_too_small_to_hold_anything_out_are_refused(digits: Task):
    with pytest.raises(InputError, match=r"0.1 holds out no image of digits source") as error:
        held_out_images(with_classes(digits.source, 4, 3), 0.1, seed=0)
    assert error.value.field == "held_out"


@pytest.mark.parametrize("resident", [True, False])
def test_no_batch_has_an_image_that_is_held_out_and_every_other_comes_once_per_epoch(digits: Task, resident: bool):
    task = Task(with_classes(digits.source, 32, 48), digits.target)
    held_out = held_out_images(task.source, 0.25, seed=3)
    stream = Stream(*task, batch=10, seed=3, view=VIEW, device=CPU, held_out=held_out, resident=resident)
    batches = [stream.batch(step) for step in range(6)]
    drawn = torch.cat([stream.plan(step)[0].indices for step in range(6)])
    assert sorted(drawn.tolist()) == (~held_out).nonzero().flatten().tolist()  # 60 of 80 images
    for step, batch in enumerate(batches):
        own = drawn[10 * step : 10 * (step + 1)]
        assert torch.equal((batch.source * 255).round().byte().permute(0, 2, 3, 1), task.source.images[own])
        assert torch.equal(batch.labels, task.source.labels[own])


def test_the_target_batches_stay_the_same(digits: Task):
    held_out = held_out_images(digits.source, 0.5, seed=3)
    plain, less = (
        Stream(*digits, batch=16, seed=3, view=VIEW, device=CPU, held_out=some).batch(70) for some in (None, held_out)
    )
    assert torch.equal(plain.target, less.target)
    assert not torch.equal(plain.source, less.source)


def test_nothing_held_out_gives_the_same_batches(digits: Task):
    nothing = torch.zeros(len(digits.source), dtype=torch.bool)
    plain, same = (
        Stream(*digits, batch=16, seed=3, view=VIEW, device=CPU, held_out=some).batch(70) for some in (None, nothing)
    )
    assert torch.equal(plain.source, same.source)
    assert torch.equal(plain.labels, same.labels)


def test_a_batch_above_what_is_left_is_refused(digits: Task):
    task = Task(with_classes(digits.source, 10, 10), digits.target)
    held_out = held_out_images(task.source, 0.5, seed=0)
    with pytest.raises(InputError, match=r"is 11, but digits source has 10 images left by `held_out`; lower") as error:
        Stream(*task, batch=11, seed=0, view=VIEW, device=CPU, held_out=held_out)
    assert error.value.field == "batch"
