"""The bank of k mechanism pairs and how they learn: TCM Section 3.1, TCM Algorithm 1, lines 4 to 9."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.mechanisms.competition import Terms, random_assignment, winners
from tcm.mechanisms.components import COMPONENTS, component_shares, components, overlap_weights
from tcm.mechanisms.networks import MechanismNetworks
from tcm.mechanisms.pair import SIDES, Mechanism, Side, compiled_network, opposite
from tcm.mechanisms.pool import ImagePool
from tcm.nn.critic import CriticConfig
from tcm.nn.cuda_graphs import Recorder
from tcm.nn.generator import GeneratorConfig
from tcm.nn.losses import adversarial, critic_error
from tcm.training.learner import Learner
from tcm.training.processes import ALONE, Processes

CRITIC_BATCH = 64  # transported images in one pass of a critic
MOMENTUM = 0.9  # of the moving average of what the mechanisms change


@dataclass(frozen=True)
class BankConfig:
    """The mechanisms and their training. Defaults are the paper's, or those of the CycleGAN code if it gives none."""

    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    critic_sees: Literal["each", "combined"] = "each"
    """What must look like the other domain. each: the image of every mechanism (the paper). combined: the image with
    the changes of all mechanisms, so that each may make a part of the change."""
    cycle: float = 10.0
    """alpha_1, the weight of the cycle loss."""
    identity: float = 5.0
    """alpha_2, the weight of the identity loss."""
    overlap: float = 0.0
    """Weight of the overlap loss: what a mechanism changes in the components of other mechanisms."""
    score: Literal["total", "adversarial"] = "total"
    """The loss that decides who wins an image. total: the whole loss (the paper). adversarial: L_adv only."""
    warmup: int = 8000
    """Steps before the competition starts. In a training that is not longer, the first half of it."""
    warmup_assignment: Literal["all", "random"] = "all"
    """Who learns during the warm-up. all: every mechanism from every image (the paper). random: a random mechanism."""
    assignment: Literal["competition", "random"] = "competition"
    """Who learns after it. competition: the winner, TCM Eq. (2). random: a random mechanism (the authors' code)."""
    lr: float = 2e-4
    """Adam's learning rate: constant in the first half of training, then falling linearly to 0."""
    critic_lr: float = 2e-4
    """The same for the critics."""
    beta1: float = 0.5
    """Adam's first beta; the second is 0.999."""
    pool: int = 50
    """Transported images of each domain that are kept and shown to the critics again."""

    def build(self, k: int, side: int, steps: int, classes: int = 1) -> "MechanismBank":
        """A bank of k mechanisms for images of this side, for training with this many steps."""
        return MechanismBank(self, k, side, steps, classes)

    def require_usable(self, side: int) -> None:
        """An error if no bank can be built for images of this side."""
        for name, value in (("warmup", self.warmup), ("pool", self.pool)):
            if value < 0:
                raise InputError(f"bank.{name}", f"is {value}; give 0 or more")
        self.generator.require_side(side)
        self.critic.require_side(side)


class Scored(NamedTuple):
    """The losses and the images of all mechanisms for one batch."""

    losses: Tensor  # [k, batch], the smallest wins
    made: Tensor  # [k, batch, 3, side, side], in [-1, 1] or a little beyond


