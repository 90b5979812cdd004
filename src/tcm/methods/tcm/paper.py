"""TCM as in the paper: the proxy function h_y on features of counterfactuals (TCM Section 3.2).

x is the feature of an image. The features x_hat of its k counterfactuals are proxies of the confounder. A VAE encodes x
as z. Two linear heads predict the label and x_hat from (z, x), TCM Eq. (6). Solving the second for z and inserting z
into the first gives h_y(x, x_hat), TCM Eq. (7). P(Y | do(X)) is the sum of h_y over the proxies, weighted by
P(x_hat | S), TCM Eq. (5).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.alignment import ProxyAlignment
from tcm.methods.tcm.causal_head import CausalHead, HeadConfig
from tcm.methods.tcm.views import all_views, with_counterfactuals
from tcm.nn.schedules import ramp_up


@dataclass(frozen=True)
class PaperConfig(MethodConfig):
    """TCM as in the paper: the proxy function h_y, its VAE, and the proxy loss (TCM Section 3.2)."""

    uses_counterfactuals: ClassVar[bool] = True
    runs_inverse: ClassVar[bool] = True

    recipe: Recipe = field(default_factory=lambda: Recipe(lr=3e-3))
    """The optimiser. The learning rate is that of the authors' code, because the paper gives none."""
    input: Literal["backbone", "bottleneck"] = "backbone"
    """The features that the causal head and the discriminators see."""
    head: HeadConfig = field(default_factory=HeadConfig)
    alpha: float = 1.0
    """Weight of the proxy loss, TCM Eq. (8). The factor of its reversed gradient grows with progress."""
    hidden: int = 1024
    """Width of the discriminators."""
    dropout: float = 0.0
    """Dropout in the discriminators."""

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings. The small network has few features, some negative: a small VAE sees the bottleneck."""
        config = cls()
        if not small:
            return config
        vae = replace(config.head.vae, latent=32, encoder=(128,), decoder=(128,))
        head = replace(config.head, vae=vae, vae_lr=1e-3)
        return replace(config, recipe=Recipe(), input="bottleneck", head=head)


class PaperTCM(Method, config=PaperConfig):
    """Training by L_c + L_v + alpha L_p, TCM Eq. (8), and inference by TCM Algorithm 2."""

    lr_fields = ("method.recipe.lr", "method.head.vae_lr")

    def __init__(self, problem: Problem, config: PaperConfig):
        super().__init__(problem, config)
        self.config = config
        width = config.recipe.bottleneck if config.input == "bottleneck" else problem.backbone.features
        self.alignment = self.build_alignment(width, problem.classes)
        self.head = CausalHead(width, problem.classes, config.head)
        del self.classifier  # replaced by h_y
        if config.input == "backbone":
            del self.bottleneck

    def build_alignment(self, width: int, classes: int) -> nn.Module:
        """D_s and D_t of the proxy loss, TCM Eq. (10)."""
        return ProxyAlignment(width, self.config.hidden, self.config.dropout)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """TCM Algorithm 1, lines 13 to 16, with all k counterfactuals of each image as x_hat."""
        # All views in one pass: batch normalisation sees them together.
        views = all_views(batch)
        features = views.like(self.features(views.flat))
        found = self.head(features.source[:1], features.source[1:], features.target[1:], batch.labels)
        self.extra_metrics["head/share"] = found.share
        return {**found.terms, "alignment": self.config.alpha * self.alignment(features, ramp_up(progress))}

    def features(self, images: Tensor) -> Tensor:
        """The input of the causal head and the discriminators: [batch, width]."""
        features = self.backbone(images)
        return self.bottleneck(features) if self.config.input == "bottleneck" else features

    def answer(self, images: Tensor) -> Answer:
        """P(Y | do(X)) of target images as logits, TCM Eq. (5) and TCM Algorithm 2.

        Prediction variants: `fast`, with E[x_hat] in place of x_hat; f_y without h_y; and two choices of P(x_hat | S).
        """
        views = with_counterfactuals(images, self.inverse_counterfactuals(images))
        features = self.features(views.flatten(0, 1)).unflatten(0, views.shape[:2])
        x, x_hat, solved = features[0], features[1:], self.head.solved()
        variants = {
            "fast": solved.predict_with_mean(x),
            "f_y alone": self.head.predict_alone(x),
            "uniform weights": solved.predict(x, x_hat, "uniform"),
            "gaussian weights": solved.predict(x, x_hat, "gaussian"),
        }
        return Answer(solved.predict(x, x_hat), x, variants)

    def answer_fast(self, images: Tensor) -> Answer:
        """h_y with E[x_hat] in place of x_hat, which needs no counterfactuals."""
        x = self.features(images)
        return Answer(self.head.solved().predict_with_mean(x), x)

    def conclude(self, target: Iterable[Tensor], source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Computes P(x_hat | S) from all images of each domain."""
        self.head.target.reset()
        for images in target:
            self.head.target.update(self.features(self.inverse_counterfactuals(images).flatten(0, 1)))
        self.head.source.reset()
        for images, made in source:
            self.head.source.update(self.features(self.proxies(images, made)))

    def proxies(self, images: Tensor, made: Tensor) -> Tensor:
        """The images whose features are x_hat of the source: the counterfactuals [k, batch, ...] as one batch."""
        return made.flatten(0, 1)

    def diagnostics(self) -> dict[str, float]:
        """Norms and extreme singular values of the causal head, for metrics.jsonl."""
        return self.head.diagnostics()

    def singular_values(self) -> dict[str, list[float]]:
        """The singular values of W3, which TCM Eq. (7) inverts."""
        return {"W3": self.head.singular_values()}

    def build_optimizers(self) -> dict[str, Optimizer]:
        """SGD for everything except the VAE, which has Adam."""
        vae = Adam(self.head.vae.parameters(), lr=self.config.head.vae_lr, weight_decay=self.recipe.weight_decay)
        return {**super().build_optimizers(), "vae": vae}

    def with_own_optimizer(self) -> list[Tensor]:
        """The parameters of the VAE."""
        return list(self.head.vae.parameters())
