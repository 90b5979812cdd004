import torch

from tcm.data.augment import View, as_input, as_stored, centre_cuts, cut, random_cuts, squares


def numbered(count: int, size: int) -> torch.Tensor:
    """uint8 images in which every pixel differs from its neighbours."""
    return torch.arange(count * size * size * 3).remainder(251).reshape(count, size, size, 3).byte()


def test_cut_is_slicing_and_mirroring():
    images = numbered(3, 8)
    cuts = torch.tensor([[1, 0], [2, 3], [0, 1]])  # top, left, mirror of two images
    pixels = cut(images, squares(torch.tensor([2, 0]), cuts, 8, 4))
    assert torch.equal(pixels[0], images[2, 1:5, 2:6])
    assert torch.equal(pixels[1], images[0, 0:4, 3:7].flip(1))


def test_a_cut_over_the_edge_repeats_the_border():
    images = numbered(1, 4)
    pixels = cut(images, squares(torch.tensor([0]), torch.tensor([[-2], [0], [0]]), 4, 4))
    assert torch.equal(pixels[0, 0], images[0, 0])
    assert torch.equal(pixels[0, 2:], images[0, :2])


def test_random_cuts_reach_every_place_and_no_other():
    generator = torch.Generator().manual_seed(0)
    top, left, mirrored = random_cuts(2000, 10, View(8, True, 1), generator)
    assert set(top.tolist()) == set(left.tolist()) == {-1, 0, 1, 2, 3}
    assert 900 < mirrored.sum() < 1100
    assert not random_cuts(50, 10, View(8, False, 0), generator)[2].any()


def test_centre_cuts():
    assert torch.equal(centre_cuts(2, 256, 224), torch.tensor([[16, 16], [16, 16], [0, 0]]))


def test_as_input_is_in_the_unit_interval_and_channels_last():
    x = as_input(torch.tensor([0, 128, 255], dtype=torch.uint8).repeat(2, 5, 5, 1))
    assert x.shape == (2, 3, 5, 5)
    torch.testing.assert_close(x[0, :, 0, 0], torch.tensor([0.0, 128 / 255, 1.0]))
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_stored_images_come_back_and_others_are_rounded_and_cut_off():
    images = numbered(2, 8)
    assert torch.equal(as_stored(as_input(images)), images)
    assert as_stored(torch.tensor([-0.1, 0.5 / 255 + 1e-4, 1.2]).reshape(3, 1, 1)).flatten().tolist() == [0, 1, 255]
