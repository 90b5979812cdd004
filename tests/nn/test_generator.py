"""The layers are those of TCM Appendix A.3.1, and of CycleGAN's code where the paper does not say."""

import pytest
import torch
from torch import nn

from tcm.errors import InputError
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig, InstanceNorm, ResidualBlock


def described(network: nn.Sequential) -> list[str]:
    lines = []
    for layer in network:
        if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d):
            kind = "Conv" if isinstance(layer, nn.Conv2d) else "ConvTranspose"
            lines.append(f"{kind}({layer.kernel_size[0]},{layer.out_channels},/{layer.stride[0]},+{layer.padding[0]})")
        elif isinstance(layer, nn.ReflectionPad2d):
            lines.append(f"ReflectionPad({layer.padding[0]})")
        elif isinstance(layer, nn.LeakyReLU):
            lines.append(f"LeakyReLU({layer.negative_slope})")
        elif isinstance(layer, ResidualBlock):
            lines.append(f"ResNetBlock[{' '.join(described(layer.body))}]")
        else:
            lines.append(type(layer).__name__)
    return lines


def test_the_generator_is_the_papers():
    padded = "ReflectionPad(1) Conv(3,256,/1,+0) InstanceNorm"
    block = f"ResNetBlock[{padded} ReLU {padded}]"
    assert described(GeneratorConfig().build()) == [
        *("ReflectionPad(3)", "Conv(7,64,/1,+0)", "InstanceNorm", "ReLU"),
        *("Conv(3,128,/2,+1)", "InstanceNorm", "ReLU"),
        *("Conv(3,256,/2,+1)", "InstanceNorm", "ReLU"),
        *(block, block),
        *("ConvTranspose(3,128,/2,+1)", "InstanceNorm", "ReLU"),
        *("ConvTranspose(3,64,/2,+1)", "InstanceNorm", "ReLU"),
        *("ReflectionPad(3)", "Conv(7,3,/1,+0)", "Tanh"),
    ]


def test_the_critic_is_the_papers():
    assert described(CriticConfig().build()) == [
        *("Conv(4,64,/2,+1)", "LeakyReLU(0.2)"),
        *("Conv(4,128,/2,+1)", "InstanceNorm", "LeakyReLU(0.2)"),
        *("Conv(4,256,/2,+1)", "InstanceNorm", "LeakyReLU(0.2)"),
        *("Conv(4,512,/1,+1)", "InstanceNorm", "LeakyReLU(0.2)"),
        "Conv(4,1,/1,+1)",
    ]


def convolution(inputs: int, outputs: int, kernel: int) -> int:
    return inputs * outputs * kernel**2 + outputs


def test_parameter_counts():
    generator = (
        convolution(3, 64, 7) + convolution(64, 128, 3) + convolution(128, 256, 3) + 4 * convolution(256, 256, 3)
    )
    generator += convolution(256, 128, 3) + convolution(128, 64, 3) + convolution(64, 3, 7)
    critic = convolution(3, 64, 4) + convolution(64, 128, 4) + convolution(128, 256, 4)
    critic += convolution(256, 512, 4) + convolution(512, 1, 4)
    for network, expected in ((GeneratorConfig().build(), generator), (CriticConfig().build(), critic)):
        assert sum(parameter.numel() for parameter in network.parameters()) == expected


