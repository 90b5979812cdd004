import pytest
import torch
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms.v2.functional import resize

from tcm.data.augment import (
    View,
    as_input,
    as_stored,
    box_pixels,
    centre_crops,
    crop_counterfactuals,
    crop_images,
    crop_pixels,
    random_boxes,
    random_crops,
    random_views,
)


def numbered(count: int, size: int) -> torch.Tensor:
    """uint8 images in which every pixel differs from its neighbours."""
    return torch.arange(count * size * size * 3).remainder(251).reshape(count, size, size, 3).byte()


def test_a_crop_is_slicing_and_mirroring():
    images = numbered(3, 8)
    crops = torch.tensor([[1, 0], [2, 3], [0, 1]])  # top, left, mirror of two images
    pixels = crop_images(images, crop_pixels(torch.tensor([2, 0]), crops, 8, 4))
    assert torch.equal(pixels[0], images[2, 1:5, 2:6])
    assert torch.equal(pixels[1], images[0, 0:4, 3:7].flip(1))


def test_a_crop_over_the_edge_repeats_the_border():
    images = numbered(1, 4)
    pixels = crop_images(images, crop_pixels(torch.tensor([0]), torch.tensor([[-2], [0], [0]]), 4, 4))
    assert torch.equal(pixels[0, 0], images[0, 0])
    assert torch.equal(pixels[0, 2:], images[0, :2])


def test_random_crops_reach_every_place_and_no_other():
    generator = torch.Generator().manual_seed(0)
    top, left, mirrored = random_crops(2000, 10, View(8, True, 1), generator)
    assert set(top.tolist()) == set(left.tolist()) == {-1, 0, 1, 2, 3}
    assert 900 < mirrored.sum() < 1100
    assert not random_crops(50, 10, View(8, False, 0), generator)[2].any()


@pytest.mark.parametrize(("height", "width"), [(5, 9), (12, 12), (4, 4), (16, 15)])
def test_a_box_is_cropped_and_resized(height: int, width: int):
    images = torch.randint(0, 256, (2, 16, 16, 3), generator=torch.Generator().manual_seed(0)).byte()
    boxes = torch.tensor([[0, 0], [1, 1], [0, 1], [height, height], [width, width]])  # top, left, mirror, sides
    pixels = crop_images(images, box_pixels(torch.tensor([1, 1]), boxes, 16, 8))
    part = images[1, :height, 1 : 1 + width].movedim(-1, 0)
    expected = resize(part, [8, 8], antialias=False).movedim(0, -1)
    assert (pixels[0].int() - expected.int()).abs().max() <= 1  # rounding
    assert torch.equal(pixels[1], pixels[0].flip(1))


def test_a_box_of_the_size_of_the_crop_is_a_plain_crop():
    images = numbered(2, 8)
    boxes = torch.tensor([[1], [2], [1], [4], [4]])
    resized = crop_images(images, box_pixels(torch.tensor([1]), boxes, 8, 4))
    assert torch.equal(resized, crop_images(images, crop_pixels(torch.tensor([1]), boxes[:3], 8, 4)))


def test_random_boxes_are_drawn_as_torchvision_draws_them():
    torch.manual_seed(0)
    image = torch.zeros(3, 256, 256)
    theirs = torch.tensor([RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)])
    boxes = random_boxes(4000, 256, View(224, True, 0, 0.08), torch.Generator().manual_seed(0))
    ours = boxes[[0, 1, 3, 4]].T  # top, left, height, width
    levels = torch.tensor([0.1, 0.25, 0.5, 0.75, 0.9])
    for mine, other in ((ours, theirs), (ours[:, 2:].prod(dim=1) / 256, theirs[:, 2:].prod(dim=1) / 256)):
        there = torch.quantile(other.float(), levels, dim=0)
        torch.testing.assert_close(torch.quantile(mine.float(), levels, dim=0), there, atol=8, rtol=0)
    assert (boxes[:2] >= 0).all()
    assert (boxes[:2] + boxes[3:] <= 256).all()
    assert 1800 < boxes[2].sum() < 2200


def test_boxes_that_never_fit_are_the_whole_image():
    boxes = random_boxes(500, 64, View(56, False, 0, 1.0), torch.Generator().manual_seed(0))
    whole = (boxes[3:] == 64).all(dim=0)
    assert whole.float().mean() > 0.5
    assert (boxes[:2, whole] == 0).all()


def test_counterfactuals_are_cropped_like_their_image():
    images = numbered(3, 16)
    chosen = random_views(torch.tensor([[2, 0]]), 16, View(8, True, 0, 0.2), torch.Generator().manual_seed(3))
    step = type(chosen)(*(part[0] for part in chosen))
    both = crop_counterfactuals(torch.stack([images, 255 - images], dim=1), step)
    assert torch.equal(both[0], crop_images(images, step))
    assert torch.equal(both[1], crop_images(255 - images, step))


def test_centre_crops():
    assert torch.equal(centre_crops(2, 256, 224), torch.tensor([[16, 16], [16, 16], [0, 0]]))


def test_as_input_is_in_the_unit_interval_and_channels_last():
    x = as_input(torch.tensor([0, 128, 255], dtype=torch.uint8).repeat(2, 5, 5, 1))
    assert x.shape == (2, 3, 5, 5)
    torch.testing.assert_close(x[0, :, 0, 0], torch.tensor([0.0, 128 / 255, 1.0]))
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_stored_images_come_back_and_others_are_rounded_and_clipped():
    images = numbered(2, 8)
    assert torch.equal(as_stored(as_input(images)), images)
    assert as_stored(torch.tensor([-0.1, 0.5 / 255 + 1e-4, 1.2]).reshape(3, 1, 1)).flatten().tolist() == [0, 1, 255]
