"""The image-to-image network of a mechanism (TCM Appendix A.3.1)."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.errors import InputError

PIXELS_AT_ONCE = 2**21  # of images that frozen networks transform together: a feature map of 64 channels takes 0.5 GB


@dataclass(frozen=True)
class GeneratorConfig:
    """Each mechanism's network; the defaults are the paper's."""

    width: int = 64
    """Channels of the first layer; every halving of the image doubles them."""
    halvings: int = 2
    """Down-sampling layers, and as many up-sampling ones."""
    blocks: int = 2
    """Residual blocks in the middle."""
    kernel: int = 7
    """Side of the first and the last kernel, an odd number."""
    residual: bool = False
    """Whether the output is added to the image, in place of a whole new image."""

    def build(self) -> "Generator":
        """The network with weights drawn from N(0, 0.02); a residual one has a last layer of 0."""
        return Generator(self)

    @property
    def smallest_image(self) -> int:
        """The smallest side it can transform: reflection padding needs one pixel more than it adds."""
        return max(self.kernel // 2 + 1, 2 * 2**self.halvings)

    def require_side(self, side: int) -> None:
        """An error unless the output has the size of the input for images of this side."""
        if self.kernel % 2 == 0:
            raise InputError("bank.generator.kernel", f"is {self.kernel}; give an odd number")
        if side < self.smallest_image or side % 2**self.halvings:
            needs = f"needs a multiple of {2**self.halvings}, {self.smallest_image} or more"
            found = f"is {side}, but a generator with {self.halvings} halvings {needs}"
            raise InputError("data.crop", f"{found}; change `data.crop` or `bank.generator.halvings`")


class InstanceNorm(nn.Module):
    """Every channel of every image to mean 0 and variance 1, without parameters."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalised x [batch, channels, height, width]."""
        if x.device.type == "cpu":
            return F.group_norm(x, x.shape[1])  # the same with one channel per group, in a tenth of the time
        # Written out, because a compiler fuses this with the layers around it.
        variance, mean = torch.var_mean(x, dim=(2, 3), keepdim=True, correction=0)
        return (x - mean) * torch.rsqrt(variance + 1e-5)


class ToRGB(nn.Conv2d):
    """A convolution to three channels, which would leave most of a GPU's matrix units idle. There the columns of the
    kernel become channels that are added up afterwards: the same sums in a third of the time."""

    def forward(self, input: Tensor) -> Tensor:
        """The convolution of input [batch, channels, height, width], without padding."""
        if input.device.type == "cpu":
            return super().forward(input)
        return self.by_columns(input)

    def by_columns(self, input: Tensor) -> Tensor:
        """The same, as a convolution with a kernel one pixel wide."""
        count, channels, height, width = self.weight.shape
        weight = self.weight.permute(3, 0, 1, 2).reshape(width * count, channels, height, 1)
        columns = F.conv2d(input, weight).unflatten(1, (width, count))
        across = columns.shape[-1] - width + 1
        kind = torch.promote_types(columns.dtype, torch.float32)
        parts = [columns[:, j, :, :, j : j + across].to(kind) for j in range(width)]
        assert self.bias is not None
        return torch.stack(parts).sum(dim=0) + self.bias[:, None, None]


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions with reflection padding and a skip connection, as in CycleGAN."""

    def __init__(self, channels: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            InstanceNorm(),
            nn.ReLU(),
            nn.ReflectionPad2d(1),
            nn.Conv2d(channels, channels, 3),
            InstanceNorm(),
        )

    def forward(self, x: Tensor) -> Tensor:
        """x plus the output of the two convolutions."""
        return x + self.body(x)


class Generator(nn.Sequential):
    """Images [batch, 3, side, side] in [-1, 1] to images of the same shape."""

    def __init__(self, config: GeneratorConfig):
        channels = [config.width * 2**level for level in range(config.halvings + 1)]
        side, edge = config.kernel, config.kernel // 2
        layers: list[nn.Module] = [nn.ReflectionPad2d(edge), nn.Conv2d(3, channels[0], side), InstanceNorm(), nn.ReLU()]
        for narrow, wide in pairwise(channels):
            layers += [nn.Conv2d(narrow, wide, 3, stride=2, padding=1), InstanceNorm(), nn.ReLU()]
        layers += [ResidualBlock(channels[-1]) for _ in range(config.blocks)]
        for wide, narrow in zip(channels[:0:-1], channels[-2::-1], strict=True):
            up = nn.ConvTranspose2d(wide, narrow, 3, stride=2, padding=1, output_padding=1)
            layers += [up, InstanceNorm(), nn.ReLU()]
        last = ToRGB(channels[0], 3, side)
        layers += [nn.ReflectionPad2d(edge), last]
        if not config.residual:
            layers.append(nn.Tanh())
        super().__init__(*layers)
        self.residual = config.residual
        self.apply(initialise)
        if config.residual:  # starts by changing nothing
            nn.init.zeros_(last.weight)

    def forward(self, input: Tensor) -> Tensor:
        """The transported images; those of a residual network may leave the range [-1, 1]."""
        made = super().forward(input)
        return input + made if self.residual else made


class FrozenGenerators(nn.ModuleList):
    """k trained networks, without gradients and always in evaluation mode."""

    def __init__(self, networks: Iterable[Generator]):
        super().__init__(networks)
        self.requires_grad_(False)
        self.eval()

    def train(self, mode: bool = True) -> "FrozenGenerators":
        """Stays in evaluation mode, whatever `mode` is."""
        return super().train(False)

    @torch.no_grad()
    def forward(self, images: Tensor) -> Tensor:
        """The outputs [k, batch, 3, side, side] for images [batch, 3, side, side], both in [0, 1]."""
        scaled = 2 * images - 1
        # An exported network takes any number of images, so how many portions there are is not known.
        exporting = torch.compiler.is_exporting()
        portions = [scaled] if exporting else scaled.split(max(PIXELS_AT_ONCE // images.shape[-1] ** 2, 1))
        made = torch.stack([torch.cat([network(portion) for portion in portions]) for network in self])
        return ((made.float() + 1) / 2).clamp(0, 1)


def initialise(module: nn.Module) -> None:
    """Convolution weights from N(0, 0.02), biases 0 (TCM Appendix A.3.1)."""
    if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
        nn.init.normal_(module.weight, std=0.02)
        assert module.bias is not None
        nn.init.zeros_(module.bias)
