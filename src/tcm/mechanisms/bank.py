"""The bank of k mechanism pairs and how they learn: Section 3.1, Algorithm 1 lines 4 to 9, Appendix A.3.1."""

from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from tcm.errors import InputError
from tcm.learner import Batch, Learner
from tcm.losses import adversarial, critic_loss, reconstruction
from tcm.mechanisms.competition import Terms, dealt, shares, winners
from tcm.mechanisms.pool import ImagePool
from tcm.nn.critic import Critic, CriticConfig
from tcm.nn.generator import Generator, GeneratorConfig

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


@dataclass(frozen=True)
class BankConfig:
    """The mechanisms and their training; the defaults are the paper's, and the CycleGAN code's where it is silent."""

    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    cycle: float = 10.0
    """alpha_1, the weight of the cycle loss."""
    identity: float = 5.0
    """alpha_2, the weight of the identity loss."""
    warmup: int = 8000
    """Steps before the competition starts."""
    warmup_assignment: Literal["all", "random"] = "all"
    """Who learns in the warm-up. all: every mechanism from every image (the paper). random: images are dealt out."""
    assignment: Literal["competition", "random"] = "competition"
    """Who learns after it. competition: the winner (Eq. 2). random: as in the authors' release."""
    lr: float = 2e-4
    """Adam's learning rate: constant in the first half of training, then falling linearly to 0."""
    beta1: float = 0.5
    """Adam's first beta; the second is 0.999."""
    pool: int = 50
    """Transported images of each domain that the critics are shown again."""

    def build(self, k: int, side: int, steps: int) -> "MechanismBank":
        """The bank of k mechanisms for images of that side, to be trained for that many steps."""
        return MechanismBank(self, k, side, steps)

    def require_usable(self, side: int) -> None:
        """An error where no bank can be built for images of that side."""
        for name, value in (("warmup", self.warmup), ("pool", self.pool)):
            if value < 0:
                raise InputError(f"--bank.{name} is {value}; give 0 or more")
        self.generator.require_side(side)


class Mechanism(nn.Module):
    """A pair (M_i, M_i^-1): `to_target` carries source images to the target's domain, `to_source` the other way."""

    def __init__(self, config: GeneratorConfig):
        super().__init__()
        self.to_target = config.build()
        self.to_source = config.build()

    def network(self, to: Side) -> Generator:
        """M_i for to="target", M_i^-1 for to="source"."""
        return self.to_target if to == "target" else self.to_source


