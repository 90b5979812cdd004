"""TCM: counterfactuals as proxies of the confounder (Section 3.2), as the paper writes it and as it was made to work.

The transport formula (Eq. 1) sums P(Y | X, U = u) over the confounder's values. The paper evaluates it by a proxy
function h_y (Eq. 5 to 7): the causal head. Each inverse mechanism sets one factor of a target image to the source's
distribution, so the mean of the predictions on an image and on its counterfactuals is that sum evaluated directly: the
default. Every part is a term with a weight, and a preset is a set of weights.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Adam, Optimizer

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.methods.method import Answer, Method, Problem, Recipe
from tcm.methods.tcm.alignment import AlignmentConfig
from tcm.methods.tcm.causal_head import CausalHead, HeadConfig
from tcm.methods.tcm.views import Mixing, drawn_views, predicted_views
from tcm.nn.losses import agreement
from tcm.nn.schedules import ramp_up
from tcm.nn.vae import VAEConfig

Preset = Literal["default", "paper", "release", "control"]


@dataclass(frozen=True)
class TCMConfig:
    """Counterfactuals of both domains: source ones keep their label, target ones must agree."""

    uses_counterfactuals = True
    may_be_zero = ("source_views", "target_views")
    recipe: Recipe = field(default_factory=Recipe)
    features: Literal["bottleneck", "backbone"] = "bottleneck"
    """What discriminators and the causal head look at."""
    source_views: int | None = 2
    """Counterfactuals of a source image in a step. None: all k."""
    target_views: int | None = 2
    """Counterfactuals of a target image in a step. None: all k."""
    mixing: Mixing = "one"
    """What a counterfactual is. one: a mechanism's image. several: the changes of all mechanisms, each at a random
    strength. none: the image itself, a control without mechanisms."""
    plain: float = 0.5
    """Weight of the classification of source images."""
    counterfactual: float = 0.5
    """Weight of the classification of their counterfactuals, under the same label."""
    agreement: float = 1.0
    """Weight of the agreement of a target image's views with the mean of their predictions."""
    sharpness: float = 1.0
    """Power that the mean prediction is raised to before the views learn from it; 1 leaves it as it is. Above 1 it
    makes predictions sure, and with many classes the rare ones vanish."""
    alignment: AlignmentConfig = field(default_factory=AlignmentConfig)
    head: HeadConfig = field(default_factory=HeadConfig)
    prediction: Literal["average", "single", "adjusted"] = "average"
    """average: the mean over an image and its counterfactuals. single: the image alone. adjusted: h_y (Eq. 5)."""

    @property
    def classifies(self) -> bool:
        """Whether a plain classifier learns."""
        return bool(self.plain or self.counterfactual)

    def require_coherent(self) -> None:
        """An error where a part is switched on that needs another one."""
        views, head = "--method.source-views and --method.target-views of 1 or more", "--method.head.weight above 0"
        labels = "--method.plain or --method.counterfactual above 0"
        seen = self.source_views != 0 and self.target_views != 0
        aligned = self.alignment.kind if self.alignment.weight else ""
        needs = [
            (
                "counterfactual above 0",
                self.counterfactual,
                "--method.source-views of 1 or more",
                self.source_views != 0,
            ),
            ("agreement above 0", self.agreement, labels, self.classifies),
            ("head.weight above 0", self.head.weight, views, seen),
            ("alignment.kind proxies", aligned == "proxies", views, seen),
            ("alignment.kind predictions", aligned == "predictions", views, seen),
            ("prediction adjusted", self.prediction == "adjusted", head, self.head.weight),
            (f"prediction {self.prediction}", self.prediction != "adjusted", labels, self.classifies),
            ("alignment.kind conditional", aligned == "conditional", labels, self.classifies),
        ]
        for part, wanted, needed, there in needs:
            if wanted and not there:
                raise InputError(f"--method.{part} needs {needed}; set both or neither")

    def build(self, problem: Problem) -> "TCM":
        """The method on the problem's backbone."""
        return TCM(problem, self)


