"""ETD: enhanced transport distance (Li, Zhai, Luo, Ge and Ren, CVPR 2020).

Classification on the source, plus the entropic optimal transport distance between the features of a source and a target
batch, plus the entropy of target predictions. The cost of a pair of images is the distance of their features, times an
attention weight sigmoid(q_i . k_j), where q and k are linear functions of the logits.

Networks give the Kantorovich potentials of the transport problem. In a step they first climb the dual problem several
times, with fixed features. Then the other networks descend all losses. The form by default is the paper's: one
potential, on target features (semi-dual). The authors' code has two (dual).

What differs from the authors' code:

- Distances and attention weights are divided by their means. So neither small features nor small weights make the
  transport distance small, and `epsilon` has the same meaning for all networks. The code reads an epsilon that is not
  among its published settings.
- The logits have no gradient in the attention, and the attention itself has the code's tiny learning rate. Otherwise
  attention becomes 0 for the pairs that transport uses, and the distance is 0 without any adaptation.
- The distance is that of the bottleneck's output, as in the other methods here, not of the 2048 pooled features.
- Weights that grow with progress replace 10 epochs without adaptation and 15 that train the potentials only.
- The common SGD. The code's Adam has a learning rate of 2e-6 for the backbone, at which it hardly changes.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.methods.tcm.views import features_of
from tcm.nn.losses import entropy, in_single
from tcm.nn.schedules import ramp_up
from tcm.nn.transport import PairWeights, dual, potential, relative_distances, semi_dual


@dataclass(frozen=True)
class ETDConfig(MethodConfig):
    """ETD: features with a small optimal transport distance, in which attention weighs the pairs (Li et al., 2020)."""

    trade_off: float = 1.0
    """Weight of the transport distance, which is relative to the mean distance. The authors' weight of 0.1 is for
    distances of 10 to 20."""
    entropy: float = 0.5
    """Weight of the entropy of target predictions."""
    form: Literal["semi-dual", "dual"] = "semi-dual"
    """The problem that potentials solve. semi-dual: with one potential, as in the paper. dual: with two, as in the
    authors' code."""
    epsilon: float = 0.1
    """Weight of the entropic regularisation of transport plans, relative to the mean distance."""
    ascents: int = 10
    """Steps of the potentials for each step of the other networks."""
    potential_lr: float = 3e-4
    """Learning rate of the potentials, with Adam."""
    attention_lr: float = 2e-6
    """Learning rate of the attention, with Adam. With a large one the attention soon hides the pairs that transport
    uses, and the distance is 0."""
    hidden: int = 512
    """Width of the potentials' hidden layer."""
    separate_passes: bool = False
    """Pass each domain through the network on its own, as in the authors' code."""

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings. The small network has random weights, so that its first predictions on the target are
        wrong, and the entropy loss would only make them certain: it is off."""
        return replace(cls(), entropy=0.0) if small else cls()

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return replace(cls(), form="dual", separate_passes=True)


class Passed(NamedTuple):
    """What the network finds in a batch."""

    source: Tensor  # [batch, width], features
    target: Tensor
    source_logits: Tensor  # [batch, classes]
    target_logits: Tensor
    cost: Tensor  # [source, target]


class ETD(Method, config=ETDConfig):
    """Classification, transport distance and entropy; potentials that take several steps of their own."""

    lr_fields = ("method.recipe.lr", "method.potential_lr", "method.attention_lr")

    def __init__(self, problem: Problem, config: ETDConfig):
        super().__init__(problem, config)
        self.config = config
        self.attention = PairWeights(problem.classes)
        sides = ("source", "target") if config.form == "dual" else ("target",)
        self.potentials = nn.ModuleDict({side: potential(config.recipe.bottleneck, config.hidden) for side in sides})

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name. The weights of the last two grow with progress."""
        return self.terms(self.passed(batch), batch.labels, ramp_up(progress))

    def passed(self, batch: Batch) -> Passed:
        """Features, logits and transport costs of a batch."""
        source, target = features_of(self.features, (batch.source, batch.target), self.config.separate_passes)
        on_source, on_target = (in_single(self.classifier(features)) for features in (source, target))
        # The logits are constants here: with a gradient they would learn to hide the pairs that transport uses.
        attention = self.attention(on_source.detach(), on_target.detach())
        cost = attention * relative_distances(source, target)
        return Passed(source, target, on_source, on_target, cost)

    def terms(self, found: Passed, labels: Tensor, ramp: float) -> dict[str, Tensor]:
        """The losses by name; `ramp` is a factor of those that adapt."""
        uncertainty = entropy(found.target_logits.softmax(dim=1)).mean()
        return {
            "classification": F.cross_entropy(found.source_logits, labels),
            "transport": ramp * self.config.trade_off * self.distance(found.source, found.target, found.cost),
            "entropy": ramp * self.config.entropy * uncertainty,
        }

    def distance(self, source: Tensor, target: Tensor, cost: Tensor) -> Tensor:
        """The transport distance that the potentials find between features, in single precision."""
        with torch.autocast(cost.device.type, enabled=False):
            on_target = self.potentials["target"](in_single(target))[:, 0]
            if self.config.form == "semi-dual":
                return semi_dual(on_target, cost, self.config.epsilon)
            on_source = self.potentials["source"](in_single(source))[:, 0]
            return dual(on_source, on_target, cost, self.config.epsilon)

    def build_optimizers(self) -> dict[str, Optimizer]:
        """Adam for the potentials and for the attention, SGD for everything else."""
        decay = self.recipe.weight_decay
        return {
            "potentials": Adam(self.potentials.parameters(), lr=self.config.potential_lr, weight_decay=decay),
            "attention": Adam(self.attention.parameters(), lr=self.config.attention_lr, weight_decay=decay),
            **super().build_optimizers(),
        }

    def with_own_optimizer(self) -> list[Tensor]:
        """The parameters of the potentials and of the attention."""
        return [*self.potentials.parameters(), *self.attention.parameters()]

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """Steps of the potentials, which raise the distance, and then one step of the rest, which lowers the losses."""
        found = self.passed(batch)
        fixed = [part.detach() for part in (found.source, found.target, found.cost)]

        def step(loss: Tensor, *names: str) -> None:
            for optimizer in optimizers.values():
                optimizer.zero_grad(set_to_none=True)
            loss.backward()
            for name in names:
                optimizers[name].step()

        for _ in range(self.config.ascents):
            step(-self.distance(*fixed), "potentials")
        losses = self.terms(found, batch.labels, ramp_up(progress))
        step(torch.stack(list(losses.values())).sum(), "sgd", "attention")
        return {name: loss.detach() for name, loss in losses.items()}
