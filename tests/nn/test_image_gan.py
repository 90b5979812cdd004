import math

import pytest
import torch
from torch import nn

from tcm.nn.image_gan import ImageDiscriminator, ImageGenerator, loss_if_made, loss_if_real


def shapes(network: nn.Module, kind: type[nn.Module]) -> list[tuple[int, ...]]:
    return [tuple(part.get_parameter("weight").shape) for part in network.modules() if isinstance(part, kind)]


@pytest.mark.parametrize("side", [16, 32, 64])
def test_images_have_the_side_and_the_range_that_is_asked_for(side: int):
    made = ImageGenerator(7, side, 2)(torch.randn(2, 7))
    assert made.shape == (2, 3, side, side)
    assert made.abs().max() <= 1
    real, classes = ImageDiscriminator(5, side, 2)(made)
    assert (real.shape, classes.shape) == ((2,), (2, 5))


def test_the_networks_are_those_of_the_authors_at_32_pixels():
    generator, discriminator = ImageGenerator(100, 32, 64), ImageDiscriminator(10, 32, 64)
    ups = [(100, 512, 2, 2), (512, 256, 4, 4), (256, 128, 4, 4), (128, 64, 4, 4), (64, 3, 4, 4)]
    assert shapes(generator, nn.ConvTranspose2d) == ups
    downs = [(64, 3, 3, 3), (128, 64, 3, 3), (256, 128, 3, 3), (128, 256, 3, 3)]
    assert shapes(discriminator, nn.Conv2d) == downs
    assert [part.kernel_size for part in discriminator.modules() if isinstance(part, nn.MaxPool2d)] == [2, 2, 2, 4]
    assert shapes(discriminator, nn.Linear) == [(1, 128), (10, 128)]


def test_larger_images_have_a_larger_start_and_one_more_layer():
    assert shapes(ImageGenerator(100, 64, 64), nn.ConvTranspose2d)[0] == (100, 512, 4, 4)
    widths = [shape[0] for shape in shapes(ImageDiscriminator(10, 64, 64), nn.Conv2d)]
    assert widths == [64, 128, 256, 256, 128]


def test_the_errors_of_a_discriminator_are_binary_cross_entropies():
    logits = torch.tensor([-1.0, 0.5, 3.0])
    chances = [1 / (1 + math.exp(-value)) for value in logits.tolist()]
    assert loss_if_real(logits).item() == pytest.approx(-sum(math.log(p) for p in chances) / 3)
    assert loss_if_made(logits).item() == pytest.approx(-sum(math.log(1 - p) for p in chances) / 3)
    assert loss_if_real(logits.bfloat16()).dtype == torch.float32
