"""The bank of k mechanism pairs and how they learn: Section 3.1, Algorithm 1 lines 4 to 9, Appendix A.3.1."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.mechanisms.competition import Terms, random_assignment, winners
from tcm.mechanisms.components import COMPONENTS, component_shares, components, prices
from tcm.mechanisms.pair import SIDES, Mechanism, Side, compiled_network, opposite, run_network
from tcm.mechanisms.pool import ImagePool
from tcm.nn.critic import Critic, CriticConfig
from tcm.nn.cuda_graphs import Recorder
from tcm.nn.generator import GeneratorConfig
from tcm.nn.losses import adversarial, critic_error, reconstruction
from tcm.training.learner import Learner

JUDGED_AT_ONCE = 64  # images that a critic learns from in one pass
MEMORY = 0.9  # of what the mechanisms changed in earlier steps


@dataclass(frozen=True)
class BankConfig:
    """The mechanisms and their training; the defaults are the paper's, and the CycleGAN code's where it is silent."""

    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    critic_sees: Literal["each", "combined"] = "each"
    """What must look like the other domain. each: the image of every mechanism (the paper). combined: the image with
    the changes of all mechanisms, each of which may then go part of the way."""
    cycle: float = 10.0
    """alpha_1, the weight of the cycle loss."""
    identity: float = 5.0
    """alpha_2, the weight of the identity loss."""
    overlap: float = 0.0
    """Weight of what a mechanism changes in the components that belong to others."""
    score: Literal["total", "adversarial"] = "total"
    """What decides who wins an image. total: the whole loss (the paper). adversarial: how real its image looks."""
    warmup: int = 8000
    """Steps before the competition starts."""
    warmup_assignment: Literal["all", "random"] = "all"
    """Who learns in the warm-up. all: every mechanism from every image (the paper). random: a random mechanism."""
    assignment: Literal["competition", "random"] = "competition"
    """Who learns after it. competition: the winner, TCM Eq. (2). random: a random mechanism (the authors' code)."""
    lr: float = 2e-4
    """Adam's learning rate: constant in the first half of training, then falling linearly to 0."""
    critic_lr: float = 2e-4
    """The same for the critics."""
    beta1: float = 0.5
    """Adam's first beta; the second is 0.999."""
    pool: int = 50
    """Transported images of each domain that the critics are shown again."""

    def build(self, k: int, side: int, steps: int, classes: int = 1) -> "MechanismBank":
        """The bank of k mechanisms for images of that side, to be trained for that many steps."""
        return MechanismBank(self, k, side, steps, classes)

    def require_usable(self, side: int) -> None:
        """An error where no bank can be built for images of that side."""
        for name, value in (("warmup", self.warmup), ("pool", self.pool)):
            if value < 0:
                raise InputError(f"bank.{name}", f"is {value}; give 0 or more")
        self.generator.require_side(side)
        self.critic.require_side(side)


class Scored(NamedTuple):
    """What all mechanisms make of a batch."""

    losses: Tensor  # [k, batch], the smallest wins
    made: Tensor  # [k, batch, 3, side, side], in [-1, 1] or a little beyond


class MechanismBank(Learner):
    """k mechanisms that compete for every image, and one critic per domain that judges them all."""

    lr_fields = ("bank.lr", "bank.critic_lr")
    min_steps_to_compile = 500
    moved: Tensor
    wins: Tensor
    idle: Tensor

    def __init__(self, config: BankConfig, k: int, side: int, steps: int, classes: int = 1):
        super().__init__()
        self.config, self.steps = config, steps
        self.mechanisms = nn.ModuleList(Mechanism(config.generator) for _ in range(k))
        self.critics = nn.ModuleDict({name: config.critic.build() for name in SIDES})
        self.pools = nn.ModuleDict({name: ImagePool(config.pool, side) for name in SIDES})
        self.living = list(range(k))  # numbers of the mechanisms that were not dropped
        self.past_warmup = True  # at the last step: only then do wins tell which mechanisms are used
        # How strongly each mechanism changes each component, by the images' origin.
        self.register_buffer("moved", torch.zeros(len(SIDES), k, len(COMPONENTS)))
        # Images won since the last count: source images by class, target images in the last column.
        self.register_buffer("wins", torch.zeros(k, classes + 1))
        # For how many counts in a row each mechanism has been of no use.
        self.register_buffer("idle", torch.zeros(k, dtype=torch.int64))
        self.recorder = Recorder()
        self.run_network = run_network

    @property
    def k(self) -> int:
        """The number of mechanisms, without those that were dropped."""
        return len(self.living)

    # What mechanisms do to images.

    def transport(self, images: Tensor, to: Side) -> Tensor:
        """All k counterfactuals [k, batch, 3, side, side] in [0, 1] of images [batch, 3, side, side] in [0, 1]."""
        made = torch.stack([self.run_network(pair.network(to), 2 * images - 1) for pair in self.pairs()])
        return ((made + 1) / 2).clamp(0, 1)

    @torch.no_grad()
    def scored(self, images: Tensor, origin: Side) -> Scored:
        """The losses of all mechanisms and what they make of images in [-1, 1], without a graph."""
        other, losses, made = opposite(origin), [], []
        for pair in self.pairs():
            if self.config.score == "total":
                terms, carried = self.terms(pair, images, origin)
                losses.append(self.total(terms))
            else:
                carried = self.run_network(pair.network(other), images)
                losses.append(adversarial(self.run_network(self.critic(other), carried)))
            made.append(carried)
        return Scored(torch.stack(losses).float(), torch.stack(made))

    def terms(
        self, pair: Mechanism, images: Tensor, origin: Side, context: Tensor | None = None
    ) -> tuple[Terms, Tensor]:
        """Each image's losses [batch] under one mechanism, and the images [batch, 3, side, side] it was carried to.

        `context` is what other mechanisms add to the image before the critic sees it.
        """
        there, back, critic = pair.network(opposite(origin)), pair.network(origin), self.critic(opposite(origin))
        carried = self.run_network(there, images)
        # One pass for what must come back and what must stay: M^-1(M(x)) and M^-1(x).
        restored, kept = self.run_network(back, torch.cat([carried, images])).split(len(images))
        verdict = self.run_network(critic, carried if context is None else carried + context)
        return Terms(adversarial(verdict), reconstruction(restored, images), reconstruction(kept, images)), carried

    def total(self, terms: Terms) -> Tensor:
        """L_adv + alpha_1 L_cyc + alpha_2 L_idt of each image: [batch]."""
        return terms.total(self.config.cycle, self.config.identity)

    # One step of training.

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One step of the mechanisms, each on the images it was given, then one of the critics."""
        images: dict[Side, Tensor] = {"source": 2 * batch.source - 1, "target": 2 * batch.target - 1}
        self.critics.requires_grad_(False)
        found: dict[Side, Scored] = {
            side: self.recorder(("score", side, *self.living), self.scorer(side), images[side]) for side in SIDES
        }
        winner: dict[Side, Tensor] = {side: winners(found[side].losses) for side in SIDES}
        self.past_warmup = self.after_warmup(progress)
        self.count(winner, batch.labels)
        terms = self.update_mechanisms(images, found, self.chosen(winner, progress), optimizers)
        self.critics.requires_grad_(True)
        made: dict[Side, Tensor] = {side: self.judged(images[side], found[side].made) for side in SIDES}
        critics = self.update_critics(images, made, optimizers["critics"])
        share = {side: nn.functional.one_hot(winner[side], self.k).float().mean(dim=0) for side in SIDES}
        wins = {f"wins/{side}/{n}": share[side][place] for side in SIDES for place, n in enumerate(self.living)}
        names = ("adversarial", "cycle", "identity", *(["overlap"] if self.config.overlap else []))
        return {**dict(zip(names, terms, strict=False)), "critics": critics, **wins}

    def after_warmup(self, progress: float) -> bool:
        """Whether the warm-up is over at this progress."""
        return round(progress * self.steps) >= self.config.warmup

    def chosen(self, winner: dict[Side, Tensor], progress: float) -> dict[Side, list[list[int]]]:
        """The places in the batch of the images from which each living mechanism learns, by the images' origin."""
        config, batch = self.config, len(winner["source"])
        rule = config.assignment if self.after_warmup(progress) else config.warmup_assignment
        if rule == "all":
            return {side: [list(range(batch))] * self.k for side in SIDES}
        if rule == "random":
            given = [random_assignment(batch, self.k).tolist() for _ in SIDES]
        else:
            given = torch.stack([winner[side] for side in SIDES]).tolist()
        return {
            side: [[i for i, place in enumerate(row) if place == own] for own in range(self.k)]
            for side, row in zip(SIDES, given, strict=True)
        }

    def update_mechanisms(
        self,
        images: dict[Side, Tensor],
        found: dict[Side, Scored],
        chosen: dict[Side, list[list[int]]],
        optimizers: dict[str, Optimizer],
    ) -> Tensor:
        """Each mechanism learns from its images alone; one that was given none stays as it is. The mean losses [4]."""
        losses = torch.zeros(4, device=images["source"].device)
        context = {side: self.context(images[side], found[side].made) for side in SIDES}
        if self.config.critic_sees == "combined" or self.config.overlap:
            self.watch(images, found)
        price = self.priced() if self.config.overlap else self.moved
        shares = {side: sum(map(len, chosen[side])) for side in SIDES}
        for place, number in enumerate(self.living):
            optimizer = optimizers[f"mechanism {number}"]
            optimizer.zero_grad(set_to_none=False)
            for row, side in enumerate(SIDES):
                own = chosen[side][place]
                for taken, weight in self.portions(own, images[side]):
                    arguments = images[side][taken], context[side][place][taken], weight, price[row, number]
                    found_losses = self.recorder(("learn", number, side), self.teacher(number, side), *arguments)
                    losses = losses + found_losses * len(images[side]) / shares[side] / len(SIDES)
            if any(chosen[side][place] for side in SIDES):
                optimizer.step()
        return losses

    def learn(self, number: int, side: Side, images: Tensor, context: Tensor, weight: Tensor, price: Tensor) -> Tensor:
        """Adds to one mechanism's gradients those of its images' losses, and returns their weighted sums [4]."""
        pair = self.mechanisms[number]
        assert isinstance(pair, Mechanism)
        terms, carried = self.terms(pair, images, side, context)
        overlap = (components(carried - images) * price).sum(dim=1) if self.config.overlap else torch.zeros_like(weight)
        loss = (weight * (self.total(terms) + self.config.overlap * overlap)).sum()
        add_gradients(loss, pair)
        return torch.stack([(weight * part.detach()).sum() for part in (*terms, overlap)])

    def portions(self, own: list[int], images: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Places of images to learn from, and their weights in the loss, which is a mean over the whole batch.

        Where steps are recorded and compiled, all portions are of one size, the last filled up with weights of 0.
        """
        batch, device = len(images), images.device
        # Dealt images come in equal shares; won ones do not, and small portions leave less to fill up.
        shares = self.k if self.config.assignment == "random" else 2 * self.k
        size = max(batch // shares, 2) if self.recorder.on else max(len(own), 1)
        for first in range(0, len(own), size):
            places = own[first : first + size]
            more = size - len(places)
            weights = [1 / batch] * len(places) + [0.0] * more
            filled = torch.tensor([*places, *[places[0]] * more], device=device)
            yield filled, torch.tensor(weights, device=device, dtype=images.dtype)

    def context(self, images: Tensor, made: Tensor) -> Tensor:
        """What the others add to each image that a mechanism made, before a critic judges it: like `made`."""
        if self.config.critic_sees == "each":
            return torch.zeros_like(images).expand(made.shape)
        change = made - images
        return change.sum(dim=0) - change

    def judged(self, images: Tensor, made: Tensor) -> Tensor:
        """What the critics are to tell from real images: each mechanism's, or those with all changes together."""
        if self.config.critic_sees == "each":
            return made.flatten(0, 1)
        return images + (made - images).sum(dim=0)

    def watch(self, images: dict[Side, Tensor], found: dict[Side, Scored]) -> None:
        """Adds to `moved` what the mechanisms change in this step."""
        for row, side in enumerate(SIDES):
            change = (found[side].made - images[side]).flatten(0, 1)
            amount = components(change).unflatten(0, (self.k, -1)).mean(dim=1)
            self.moved[row, self.living] = self.moved[row, self.living].lerp(amount.to(self.moved), 1 - MEMORY)

    def priced(self) -> Tensor:
        """What a change costs in each band: [origin, mechanism, component]."""
        moved = self.moved[:, self.living]
        belongs = component_shares((moved / moved.sum(dim=1, keepdim=True).clamp(min=1e-6)).sum(dim=0))
        price = torch.zeros_like(self.moved)
        price[:, self.living] = torch.stack([prices(amount, belongs) for amount in moved])
        return price

    def update_critics(self, images: dict[Side, Tensor], made: dict[Side, Tensor], optimizer: Optimizer) -> Tensor:
        """One step of both critics on real images and on transported ones, new and pooled."""
        optimizer.zero_grad(set_to_none=False)
        losses = []
        for origin, other in zip(SIDES, SIDES[::-1], strict=True):
            pool = self.pools[other]
            assert isinstance(pool, ImagePool)
            shown = pool.exchange(made[origin])
            losses.append(self.recorder(("judge", other), self.judge(other), images[other], shown))
        optimizer.step()
        return losses[0] + losses[1]

    # What the recorder runs: a function of tensors for each side and mechanism.

    def scorer(self, side: Side) -> Callable[[Tensor], Scored]:
        """`scored` of one domain's images."""
        return lambda images: self.scored(images, side)

    def teacher(self, number: int, side: Side) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
        """`learn` of one mechanism and one domain's images."""
        return lambda images, context, weight, price: self.learn(number, side, images, context, weight, price)

    def judge(self, side: Side) -> Callable[[Tensor, Tensor], Tensor]:
        """Adds to one critic's gradients those of its loss, which is returned."""
        critic = self.critic(side)

        def learn(real: Tensor, shown: Tensor) -> Tensor:
            # Made images in portions, so that memory does not grow with the number of mechanisms.
            portions = [(portion, 0.0, len(portion) / len(shown)) for portion in shown.split(JUDGED_AT_ONCE)]
            losses = []
            for images, truth, share in [(real, 1.0, 1.0), *portions]:
                loss = share * critic_error(self.run_network(critic, images), truth)
                add_gradients(loss, critic)
                losses.append(loss.detach())
            return torch.stack(losses).sum()

        return learn

    # Who wins, which mechanisms are used.

    def count(self, winner: dict[Side, Tensor], labels: Tensor) -> None:
        """Adds a step's winners to the count."""
        numbers = torch.tensor(self.living, device=labels.device)
        last = torch.full_like(labels, self.wins.shape[1] - 1)
        for side, column in zip(SIDES, (labels, last), strict=True):
            won = numbers[winner[side]]
            self.wins.index_put_((won, column), torch.ones_like(won, dtype=self.wins.dtype), accumulate=True)

    def drop(self, numbers: list[int]) -> None:
        """Goes on without these mechanisms."""
        self.living = [number for number in self.living if number not in numbers]

    def get_extra_state(self) -> Tensor:
        """Which mechanisms live, as part of the checkpoint."""
        return torch.tensor(self.living)

    def set_extra_state(self, state: Tensor) -> None:
        """Goes on with these mechanisms."""
        self.living = state.tolist()

    # What the training loop asks for.

    def build_optimizers(self) -> dict[str, Optimizer]:
        """An Adam for each mechanism, which steps only when it has learnt something, and one for the critics."""

        def adam(part: nn.Module, lr: float) -> Adam:
            for parameter in part.parameters():
                parameter.grad = torch.zeros_like(parameter)  # gradients are added up in place
            return Adam(
                part.parameters(), lr=lr, betas=(self.config.beta1, 0.999), fused=next(part.parameters()).is_cuda
            )

        parts = {f"mechanism {number}": adam(pair, self.config.lr) for number, pair in enumerate(self.mechanisms)}
        return {**parts, "critics": adam(self.critics, self.config.critic_lr)}

    def weights(self) -> dict[str, Tensor]:
        """The living mechanisms, numbered from 0, and the critics that tell which of them wins."""
        parts = {f"mechanisms.{i}": pair for i, pair in enumerate(self.pairs())} | {"critics": self.critics}
        return {f"{part}.{name}": x for part, module in parts.items() for name, x in module.state_dict().items()}

    def load_weights(self, tensors: dict[str, Tensor]) -> None:
        """Takes over what `weights` gave."""
        for part, module in (("mechanisms.", self.mechanisms), ("critics.", self.critics)):
            own = {name.removeprefix(part): x for name, x in tensors.items() if name.startswith(part)}
            module.load_state_dict(own)

    def lr_factor(self, progress: float) -> float:
        """1 in the first half, then down to 0 on a line."""
        return min(1.0, 2.0 * (1.0 - progress))

    def accelerate(self) -> None:
        """Compiles the networks once for all mechanisms, and on a GPU records the parts of a step."""
        self.run_network = compiled_network()
        self.recorder.on = next(self.parameters()).is_cuda

    def pairs(self) -> list[Mechanism]:
        """The living mechanisms."""
        found = (self.mechanisms[number] for number in self.living)
        return [pair for pair in found if isinstance(pair, Mechanism)]

    def critic(self, side: Side) -> Critic:
        """The critic of one domain's images."""
        critic = self.critics[side]
        assert isinstance(critic, Critic)
        return critic


def add_gradients(loss: Tensor, part: nn.Module) -> None:
    """Adds the gradients of the loss to those of the part's parameters, in place, and to no others."""
    parameters = list(part.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        assert parameter.grad is not None
        parameter.grad.add_(gradient)
