import threading
import urllib.error
from email.message import Message
from pathlib import Path

import pytest
import safetensors.torch
import timm
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.errors import InputError
from tcm.nn import backbone
from tcm.nn.backbone import BackboneConfig
from tcm.nn.vector_net import vector_backbone

WEIGHTS_SEED = 3


def resnet_weights() -> dict[str, Tensor]:
    """Random weights of a ResNet-50 whose activations stay of order one, with BatchNorm statistics of their own."""
    torch.manual_seed(WEIGHTS_SEED)
    weights = timm.create_model("resnet50", num_classes=0).state_dict()
    for name, value in weights.items():
        if name.endswith("running_mean"):
            value.normal_(0, 0.1)
        if name.endswith("running_var") or ("bn" in name and name.endswith("weight")):
            value.uniform_(0.5, 1.5)  # timm starts the last norm of a block at 0, which would switch the block off
    return weights


def v1_reference(weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """ResNet-50 of He et al. (2016), written out with functions: the stride sits on the first 1 x 1 convolution."""

    def norm(x: Tensor, name: str) -> Tensor:
        mean, variance, weight, bias = (
            weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, variance, weight, bias)

    def convolve(x: Tensor, name: str, stride: int = 1, padding: int = 0) -> Tensor:
        return F.conv2d(x, weights[f"{name}.weight"], stride=stride, padding=padding)

    x = F.max_pool2d(F.relu(norm(convolve(x, "conv1", 2, 3), "bn1")), 3, 2, 1)
    for layer, blocks in enumerate((3, 4, 6, 3), start=1):
        for block in range(blocks):
            name, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            y = F.relu(norm(convolve(x, f"{name}.conv1", stride), f"{name}.bn1"))
            y = F.relu(norm(convolve(y, f"{name}.conv2", 1, 1), f"{name}.bn2"))
            y = norm(convolve(y, f"{name}.conv3"), f"{name}.bn3")
            short = x
            if block == 0:
                short = norm(convolve(x, f"{name}.downsample.0", stride), f"{name}.downsample.1")
            x = F.relu(y + short)
    return x.mean(dim=(2, 3))


@pytest.fixture(scope="module")
def weights() -> dict[str, Tensor]:
    return resnet_weights()


def features(file: Path, images: Tensor) -> Tensor:
    backbone = BackboneConfig("resnet50", file).resolved(small_images=False).build().eval()
    with torch.inference_mode():
        return backbone(images)


def test_a_v1_file_gets_the_v1_layout(weights: dict[str, Tensor], tmp_path: Path):
    images = torch.rand(2, 3, 64, 64)
    about = {"stride_in_1x1": "true", "mean": "0.5 0.4 0.3", "std": "0.2 0.3 0.4"}
    safetensors.torch.save_file(weights, tmp_path / "v1.safetensors", about)
    safetensors.torch.save_file(weights, tmp_path / "v15.safetensors", {**about, "stride_in_1x1": "false"})
    normalised = (images - torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1)) / torch.tensor([0.2, 0.3, 0.4]).view(3, 1, 1)
    reference = v1_reference(weights, normalised)
    v1, v15 = features(tmp_path / "v1.safetensors", images), features(tmp_path / "v15.safetensors", images)
    torch.testing.assert_close(v1, reference, rtol=1e-3, atol=1e-4)
    assert (v15 - reference).norm() > 0.05 * reference.norm()
    # Whoever builds it without resolving the config first must not get the other layout.
    unresolved = BackboneConfig("resnet50", tmp_path / "v1.safetensors").build().eval()
    with torch.inference_mode():
        assert torch.equal(unresolved(images), v1)


def test_auto_is_not_a_network():
    with pytest.raises(InputError, match="resolved"):
        BackboneConfig().build()


def test_half_precision_weights_are_cast_up_and_the_real_file_is_v1(shared_data: Path):
    file = shared_data / "resnet50-imagenet.safetensors"
    config = BackboneConfig("resnet50", file).resolved(small_images=False)
    assert config.stride_in_1x1
    backbone = config.build().eval()
    assert {p.dtype for p in backbone.parameters()} == {torch.float32}
    images = torch.rand(2, 3, 96, 96)
    weights = {name: value.float() for name, value in safetensors.torch.load_file(file).items()}
    with torch.inference_mode():
        reference = v1_reference(weights, (images - backbone.mean) / backbone.sd)
        torch.testing.assert_close(backbone(images), reference, rtol=1e-3, atol=1e-3)


