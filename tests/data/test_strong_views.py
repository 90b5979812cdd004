import pytest
import torch
from torch import Generator, Tensor
from torchvision.transforms.v2.functional import adjust_contrast, adjust_saturation, resized_crop, rotate

from tcm.data.augment import View, as_input, centre_crops, crop_images, crop_pixels
from tcm.data.stream import BLOCK, derived_generator
from tcm.data.strong_views import (
    IMAGENET_MEAN,
    PHOTOGRAPHS,
    SMALL_IMAGES,
    Strength,
    StrongParameters,
    box_transforms,
    covered,
    random_strong_parameters,
    recoloured,
    sharpened,
    strong_views,
    transformed,
)

PHOTO_VIEW, DIGIT_VIEW = View(28, flip=True, shift=0), View(32, flip=False, shift=2)


def noise(count: int, size: int) -> Tensor:
    return torch.randint(0, 256, (count, size, size, 3), generator=Generator().manual_seed(0)).byte()


def whole(count: int, size: int, crop: int) -> Tensor:
    """Transforms to the centre crop."""
    sides = torch.full((2, count), crop)
    return box_transforms(torch.cat([centre_crops(count, size, crop), sides]), size, *torch.zeros(2, count))


def unchanged(count: int, size: int, crop: int, **changed: Tensor) -> StrongParameters:
    """The parameters of plain centre crops but for those that are given."""
    one, zero = torch.ones(count), torch.zeros(count)
    plain = {
        "transform": whole(count, size, crop),
        "tint": torch.ones(count, 3),
        "square": torch.zeros(count, 3),
        "brightness": one,
        "contrast": one,
        "saturation": one,
        "solarise": one,
        "levels": zero,
        "sharpen": zero,
    }
    return StrongParameters(**{**plain, **changed})


def drawn(shape: tuple[int, ...], seed: int = 0, size: int = 32, strength: Strength = PHOTOGRAPHS) -> StrongParameters:
    view = PHOTO_VIEW if strength == PHOTOGRAPHS else DIGIT_VIEW
    return random_strong_parameters(shape, size, view, strength, Generator().manual_seed(seed))


def only(parameters: StrongParameters, rows: Tensor) -> StrongParameters:
    return StrongParameters(*(part[rows] for part in parameters))


# Random draws


def test_a_block_that_is_drawn_again_after_a_restart_is_the_same_and_other_blocks_and_seeds_are_not():
    def block(seed: int, number: int) -> StrongParameters:
        generator = derived_generator(seed, "target", "strong", number)
        return random_strong_parameters((BLOCK, 4), 32, PHOTO_VIEW, PHOTOGRAPHS, generator)

    first = block(0, 0)
    torch.rand(1)  # the global random state plays no part
    for part, again, later, other in zip(first, block(0, 0), block(0, 1), block(1, 0), strict=True):
        assert part.shape[:2] == (BLOCK, 4)
        assert torch.equal(part, again)
        assert not torch.equal(part, later)
        assert not torch.equal(part, other)


def test_parameters_differ_between_images_and_between_steps():
    parameters = drawn((64, 32))
    for name, part in parameters._asdict().items():
        assert len(part[0].flatten(1 if part.ndim > 2 else 0).unique(dim=0)) > 1, name
        assert not (part == part[:1]).all(), name
    assert len(parameters.square[..., :2].flatten(0, 1).unique(dim=0)) == 64 * 32


def test_a_step_is_a_slice_of_its_block():
    parameters = drawn((3, 4))
    for part, step in zip(parameters, parameters.at(2).to(torch.device("cpu")), strict=True):
        assert torch.equal(step, part[2])