def test_weights_start_from_a_normal_of_0_02():
    for network in (GeneratorConfig().build(), CriticConfig().build()):
        weights = torch.cat([p.flatten() for name, p in network.named_parameters() if name.endswith("weight")])
        assert abs(weights.std().item() - 0.02) < 2e-4
        assert abs(weights.mean().item()) < 2e-4
        assert all((p == 0).all() for name, p in network.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize(
    ("config", "side"), [(GeneratorConfig(), 64), (GeneratorConfig(8, 1, 1), 32), (GeneratorConfig(4), 8)]
)
def test_an_image_comes_out_as_large_as_it_went_in(config: GeneratorConfig, side: int):
    image = torch.rand(2, 3, side, side) * 2 - 1
    made = config.build()(image)
    assert made.shape == image.shape
    assert made.abs().max() <= 1
    config.require_side(side)


def test_a_residual_network_makes_the_change_and_has_no_bound():
    image = torch.rand(2, 3, 16, 16) * 2 - 1
    network = GeneratorConfig(4, 1, 1, kernel=3, residual=True).build()
    assert described(network)[-1] == "Conv(3,3,/1,+0)"
    assert torch.equal(network(image), image)  # it starts by changing nothing
    last = network[-1]
    assert isinstance(last, nn.Conv2d)
    nn.init.normal_(last.weight)
    made = network(image)
    torch.testing.assert_close(made - image, nn.Sequential(*network)(image), rtol=1e-4, atol=1e-5)
    assert made.abs().max() > 1


@pytest.mark.parametrize(("halvings", "side"), [(1, 6), (2, 12), (3, 24)])
def test_the_smallest_image_that_a_critic_can_judge(halvings: int, side: int):
    config = CriticConfig(2, halvings)
    config.require_side(side)
    assert config.build()(torch.rand(1, 3, side, side)).shape == (1, 1, 1, 1)
    with pytest.raises(InputError, match=f"is {side - 1}.*{side} or more") as error:
        config.require_side(side - 1)
    assert error.value.field == "data.crop"
    with pytest.raises((RuntimeError, ValueError)):
        config.build()(torch.rand(1, 3, side - 1, side - 1))


def test_a_critic_may_start_at_zero_everywhere():
    images = torch.rand(2, 3, 24, 24)
    assert not CriticConfig(2, zero_init_last=True).build()(images).any()
    assert CriticConfig(2).build()(images).any()


@pytest.mark.parametrize(
    ("config", "side", "field"),
    [(GeneratorConfig(kernel=4), 32, "bank.generator.kernel"), (GeneratorConfig(), 30, "data.crop")],
)
def test_sizes_that_do_not_fit_a_generator_are_refused(config: GeneratorConfig, side: int, field: str):
    with pytest.raises(InputError, match=r"give an odd number|a multiple of 4, 8 or more") as error:
        config.require_side(side)
    assert error.value.field == field


def test_the_norm_equals_torchs():
    x = torch.randn(2, 5, 7, 7) * 3 + 1
    torch.testing.assert_close(InstanceNorm()(x), nn.InstanceNorm2d(5)(x))
    # What a GPU computes: traced on a device without data, it has no branch for the CPU.
    variance, mean = torch.var_mean(x, dim=(2, 3), keepdim=True, correction=0)
    torch.testing.assert_close((x - mean) * torch.rsqrt(variance + 1e-5), nn.InstanceNorm2d(5)(x))
    assert InstanceNorm()(x.to("meta")).shape == x.shape


def test_frozen_generators_learn_nothing_and_stay_in_range(monkeypatch: pytest.MonkeyPatch):
    networks = [GeneratorConfig(width=2, halvings=1, blocks=1, residual=True).build() for _ in range(3)]
    for network in networks:
        for parameter in network.parameters():
            nn.init.normal_(parameter, std=0.5)
    frozen = FrozenGenerators(networks)
    images = torch.rand(5, 3, 16, 16, requires_grad=True)
    made = frozen.train()(images)
    assert made.shape == (3, 5, 3, 16, 16)
    assert made.min() == 0
    assert made.max() == 1
    assert not made.requires_grad
    assert not any(parameter.requires_grad for parameter in frozen.parameters())
    assert not any(module.training for module in frozen.modules())
    expected = torch.stack([(network(2 * images - 1) + 1) / 2 for network in networks]).clamp(0, 1)
    torch.testing.assert_close(made, expected)
    # Two images at a time give the same.
    monkeypatch.setattr("tcm.nn.generator.PIXELS_AT_ONCE", 2 * 16 * 16)
    torch.testing.assert_close(frozen(images), made)
