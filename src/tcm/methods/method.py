"""Stage 2: what every classification method shares. A new one writes `losses` and little else."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.nn.backbone import Backbone
from tcm.nn.generator import FrozenGenerators
from tcm.nn.heads import bottleneck, classifier
from tcm.nn.schedules import inverse_decay
from tcm.training.learner import Learner


@dataclass(frozen=True)
class Problem:
    """What a method is built for."""

    classes: int
    backbone: Backbone
    inverse: FrozenGenerators | None = None  # M_1^-1 to M_k^-1, for a method that uses counterfactuals


@dataclass(frozen=True)
class Recipe:
    """How every method is trained unless its config says otherwise (the usual recipe of the field)."""

    lr: float = 0.01
    """Learning rate of new layers."""
    pretrained_lr: float = 0.1
    """A pretrained backbone's learning rate as a share of `lr`; one that starts from scratch learns at `lr`."""
    momentum: float = 0.9
    """Momentum of SGD (nesterov)."""
    weight_decay: float = 1e-3
    """Weight decay of every parameter."""
    bottleneck: int = 256
    """Width of the layer between backbone and classifier."""


@dataclass(frozen=True)
class MethodConfig:
    """The settings of a method: a frozen dataclass whose first line of documentation is the help of the command line.

    `class DANN(Method, config=DANNConfig)` connects the two, so that `build` need not be written again.
    """

    method: ClassVar[type["Method"]]
    uses_counterfactuals: ClassVar[bool] = False  # whether training needs the mechanisms of a finished stage 1
    number_of_mechanisms: ClassVar[int | None] = None  # that the method needs; None: any number

    recipe: Recipe = field(default_factory=Recipe)

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings; `small` is for images below 64 pixels and their small network."""
        return cls()

    def build(self, problem: Problem) -> "Method":
        """The method, with fresh weights on top of the problem's backbone."""
        k, needed = len(problem.inverse or ()), self.number_of_mechanisms
        if needed not in (None, k):
            found = f"has {k} mechanisms, but this method uses {needed}"
            raise InputError("mechanisms", f"{found}; name a run of tcm mechanisms with `k` {needed}")
        return self.method(problem, self)


class Answer(NamedTuple):
    """What a method says of images, and what it says it by."""

    logits: Tensor  # [batch, classes]
    features: Tensor  # [batch, width], of the layer that the logits are read from
    variants: Mapping[str, Tensor] = MappingProxyType({})  # name -> logits of another way to predict, to compare with


class Method(Learner):
    """Backbone, bottleneck, classifier, and SGD with the field's schedule."""

    lr_fields = ("method.recipe.lr",)
    min_steps_to_compile = 4000  # on an H200 17 ms are saved a step, and 50 s are spent

    def __init_subclass__(cls, config: type[MethodConfig] | None = None) -> None:
        """Makes the class what `config` builds."""
        super().__init_subclass__()
        if config:
            config.method = cls

    def __init__(self, problem: Problem, config: MethodConfig):
        super().__init__()
        self.recipe = recipe = config.recipe
        self.backbone = problem.backbone
        self.inverse = problem.inverse
        self.bottleneck = bottleneck(problem.backbone.features, recipe.bottleneck)
        self.classifier: nn.Module = classifier(recipe.bottleneck, problem.classes)
        self.notes: dict[str, Tensor] = {}  # what `losses` has to tell beside the losses, by names with a stroke

    @abstractmethod
    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms of the objective by name; `update` descends on their sum."""

    def features(self, images: Tensor) -> Tensor:
        """What the classifier reads: [batch, bottleneck]."""
        return self.bottleneck(self.backbone(images))

    def answer(self, images: Tensor) -> Answer:
        """Logits of target images and the features behind them, in one pass. A method that predicts in another way
        overrides this; `predict` follows."""
        features = self.features(images)
        return Answer(self.classifier(features), features)

    def answer_fast(self, images: Tensor) -> Answer:
        """The answer for users in a hurry, and of source images, which need no counterfactuals; most methods have but
        one."""
        return self.answer(images)

    def predict(self, images: Tensor) -> Tensor:
        """Logits [batch, classes] of target images."""
        return self.answer(images).logits

    def class_scores(self, images: Tensor) -> Tensor:
        """Scores [batch, classes] before any softmax, whose gradient tells what in an image speaks for a class."""
        return self.predict(images)

    def predict_fast(self, images: Tensor) -> Tensor:
        """The prediction for users in a hurry."""
        return self.answer_fast(images).logits

    def conclude(self, target: Iterable[Tensor], source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """What is still to do after the last step with all images in batches: those of the target and, where there are
        counterfactuals, those of the source with theirs, [k, batch, ...]."""

    def diagnostics(self) -> dict[str, float]:
        """What the metrics are to tell of the weights at every evaluation."""
        return {}

    def singular_values(self) -> dict[str, list[float]]:
        """Those of the matrices that a method has to invert, by name, the largest first; evaluation.json has them."""
        return {}

    def with_own_optimizer(self) -> list[Tensor]:
        """Parameters that the common SGD leaves alone."""
        return []

    def inverse_counterfactuals(self, images: Tensor) -> Tensor:
        """M_i^-1 of target images, all k: [k, batch, 3, height, width] in [0, 1], without gradients."""
        assert self.inverse is not None, "the config must say that it uses counterfactuals"
        return self.inverse(images)

    def build_optimizers(self) -> dict[str, Optimizer]:
        """One SGD for all that learns."""
        return {"sgd": self.sgd(*self.parameter_groups())}

    def parameter_groups(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The backbone and the new layers; a pretrained backbone learns more slowly."""
        recipe, backbone = self.recipe, list(self.backbone.parameters())
        learning = [parameter for parameter in self.parameters() if parameter.requires_grad]
        others = {id(parameter) for parameter in [*backbone, *self.with_own_optimizer()]}
        new = [parameter for parameter in learning if id(parameter) not in others]
        share = recipe.pretrained_lr if self.backbone.pretrained else 1.0
        return {"params": backbone, "lr": recipe.lr * share}, {"params": new, "lr": recipe.lr}

    def sgd(self, *groups: dict[str, Any]) -> SGD:
        """The recipe's SGD of these groups."""
        recipe = self.recipe
        # One kernel for all parameters; on the CPU the plain loop is as fast.
        fused = next(self.parameters()).is_cuda
        return SGD(
            groups,
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.momentum > 0,
            fused=fused,
        )

    def lr_factor(self, progress: float) -> float:
        """(1 + 10 p)^-0.75."""
        return inverse_decay(progress)

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One gradient step on the sum of `losses`."""
        losses = self.losses(batch, progress)
        for optimizer in optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses.values())).sum().backward()
        for optimizer in optimizers.values():
            optimizer.step()
        return {name: loss.detach() for name, loss in {**losses, **self.notes}.items()}

    def accelerate(self) -> None:
        """Compiles the backbone: all but a sliver of the time is spent there."""
        on_gpu = next(self.parameters()).is_cuda
        # Replayed as a CUDA graph: launched one by one, the kernels of a step keep a GPU waiting.
        self.backbone.compile(mode="reduce-overhead" if on_gpu else None)
