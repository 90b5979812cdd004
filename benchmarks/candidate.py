"""The default TCM without counterfactuals, with changes that benchmarks/screening.py tries. Nothing of it is on here.

A change that proves useful becomes a part of `tcm`; the others are deleted.
"""

from dataclasses import dataclass
from math import cos, pi
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer

from tcm.data.batch import Batch
from tcm.methods.icon import equal_ranks
from tcm.methods.method import Problem
from tcm.methods.self_training import SelfTrainingConfig, self_trained
from tcm.methods.tcm.centroids import matching_scale
from tcm.methods.tcm.control import ControlConfig
from tcm.methods.tcm.tcm import TCM
from tcm.nn.heads import classifier
from tcm.nn.losses import class_confusion, in_single, pair_loss
from tcm.nn.schedules import inverse_decay, ramp_up

LARGEST = 5  # features whose order must agree for two images to be of one cluster, as in ICON
MOMENTUM = 0.98  # of the running mean of the classes' frequencies
CONFIDENCE = 0.85  # mean of the first labels


@dataclass(frozen=True)
class CandidateConfig(ControlConfig):
    """The default without counterfactuals, with changes that are tried."""

    statistics: float = 0.0
    """Share of the images whose features take a part of the channel statistics of an image of the other domain, after
    the first and the second stage of the backbone (MixStyle, Zhou et al., 2021)."""
    mixtures: float = 0.0
    """Weight of the classification loss on mixtures of a source image and a target image."""
    clusters: float = 0.0
    """Weight of ICON's pair loss of a cluster head on target images."""
    schedule: Literal["inverse", "cosine"] = "inverse"
    """How the learning rate falls in each round. inverse: (1 + 10 p)^-0.75. cosine: by a cosine to a twentieth."""
    head_temperature: float = 0.0
    """The classifier is the cosine between features and class weights, divided by this. 0: a linear classifier."""
    balance: float = 0.0
    """Source images are weighted by the frequency of their class to the power of minus this."""
    start: bool = False
    """The first round starts with labels, as the later ones do: those of self-training on the pretrained features."""
    maximum: bool = False
    """The features of the backbone are the mean and the maximum over positions, not only the mean."""


class Mixture(NamedTuple):
    """Mixed images, and the share of the source image in each."""

    images: Tensor  # [batch, 3, height, width]
    share: Tensor  # [batch]


