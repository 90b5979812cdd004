"""GTA: generate to adapt (Sankaranarayanan, Balaji, Castillo and Chellappa, CVPR 2018).

A generator G makes an image from [class, features, noise]. The class is one-hot; that of target images is the number K,
"fake". A discriminator D says whether an image is real, and of which class it is. Only source images are real ones. So
target features from which G makes a realistic image are like source features. A step has four parts:

1. D learns that source images are real, what their classes are, and that generated images are not real;
2. G learns to make images from source features that D takes for real ones of the right class;
3. the classifier C learns the source;
4. the features learn to help C on the source, with weight a to help D find the class of images made from source
   features, and with weight a b to let D take images made from target features for real ones.

The losses are those of the authors' code, which has -log D where the paper writes log(1 - D). It is for digits. What
differs: every part uses the new weights of the parts before it, and images that G makes with them (the code goes back
through weights that have changed since); the features are the bottleneck's output; backbone, bottleneck and classifier
have the common SGD and all learning rates fall in the same way (the code has Adam for all, and that of G is constant).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim import Adam, Optimizer

from tcm.data.batch import Batch
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.methods.tcm.views import features_of
from tcm.nn.image_gan import ImageDiscriminator, ImageGenerator, loss_if_made, loss_if_real
from tcm.nn.losses import in_single


@dataclass(frozen=True)
class GTAConfig(MethodConfig):
    """GTA: features from which a generator can make realistic source images (Sankaranarayanan et al., 2018)."""

    needs_images: ClassVar[bool] = True
    authors_batch: ClassVar[int] = 100

    trade_off: float = 0.1
    """Weight a of what the discriminator says about images that are made from the features."""
    target_weight: float = 0.3
    """Weight b of images from target features in it, relative to those from source features."""
    side: Literal[32, 64] = 64
    """Side of the generated images, in pixels. Source images are resized to it for the discriminator."""
    width: int = 64
    """Channels of the generator's last and of the discriminator's first layer."""
    noise: int = 512
    """Random numbers among the inputs of the generator."""
    gan_lr: float = 5e-4
    """Learning rate of generator and discriminator, with Adam."""
    beta1: float = 0.8
    """First beta of their Adam."""
    separate_passes: bool = False
    """Pass each domain through the network on its own, as in the authors' code."""

    @classmethod
    def for_images(cls, small: bool) -> Self:
        """The default settings; images below 64 pixels have 32 x 32 generated ones, by networks of half the width."""
        return replace(cls(), side=32, width=32) if small else cls()

    @classmethod
    def authors(cls) -> Self:
        """The settings of the method's authors on Office-Home, where they differ from the common recipe."""
        return replace(cls(), separate_passes=True)


