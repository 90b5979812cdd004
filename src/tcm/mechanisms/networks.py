"""The networks of stage 1: k mechanism pairs and one critic per domain, without their training."""

import torch
from torch import Tensor, nn

from tcm.mechanisms.competition import Terms
from tcm.mechanisms.pair import SIDES, Mechanism, Side, opposite, run_network
from tcm.nn.critic import Critic, CriticConfig
from tcm.nn.generator import GeneratorConfig
from tcm.nn.losses import adversarial, reconstruction


class MechanismNetworks(nn.Module):
    """k mechanisms, of which some may be dropped, and the critics of both domains."""

    def __init__(self, generator: GeneratorConfig, critic: CriticConfig, k: int):
        super().__init__()
        self.mechanisms = nn.ModuleList(Mechanism(generator) for _ in range(k))
        self.critics = nn.ModuleDict({name: critic.build() for name in SIDES})
        self.active = list(range(k))  # numbers of the mechanisms that were not dropped
        self.run_network = run_network

    @property
    def k(self) -> int:
        """The number of active mechanisms."""
        return len(self.active)

    def pairs(self) -> list[Mechanism]:
        """The active mechanisms."""
        found = (self.mechanisms[number] for number in self.active)
        return [pair for pair in found if isinstance(pair, Mechanism)]

    def critic(self, side: Side) -> Critic:
        """The critic of one domain's images."""
        critic = self.critics[side]
        assert isinstance(critic, Critic)
        return critic

    def transport(self, images: Tensor, to: Side) -> Tensor:
        """All k counterfactuals [k, batch, 3, side, side] in [0, 1] of images [batch, 3, side, side] in [0, 1]."""
        made = torch.stack([self.run_network(pair.network(to), 2 * images - 1) for pair in self.pairs()])
        return ((made + 1) / 2).clamp(0, 1)

    def terms(
        self, pair: Mechanism, images: Tensor, origin: Side, others: Tensor | None = None
    ) -> tuple[Terms, Tensor]:
        """The losses of each image [batch] under one mechanism, and the transported images [batch, 3, side, side].

        `others` is what other mechanisms add to the transported image before the critic sees it.
        """
        there, back, critic = pair.network(opposite(origin)), pair.network(origin), self.critic(opposite(origin))
        transported = self.run_network(there, images)
        # One pass for the cycle loss, M^-1(M(x)), and the identity loss, M^-1(x).
        restored, kept = self.run_network(back, torch.cat([transported, images])).split(len(images))
        critic_map = self.run_network(critic, transported if others is None else transported + others)
        losses = adversarial(critic_map), reconstruction(restored, images), reconstruction(kept, images)
        return Terms(*losses), transported

    def drop(self, numbers: list[int]) -> None:
        """Removes these mechanisms from the active ones."""
        self.active = [number for number in self.active if number not in numbers]

    def get_extra_state(self) -> Tensor:
        """The numbers of the active mechanisms, for the checkpoint."""
        return torch.tensor(self.active)

    def set_extra_state(self, state: Tensor) -> None:
        """Restores the active mechanisms from a checkpoint."""
        self.active = state.tolist()

    def weights(self) -> dict[str, Tensor]:
        """The weights of the active mechanisms, numbered from 0, and of the critics, which decide who wins an image."""
        parts = {f"mechanisms.{i}": pair for i, pair in enumerate(self.pairs())} | {"critics": self.critics}
        return {f"{part}.{name}": x for part, module in parts.items() for name, x in module.state_dict().items()}

    def load_weights(self, tensors: dict[str, Tensor]) -> None:
        """Loads what `weights` returned."""
        for part, module in (("mechanisms.", self.mechanisms), ("critics.", self.critics)):
            own = {name.removeprefix(part): x for name, x in tensors.items() if name.startswith(part)}
            module.load_state_dict(own)
