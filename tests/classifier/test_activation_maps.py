"""Class activation maps of networks whose answer is known."""

import pytest
import torch
from torch import Tensor, nn

from tcm.classifier.activation_maps import activation_maps
from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.methods import METHODS
from tcm.methods.method import Answer, Method, MethodConfig, Problem, Recipe
from tcm.nn.backbone import Backbone, BackboneConfig
from tcm.nn.generator import FrozenGenerators


class Pixels(nn.Module):
    """The feature maps are the image's colours, the features their means."""

    num_features = 3

    def forward_features(self, images: Tensor) -> Tensor:
        return images * torch.ones(1, requires_grad=True)

    def forward_head(self, maps: Tensor) -> Tensor:
        return maps.mean(dim=(2, 3))

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


class Linear(Method):
    """A linear classifier on the features alone."""

    def losses(self, batch: Batch, progress: float) -> dict[str, Tensor]:
        raise NotImplementedError

    def features(self, images: Tensor) -> Tensor:
        return self.backbone(images)


def backbone() -> Backbone:
    return Backbone(Pixels(), (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), pretrained=False)


@pytest.fixture
def images() -> Tensor:
    return torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def weights_of(method: Method) -> Tensor:
    """Of the linear classifier."""
    assert isinstance(method.classifier, nn.Linear)
    return method.classifier.weight


def test_of_a_linear_classifier_it_is_the_class_activation_map(images: Tensor):
    torch.manual_seed(0)
    method = Linear(Problem(4, backbone()), MethodConfig(Recipe(bottleneck=3))).eval()
    classes = torch.tensor([3, 1])
    maps, views = activation_maps(method, images, classes)
    weights = weights_of(method)[classes].detach()
    # Zhou et al.: the class's weights over the maps; a gradient through the mean is smaller by the map's area.
    expected = torch.einsum("nc,nchw->nhw", weights, images) / 64
    torch.testing.assert_close(maps, expected[None])
    assert torch.equal(views, images[None])
    assert isinstance(method.backbone, Backbone)  # as it was


class Dimmed(nn.Module):
    """A mechanism that leaves so much of an image, and no more."""

    def __init__(self, share: float):
        super().__init__()
        self.share = share

    def forward(self, images: Tensor) -> Tensor:
        return 2 * self.share * (images + 1) / 2 - 1


class Summing(Linear):
    """Adds the logits of an image and of its counterfactuals."""

    def answer(self, images: Tensor) -> Answer:
        views = torch.cat([images[None], self.inverse_counterfactuals(images)])
        features = self.features(views.flatten(0, 1))
        return Answer(self.classifier(features).unflatten(0, views.shape[:2]).sum(dim=0), features[: len(images)])


def test_every_view_has_its_own_map(images: Tensor):
    torch.manual_seed(0)
    inverse = FrozenGenerators(Dimmed(share) for share in (0.5, 0.0))  # pyright: ignore[reportArgumentType]
    method = Summing(Problem(4, backbone(), inverse), MethodConfig(Recipe(bottleneck=3))).eval()
    classes = torch.tensor([3, 1])
    maps, views = activation_maps(method, images, classes)
    torch.testing.assert_close(views[1], images / 2)
    whole = torch.einsum("nc,nchw->nhw", weights_of(method)[classes].detach(), images) / 64
    torch.testing.assert_close(maps, torch.stack([whole, whole / 2, 0 * whole]))


def test_scores_of_other_predictions_are_the_prediction(images: Tensor):
    method = Linear(Problem(4, backbone()), MethodConfig(Recipe(bottleneck=3))).eval()
    assert torch.equal(method.class_scores(images), method.predict(images))


@pytest.mark.parametrize(("name", "side"), [("small", 32), ("resnet18", 64)])
def test_maps_pooled_are_the_features(name: str, side: int):
    torch.manual_seed(0)
    network = BackboneConfig(name, pretrained=False).build().eval()
    some = torch.rand(2, 3, side, side)
    with torch.no_grad():
        maps = network.maps(some)
        assert maps.shape[2:] == ((4, 4) if name == "small" else (2, 2))
        assert torch.equal(network.pooled(maps), network(some))


@pytest.mark.parametrize("name", [name for name, config in METHODS.items() if not config.runs_inverse])
def test_every_method_has_maps(name: str):
    torch.manual_seed(0)
    config = METHODS[name].for_images(small=True)
    method = config.build(Problem(4, BackboneConfig("small").build())).eval()
    maps, views = activation_maps(method, torch.rand(3, 3, 32, 32), torch.tensor([3, 1, 0]))
    assert maps.shape == (1, 3, 4, 4)
    assert views.shape == (1, 3, 3, 32, 32)
    assert maps.isfinite().all()
    assert (maps != 0).any()


def test_a_frozen_backbone_has_maps_too(images: Tensor):
    method = Linear(Problem(4, backbone()), MethodConfig(Recipe(bottleneck=3))).eval()
    classes = torch.tensor([3, 1])
    expected = activation_maps(method, images, classes)[0]
    torch.testing.assert_close(activation_maps(method.requires_grad_(False), images, classes)[0], expected)


def test_a_backbone_without_maps_is_refused():
    network = BackboneConfig("vit_tiny_patch16_224", pretrained=False).build()
    with pytest.raises(InputError, match="VisionTransformer has no convolutional feature maps"):
        network.maps(torch.rand(1, 3, 224, 224))
