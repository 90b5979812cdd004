from functools import partial

import pytest
import torch
from torch import Tensor

from tcm.data.augment import View, as_input
from tcm.data.batch import Batch
from tcm.data.stream import Stream, Strong, derived_seed, indices_at
from tcm.data.strong_views import SMALL_IMAGES, strong_views
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.nn.cuda_graphs import Recorder

CPU = torch.device("cpu")
K = 3


def stream(digits: Task, seed: int = 0, batch: int = 16, transported: tuple[Tensor, Tensor] | None = None) -> Stream:
    view = View(28, True, 1)
    return Stream(*digits, batch=batch, seed=seed, view=view, device=CPU, transported=transported)


def tensors(batch: Batch) -> list[Tensor]:
    images = [batch.source, batch.target, *(batch.counterfactuals or ()), *(batch.strong or ())]
    assert batch.target_indices is not None
    return [batch.labels, batch.target_indices, *images]


def darkened(digits: Task) -> tuple[Tensor, Tensor]:
    source, target = (
        torch.stack([(store.images.int() - i).clamp(min=0).byte() for i in range(K)], dim=1) for store in digits
    )
    return source, target


def test_a_batch_is_a_function_of_seed_and_step(digits: Task):
    one, two, other = stream(digits), stream(digits), stream(digits, seed=1)
    two.batch(3)
    for a, b in zip(tensors(one.batch(7)), tensors(two.batch(7)), strict=True):
        assert torch.equal(a, b)
    assert not torch.equal(one.batch(7).source, one.batch(8).source)
    assert not torch.equal(one.batch(7).source, other.batch(7).source)


STRONG = Strong(SMALL_IMAGES, 0.5)
FORMS = {
    "images": {},
    "counterfactuals": {"counterfactuals": True},
    "strong views": {"strong": STRONG},
    "strong views from counterfactuals": {"counterfactuals": True, "strong": STRONG},
    "some mechanisms": {"counterfactuals": True, "strong": Strong(SMALL_IMAGES, 0.5, ([2], []))},
}