def test_each_change_has_its_range_and_its_share_of_the_images():
    parameters = drawn((20000,), size=256)

    def check(part: Tensor, untouched: float, low: float, high: float, share: float) -> None:
        changed = part[part != untouched]
        assert len(changed) / len(part) == pytest.approx(share, abs=0.015)
        assert low <= changed.min() < low + 0.02 * (high - low)
        assert high - 0.02 * (high - low) < changed.max() <= high

    grey = parameters.saturation == 0
    check(parameters.brightness, 1, 0.5, 1.5, 0.8)
    check(parameters.contrast, 1, 0.5, 1.5, 0.8)
    check(parameters.saturation[~grey], 1, 0, 1.8, 0.8)
    check(parameters.tint[~grey].flatten(), 1, 0.75, 1.25, 0.5)
    check(parameters.solarise, 1, 0.3, 1, 0.1)
    check(parameters.levels, 0, 4, 32, 0.1)
    check(parameters.sharpen, 0, -0.9, 1.5, 0.4)
    check(parameters.square[:, 2], 0, 0.15, 0.45, 0.5)
    assert set(parameters.levels.tolist()) == {0, 4, 8, 16, 32}
    assert grey.float().mean() == pytest.approx(0.15, abs=0.01)
    assert (parameters.tint[grey] == 1).all()
    tinted = parameters.tint[(parameters.tint != 1).any(dim=1)]
    assert (tinted.diff(dim=1) != 0).float().mean() > 0.99  # each channel has its own factor


def geometry(strength: Strength, view: View) -> dict[str, Tensor]:
    """Area, degrees of turning and mirror of random transforms, [5000] each."""
    x, y = (
        random_strong_parameters((5000,), 256, view, strength, Generator().manual_seed(0))
        .transform[:, :, :2]
        .unbind(dim=1)
    )
    determinant = x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0]
    mirrored = determinant < 0
    side = torch.where(mirrored, -1, 1)
    return {
        "area": determinant.abs(),
        "degrees": torch.atan2(side * y[:, 0], side * x[:, 0]).rad2deg(),
        "mirrored": mirrored,
    }


def test_photographs_are_cropped_turned_and_mirrored():
    found = geometry(PHOTOGRAPHS, View(224, flip=True, shift=0))
    assert 0.34 < found["area"].min() < 0.36
    assert found["area"].max() > 0.98
    turned = found["degrees"].abs() > 1e-3
    assert turned.float().mean() == pytest.approx(0.5, abs=0.03)
    assert 25 < found["degrees"].abs().max() <= 26
    assert found["mirrored"].float().mean() == pytest.approx(0.5, abs=0.03)


def test_small_images_change_little_and_are_never_mirrored():
    found = geometry(SMALL_IMAGES, DIGIT_VIEW)
    assert found["area"].min() > 0.6
    assert 5 < found["degrees"].abs().max() <= 15
    assert not found["mirrored"].any()
    assert (drawn((2000,), strength=SMALL_IMAGES).solarise == 1).all()


# Views


def test_the_same_parameters_give_the_same_pixels_and_others_do_not():
    images, parameters = noise(6, 32), drawn((6,))
    views = strong_views(images, parameters, 28)
    assert torch.equal(views, strong_views(images, parameters, 28))
    assert not torch.equal(views, strong_views(images, drawn((6,), seed=1), 28))


def test_views_have_the_form_of_weak_views():
    images = noise(40, 32)
    weak = as_input(crop_images(images, crop_pixels(torch.arange(40), centre_crops(40, 32, 28), 32, 28)))
    views = strong_views(images, drawn((40,)), 28)
    assert (views.shape, views.dtype) == (weak.shape, weak.dtype)
    assert views.is_contiguous(memory_format=torch.channels_last)
    assert 0 <= views.min() < 0.01
    assert 0.99 < views.max() <= 1


def test_a_view_does_not_depend_on_the_other_images_of_the_batch():
    images, parameters = noise(6, 32), drawn((6,))
    views = strong_views(images, parameters, 28)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    assert torch.equal(strong_views(images[order], only(parameters, order), 28), views[order])
    for i in range(6):
        alone = strong_views(images[i : i + 1], only(parameters, torch.tensor([i])), 28)
        torch.testing.assert_close(alone[0], views[i])


def test_without_changes_a_view_is_the_centre_crop():
    images = noise(2, 32)
    weak = as_input(crop_images(images, crop_pixels(torch.arange(2), centre_crops(2, 32, 28), 32, 28)))
    torch.testing.assert_close(strong_views(images, unchanged(2, 32, 28), 28), weak, atol=1e-4, rtol=0)