class GTA(Method, config=GTAConfig):
    """Classification on the source, beside a GAN whose generator sees the features. It is not used to predict."""

    lr_fields = ("method.recipe.lr", "method.gan_lr")

    def __init__(self, problem: Problem, config: GTAConfig):
        super().__init__(problem, config)
        self.config, self.fake = config, problem.classes
        inputs = problem.classes + 1 + config.recipe.bottleneck + config.noise
        self.generator = ImageGenerator(inputs, config.side, config.width)
        self.discriminator = ImageDiscriminator(problem.classes, config.side, config.width)

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        """The losses of the four parts at the present weights; the last three are those of the features."""
        source, target = self.both_features(batch)
        made = self.generated((source, target), batch.labels, self.drawn_noise(source))
        return {
            "discriminator": self.discriminator_loss(batch, made),
            "generator": self.generator_loss(made[0], batch.labels),
            "classification": F.cross_entropy(self.classifier(source), batch.labels),
            **self.feature_losses(made, batch.labels),
        }

    def both_features(self, batch: Batch) -> list[Tensor]:
        """The features of source and target images."""
        return features_of(self.features, (batch.source, batch.target), self.config.separate_passes)

    def drawn_noise(self, features: Tensor) -> Tensor:
        """Noise for both domains, [2, batch, noise]."""
        return torch.randn(2, len(features), self.config.noise, device=features.device)

    def generated(self, features: Sequence[Tensor], labels: Tensor, noise: Tensor) -> list[Tensor]:
        """Images made from features of the source and of the target, each [batch, 3, side, side] in [-1, 1].

        In two passes, so that batch normalisation sees one domain at a time.
        """
        kinds = labels, torch.full_like(labels, self.fake)
        given = (F.one_hot(kind, self.fake + 1).to(noise.dtype) for kind in kinds)
        return [
            self.generator(torch.cat([one_hot, in_single(one), z], dim=1))
            for one_hot, one, z in zip(given, features, noise, strict=True)
        ]

    def discriminator_loss(self, batch: Batch, made: Sequence[Tensor]) -> Tensor:
        """The errors of D: on real images and their classes, and on images of both domains that are made.

        Each kind of image has a pass of its own, as in the authors' code.
        """
        real = self.discriminator(F.interpolate(2 * batch.source - 1, (self.config.side,) * 2, mode="area"))
        loss = loss_if_real(real.real) + F.cross_entropy(in_single(real.classes), batch.labels)
        for images in made:
            loss = loss + loss_if_made(self.discriminator(images.detach()).real)
        return loss

    def generator_loss(self, made_from_source: Tensor, labels: Tensor) -> Tensor:
        """How far D is from taking images from source features for real ones of their class."""
        judged = self.discriminator(made_from_source)
        return F.cross_entropy(in_single(judged.classes), labels) + loss_if_real(judged.real)

    def feature_losses(self, made: Sequence[Tensor], labels: Tensor) -> dict[str, Tensor]:
        """What the features learn from D: the class of images from the source, the realism of those from the target."""
        from_source, from_target = (self.discriminator(images) for images in made)
        weight = self.config.trade_off
        return {
            "source_images": weight * F.cross_entropy(in_single(from_source.classes), labels),
            "target_images": weight * self.config.target_weight * loss_if_real(from_target.real),
        }

    def build_optimizers(self) -> dict[str, Optimizer]:
        """SGD for features and classifier, Adam for generator and discriminator; they take turns."""
        backbone, new = self.parameter_groups()
        above = {id(parameter) for parameter in self.classifier.parameters()}
        bottleneck = [parameter for parameter in new["params"] if id(parameter) not in above]
        adam = {"lr": self.config.gan_lr, "betas": (self.config.beta1, 0.999)}
        return {
            "features": self.sgd(backbone, {**new, "params": bottleneck}),
            "classifier": self.sgd({**new, "params": list(self.classifier.parameters())}),
            "generator": Adam(self.generator.parameters(), **adam),
            "discriminator": Adam(self.discriminator.parameters(), **adam),
        }

    def with_own_optimizer(self) -> list[Tensor]:
        """The parameters of generator and discriminator."""
        return [*self.generator.parameters(), *self.discriminator.parameters()]

    def update(self, batch: Batch, progress: float, optimizers: dict[str, Optimizer]) -> dict[str, Tensor]:
        """The four parts of a step, in the order of the authors' code. The noise is the same in all of them."""

        def step(name: str, *losses: Tensor) -> None:
            learning = [parameter for group in optimizers[name].param_groups for parameter in group["params"]]
            optimizers[name].zero_grad(set_to_none=True)
            torch.stack(losses).sum().backward(inputs=learning)
            optimizers[name].step()

        labels, features = batch.labels, self.both_features(batch)
        fixed, noise = [part.detach() for part in features], self.drawn_noise(features[0])
        made = self.generated(fixed, labels, noise)
        found = {"discriminator": self.discriminator_loss(batch, made)}
        step("discriminator", found["discriminator"])
        found["generator"] = self.generator_loss(made[0], labels)
        step("generator", found["generator"])
        step("classifier", F.cross_entropy(self.classifier(fixed[0]), labels))
        found["classification"] = F.cross_entropy(self.classifier(features[0]), labels)
        found |= self.feature_losses(self.generated(features, labels, noise), labels)
        step("features", *(found[name] for name in ("classification", "source_images", "target_images")))
        return {name: loss.detach() for name, loss in found.items()}
