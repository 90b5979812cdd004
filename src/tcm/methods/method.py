"""The base class of all methods. A new method implements `losses` and little else."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.nn.backbone import Backbone
from tcm.nn.divided import divide_batches
from tcm.nn.generator import FrozenGenerators
from tcm.nn.heads import bottleneck, classifier
from tcm.nn.schedules import inverse_decay
from tcm.training.learner import Learner
from tcm.training.processes import Processes

RecipeName = Literal["common", "authors"]


class TargetImages(NamedTuple):
    """All target images, for a method that predicts them in the course of its training. They come without labels."""

    total: int
    predict: Callable[["Method"], Tensor]  # the method's probabilities for all of them: [total, classes]
    features: Callable[["Method"], Tensor]  # the input of its classifier for all of them: [total, width]


class TaskFeatures(NamedTuple):
    """The output of a network for all images of a task: what label propagation needs."""

    source: Tensor  # [source images, width]
    labels: Tensor  # [source images], their classes
    target: Tensor  # [target images, width]


@dataclass(frozen=True)
class Problem:
    """What a method needs to be built."""

    classes: int
    backbone: Backbone
    inverse: FrozenGenerators | None = None  # M_1^-1 to M_k^-1, if the method runs them
    target: TargetImages | None = None  # only for training
    task_features: Callable[[Callable[[Tensor], Tensor]], TaskFeatures] | None = None  # of a network; only for training


@dataclass(frozen=True)
class Recipe:
    """The optimiser and the bottleneck of a method, with the values that are usual in domain adaptation."""

    lr: float = 0.01
    """Learning rate of new layers."""
    pretrained_lr: float = 0.1
    """Learning rate of a pretrained backbone, relative to `lr`. A backbone with random weights has `lr`."""
    momentum: float = 0.9
    """Nesterov momentum of SGD."""
    weight_decay: float = 1e-3
    """Weight decay of all parameters."""
    bottleneck: int = 256
    """Width of the layer between backbone and classifier. Methods without this layer do not use it."""


@dataclass(frozen=True)
class MethodConfig:
    """The settings of a method. The first line of the docstring is the help on the command line.

    `class DANN(Method, config=DANNConfig)` makes `DANNConfig().build(problem)` return a `DANN`.
    """

    method: ClassVar[type["Method"]]
    uses_counterfactuals: ClassVar[bool] = False  # whether training needs the mechanisms of a finished stage 1
    runs_inverse: ClassVar[bool] = False  # whether the method runs the inverse mechanisms on images itself
    needs_images: ClassVar[bool] = False  # whether the method makes images itself, so that it cannot train on vectors
    number_of_mechanisms: ClassVar[int | None] = None  # None: any number
    default_steps: ClassVar[int] = 10_000  # of a run on photographs
    authors_steps: ClassVar[int] = 10_000  # of a run on Office-Home by the method's authors
    authors_batch: ClassVar[int] = 32  # images of each domain in a step of theirs

    recipe: Recipe = field(default_factory=Recipe)

    @property
    def strong_counterfactuals(self) -> float | None:
        """The share of strong views that start from a counterfactual; None if the method uses no strong views."""
        return None

    @property
    def only_useful_mechanisms(self) -> bool:
        """Whether strong views use only the mechanisms that pass the judgement (`tcm.mechanisms.judgement`)."""
        return False

    def usable(self, mechanisms: tuple[list[int], list[int]]) -> tuple[list[int], list[int]]:
        """Of these mechanisms for source and for target images, those whose counterfactuals strong views start from."""
        return mechanisms

    @property
    def trains(self) -> bool:
        """Whether the method trains a network. If it does not, a run has one step by default."""
        return True

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings; `small` is for images below 64 pixels, which have a small network."""
        return cls()

    @classmethod
    def with_recipe(cls, recipe: RecipeName, small: bool) -> Self:
        """The default settings by the name of a recipe."""
        if recipe == "common":
            return cls.for_images(small)
        if small:
            found = "is authors, but their settings are for photographs"
            raise InputError("recipe", f"{found}; leave it out for small images")
        return cls.authors()

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return cls()

    def build(self, problem: Problem) -> "Method":
        """The method, with new weights on top of the problem's backbone."""
        return self.method(problem, self)


class Answer(NamedTuple):
    """The prediction of a method for a batch of images, and the features behind it."""

    logits: Tensor  # [batch, classes]
    features: Tensor  # [batch, width], the input of the classifier
    variants: Mapping[str, Tensor] = MappingProxyType({})  # name -> logits of another way to predict