PAPER = TCMConfig(
    recipe=Recipe(lr=3e-3),  # the authors' code on Office-Home; the paper gives none
    features="backbone",
    source_views=None,
    target_views=None,
    plain=0.0,
    counterfactual=0.0,
    agreement=0.0,
    alignment=AlignmentConfig("proxies"),
    head=HeadConfig(weight=1.0),
    prediction="adjusted",
)
PRESETS: dict[Preset, TCMConfig] = {
    "default": TCMConfig(),
    "paper": PAPER,
    # The authors' scripts: labels on transported source images, alignment of predictions, E[x_hat].
    "release": replace(
        PAPER,
        source_views=1,
        target_views=1,
        alignment=AlignmentConfig("predictions", dropout=0.5),
        head=HeadConfig(weight=1.0, vae=VAEConfig(dropout=0.3), weighting="mean", swapped=True),
    ),
    # The default on the same batches, with every counterfactual replaced by the image itself.
    "control": TCMConfig(mixing="none"),
}


def preset_tcm(name: Preset, small: bool) -> TCMConfig:
    """Where the options of --method start; `small` is for the small network, whose features have signs."""
    method = PRESETS[name]
    if not small or not method.head.weight:
        return method
    vae = replace(method.head.vae, latent=32, encoder=(128,), decoder=(128,))
    head = replace(method.head, vae=vae, vae_lr=1e-3)
    return replace(method, recipe=Recipe(), features="bottleneck", head=head)


