import pytest
import torch

from tcm.data.augment import View
from tcm.data.stream import Stream, derived_seed, indices_at
from tcm.data.task import Task
from tcm.errors import InputError

CPU = torch.device("cpu")


def stream(digits: Task, resident: bool | None = None, seed: int = 0, batch: int = 16) -> Stream:
    return Stream(*digits, batch=batch, seed=seed, view=View(28, True, 1), device=CPU, resident=resident)


def test_a_batch_is_a_function_of_seed_and_step(digits: Task):
    one, two, other = stream(digits), stream(digits), stream(digits, seed=1)
    two.batch(3)
    for a, b in zip(one.batch(7), two.batch(7), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.batch(7).source, one.batch(8).source)
    assert not torch.equal(one.batch(7).source, other.batch(7).source)


def test_images_fed_ahead_of_time_are_the_same(digits: Task):
    resident, fed = stream(digits), stream(digits, resident=False)
    for step in (0, 1, 2, 9, 4, 63, 64, 200, 65):  # in order, then jumping as a resumed run does
        for a, b in zip(resident.batch(step), fed.batch(step), strict=True):
            assert torch.equal(a, b)


def test_labels_belong_to_their_images(digits: Task):
    whole = Stream(*digits, batch=8, seed=0, view=View(32, False, 0), device=CPU)
    batch, plan = whole.batch(5), whole.plan(5)
    for image, label, index in zip(batch.source, batch.labels, plan[0].indices, strict=True):
        assert torch.equal((image * 255).round().byte(), digits.source.images[index].permute(2, 0, 1))
        assert label == digits.source.labels[index]


def test_every_image_comes_once_an_epoch():
    count, batch = 50, 8
    drawn = torch.cat([indices_at(0, "source", step, batch, count) for step in range(25)])
    for epoch in drawn.split(count):
        assert torch.equal(epoch.sort().values, torch.arange(count))
    assert not torch.equal(drawn[:count], drawn[count : 2 * count])


def test_a_batch_may_span_several_epochs():
    assert len(indices_at(0, "target", 3, 7, 7)) == 7
    assert sorted(indices_at(0, "target", 1, 5, 7).tolist()) != list(range(5))


@pytest.mark.parametrize("batch", [0, -1, 10_000])
def test_a_batch_that_does_not_fit_is_refused(digits: Task, batch: int):
    with pytest.raises(InputError, match="--batch"):
        stream(digits, batch=batch)


def test_seeds_depend_on_every_part():
    assert len({derived_seed(0, "a"), derived_seed(0, "b"), derived_seed(1, "a"), derived_seed(0, "a", 0)}) == 4
    assert derived_seed(0, "a") == derived_seed(0, "a") < 2**63