class Method(Learner):
    """A backbone, a bottleneck and a classifier, trained by SGD."""

    lr_fields = ("method.recipe.lr",)
    training_only: tuple[str, ...] = ()  # names of buffers that a saved model does not need
    min_steps_to_compile = 4000  # on an H200 it takes 50 s and saves 17 ms per step
    decay = 10.0  # r in the factor (1 + r p)^-0.75 of the learning rates

    def __init_subclass__(cls, config: type[MethodConfig] | None = None) -> None:
        """Makes `config.build` return this class."""
        super().__init_subclass__()
        if config:
            config.method = cls

    def __init__(self, problem: Problem, config: MethodConfig):
        super().__init__()
        self.recipe = recipe = config.recipe
        self.backbone = problem.backbone
        self.inverse = problem.inverse
        self.bottleneck = bottleneck(problem.backbone.width, recipe.bottleneck)
        self.classifier: nn.Module = classifier(recipe.bottleneck, problem.classes)
        self.extra_metrics: dict[str, Tensor] = {}  # set by `losses`, for metrics.jsonl; names contain a slash

    @abstractmethod
    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms of the objective by name; `update` minimises their sum."""

    def features(self, images: Tensor) -> Tensor:
        """The input of the classifier: [batch, bottleneck]."""
        return self.bottleneck(self.backbone(images))

    def answer(self, images: Tensor) -> Answer:
        """Logits of target images, and the features behind them, from one pass.

        A method that predicts in another way overrides this; `predict` uses it.
        """
        features = self.features(images)
        return Answer(self.classifier(features), features)

    def answer_fast(self, images: Tensor) -> Answer:
        """The same without counterfactuals: for fast predictions, and for source images. By default `answer` itself."""
        return self.answer(images)

    def predict(self, images: Tensor) -> Tensor:
        """Logits [batch, classes] of target images."""
        return self.answer(images).logits

    def forward(self, images: Tensor) -> Tensor:
        """The same as `predict`: images [batch, 3, height, width] in [0, 1] in, logits [batch, classes] out."""
        return self.predict(images)

    def class_scores(self, images: Tensor) -> Tensor:
        """Scores [batch, classes] whose gradient shows which parts of an image support a class (`activation_maps`)."""
        return self.predict(images)

    def predict_fast(self, images: Tensor) -> Tensor:
        """Logits [batch, classes] without counterfactuals."""
        return self.answer_fast(images).logits

    def conclude(self, target: Iterable[Tensor], source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Called once after the last step, to compute statistics over all images.

        `target` yields batches of target images. If the method uses counterfactuals, `source` yields batches of source
        images and of their counterfactuals [k, batch, ...]; otherwise it is empty.
        """

    def found_in_training(self) -> dict[str, Tensor]:
        """Class probabilities [target images, classes] that training itself gave to the target images, by name."""
        return {}

    def diagnostics(self) -> dict[str, float]:
        """Numbers about the weights, which every evaluation adds to metrics.jsonl."""
        return {}

    def singular_values(self) -> dict[str, list[float]]:
        """Singular values of the matrices that the method inverts, by name, in descending order (evaluation.json)."""
        return {}

    def with_own_optimizer(self) -> list[Tensor]:
        """Parameters that are not trained by the SGD of `build_optimizers`."""
        return []

    def inverse_counterfactuals(self, images: Tensor) -> Tensor:
        """M_i^-1 of target images for all k mechanisms: [k, batch, 3, height, width] in [0, 1], without gradients."""
        assert self.inverse is not None, "the config must set uses_counterfactuals"
        return self.inverse(images)

    def build_optimizers(self) -> dict[str, Optimizer]:
        """One SGD for all parameters."""
        return {"sgd": self.sgd(*self.parameter_groups())}

    def parameter_groups(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameter groups of the backbone and of the new layers; a pretrained backbone learns more slowly."""
        recipe, backbone = self.recipe, list(self.backbone.parameters())
        learning = [parameter for parameter in self.parameters() if parameter.requires_grad]
        others = {id(parameter) for parameter in [*backbone, *self.with_own_optimizer()]}
        new = [parameter for parameter in learning if id(parameter) not in others]
        share = recipe.pretrained_lr if self.backbone.pretrained else 1.0
        return {"params": backbone, "lr": recipe.lr * share}, {"params": new, "lr": recipe.lr}

    def sgd(self, *groups: dict[str, Any]) -> SGD:
        """SGD with the settings of the recipe for these parameter groups."""
        recipe = self.recipe
        # One kernel for all parameters. On the CPU it saves nothing.
        fused = any(parameter.is_cuda for parameter in self.parameters())
        return SGD(
            groups,
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=recipe.momentum > 0,
            fused=fused,
        )

    def lr_factor(self, progress: float) -> float:
        """(1 + r p)^-0.75 at progress p, where r is `decay`: 10 in most methods."""
        return inverse_decay(progress, self.decay)

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One gradient step on the sum of `losses`."""
        losses = self.losses(batch, progress)
        for optimizer in optimizers.values():
            optimizer.zero_grad(set_to_none=True)
        torch.stack(list(losses.values())).sum().backward()
        for optimizer in optimizers.values():
            optimizer.step()
        return {name: loss.detach() for name, loss in {**losses, **self.extra_metrics}.items()}

    def accelerate(self) -> None:
        """Compiles the backbone, which takes nearly all of the time."""
        on_gpu = next(self.parameters()).is_cuda
        # "reduce-overhead" replays a CUDA graph: a fast GPU otherwise waits for the kernels to be launched one by one.
        self.backbone.compile(mode="reduce-overhead" if on_gpu else None)

    def divide(self, processes: Processes) -> None:
        """Divides the images that pass through the backbone. All that follows it sees the whole batch everywhere."""
        divide_batches(self.backbone, processes.rank, processes.size)
