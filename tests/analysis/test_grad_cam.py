"""Class activation maps of networks whose answer is known, and which images are shown."""

import pytest
import torch
from torch import Tensor, nn

from tcm.analysis.grad_cam import activation_maps, chosen_images
from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.methods.method import Method, MethodConfig, Problem, Recipe
from tcm.methods.tcm.tcm import TCM, TCMConfig
from tcm.nn.backbone import Backbone, BackboneConfig
from tcm.nn.generator import FrozenGenerators

TITLES = ("dann", "tcm")


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


class Plain(TCM):
    """TCM whose classifier stands on the features alone."""

    def features(self, images: Tensor) -> Tensor:
        return self.backbone(images)


def averaging(shares: tuple[float, ...]) -> Plain:
    torch.manual_seed(0)
    inverse = FrozenGenerators(Dimmed(share) for share in shares)  # pyright: ignore[reportArgumentType]
    method = Plain(Problem(2, backbone(), inverse), TCMConfig(Recipe(bottleneck=3))).eval()
    with torch.no_grad():
        weights_of(method).copy_(torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]))
    return method


def test_a_counterfactual_counts_by_its_share_of_the_probability(images: Tensor):
    method, classes = averaging((0.5, 0.0)), torch.tensor([0, 0])
    maps, views = activation_maps(method, images, classes)
    torch.testing.assert_close(views[1], images / 2)
    summed = torch.einsum("c,nchw->nhw", torch.tensor([1.0, 2.0, 3.0]), images) / 64
    score = summed.sum(dim=(1, 2))
    likely = torch.stack([torch.sigmoid(score), torch.sigmoid(score / 2), torch.sigmoid(0 * score)])
    shares = (likely / likely.sum(dim=0))[:, :, None, None]
    expected = shares * torch.stack([summed, summed / 2, 0 * summed])
    torch.testing.assert_close(maps, expected)


def test_a_sure_prediction_still_has_a_map(images: Tensor):
    method = averaging((1.0,))
    with torch.no_grad():
        weights_of(method).mul_(1000)
    maps, _ = activation_maps(method, images, torch.tensor([0, 0]))
    assert float(method.predict(images).detach()[:, 0].min()) == 0  # log 1: the probability itself has no gradient
    assert float(maps.amax(dim=(2, 3)).min()) > 1


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


def test_a_backbone_without_maps_is_refused():
    network = BackboneConfig("vit_tiny_patch16_224", pretrained=False).build()
    with pytest.raises(InputError, match="VisionTransformer has no convolutional feature maps"):
        network.maps(torch.rand(1, 3, 224, 224))


def test_images_that_only_one_gets_right_half_of_each_kind():
    labels = torch.tensor([0, 0, 1, 1, 0, 0, 1, -1])
    first = torch.tensor([0, 1, 1, 0, 0, 0, 1, 0])
    second = torch.tensor([1, 0, 0, 1, 0, 1, 0, 1])
    chosen, counts = chosen_images(first, second, labels, 4, TITLES)
    assert set(chosen[:2].tolist()) < {0, 2, 5, 6}
    assert chosen[2:].tolist() == [1, 3]
    assert counts == "Of 7 images, only dann classifies 4 correctly and only tcm 2."
    # Too few of a kind: more of the other.
    assert len(chosen_images(first, second, labels, 6, TITLES)[0]) == 6
    right = labels.clamp(min=0)
    assert chosen_images(right, second, labels, 3, TITLES)[0].tolist() == [0, 2, 5]
    assert chosen_images(second, right, labels, 1, TITLES)[0].tolist() == [0]


def test_without_labels_images_on_which_they_disagree():
    unknown = torch.full((4,), -1)
    chosen, counts = chosen_images(torch.tensor([0, 1, 2, 3]), torch.tensor([0, 2, 1, 3]), unknown, 5, TITLES)
    assert chosen.tolist() == [1, 2]
    assert counts == "They disagree on 2 of 4 images."
    with pytest.raises(InputError, match="dann and tcm do not differ on any target image"):
        chosen_images(unknown, unknown, unknown, 5, TITLES)