@pytest.mark.parametrize(("top", "left", "height", "width"), [(3, 5, 40, 44), (0, 0, 64, 64), (20, 11, 30, 37)])
def test_a_box_is_cropped_and_resized_as_torchvision_does_it(top: int, left: int, height: int, width: int):
    images = noise(2, 64)
    boxes = torch.tensor([[top, top], [left, left], [0, 1], [height, height], [width, width]])
    views = transformed(images, box_transforms(boxes, 64, *torch.zeros(2, 2)), 56)
    expected = resized_crop(as_input(images), top, left, height, width, [56, 56], antialias=False)
    expected[1] = expected[1].flip(-1)
    inside = (..., slice(1, -1), slice(1, -1))  # torchvision does not see what lies beside the box
    torch.testing.assert_close(views[inside], expected[inside], atol=1e-4, rtol=0)


def test_turning_is_that_of_torchvision_and_mirrors_the_image_over_its_edge():
    images = noise(1, 33)
    box = torch.tensor([[0], [0], [0], [33], [33]])
    view = transformed(images, box_transforms(box, 33, torch.tensor([20.0]).deg2rad(), torch.zeros(1)), 33)[0]
    expected = rotate(as_input(images), 20.0, interpolation=2)[0]
    rows, columns = torch.meshgrid(*[torch.arange(33) - 16] * 2, indexing="ij")
    near = rows**2 + columns**2 < 14**2
    torch.testing.assert_close(view[:, near], expected[:, near], atol=1e-4, rtol=0)
    assert (view > 0).all()  # no black corners


def test_shear_moves_rows_by_their_distance_from_the_centre():
    columns = torch.arange(32).mul(8).byte()
    images = columns[None, None, :, None].expand(1, 32, 32, 3)
    box = torch.tensor([[0], [0], [0], [32], [32]])
    view = transformed(images, box_transforms(box, 32, torch.zeros(1), torch.tensor([0.25])), 32)[0, 0]
    shift = (view[:, 16] - view[16, 16]) * 255 / 8  # in pixels
    torch.testing.assert_close(shift, -0.25 * (torch.arange(32) - 16.0), atol=1e-3, rtol=0)


# Each change by itself


def change(pixels: Tensor, **changed: Tensor) -> Tensor:
    return recoloured(pixels, unchanged(len(pixels), pixels.shape[-1], pixels.shape[-1], **changed))


def test_brightness_is_a_factor_and_stays_in_range():
    x = torch.tensor([0.2, 0.8]).expand(2, 3, 1, 2)
    bright = change(x, brightness=torch.tensor([1.5, 0.5]))
    torch.testing.assert_close(bright[:, 0, 0], torch.tensor([[0.3, 1.0], [0.1, 0.4]]))


def test_contrast_and_saturation_are_those_of_torchvision():
    x = as_input(noise(1, 8))
    for factor in (0.5, 1.4):
        given = torch.tensor([factor])
        torch.testing.assert_close(change(x, contrast=given), adjust_contrast(x, factor), atol=1e-3, rtol=0)
        torch.testing.assert_close(change(x, saturation=given), adjust_saturation(x, factor), atol=1e-3, rtol=0)


def test_no_saturation_makes_the_channels_equal():
    x = as_input(noise(2, 8))
    grey = change(x, saturation=torch.tensor([0.0, 1.0]))
    assert torch.equal(grey[0, 0], grey[0, 1])
    assert torch.equal(grey[0, 0], grey[0, 2])
    torch.testing.assert_close(grey[0, 0], 0.299 * x[0, 0] + 0.587 * x[0, 1] + 0.114 * x[0, 2])
    assert torch.equal(grey[1], x[1])


def test_tint_is_a_factor_per_channel():
    tinted = change(torch.full((1, 3, 2, 2), 0.4), tint=torch.tensor([[0.75, 1.0, 1.25]]))
    torch.testing.assert_close(tinted[0, :, 0, 0], torch.tensor([0.3, 0.4, 0.5]))