class TCM(Method):
    """Labels through counterfactuals, agreement across them, alignment of both domains' views, the causal head."""

    def __init__(self, problem: Problem, config: TCMConfig):
        super().__init__(problem, config.recipe)
        self.config = config
        width = config.recipe.bottleneck if config.features == "bottleneck" else problem.backbone.features
        self.alignment = config.alignment.build(width, problem.classes) if config.alignment.weight else None
        self.head = CausalHead(width, problem.classes, config.head) if config.head.weight else None
        if self.head:
            self.lr_fields = (*self.lr_fields, "method.head.vae_lr")
        if not self.config.classifies:  # no weights that nothing trains
            del self.classifier
            if config.features == "backbone":
                del self.bottleneck

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms that have a weight; agreement and alignment grow with progress."""
        config, grown = self.config, ramp_up(progress)
        views = drawn_views(batch, config.source_views, config.target_views, config.mixing)
        # All views in one pass: batch normalisation sees them together.
        features = views.like(self.head_features(views.flat))
        terms: dict[str, Tensor] = {}
        logits = features
        if config.classifies:
            logits = features.like(self.classified(features.flat))
            plain, changed = logits.source[0], logits.source[1:]
            terms["classification"] = config.plain * F.cross_entropy(plain, batch.labels)
            if len(changed):
                found = F.cross_entropy(changed.flatten(0, 1), batch.labels.repeat(len(changed)))
                terms["classification"] = terms["classification"] + config.counterfactual * found
            if config.agreement:
                terms["agreement"] = config.agreement * grown * agreement(logits.target, config.sharpness)
        if self.head:
            solved = self.head(features, batch.labels)
            terms |= {name: config.head.weight * term for name, term in solved.terms.items()}
            logits = logits if config.classifies else solved.logits
            self.notes["head/share"] = solved.share
        if self.alignment:
            terms["alignment"] = config.alignment.weight * self.alignment(features, logits, grown)
        return terms

    def features(self, images: Tensor) -> Tensor:
        """What the classifier reads or, where it predicts, the causal head."""
        return self.head_features(images) if self.config.prediction == "adjusted" else super().features(images)

    def head_features(self, images: Tensor) -> Tensor:
        """The features that discriminators and the causal head are given."""
        features = self.backbone(images)
        return self.bottleneck(features) if self.config.features == "bottleneck" else features

    def classifier_features(self, features: Tensor) -> Tensor:
        """What the plain classifier reads of `head_features` features."""
        return features if self.config.features == "bottleneck" else self.bottleneck(features)

    def classified(self, features: Tensor) -> Tensor:
        """The plain classifier's logits of `head_features` features."""
        return self.classifier(self.classifier_features(features))

    def answer(self, images: Tensor) -> Answer:
        """log P(Y | do(X)) of target images, or logits with the same order (Algorithm 2), and the features of the image
        itself: what the causal head is given where it predicts, else what the plain classifier reads.

        Other ways to read the model: fast, without an image's own counterfactuals (for the causal head with E[x_hat]);
        where predictions are averaged, each counterfactual alone; with the head, f_y alone, without h_y, and two
        choices of P(x_hat | S).
        """
        config = self.config
        if config.prediction == "single":
            return self.answer_fast(images)
        made = self.counterfactuals_of(images)
        mixing = config.mixing if config.prediction == "average" else "one"
        views = predicted_views(images, made, mixing)
        flat = self.head_features(views.flatten(0, 1))
        features = flat.unflatten(0, views.shape[:2])
        x, x_hat = features[0], features[1:]
        if config.prediction == "average":
            logits = self.classified(flat).unflatten(0, views.shape[:2])
            alone = [] if mixing == "none" else logits[1 : 1 + len(made)]
            others = {f"mechanism {number} alone": view for number, view in enumerate(alone, start=1)}
            return Answer(averaged(logits), self.classifier_features(x), {"fast": logits[0], **others})
        assert self.head
        solved = self.head.solved()
        others = {
            "fast": solved.predict_with_mean(x),
            "f_y alone": self.head.predict_alone(x),
            "uniform weights": solved.predict(x, x_hat, "uniform"),
            "gaussian weights": solved.predict(x, x_hat, "gaussian"),
        }
        return Answer(solved.predict(x, x_hat), x, others)

    def answer_fast(self, images: Tensor) -> Answer:
        """Without the image's own counterfactuals, at the price of the bare backbone."""
        features = self.head_features(images)
        if self.config.prediction == "adjusted":
            assert self.head
            return Answer(self.head.solved().predict_with_mean(features), features)
        return Answer(self.classified(features), self.classifier_features(features))

    def view_logits(self, images: Tensor) -> Tensor:
        """The plain classifier's logits [views, batch, classes] of images and, behind them, their counterfactuals."""
        views = predicted_views(images, self.counterfactuals_of(images), self.config.mixing)
        return self.classified(self.head_features(views.flatten(0, 1))).unflatten(0, views.shape[:2])

    def class_scores(self, images: Tensor) -> Tensor:
        """The views' logits, each weighted by its share of the class's averaged probability; else the prediction's.

        A probability near 1 has next to no gradient, so the shares are constants and the logits are differentiated.
        """
        if self.config.prediction != "average":
            return self.predict(images)
        logits = self.view_logits(images)
        shares = logits.detach().log_softmax(dim=-1).softmax(dim=0)
        return (shares * logits).sum(dim=0)

    def counterfactuals_of(self, images: Tensor) -> Tensor:
        """The counterfactuals of target images: in a control without mechanisms the images themselves."""
        return images[None] if self.config.mixing == "none" else self.inverse_counterfactuals(images)

    def conclude(self, target: Iterable[Tensor], source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Makes P(x_hat | S) exact, from all images of each domain."""
        if not self.head:
            return
        self.head.target.reset()
        for images in target:
            self.head.target.update(self.head_features(self.counterfactuals_of(images).flatten(0, 1)))
        self.head.source.reset()
        for images, made in source:
            x_hat = images if self.head.config.swapped else made.flatten(0, 1)
            self.head.source.update(self.head_features(x_hat))

    def diagnostics(self) -> dict[str, float]:
        """What the metrics tell of the causal head."""
        return self.head.diagnostics() if self.head else {}

    def singular_values(self) -> dict[str, list[float]]:
        """Those of W3 (Eq. 7)."""
        return {"W3": self.head.singular_values()} if self.head else {}

    def build_optimizers(self) -> dict[str, Optimizer]:
        """SGD for all but the VAE, which has an Adam."""
        found = super().build_optimizers()
        if self.head:
            own = self.head.vae.parameters()
            found["vae"] = Adam(own, lr=self.config.head.vae_lr, weight_decay=self.recipe.weight_decay)
        return found

    def with_own_optimizer(self) -> list[Tensor]:
        """The VAE's."""
        return list(self.head.vae.parameters()) if self.head else []


def averaged(logits: Tensor) -> Tensor:
    """The logarithm of the mean prediction over views: [views, batch, classes] -> [batch, classes] (Eq. 1)."""
    return logits.float().log_softmax(dim=-1).logsumexp(dim=0) - torch.tensor(float(len(logits))).log()
