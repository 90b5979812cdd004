"""TCM as the authors' published scripts train it. Three things differ from the paper.

x is a counterfactual of a source image, and x_hat is the image itself. E[x_hat] replaces the proxies of each image. One
discriminator compares class probabilities on transported source images with those on target images.
"""

from dataclasses import dataclass, field

from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods.tcm.alignment import PredictionAlignment
from tcm.methods.tcm.causal_head import HeadConfig
from tcm.methods.tcm.paper import PaperConfig, PaperTCM
from tcm.methods.tcm.proxy import adjusted_logits
from tcm.methods.tcm.views import sampled_views
from tcm.nn.schedules import ramp_up
from tcm.nn.vae import VAEConfig


@dataclass(frozen=True)
class ReleaseConfig(PaperConfig):
    """TCM as in the authors' scripts: labels on transported images, alignment of predictions, mean proxy E[x_hat]."""

    head: HeadConfig = field(default_factory=lambda: HeadConfig(vae=VAEConfig(dropout=0.3), weighting="mean"))
    dropout: float = 0.5
    """Dropout in the discriminator."""


class ReleaseTCM(PaperTCM, config=ReleaseConfig):
    """The causal head on one random counterfactual of each image, with the roles of x and x_hat exchanged."""

    def build_alignment(self, width: int, classes: int) -> nn.Module:
        """The discriminator of class probabilities."""
        return PredictionAlignment(classes, self.config.hidden, self.config.dropout)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The losses of the causal head for x = M_i(x_s) and x_hat = x_s, and the domain loss on adjusted logits."""
        views = sampled_views(batch, source=1, target=1)
        features = views.like(self.features(views.flat))
        image, transported = features.source[:1], features.source[1:]
        found = self.head(transported, image, features.target[1:], batch.labels)
        self.extra_metrics["head/share"] = found.share
        proxy = self.head.target.average(features.target[1:], self.config.head.weighting)
        on_target = adjusted_logits(found.h_y, features.target[0], proxy)
        aligned = self.alignment(found.logits, on_target, ramp_up(progress))
        return {**found.terms, "alignment": self.config.alpha * aligned}

    def proxies(self, images: Tensor, made: Tensor) -> Tensor:
        """The images whose features are x_hat of the source: the source images themselves."""
        return images