def test_solarising_inverts_above_the_threshold_only():
    x = torch.tensor([0.2, 0.5, 0.6, 1.0]).expand(2, 3, 1, 4)
    solarised = change(x, solarise=torch.tensor([0.55, 1.0]))
    torch.testing.assert_close(solarised[0, 0, 0], torch.tensor([0.2, 0.5, 0.4, 0.0]))
    assert torch.equal(solarised[1], x[1])


@pytest.mark.parametrize("bits", [2, 3, 5])
def test_posterising_leaves_two_to_the_bits_levels_with_black_and_white(bits: int):
    x = torch.linspace(0, 1, 1024).expand(2, 3, 1, 1024)
    posterised = change(x, levels=torch.tensor([2.0**bits, 0.0]))
    assert len(posterised[0].unique()) == 2**bits
    assert (posterised[0] - x[0]).abs().max() < 0.5**bits
    assert (posterised[0].min(), posterised[0].max()) == (0, 1)
    assert torch.equal(posterised[1], x[1])


def test_an_edge_is_blurred_or_sharpened():
    x = torch.tensor([0.25, 0.75]).repeat_interleave(8).expand(3, 3, 16, 16)
    blurred, same, sharp = sharpened(x, torch.tensor([-0.9, 0.0, 1.0]))[:, 0, 8]
    assert torch.equal(same, x[0, 0, 8])
    assert (blurred.diff() >= 0).all()
    assert blurred[7:9].diff() < 0.3 < 0.5 < sharp[7:9].diff()
    for row in (blurred, sharp):  # nothing changes far from the edge, nor at the border of the image
        torch.testing.assert_close(row[[0, 1, 5, 10, 14, 15]], x[0, 0, 8, [0, 1, 5, 10, 14, 15]])


def test_blur_reaches_further_in_larger_images():
    reach = {}
    for side in (32, 224):
        dot = torch.zeros(1, 3, side, side)
        dot[..., side // 2, side // 2] = 1
        reach[side] = int((sharpened(dot, torch.tensor([-0.9]))[0, 0] > 0).sum()) ** 0.5
    assert reach == {32: 3, 224: 5}


@pytest.mark.parametrize("side", [0.15, 0.3, 0.45])
def test_the_square_covers_its_share_with_grey_and_nothing_else(side: float):
    x = torch.zeros(3, 3, 200, 200)
    squares = torch.tensor([[0.5, 0.4, side], [0.5, 0.5, 0.0], [0.0, 1.0, side]])
    inside, none, corner = covered(x, squares)
    mean = torch.tensor(IMAGENET_MEAN)
    hidden = inside[0] > 0
    assert hidden.sum() == round(200 * side) ** 2
    torch.testing.assert_close(inside[:, hidden], mean[:, None].expand(3, int(hidden.sum())))
    assert hidden.any(dim=1).nonzero().float().mean() == pytest.approx(99.5, abs=0.6)
    assert hidden.any(dim=0).nonzero().float().mean() == pytest.approx(79.5, abs=0.6)
    assert not none.any()
    assert (corner[0] > 0).sum() == round(100 * side) ** 2  # cut off by the edges


# Devices


def test_no_value_is_needed_on_the_host():
    """Tensors on the meta device have no values: asking for one, or branching on one, raises."""
    meta = StrongParameters(*(part.to("meta") for part in drawn((4,))))
    assert strong_views(noise(4, 32).to("meta"), meta, 28).shape == (4, 3, 28, 28)


def test_the_whole_is_one_graph():
    images, parameters = noise(4, 32), drawn((4,))
    traced = torch.compile(strong_views, fullgraph=True, backend="eager")
    torch.testing.assert_close(traced(images, parameters, 28), strong_views(images, parameters, 28))


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_gpu_gives_the_views_of_the_cpu(compiled: bool):
    images, parameters, gpu = noise(32, 256), drawn((32,), size=256), torch.device("cuda")
    apply = torch.compile(strong_views, fullgraph=True) if compiled else strong_views
    found = apply(images.to(gpu), parameters.to(gpu), 224).cpu()
    far = (found - strong_views(images, parameters, 224)).abs() > 1e-3
    assert far.float().mean() < 1e-3  # rounding can move a pixel over the threshold of a step
