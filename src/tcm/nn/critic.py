"""The critic, a patch discriminator: are these images of the domain real or transported (TCM Appendix A.3.1)?"""

from dataclasses import dataclass
from itertools import pairwise

from torch import nn

from tcm.errors import InputError
from tcm.nn.generator import InstanceNorm, initialise


@dataclass(frozen=True)
class CriticConfig:
    """The two critics; the defaults are the paper's."""

    width: int = 64
    """Channels of the first layer."""
    halvings: int = 3
    """Layers of stride 2, each of which halves the image."""
    zero_init_last: bool = False
    """Start the last layer at 0. Random weights there give outputs so large that on photographs the critic is worse
    than chance for hundreds of steps."""

    def build(self) -> "Critic":
        """The network with weights drawn from N(0, 0.02), with `zero_init_last` those of the last layer 0."""
        return Critic(self)

    def require_side(self, side: int) -> None:
        """An error if images of this side are too small: the last two layers take one pixel each."""
        smallest = 3 * 2**self.halvings
        if side < smallest:
            found = f"is {side}, but a critic with {self.halvings} halvings needs {smallest} or more"
            raise InputError("data.crop", f"{found}; change `data.crop` or `bank.critic.halvings`")


class Critic(nn.Sequential):
    """Images [batch, 3, side, side] in [-1, 1] to a map [batch, 1, h, w], large where they look real."""

    def __init__(self, config: CriticConfig):
        channels = [config.width * 2**level for level in range(config.halvings + 1)]
        layers: list[nn.Module] = [nn.Conv2d(3, channels[0], 4, stride=2, padding=1), nn.LeakyReLU(0.2)]
        for level, (narrow, wide) in enumerate(pairwise(channels), start=1):
            stride = 2 if level < config.halvings else 1
            layers += [nn.Conv2d(narrow, wide, 4, stride=stride, padding=1), InstanceNorm(), nn.LeakyReLU(0.2)]
        last = nn.Conv2d(channels[-1], 1, 4, padding=1)
        super().__init__(*layers, last)
        self.apply(initialise)
        if config.zero_init_last:
            nn.init.zeros_(last.weight)