class MechanismBank(Learner):
    """k mechanisms that compete for every image, and one critic per domain that judges them all."""

    rate_option = "--bank.lr"

    def __init__(self, config: BankConfig, k: int, side: int, steps: int):
        super().__init__()
        self.config, self.k, self.steps = config, k, steps
        self.mechanisms = nn.ModuleList(Mechanism(config.generator) for _ in range(k))
        self.critics = nn.ModuleDict({name: config.critic.build() for name in SIDES})
        self.pools = nn.ModuleDict({name: ImagePool(config.pool, side) for name in SIDES})

    def transport(self, images: Tensor, to: Side) -> Tensor:
        """All k counterfactuals [k, batch, 3, side, side] in [0, 1] of images [batch, 3, side, side] in [0, 1]."""
        made = torch.stack([mechanism.network(to)(2 * images - 1) for mechanism in self.pairs()])
        return (made + 1) / 2

    def terms(self, mechanism: Mechanism, images: Tensor, origin: Side) -> tuple[Terms, Tensor]:
        """Each image's losses [batch] under one mechanism, and the images [batch, 3, side, side] it was carried to."""
        other: Side = "target" if origin == "source" else "source"
        there, back = mechanism.network(other), mechanism.network(origin)
        carried = there(images)
        # One pass for what must come back and what must stay: M^-1(M(x)) and M^-1(x).
        restored, kept = back(torch.cat([carried, images])).split(len(images))
        terms = Terms(
            adversarial(self.critic(other)(carried)), reconstruction(restored, images), reconstruction(kept, images)
        )
        return terms, carried

    @torch.no_grad()
    def scored(self, images: Tensor, origin: Side) -> tuple[Terms, Tensor]:
        """Losses [k, batch] of all mechanisms and what they made [k, batch, 3, side, side], without a graph."""
        terms, carried = zip(*(self.terms(mechanism, images, origin) for mechanism in self.pairs()), strict=True)
        return Terms(*map(torch.stack, zip(*terms, strict=True))), torch.stack(carried)

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One step of the mechanisms, each on the images it was given, then one of the critics."""
        images: dict[Side, Tensor] = {"source": 2 * batch.source - 1, "target": 2 * batch.target - 1}
        for parameter in self.critics.parameters():
            parameter.requires_grad_(False)
        optimizers["mechanisms"].zero_grad(set_to_none=True)
        logged: dict[str, Tensor] = {}
        made: dict[Side, Tensor] = {}
        for origin in SIDES:
            terms, made[origin] = self.scored(images[origin], origin)
            chosen = self.chosen(terms, progress)
            self.backward(images[origin], origin, chosen)
            logged |= self.summary(terms, chosen, origin)
        optimizers["mechanisms"].step()
        for parameter in self.critics.parameters():
            parameter.requires_grad_(True)
        logged["critics"] = self.update_critics(images, made, optimizers["critics"])
        return logged

    def chosen(self, terms: Terms, progress: float) -> Tensor | None:
        """The mechanism that learns from each image: [batch]; None where all of them do."""
        config, batch = self.config, terms.adversarial.shape[1]
        warm = round(progress * self.steps) < config.warmup
        rule = config.warmup_assignment if warm else config.assignment
        if rule == "all":
            return None
        if rule == "random":
            return dealt(batch, self.k, terms.adversarial.device)
        return winners(terms.total(config.cycle, config.identity))

    def backward(self, images: Tensor, origin: Side, chosen: Tensor | None) -> None:
        """Adds to each mechanism the gradient of its images' losses; one that was given none gets none."""
        for number, mechanism in enumerate(self.pairs()):
            own = images if chosen is None else images[chosen == number]
            if len(own):
                terms, _ = self.terms(mechanism, own, origin)
                (terms.total(self.config.cycle, self.config.identity).sum() / len(images)).backward()

    def update_critics(self, images: dict[Side, Tensor], made: dict[Side, Tensor], optimizer: Optimizer) -> Tensor:
        """One step of both critics on real images and on those of all mechanisms, new and pooled."""
        optimizer.zero_grad(set_to_none=True)
        losses = []
        for origin, other in zip(SIDES, SIDES[::-1], strict=True):
            pool = self.pools[other]
            assert isinstance(pool, ImagePool)
            shown = pool.exchange(made[origin].flatten(0, 1))
            losses.append(critic_loss(self.critic(other)(images[other]), self.critic(other)(shown)))
        total = torch.stack(losses).sum()
        total.backward()
        optimizer.step()
        return total.detach()

    def summary(self, terms: Terms, chosen: Tensor | None, origin: Side) -> dict[str, Tensor]:
        """What the rows of metrics hold: the winner's losses and each mechanism's share of wins."""
        winner = winners(terms.total(self.config.cycle, self.config.identity))
        own = winner if chosen is None else chosen
        picked = {name: part.gather(0, own[None]).mean() for name, part in terms._asdict().items()}
        losses = {f"{name} {origin}": value for name, value in picked.items()}
        return losses | {f"wins/{origin}/{i}": share for i, share in enumerate(shares(winner, self.k))}

    def build_optimizers(self) -> dict[str, Optimizer]:
        """Adam for the mechanisms and Adam for the critics."""
        betas = (self.config.beta1, 0.999)
        fused = next(self.parameters()).is_cuda
        return {
            name: Adam(part.parameters(), lr=self.config.lr, betas=betas, fused=fused)
            for name, part in (("mechanisms", self.mechanisms), ("critics", self.critics))
        }

    def lr_factor(self, progress: float) -> float:
        """1 in the first half, then down to 0 on a line."""
        return min(1.0, 2.0 * (1.0 - progress))

    def pairs(self) -> list[Mechanism]:
        """The mechanisms, typed."""
        return [pair for pair in self.mechanisms if isinstance(pair, Mechanism)]

    def critic(self, side: Side) -> Critic:
        """The critic of one domain's images."""
        critic = self.critics[side]
        assert isinstance(critic, Critic)
        return critic
