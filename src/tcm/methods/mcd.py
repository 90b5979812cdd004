"""MCD: maximum classifier discrepancy (Saito et al., CVPR 2018)."""

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem, Recipe
from tcm.nn.heads import deep_classifier
from tcm.nn.losses import class_balance, classifier_discrepancy


@dataclass(frozen=True)
class MCDConfig(MethodConfig):
    """MCD: features on which two classifiers that are trained to disagree still agree (Saito et al., 2018)."""

    recipe: Recipe = field(default_factory=lambda: Recipe(bottleneck=1024))
    trade_off: float = 1.0
    """Weight of the discrepancy, 1 in the paper of MCD. It is a mean over classes, so many classes need more."""
    balance: float = 0.01
    """Weight of the class balance loss on target predictions."""
    repeats: int = 4
    """Steps of the backbone for each step of the classifiers: n in the paper of MCD."""
    decay: bool = True
    """Let the learning rates fall as in the other methods. In the authors' code they are constant."""
    backbone_momentum: float = 0.9
    """Nesterov momentum of the backbone: 0 in the authors' code. That of the classifiers is `recipe.momentum`."""


class MCD(Method, config=MCDConfig):
    """Adversarial training of the backbone against two classifiers with hidden layers, in three steps."""

    def __init__(self, problem: Problem, config: MCDConfig):
        super().__init__(problem, config)
        self.config = config
        del self.bottleneck, self.classifier  # replaced by the two classifiers
        width = config.recipe.bottleneck
        heads = (deep_classifier(problem.backbone.features, width, problem.classes) for _ in range(2))
        self.classifiers = nn.ModuleList(heads)

    def features(self, images: Tensor) -> Tensor:
        """The input of the classifiers: [batch, features of the backbone]."""
        return self.backbone(images)

    def answer(self, images: Tensor) -> Answer:
        """The mean of both classifiers' logits [batch, classes], as in the authors' code, and their input."""
        features = self.features(images)
        first, second = self.both_logits(features)
        return Answer(0.5 * (first + second), features)

    def both_logits(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The logits of the first and of the second classifier, each [batch, classes]."""
        first, second = (classifier(features) for classifier in self.classifiers)
        return first, second

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms that the steps combine: classification, class balance and discrepancy of both classifiers."""
        return self.terms(self.features(torch.cat([batch.source, batch.target])), batch.labels)

    def terms(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The losses by name. The features are those of the labelled source images, then those of the target images."""
        logits = self.both_logits(features)
        source, target = zip(*(part.tensor_split([len(labels)]) for part in logits), strict=True)
        return {
            "classification": torch.stack([F.cross_entropy(part, labels) for part in source]).sum(),
            "balance": self.config.balance * torch.stack([class_balance(part) for part in target]).sum(),
            "discrepancy": self.config.trade_off * classifier_discrepancy(*target),
        }

    def build_optimizers(self) -> dict[str, Optimizer]:
        """One SGD for the classifiers and one for the backbone, because they take turns."""
        backbone, new = self.parameter_groups()
        momentum = self.config.backbone_momentum
        backbone |= {"momentum": momentum, "nesterov": momentum > 0}
        return {"classifiers": self.sgd(new), "backbone": self.sgd(backbone)}

    def lr_factor(self, progress: float) -> float:
        """(1 + 10 p)^-0.75 at progress p, or 1 without decay."""
        return super().lr_factor(progress) if self.config.decay else 1.0

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """Steps A, B and, n times, C of Saito et al. (2018), Section 3.3.

        Returns the losses of step A, but the discrepancy of the last step C.
        """

        def descend(loss: Tensor, *names: str) -> None:
            for optimizer in optimizers.values():
                optimizer.zero_grad(set_to_none=True)
            loss.backward()
            for name in names:
                optimizers[name].step()

        # A: classifiers and backbone learn to classify the source.
        found = self.losses(batch, progress)
        descend(found["classification"] + found["balance"], "classifiers", "backbone")
        # B: the classifiers learn to disagree on the target, and still to classify the source.
        with torch.no_grad():
            features = self.features(torch.cat([batch.source, batch.target]))
        terms = self.terms(features, batch.labels)
        descend(terms["classification"] + terms["balance"] - terms["discrepancy"], "classifiers")
        # C: the backbone learns features on which they agree.
        for _ in range(self.config.repeats):
            terms = self.losses(batch, progress)
            descend(terms["discrepancy"], "backbone")
        found["discrepancy"] = terms["discrepancy"]
        return {name: loss.detach() for name, loss in found.items()}