def require_same_batches(digits: Task, form: str, only_made: bool, held_out: bool, device: torch.device) -> None:
    """An error unless batches that are fed from host memory are those of images on the device, in any order of steps.

    Everything is fed, or only the counterfactuals where only the images fit on the device.
    """
    options = {"batch": 16, "seed": 0, "view": View(28, True, 1), "device": device}
    options |= {name: value for name, value in FORMS[form].items() if name != "counterfactuals"}
    options["transported"] = darkened(digits) if "counterfactuals" in FORMS[form] else None
    options["held_out"] = torch.arange(len(digits.source)) % 3 == 0 if held_out else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tcm.data.stream.fits", lambda parts, device: len(parts) == 2)
        fed = Stream(*digits, **options, resident=None if only_made else False)
    resident = Stream(*digits, **options, resident=True)
    made = 2 if options["transported"] else 0
    assert [part.resident for part in fed.parts] == [only_made] * 2 + [False] * made
    for step in (0, 1, 2, 9, 4, 4, 63, 64, 200, 65, *range(120, 130)):  # in order, then jumping as a resumed run does
        for a, b in zip(tensors(resident.batch(step)), tensors(fed.batch(step)), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("only_made", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_batches_fed_from_host_memory_are_the_same(digits: Task, form: str, only_made: bool, held_out: bool):
    require_same_batches(digits, form, only_made, held_out, CPU)


@pytest.mark.gpu
@pytest.mark.parametrize("only_made", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_batches_fed_to_a_gpu_are_the_same(digits: Task, form: str, only_made: bool):
    require_same_batches(digits, form, only_made, True, torch.device("cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("form", ["recorded", "compiled"])
def test_cuda_graphs_take_batches_that_are_fed(digits: Task, form: str):
    options = {"batch": 64, "seed": 0, "view": View(28, True, 1), "device": torch.device("cuda")}
    fed, resident = (Stream(*digits, **options, resident=kept) for kept in (False, True))
    weights = torch.rand(3, 28, 28, device="cuda")

    def plain(images: Tensor) -> Tensor:
        return (images * weights).sum(dim=(1, 2, 3))

    recorder = Recorder()
    recorder.on = True
    recorded = torch.compile(plain, mode="reduce-overhead") if form == "compiled" else partial(recorder, "sum", plain)
    for step in range(40):
        batch = fed.batch(step)
        torch.compiler.cudagraph_mark_step_begin()
        torch.testing.assert_close(recorded(batch.source), plain(resident.batch(step).source))


def test_of_counterfactuals_only_those_are_fed_that_strong_views_start_from(digits: Task):
    shown = strong_stream(digits, STRONG, resident=False)
    for step in range(60, 70):
        *_, source, target = shown.fed_rows(step)
        for rows, pixels, plan in zip((source, target), shown.plan(step), shown.strong_plan(step), strict=True):
            used = plan.made_by >= 0
            assert 0 < used.sum() < 16
            assert torch.equal(rows, (pixels.indices * K + plan.made_by)[used])


def test_counterfactuals_are_cropped_like_their_images(digits: Task):
    """The i-th is the original darkened by i, so it must be the batch's image darkened by i."""
    shown = stream(digits, transported=darkened(digits))
    for step in (0, 70):
        batch, plain = shown.batch(step), stream(digits).batch(step)
        assert plain.counterfactuals is None
        assert batch.counterfactuals is not None
        assert torch.equal(batch.source, plain.source)
        assert torch.equal(batch.labels, plain.labels)
        assert torch.equal(batch.target, plain.target)
        for images, made in zip((batch.source, batch.target), batch.counterfactuals, strict=True):
            assert made.shape == (K, *images.shape)
            assert made.dtype == images.dtype
            for i in range(K):
                assert torch.equal(made[i], ((images * 255).round() - i).clamp(min=0) / 255)
            assert made.flatten(0, 1).is_contiguous(memory_format=torch.channels_last)


def test_labels_belong_to_their_images(digits: Task):
    whole = Stream(*digits, batch=8, seed=0, view=View(32, False, 0), device=CPU)
    batch, plan = whole.batch(5), whole.plan(5)
    for image, label, index in zip(batch.source, batch.labels, plan[0].indices, strict=True):
        assert torch.equal((image * 255).round().byte(), digits.source.images[index].permute(2, 0, 1))
        assert label == digits.source.labels[index]


def test_every_image_comes_once_per_epoch():
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
    with pytest.raises(InputError, match=rf"is {batch}, but digits source has 898 images; ") as error:
        stream(digits, batch=batch)
    assert error.value.field == "batch"


def test_seeds_depend_on_every_part():
    assert len({derived_seed(0, "a"), derived_seed(0, "b"), derived_seed(1, "a"), derived_seed(0, "a", 0)}) == 4
    assert derived_seed(0, "a") == derived_seed(0, "a") < 2**63


def strong_stream(digits: Task, strong: Strong, resident: bool | None = None) -> Stream:
    view, made = View(32, False, 0), darkened(digits)
    return Stream(*digits, batch=16, seed=0, view=view, device=CPU, transported=made, strong=strong, resident=resident)


def test_strong_views_are_a_function_of_the_step(digits: Task):
    one, two = strong_stream(digits, STRONG), strong_stream(digits, STRONG)
    for step in (0, 70, 3):
        first, second = one.batch(step), two.batch(step)
        assert first.counterfactuals is None  # they are in the strong views
        for a, b in zip(first.strong or (), second.strong or (), strict=True):
            assert torch.equal(a, b)
    first, second = (one.batch(step).strong for step in (0, 1))
    assert first is not None
    assert second is not None
    assert not torch.equal(first.source, second.source)
    assert stream(digits).batch(0).strong is None


def test_strong_views_start_from_the_image_or_from_its_counterfactual(digits: Task):
    for share in (0.0, 0.5, 1.0):
        shown = strong_stream(digits, Strong(SMALL_IMAGES, share))
        found = torch.cat([shown.strong_plan(step)[0].made_by for step in range(40)])
        assert found.min() == (0 if share == 1 else -1)
        assert abs((found >= 0).double().mean() - share) < 0.07
        if share:
            assert set(found.tolist()) - {-1} == set(range(K))
    shown, made = strong_stream(digits, Strong(SMALL_IMAGES, 0.5)), darkened(digits)
    found = shown.batch(3).strong
    assert found is not None
    for side, (store, pixels, drawn) in enumerate(zip(digits, shown.plan(3), shown.strong_plan(3), strict=True)):
        starts = [
            store.images[index] if by < 0 else made[side][index, by]
            for index, by in zip(pixels.indices, drawn.made_by, strict=True)
        ]
        assert torch.equal(found[side], strong_views(torch.stack(starts), drawn.look, 32))


def test_only_useful_mechanisms_are_used(digits: Task):
    shown = strong_stream(digits, Strong(SMALL_IMAGES, 1.0, ([0, 2], [])))
    for step in range(10):
        source, target = shown.strong_plan(step)
        assert set(source.made_by.tolist()) == {0, 2}
        assert set(target.made_by.tolist()) == {-1}


def test_a_batch_knows_which_target_images_it_has(digits: Task):
    batch = Stream(*digits, batch=16, seed=0, view=View(32, False, 0), device=CPU).batch(5)
    assert batch.target_indices is not None
    assert torch.equal(batch.target, as_input(digits.target.images[batch.target_indices]))