def test_the_small_network_starts_from_scratch():
    config = BackboneConfig().resolved(small_images=True)
    backbone = config.build()
    assert config.name == "small"
    assert not backbone.pretrained
    assert backbone(torch.rand(4, 3, 32, 32)).shape == (4, backbone.features)


def test_weights_of_another_network_are_refused(weights: dict[str, Tensor], tmp_path: Path):
    file = tmp_path / "r50.safetensors"
    safetensors.torch.save_file(weights, file)
    with pytest.raises(InputError, match="weights of another network") as error:
        BackboneConfig("resnet18", file).build()
    assert error.value.field == "backbone.weights"
    assert "`backbone.name`" in str(error.value)


def test_a_classifier_is_left_out_and_a_norm_beside_it_is_not(tmp_path: Path):
    weights = {name: torch.rand_like(value) for name, value in timm.create_model("test_convnext").state_dict().items()}
    assert {"head.norm.weight", "head.fc.weight"} <= weights.keys()
    safetensors.torch.save_file(weights, tmp_path / "w.safetensors")
    network = BackboneConfig("test_convnext", tmp_path / "w.safetensors").build().network
    for name, value in network.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_a_misspelt_name_gets_a_hint():
    with pytest.raises(InputError, match="resnet50") as error:
        BackboneConfig("resnet5O").resolved(small_images=False)
    assert error.value.field == "backbone.name"


def test_weights_that_cannot_be_downloaded_name_both_remedies(monkeypatch: pytest.MonkeyPatch):
    def offline(*_: object, **__: object) -> None:
        raise OSError("no network. Please check\nyour connection")

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr(backbone, "require_hub", lambda _: None)
    with pytest.raises(InputError, match=r"no network\); .*`backbone\.weights`.*`backbone\.pretrained=False`"):
        BackboneConfig("resnet18").build()


@pytest.mark.parametrize("silent", [False, True])
def test_a_hub_that_cannot_be_reached_is_one_line_before_any_download(silent: bool, monkeypatch: pytest.MonkeyPatch):
    ended = threading.Event()

    def unreachable(*_: object, **__: object) -> None:
        if silent:
            ended.wait(60)
        raise urllib.error.URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setattr(backbone.urllib.request, "urlopen", unreachable)
    monkeypatch.setattr(backbone, "_in_hub_cache", lambda _: False)
    monkeypatch.setattr(backbone, "HUB_TIMEOUT", 0.05 if silent else 30.0)
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: pytest.fail("a download was tried"))
    reason = "no answer within" if silent else "Name or service not known"
    with pytest.raises(InputError, match=rf"huggingface\.co cannot be reached: {reason}.*`backbone\.weights`"):
        BackboneConfig("resnet18").build()
    ended.set()


def test_a_hub_that_answers_with_an_error_is_reached(monkeypatch: pytest.MonkeyPatch):
    def refuses(*_: object, **__: object) -> None:
        raise urllib.error.HTTPError("https://huggingface.co", 403, "Forbidden", Message(), None)

    monkeypatch.setattr(backbone.urllib.request, "urlopen", refuses)
    monkeypatch.setattr(backbone, "_in_hub_cache", lambda _: False)
    backbone.require_hub("resnet18")


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "swin_tiny_patch4_window7_224", "vit_tiny_patch16_224"])
def test_the_maximum_over_positions_is_a_second_half_of_the_features(name: str):
    """Of maps with channels first and last, and of tokens."""
    backbone = BackboneConfig(name, pretrained=False).build().eval()
    images = torch.rand(2, 3, 224, 224)
    with torch.no_grad():
        plain = backbone(images)
        last = backbone.last_layer(images)
        backbone.add_maximum()
        found = backbone(images)
    assert found.shape == (2, backbone.width)
    torch.testing.assert_close(found[:, : backbone.features], plain)
    channels_first = name in ("resnet18", "convnext_atto")
    one = last[1] if channels_first else last[1].movedim(-1, 0)
    expected = [max(channel.flatten().tolist()) for channel in one]
    assert found[1, backbone.features :].tolist() == pytest.approx(expected)


def test_a_network_for_vectors_has_no_maximum_over_positions():
    backbone = vector_backbone(5, [4])
    backbone.add_maximum()
    assert backbone.width == backbone.features == 4
    assert backbone(torch.rand(3, 5)).shape == (3, 4)
