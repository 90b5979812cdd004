"""ICON: invariant consistency learning (Yue et al., NeurIPS 2023).

Beside the classifier, a second linear head on the same features sorts target images into as many clusters as there are
classes. Two target images belong to one cluster if the same features of the backbone are their largest (rank
statistics), and two source images to one class if their labels are equal. The objective has

- the cross-entropy on source images, the Tsallis entropy of target predictions, and FixMatch, as in CST;
- the pair loss of the cluster head on the target, and FixMatch for that head;
- consistency: the pair loss of the classifier on the target and of the cluster head on the source, which train only
  these heads;
- invariance: the variance of two pair losses of the classifier, one of each domain, after a fifth of the training.

What differs from the authors' code: as in CST (see `cst.py`), a mean over classes, one pass, this library's views,
Nesterov momentum, and SAM only if `rho` is given. The authors' third head trains nothing but itself on
Office-Home and is left out, and so are their settings for VisDA-2017: UMAP, thresholds of similarity, and EqInv.
"""

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.cst import INDEX
from tcm.methods.method import MethodConfig, Problem, Recipe
from tcm.methods.sharpness import SharpnessAwareMethod
from tcm.nn.heads import classifier
from tcm.nn.losses import pair_loss, self_training, tsallis_confusion


@dataclass(frozen=True)
class ICONConfig(MethodConfig):
    """ICON: predictions that agree with clusters of the target as with classes of the source (Yue et al., 2023)."""

    authors_steps: ClassVar[int] = 50_000
    authors_batch: ClassVar[int] = 28

    confusion: float = 1.0
    """Weight of the Tsallis entropy."""
    temperature: float = 2.5
    """Temperature of the predictions in the Tsallis entropy."""
    pseudo_labels: float = 0.5
    """Weight of the pseudo-label losses on strong views: one of the classifier, one of the cluster head."""
    threshold: float = 0.97
    """Smallest confidence of a pseudo-label."""
    clusters: float = 1.0
    """Weight of the pair loss of the cluster head on the target."""
    consistency: float = 1.0
    """Weight of the pair losses that train the heads only."""
    invariance: float = 0.1
    """Weight of the variance of the classifier's pair losses."""
    invariance_from: float = 0.2
    """Progress at which the invariance begins."""
    largest: int = 5
    """Number of largest features that two images of one cluster have in common."""
    rho: float = 0.0
    """Size of the neighbourhood of adaptive SAM; 0: plain SGD. A step of SAM takes twice the time."""
    separate_passes: bool = False
    """Pass strong views through the network on their own, as in the authors' code."""
    decay: float = 10.0
    """r in the factor (1 + r p)^-0.75 of the learning rates."""

    @property
    def strong_counterfactuals(self) -> float:
        """No strong view starts from a counterfactual."""
        return 0.0

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        recipe = Recipe(lr=0.005, bottleneck=2048)
        return cls(recipe, confusion=0.975, rho=0.5, separate_passes=True, decay=50.0)


class ICON(SharpnessAwareMethod, config=ICONConfig):
    """A classifier and a cluster head, which agree on which images belong together in either domain."""

    def __init__(self, problem: Problem, config: ICONConfig):
        super().__init__(problem, config)
        self.config, self.decay, self.rho = config, config.decay, config.rho
        self.cluster_head = classifier(config.recipe.bottleneck, problem.classes)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name."""
        assert batch.strong is not None
        config, labels = self.config, batch.labels
        weak, strong = torch.cat([batch.source, batch.target]), torch.cat([*batch.strong])
        passes = [weak, strong] if config.separate_passes else [torch.cat([weak, strong])]
        pooled = [self.backbone(images) for images in passes]
        features = torch.cat([self.bottleneck(part) for part in pooled])
        counts = [len(batch.source), len(batch.target)] * 2
        same_class = labels[:, None] == labels
        same_cluster = equal_ranks(torch.cat(pooled).split(counts)[1], config.largest)

        source, target, strong_source, strong_target = self.classifier(features).split(counts)
        _, clusters, _, strong_clusters = self.cluster_head(features).split(counts)
        # The same outputs on constant features, so that only the heads learn from them.
        _, fixed_target, _, fixed_strong_target = self.classifier(features.detach()).split(counts)
        fixed_clusters, _, fixed_strong_clusters, _ = self.cluster_head(features.detach()).split(counts)
        of_target = pair_loss(target, strong_target, same_cluster)
        of_source = pair_loss(source, strong_source, same_class)
        variance = 0.5 * (of_target - of_source).square()
        return {
            "classification": F.cross_entropy(source, labels),
            "confusion": config.confusion * tsallis_confusion(target, config.temperature, INDEX),
            "pseudo_labels": config.pseudo_labels
            * (
                self_training(target, strong_target, config.threshold)
                + self_training(clusters, strong_clusters, config.threshold)
            ),
            "clusters": config.clusters * pair_loss(clusters, strong_clusters, same_cluster),
            "consistency": config.consistency
            * (
                pair_loss(fixed_target, fixed_strong_target, same_cluster)
                + pair_loss(fixed_clusters, fixed_strong_clusters, same_class)
            ),
            "invariance": (config.invariance if progress >= config.invariance_from else 0.0) * variance,
        }


def equal_ranks(features: Tensor, largest: int) -> Tensor:
    """Whether two images have the same largest features, in any order: [batch, batch] from features [batch, width].

    The rank statistics of Han et al. (ICLR 2020), which the authors use. An image always agrees with itself.
    """
    ranks = features.detach().topk(min(largest, features.shape[1]), dim=1).indices.sort(dim=1).values
    return (ranks[:, None] == ranks).all(dim=2)
