"""TCM as the authors' script for Office-Home trains it (scripts/tcm/dda.py of their repository).

It differs from TCM Section 3.2. Two plain linear classifiers learn the labels: one on source images, one on their
counterfactuals M(x_s). Their class probabilities are aligned. The proxy function h_y predicts, with x = M(x_s), x_hat =
x_s, and E[x_hat] in place of each image's own x_hat. Its heads and its VAE do not train the backbone.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Adam, Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Answer, Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.alignment import PredictionAlignment
from tcm.methods.tcm.causal_head import MEMORY, CausalHead, HeadConfig
from tcm.methods.tcm.head_diagnostics import proxy_share
from tcm.methods.tcm.proxy import adjusted_logits
from tcm.methods.tcm.views import features_of, sampled_views
from tcm.nn.heads import initialise_kaiming
from tcm.nn.losses import in_single, vae_loss
from tcm.nn.schedules import inverse_decay, ramp_up
from tcm.nn.vae import VAEConfig


@dataclass(frozen=True)
class ReleaseConfig(MethodConfig):
    """TCM as in the authors' script for Office-Home: plain classifiers, whose predictions are aligned, beside h_y."""

    uses_counterfactuals: ClassVar[bool] = True
    runs_inverse: ClassVar[bool] = True
    default_steps: ClassVar[int] = 15_000

    recipe: Recipe = field(default_factory=lambda: Recipe(lr=3e-3))
    vae: VAEConfig = field(default_factory=lambda: VAEConfig(dropout=0.3))
    vae_lr: float = 1e-5
    """Learning rate of the VAE, with Adam."""
    alpha: float = 1.0
    """Weight of the alignment loss. The factor of its reversed gradient grows with progress."""
    hidden: int = 1024
    """Width of the discriminators."""
    dropout: float = 0.5
    """Dropout in the discriminators."""
    separate_passes: bool = True
    """Pass each kind of image through the backbone on its own, as in the authors' code: batch normalisation then sees
    source images, target images and their counterfactuals one kind at a time."""

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings. The small network has the learning rate of the other methods, a small VAE and one pass.

        Its batch normalisation starts from nothing, and the statistics of one kind of digits do not fit another kind.
        """
        config = cls()
        if not small:
            return config
        vae = replace(config.vae, latent=4, encoder=(128,), decoder=(128,))
        return replace(config, recipe=Recipe(), vae=vae, vae_lr=1e-3, separate_passes=False)


class ReleaseTCM(Method, config=ReleaseConfig):
    """Two plain classifiers, a discriminator for each, and the causal head, all on the features of the backbone."""

    lr_fields = ("method.recipe.lr", "method.vae_lr")

    def __init__(self, problem: Problem, config: ReleaseConfig):
        super().__init__(problem, config)
        del self.bottleneck, self.classifier
        self.config = config
        width, classes = problem.backbone.features, problem.classes
        self.source_classifier, self.target_classifier = (
            nn.Linear(width, classes).apply(initialise_kaiming) for _ in range(2)
        )
        self.source_alignment, self.target_alignment = (
            PredictionAlignment(classes, config.hidden, config.dropout) for _ in range(2)
        )
        self.head = CausalHead(width, classes, HeadConfig(config.vae, config.vae_lr, weighting="mean"))
        del self.head.source  # in training, E[x_hat] is the mean of the batch

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name: two of the plain classifiers, their alignment, and those of the causal head."""
        source, target = sampled_views(batch, source=1, target=1)
        kinds = source[0], target[0], source[1], target[1]
        # Features of images x_s and x_t, and of counterfactuals M(x_s) and M^-1(x_t).
        x_s, x_t, x_st, x_ts = features_of(self.backbone, kinds, self.config.separate_passes)
        on_source, on_target = self.source_classifier, self.target_classifier
        factor = ramp_up(progress, sharpness=15)  # at 15,000 steps: 10 for each 10,000 steps
        to_target = self.target_alignment(on_target(x_st), on_target(x_t), factor)
        to_source = self.source_alignment(on_source(x_ts), on_source(x_s), factor)
        return {
            "source": F.cross_entropy(on_source(x_s), batch.labels),
            "transported": F.cross_entropy(on_target(x_st), batch.labels),
            "alignment": self.config.alpha * 0.5 * (to_target + to_source),
            **self.head_losses(x_st, x_s, x_t, x_ts, batch.labels),
        }

    def head_losses(self, x: Tensor, x_hat: Tensor, x_t: Tensor, x_ts: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The terms of the causal head: x is M(x_s) and x_hat is x_s. Only "adjusted" trains the backbone."""
        head = self.head
        head.target.update(x_ts, MEMORY)
        fixed = x.detach()
        z, vae = self.encoded(fixed)
        _, vae_of_target = self.encoded(x_t.detach())
        proxy, h_y = in_single(x_hat).mean(dim=0), head.h_y()
        self.extra_metrics["head/share"] = proxy_share(h_y, fixed, proxy.detach())
        return {
            "label": F.cross_entropy(head.heads.f_y(z, fixed), labels),
            "adjusted": F.cross_entropy(adjusted_logits(h_y, x, proxy), labels),
            "proxy": (head.heads.f_xhat(z, fixed) - x_hat.detach()).float().square().mean(),
            "vae": vae + vae_of_target,
        }

    def encoded(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """z of constant features, without gradient, and the loss of the VAE on them."""
        vae = self.head.vae
        mean, log_variance = vae.encode(features)
        z = mean + torch.exp(0.5 * log_variance) * torch.rand_like(mean)  # uniform noise, as in the script
        return z.detach(), vae_loss(vae.decode(z), features, mean, log_variance)

    def features(self, images: Tensor) -> Tensor:
        """The input of all heads: [batch, features of the backbone]."""
        return self.backbone(images)

    def answer(self, images: Tensor) -> Answer:
        """h_y of target images with E[x_hat] of the target, TCM Eq. (5): it needs no counterfactuals of the images.

        Prediction variants: f_y without h_y, and the plain classifier of transported images.
        """
        x = self.features(images)
        variants = {"f_y alone": self.head.predict_alone(x), "plain classifier": self.target_classifier(x)}
        return Answer(self.head.solved().predict_with_mean(x), x, variants)

    def answer_fast(self, images: Tensor) -> Answer:
        """The same without the variants."""
        return self.answer(images)._replace(variants={})

    def conclude(self, target: Iterable[Tensor], source: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Computes E[x_hat] from the counterfactuals M^-1(x_t) of all target images."""
        self.head.target.reset()
        for images in target:
            self.head.target.update(self.features(self.inverse_counterfactuals(images).flatten(0, 1)))

    def lr_factor(self, progress: float) -> float:
        """(1 + 15 p)^-0.75 at progress p: at 15,000 steps the (1 + 0.001 i)^-0.75 of the script at step i."""
        return inverse_decay(progress, rate=15)

    def diagnostics(self) -> dict[str, float]:
        """Norms and extreme singular values of the causal head, for metrics.jsonl."""
        return self.head.diagnostics()

    def singular_values(self) -> dict[str, list[float]]:
        """The singular values of W3, which TCM Eq. (7) inverts."""
        return {"W3": self.head.singular_values()}

    def build_optimizers(self) -> dict[str, Optimizer]:
        """SGD for everything except the VAE, which has Adam."""
        vae = Adam(self.head.vae.parameters(), lr=self.config.vae_lr, weight_decay=self.recipe.weight_decay)
        return {**super().build_optimizers(), "vae": vae}

    def with_own_optimizer(self) -> list[Tensor]:
        """The parameters of the VAE."""
        return list(self.head.vae.parameters())