class Candidate(TCM, config=CandidateConfig):
    """TCM with the changes of its config."""

    frequency: Tensor  # [classes], the running mean of the shares of the classes among source images

    def __init__(self, problem: Problem, config: CandidateConfig):
        if config.maximum:
            problem.backbone.add_maximum()
        super().__init__(problem, config)
        self.settings, self.task_features = config, problem.task_features
        self.started = not config.start or self.former is None
        width = config.recipe.bottleneck
        if config.head_temperature:
            self.classifier = CosineHead(width, problem.classes, config.head_temperature)
        self.cluster_head = classifier(width, problem.classes) if config.clusters else None
        self.register_buffer("frequency", torch.full((problem.classes,), 1 / problem.classes))
        self.mixing = StatisticsMixing()
        if config.statistics:
            for stage in early_stages(self.backbone.network):
                stage.register_forward_hook(self.mixing)
        if self.initial:  # later rounds start again from the weights of all the layers above
            self.initial = {name: value.clone() for name, value in self.state_dict().items()}

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The terms by name, all of them from one pass."""
        assert batch.strong is not None
        config, labels, count = self.settings, batch.labels, len(batch.labels)
        views = [batch.source, batch.strong.source, batch.target, batch.strong.target]
        mixture = mixed(batch.source, batch.target) if config.mixtures else None
        if mixture:
            views.append(mixture.images)
        self.mixing.draw(config.statistics, count, len(views), batch.source.device)
        features = self.features(torch.cat(views)).split(count)
        source, strong_source, target, strong_target, *rest = [self.logits(part) for part in features]
        found, weight = self.pseudo_labels(target, batch, progress)
        self.extra_metrics["labels/kept"] = found.kept.mean()
        balance = self.class_weights(labels)
        terms = {
            "classification": config.weak * (balance * cross_entropies(source, labels)).mean()
            + config.strong * (balance * cross_entropies(strong_source, labels)).mean(),
            "confusion": config.confusion * class_confusion(target, config.temperature),
            "pseudo_labels": config.pseudo_labels * weight * found.loss(strong_target),
        }
        if mixture:
            of_source = mixture.share * cross_entropies(rest[0], labels)
            of_target = (1 - mixture.share) * found.kept * cross_entropies(rest[0], found.classes)
            terms["mixtures"] = config.mixtures * (of_source + weight * of_target).mean()
        if self.cluster_head:
            with torch.autocast(target.device.type, enabled=False):
                clusters, strong_clusters = self.cluster_head(features[2]), self.cluster_head(features[3])
            same = equal_ranks(features[2], LARGEST)
            terms["clusters"] = config.clusters * ramp_up(progress) * pair_loss(clusters, strong_clusters, same)
        return terms

    @torch.no_grad()
    def class_weights(self, labels: Tensor) -> Tensor:
        """The weight [batch] of each source image, 1 on average."""
        if not self.settings.balance:
            return torch.ones(len(labels), device=labels.device)
        shares = F.one_hot(labels, len(self.frequency)).float().mean(dim=0)
        self.frequency.lerp_(shares, 1 - MOMENTUM)
        weights = self.frequency.clamp_min(1e-4)[labels] ** -self.settings.balance
        return weights / weights.mean()

    def has_labels(self, number: int) -> bool:
        """Whether there are labels of all target images when the round of this number begins."""
        return number > 0 or self.settings.start

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """One gradient step; before the first, the labels of self-training, unless a run is resumed."""
        if not self.started:
            assert self.former is not None
            if not self.former.any():
                self.former.copy_(self.first_labels())
            self.started = True
        return super().update(batch, progress, optimizers)

    def first_labels(self) -> Tensor:
        """The labels of self-training on the pretrained features: probabilities [target images, classes].

        They are made as confident as those of a trained network, because only confident labels are used.
        """
        assert self.task_features is not None
        classes, backbone = len(self.frequency), self.backbone
        self.eval()
        before, _ = backbone.with_maximum, backbone.add_maximum()
        features = self.task_features(backbone)
        backbone.with_maximum = before
        with torch.autocast(features.target.device.type, enabled=False):
            logits = self_trained(features, classes, SelfTrainingConfig()).probabilities.clamp_min(1e-12).log()
        self.train()
        return (matching_scale(logits, CONFIDENCE) * logits).softmax(dim=1)

    def lr_factor(self, progress: float) -> float:
        """The factor of the learning rates at progress p of the round."""
        within = self.place(progress)[1]
        if self.settings.schedule == "inverse":
            return inverse_decay(within)
        return 0.05 + 0.95 * 0.5 * (1 + cos(pi * within))


class CosineHead(nn.Module):
    """Logits that are cosines between features and the weights of the classes, divided by a temperature."""

    def __init__(self, features: int, classes: int, temperature: float):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, features) * 0.01)
        self.temperature = temperature

    def forward(self, features: Tensor) -> Tensor:
        """Logits [batch, classes] of features [batch, width]."""
        return F.normalize(features, dim=1) @ F.normalize(self.weight, dim=1).T / self.temperature


class StatisticsMixing:
    """A forward hook that gives images a part of the channel statistics of images of the other domain."""

    def __init__(self) -> None:
        self.weights: Tensor | None = None  # [batch], how much of the other image's statistics; None: change nothing
        self.partner: Tensor | None = None  # [batch], the place of the other image

    def draw(self, share: float, count: int, views: int, device: torch.device) -> None:
        """Draws the weights of a step for views of `count` images: `share` of them uniform in [0, 1], the others 0.

        The first two views are of the source, the next two of the target. Mixtures of images are their own partners.
        """
        if share:
            chosen, weights = torch.rand((2, count * views), device=device)
            self.weights = weights * (chosen < share)
            places = torch.arange(count * views, device=device)
            self.partner = torch.cat([places[: 4 * count].roll(-2 * count), places[4 * count :]])

    def __call__(self, module: nn.Module, _: Any, output: Tensor) -> Tensor:
        """The output of the stage with mixed statistics, in training only."""
        if not module.training or self.weights is None or self.partner is None:
            return output
        return with_mixed_statistics(output, self.weights, self.partner)


def with_mixed_statistics(maps: Tensor, weights: Tensor, partner: Tensor) -> Tensor:
    """Feature maps [batch, channels, height, width] whose means and deviations move towards those of the partner."""
    single = in_single(maps)
    mean = single.mean(dim=(2, 3), keepdim=True).detach()
    deviation = (single.var(dim=(2, 3), keepdim=True) + 1e-6).sqrt().detach()
    share = weights.to(single.dtype)[:, None, None, None]
    new_mean, new_deviation = (torch.lerp(one, one[partner], share) for one in (mean, deviation))
    return ((single - mean) / deviation * new_deviation + new_mean).to(maps.dtype)


def early_stages(network: nn.Module) -> tuple[nn.Module, ...]:
    """The first two stages of a ResNet, or the first two blocks of the small network."""
    if isinstance(network, nn.Sequential):
        return network[2], network[5]
    return network.get_submodule("layer1"), network.get_submodule("layer2")


def mixed(source: Tensor, target: Tensor) -> Mixture:
    """Mixtures of each source image with the target image at the same place."""
    share = torch.rand(len(source), device=source.device)
    return Mixture(torch.lerp(target, source, share[:, None, None, None]), share)


def cross_entropies(logits: Tensor, labels: Tensor) -> Tensor:
    """The cross-entropy of each image: [batch]."""
    return F.cross_entropy(in_single(logits), labels, reduction="none")