class MechanismBank(MechanismNetworks, Learner):
    """k mechanisms that compete for every image, and one critic per domain for all of them."""

    lr_fields = ("bank.lr", "bank.critic_lr")
    min_steps_to_compile = 500
    component_change: Tensor
    wins: Tensor
    idle: Tensor

    def __init__(self, config: BankConfig, k: int, side: int, steps: int, classes: int = 1):
        super().__init__(config.generator, config.critic, k)
        self.config, self.steps = config, steps
        self.pools = nn.ModuleDict({name: ImagePool(config.pool, side) for name in SIDES})
        self.past_warmup = True  # at the last step: only then do wins show which mechanisms are used
        # How strongly each mechanism changes each component of source images and of target images: a moving average.
        self.register_buffer("component_change", torch.zeros(len(SIDES), k, len(COMPONENTS)))
        # Images won since the last evaluation: source images by class, target images in the last column.
        self.register_buffer("wins", torch.zeros(k, classes + 1))
        # For how many evaluations in a row each mechanism has been unused.
        self.register_buffer("idle", torch.zeros(k, dtype=torch.int64))
        self.recorder = Recorder()
        self.processes = ALONE

    @torch.no_grad()
    def scored(self, images: Tensor, origin: Side) -> Scored:
        """The losses and the outputs of all mechanisms for images in [-1, 1] (TCM Algorithm 1, line 7)."""
        other, losses, made = opposite(origin), [], []
        for pair in self.pairs():
            if self.config.score == "total":
                terms, transported = self.terms(pair, images, origin)
                losses.append(self.total(terms))
            else:
                transported = self.run_network(pair.network(other), images)
                losses.append(adversarial(self.run_network(self.critic(other), transported)))
            made.append(transported)
        return Scored(torch.stack(losses).float(), torch.stack(made))

    def total(self, terms: Terms) -> Tensor:
        """L_adv + alpha_1 L_cyc + alpha_2 L_idt of each image: [batch]."""
        return terms.total(self.config.cycle, self.config.identity)

    # One training step.

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One step of the mechanisms, each on the images assigned to it, then one step of the critics."""
        images: dict[Side, Tensor] = {"source": 2 * batch.source - 1, "target": 2 * batch.target - 1}
        self.critics.requires_grad_(False)
        found: dict[Side, Scored] = {side: self.all_scored(images[side], side) for side in SIDES}
        winner: dict[Side, Tensor] = {side: winners(found[side].losses) for side in SIDES}
        self.past_warmup = self.after_warmup(progress)
        self.count_wins(winner, batch.labels)
        terms = self.update_mechanisms(images, found, self.assigned_images(winner, progress), optimizers)
        self.critics.requires_grad_(True)
        made: dict[Side, Tensor] = {side: self.critic_input(images[side], found[side].made) for side in SIDES}
        critics = self.update_critics(images, made, optimizers["critics"])
        share = {side: nn.functional.one_hot(winner[side], self.k).float().mean(dim=0) for side in SIDES}
        wins = {f"wins/{side}/{n}": share[side][place] for side in SIDES for place, n in enumerate(self.active)}
        names = ("adversarial", "cycle", "identity", *(["overlap"] if self.config.overlap else []))
        return {**dict(zip(names, terms, strict=False)), "critics": critics, **wins}

    def all_scored(self, images: Tensor, side: Side) -> Scored:
        """`scored` of all images; each process computes a part."""
        score = partial(self.scored, origin=side)
        found = self.recorder(("score", side, *self.active), score, self.processes.own(images))
        return Scored(*(self.processes.gathered(part, len(images)) for part in found))

    def after_warmup(self, progress: float) -> bool:
        """Whether the warm-up is over at this progress."""
        return round(progress * self.steps) >= self.config.warmup

    def count_wins(self, winner: dict[Side, Tensor], labels: Tensor) -> None:
        """Adds the winners of a step to `wins`."""
        numbers = torch.tensor(self.active, device=labels.device)
        last = torch.full_like(labels, self.wins.shape[1] - 1)
        for side, column in zip(SIDES, (labels, last), strict=True):
            won = numbers[winner[side]]
            self.wins.index_put_((won, column), torch.ones_like(won, dtype=self.wins.dtype), accumulate=True)

    def assigned_images(self, winner: dict[Side, Tensor], progress: float) -> dict[Side, list[list[int]]]:
        """For each domain and active mechanism, the indices of the images in the batch that it learns from."""
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
        assigned: dict[Side, list[list[int]]],
        optimizers: dict[str, Optimizer],
    ) -> Tensor:
        """Each mechanism learns only from its images, TCM Eq. (2); without images it does not change.

        Returns the mean losses [4]: adversarial, cycle, identity, overlap.
        """
        losses = torch.zeros(4, device=images["source"].device)
        others = {side: self.changes_of_others(images[side], found[side].made) for side in SIDES}
        if self.config.critic_sees == "combined" or self.config.overlap:
            self.track_changes(images, found)
        weights = self.overlap_weights() if self.config.overlap else self.component_change
        counts = {side: sum(map(len, assigned[side])) for side in SIDES}
        for place, number in enumerate(self.active):
            optimizer = optimizers[f"mechanism {number}"]
            optimizer.zero_grad(set_to_none=False)
            for row, side in enumerate(SIDES):
                learn = partial(self.add_mechanism_gradients, number, side)
                for taken, share in self.chunks(self.processes.own(assigned[side][place]), images[side]):
                    inputs = images[side][taken], others[side][place][taken], share, weights[row, number]
                    chunk_losses = self.recorder(("learn", number, side), learn, *inputs)
                    losses = losses + chunk_losses * len(images[side]) / counts[side] / len(SIDES)
            if any(assigned[side][place] for side in SIDES):
                self.processes.sum(gradients_of(self.mechanisms[number]))
                optimizer.step()
        self.processes.sum([losses])
        return losses

    def add_mechanism_gradients(
        self, number: int, side: Side, images: Tensor, others: Tensor, share: Tensor, overlap_weight: Tensor
    ) -> Tensor:
        """Adds the gradients of one mechanism's loss on these images, and returns its weighted sums [4].

        `share` [batch] is the weight of each image, `overlap_weight` [components] that of each component's change.
        """
        pair = self.mechanisms[number]
        assert isinstance(pair, Mechanism)
        terms, transported = self.terms(pair, images, side, others)
        overlap = torch.zeros_like(share)
        if self.config.overlap:
            overlap = (components(transported - images) * overlap_weight).sum(dim=1)
        loss = (share * (self.total(terms) + self.config.overlap * overlap)).sum()
        add_gradients(loss, pair)
        return torch.stack([(share * part.detach()).sum() for part in (*terms, overlap)])

    def chunks(self, own: list[int], images: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices of images to learn from, and their weights in the loss, which is a mean over the whole batch.

        If steps are recorded, all chunks have the same size. The last one is padded with images of weight 0.
        """
        batch, device = len(images), images.device
        # Random assignment gives equal numbers of images. Wins are uneven, and small chunks need less padding.
        shares = self.k if self.config.assignment == "random" else 2 * self.k
        size = max(batch // shares, 2) if self.recorder.on else max(len(own), 1)
        for first in range(0, len(own), size):
            places = own[first : first + size]
            more = size - len(places)
            weights = [1 / batch] * len(places) + [0.0] * more
            padded = torch.tensor([*places, *[places[0]] * more], device=device)
            yield padded, torch.tensor(weights, device=device, dtype=images.dtype)

    # What the critics see, and what the mechanisms change.

    def changes_of_others(self, images: Tensor, made: Tensor) -> Tensor:
        """For each mechanism, what the others add to its images before a critic sees them: the shape of `made`."""
        if self.config.critic_sees == "each":
            return torch.zeros_like(images).expand(made.shape)
        change = made - images
        return change.sum(dim=0) - change

    def critic_input(self, images: Tensor, made: Tensor) -> Tensor:
        """The transported images for the critics: those of each mechanism, or those with all changes combined."""
        if self.config.critic_sees == "each":
            return made.flatten(0, 1)
        return images + (made - images).sum(dim=0)

    def track_changes(self, images: dict[Side, Tensor], found: dict[Side, Scored]) -> None:
        """Updates `component_change` with the changes of this step."""
        average, active = self.component_change, self.active
        for row, side in enumerate(SIDES):
            change = (found[side].made - images[side]).flatten(0, 1)
            amount = components(change).unflatten(0, (self.k, -1)).mean(dim=1)
            average[row, active] = average[row, active].lerp(amount.to(average), 1 - MOMENTUM)

    def overlap_weights(self) -> Tensor:
        """The weight of a change in the overlap loss: [origin, mechanism, component]."""
        change = self.component_change[:, self.active]
        belongs = component_shares((change / change.sum(dim=1, keepdim=True).clamp(min=1e-6)).sum(dim=0))
        weights = torch.zeros_like(self.component_change)
        weights[:, self.active] = torch.stack([overlap_weights(amount, belongs) for amount in change])
        return weights

    def update_critics(self, images: dict[Side, Tensor], made: dict[Side, Tensor], optimizer: Optimizer) -> Tensor:
        """One step of both critics on real and on transported images, new and pooled; the sum of their losses."""
        optimizer.zero_grad(set_to_none=False)
        losses = []
        for origin, other in zip(SIDES, SIDES[::-1], strict=True):
            pool = self.pools[other]
            assert isinstance(pool, ImagePool)
            shown = pool.exchange(made[origin])
            learn = partial(self.add_critic_gradients, other, counts=(len(images[other]), len(shown)))
            seen = self.processes.own(images[other]), self.processes.own(shown)
            losses.append(self.recorder(("critic", other), learn, *seen))
        self.processes.sum([*gradients_of(self.critics), *losses])
        optimizer.step()
        return losses[0] + losses[1]

    def add_critic_gradients(
        self, side: Side, real: Tensor, transported: Tensor, counts: tuple[int, int] | None = None
    ) -> Tensor:
        """Adds the gradients of one critic's loss L_d, TCM Eq. (34), and returns the loss.

        `counts` are the numbers of all real and of all transported images, if these are the part of one process.
        """
        real_count, count = counts or (len(real), len(transported))
        critic, losses = self.critic(side), []
        # In chunks, so that memory does not grow with the number of mechanisms.
        chunks = [(chunk, 0.0, len(chunk) / count) for chunk in transported.split(CRITIC_BATCH)]
        for images, truth, share in [(real, 1.0, len(real) / real_count), *chunks]:
            loss = share * critic_error(self.run_network(critic, images), truth)
            add_gradients(loss, critic)
            losses.append(loss.detach())
        return torch.stack(losses).sum()

    # What the training loop needs.

    def build_optimizers(self) -> dict[str, Optimizer]:
        """One Adam per mechanism, which steps only if the mechanism got an image, and one for the critics."""

        def adam(part: nn.Module, lr: float) -> Adam:
            for parameter in part.parameters():
                parameter.grad = torch.zeros_like(parameter)  # gradients are added in place
            return Adam(
                part.parameters(), lr=lr, betas=(self.config.beta1, 0.999), fused=next(part.parameters()).is_cuda
            )

        parts = {f"mechanism {number}": adam(pair, self.config.lr) for number, pair in enumerate(self.mechanisms)}
        return {**parts, "critics": adam(self.critics, self.config.critic_lr)}

    def lr_factor(self, progress: float) -> float:
        """1 in the first half of training, then falling linearly to 0."""
        return min(1.0, 2.0 * (1.0 - progress))

    def accelerate(self) -> None:
        """Compiles the networks once for all mechanisms. On a GPU the parts of a step become CUDA graphs."""
        self.run_network = compiled_network()
        self.recorder.on = next(self.parameters()).is_cuda

    def divide(self, processes: Processes) -> None:
        """Divides the images that pass through the networks. Winners and pools are those of the whole batch."""
        self.processes = processes


def add_gradients(loss: Tensor, part: nn.Module) -> None:
    """Adds the gradients of the loss to those of the part's parameters, in place, and to no others."""
    parameters = list(part.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        assert parameter.grad is not None
        parameter.grad.add_(gradient)


def gradients_of(part: nn.Module) -> list[Tensor]:
    """The gradients of the part's parameters, which are never None."""
    return [parameter.grad for parameter in part.parameters() if parameter.grad is not None]
