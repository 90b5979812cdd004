"""Backbones: from images in [0, 1] to feature vectors. Any timm network, or a small one for 32 x 32 images."""

import dataclasses
import difflib
import os
import queue
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from tcm.errors import InputError, printable

DEFAULT = "resnet50.tv_in1k"
HUB_TIMEOUT = 4.0  # seconds until a server that does not answer counts as out of reach
IMAGENET_MEAN, IMAGENET_SD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class BackboneConfig:
    """The feature extractor."""

    name: str = "auto"
    """A timm name such as resnet50.tv_in1k, or small. auto: small for crops below 64 pixels, otherwise
    resnet50.tv_in1k, torchvision's first ImageNet weights, which most papers of the field use."""
    weights: Path | None = None
    """A safetensors file of pretrained weights with the key names of torchvision or timm."""
    pretrained: bool = True
    """Without a weights file: start from timm's pretrained weights, which are downloaded."""
    stride_in_1x1: bool = False
    """ResNet v1: the 1 x 1 convolution has the stride. Also read from the metadata of the weights file."""

    def resolved(self, small_images: bool) -> "BackboneConfig":
        """This config with "auto" replaced and `stride_in_1x1` read from the weights file."""
        name = self.name if self.name != "auto" else ("small" if small_images else DEFAULT)
        if name != "small":
            _check_timm_name(name)
        return dataclasses.replace(self, name=name, stride_in_1x1=self._strides_in_1x1())

    def require_crop(self, crop: int) -> None:
        """An error if the network, such as a vision transformer, takes images of another size only."""
        side = self.fixed_side()
        if side not in (None, crop):
            found = f"is {crop}, but `backbone.name={self.name}` takes images of side {side} only"
            raise InputError("data.crop", f"{found}; give `data.crop={side}`")

    def fixed_side(self) -> int | None:
        """The side of the images that the network takes; None if it takes any."""
        about = None if self.name == "small" else _pretrained_config(self.name)
        return about.input_size[-1] if about and about.fixed_input_size else None

    def build(self, initialise: bool = True) -> "Backbone":
        """The network; without `initialise` no pretrained weights are loaded, for a checkpoint will replace them."""
        if self.name == "auto":
            raise InputError("backbone.name", "auto depends on the images; name a network, or call resolved() first")
        download = initialise and self.pretrained and self.weights is None and self.name != "small"
        if self.name == "small":
            network, mean, sd = SmallNet(), (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
        else:
            network = _timm_network(self.name, download)
            data = getattr(network, "pretrained_cfg", {})
            mean, sd = data.get("mean", IMAGENET_MEAN), data.get("std", IMAGENET_SD)
        # A checkpoint's weights file may be gone, but its config has `stride_in_1x1`.
        if self._strides_in_1x1() if initialise else self.stride_in_1x1:
            move_stride_to_1x1(network)
        if initialise and self.weights is not None:
            load_weights(network, self.weights)
            mean, sd = (_numbers(_metadata(self.weights).get(key)) or old for key, old in (("mean", mean), ("std", sd)))
        return Backbone(network, mean, sd, pretrained=download or self.weights is not None)

    def _strides_in_1x1(self) -> bool:
        in_file = self.weights is not None and _metadata(self.weights).get("stride_in_1x1") == "true"
        return self.stride_in_1x1 or in_file


class Backbone(nn.Module):
    """Normalises images in [0, 1] and turns them into feature vectors [batch, features]."""

    mean: Tensor
    sd: Tensor

    def __init__(
        self,
        network: nn.Module,
        mean: tuple[float, ...],
        sd: tuple[float, ...],
        pretrained: bool,
        shape: tuple[int, ...] = (3, 1, 1),
    ):
        """`shape` is that of the mean and the standard deviation: one of each per channel of an image."""
        super().__init__()
        self.pretrained = pretrained
        self.network = network
        self.features: int = network.num_features  # pyright: ignore[reportAttributeAccessIssue]
        self.with_maximum = False
        self.register_buffer("mean", torch.tensor(mean).view(shape))
        self.register_buffer("sd", torch.tensor(sd).view(shape))

    def forward(self, images: Tensor) -> Tensor:
        """Features [batch, width] of images [batch, 3, height, width] in [0, 1]."""
        if self.with_maximum:
            return self.pooled(self.last_layer(images))
        return self.network((images - self.mean) / self.sd)

    def add_maximum(self) -> None:
        """From now on the features have a second half: the maximum of each feature over the positions in the image.

        A network for vectors has no positions, and its features stay as they are.
        """
        self.with_maximum = hasattr(self.network, "forward_features")

    @property
    def width(self) -> int:
        """How many numbers `forward` returns for an image."""
        return self.features * (1 + self.with_maximum)

    def last_layer(self, images: Tensor) -> Tensor:
        """The output of the last layer before pooling; `pooled` of it is what `forward` returns."""
        return self.network.forward_features((images - self.mean) / self.sd)  # pyright: ignore[reportCallIssue]

    def maps(self, images: Tensor) -> Tensor:
        """The output of the last layer, which must be feature maps [batch, channels, height, width]."""
        found = self.last_layer(images)
        if found.ndim != 4 or not self.channels_first:
            kind = type(self.network).__name__
            raise InputError(f"the backbone {kind} has no convolutional feature maps; name runs of another backbone")
        return found

    @property
    def channels_first(self) -> bool:
        """Whether feature maps are [batch, channels, height, width], not [batch, height, width, channels]."""
        return getattr(self.network, "output_fmt", "NCHW") == "NCHW"

    def pooled(self, last: Tensor) -> Tensor:
        """Features [batch, width] of the last layer's output: feature maps, or tokens [batch, tokens, channels]."""
        found = self.network.forward_head(last)  # pyright: ignore[reportCallIssue]
        if not self.with_maximum:
            return found
        by_channel = last if last.ndim == 4 and self.channels_first else last.movedim(-1, 1)
        return torch.cat([found, by_channel.flatten(2).amax(dim=2)], dim=1)


class SmallNet(nn.Sequential):
    """Four convolutions and a linear layer for 32 x 32 images: 64 features."""

    num_features = 64

    def __init__(self):
        def block(inputs: int, outputs: int, kernel: int, stride: int) -> list[nn.Module]:
            convolution = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
            return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

        layers = [*block(3, 16, 5, 2), *block(16, 32, 3, 1), *block(32, 64, 3, 2), *block(64, 64, 3, 2)]
        # A grid of 4 x 4 keeps positions: digits differ by where their strokes are.
        super().__init__(*layers, nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 64))

    # The two halves of the network, with timm's names.

    def forward_features(self, images: Tensor) -> Tensor:
        """The last convolution's maps [batch, 64, height, width]."""
        return nn.Sequential(*list(self)[:-3])(images)

    def forward_head(self, maps: Tensor) -> Tensor:
        """Features [batch, 64] of these maps."""
        return nn.Sequential(*list(self)[-3:])(maps)


def move_stride_to_1x1(network: nn.Module) -> None:
    """Turns a ResNet v1.5 into v1: each strided bottleneck has the stride in its first convolution.

    Weights have the same shapes in both, so the wrong one loads without an error and is silently worse.
    """
    for block in network.modules():
        first, second = getattr(block, "conv1", None), getattr(block, "conv2", None)
        if not (isinstance(first, nn.Conv2d) and isinstance(second, nn.Conv2d) and hasattr(block, "conv3")):
            continue
        if first.kernel_size == (1, 1) and second.kernel_size == (3, 3) and second.stride != (1, 1):
            first.stride, second.stride = second.stride, (1, 1)


def load_weights(network: nn.Module, file: Path) -> None:
    """Fills the network from a safetensors file; a classifier in the file is ignored, other differences are errors."""
    expected = network.state_dict()
    with _opened(file) as tensors:
        given = {key: tensors.get_tensor(key) for key in tensors.keys()}  # noqa: SIM118
    # A network without its classifier may still have a norm in its head, as timm's ConvNeXt has.
    unused = [key for key in given if key.startswith(("fc.", "classifier.", "head.")) and key not in expected]
    given = {key: value for key, value in given.items() if key not in unused}
    missing = [key for key in expected if key not in given and not key.endswith("num_batches_tracked")]
    unknown = [key for key in given if key not in expected]
    misshapen = [key for key in given if key in expected and given[key].shape != expected[key].shape]
    if missing or unknown or misshapen:
        first = f'it has no "{missing[0]}"' if missing else f'"{(unknown or misshapen)[0]}" does not fit'
        count = len(missing) + len(unknown) + len(misshapen)
        found = f"{printable(file)} has weights of another network: {first} ({count} tensors differ)"
        raise InputError("backbone.weights", f"{found}; set `backbone.name` to the network of the file")
    network.load_state_dict({key: given[key].to(expected[key].dtype) for key in given}, strict=False)


# timm takes seconds to import, and the small network does not need it.


def _check_timm_name(name: str) -> None:
    import timm

    if not timm.is_model(name):
        near = difflib.get_close_matches(name.lower(), timm.list_models(), n=3)
        hint = f" (similar: {', '.join(near)})" if near else ""
        found = f'is "{printable(name)}", which is not a network of timm{hint}'
        raise InputError("backbone.name", f'{found}; use a timm name or "small"')
    _pretrained_config(name)


def _pretrained_config(name: str) -> Any:
    """timm's description of the network's pretrained weights, None if there are none."""
    import timm

    try:
        return timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        network = name.split(".")[0]
        names = ", ".join([network, *timm.list_pretrained(f"{network}.*")])
        found = f'is "{printable(name)}", but timm has no such weights'
        raise InputError("backbone.name", f"{found}; use one of {names}") from error


def _timm_network(name: str, download: bool) -> nn.Module:
    import timm

    if download:
        require_hub(name)
    try:
        return timm.create_model(name, pretrained=download, num_classes=0)
    except (OSError, RuntimeError, ValueError) as error:
        if not download:
            raise
        raise _not_downloaded(name, str(error).split(". ")[0].splitlines()[0][:120]) from error


def require_hub(name: str) -> None:
    """An error within seconds if pretrained weights must be downloaded, and their server cannot be reached.

    Without this the downloading library tries again and again, for minutes.
    """
    about = _pretrained_config(name)
    if about is None or not about.has_weights or _in_hub_cache(about):
        return
    address, answers = _hub_address(about), queue.SimpleQueue[str | None]()
    # In a thread: a name server that does not answer has no timeout of its own.
    threading.Thread(target=lambda: answers.put(_unreachable(address)), daemon=True).start()
    try:
        reason = answers.get(timeout=HUB_TIMEOUT)
    except queue.Empty:
        reason = f"no answer within {HUB_TIMEOUT:.0f} s"
    if reason:
        raise _not_downloaded(name, f"{address.split('/')[2]} cannot be reached: {reason}")


def _unreachable(address: str) -> str | None:
    """Why the server does not answer; None if it does, with whatever status."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=HUB_TIMEOUT):
            return None
    except urllib.error.HTTPError:
        return None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return str(getattr(reason, "strerror", None) or reason)


def _hub_address(about: Any) -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT if about.hf_hub_id or not about.url else about.url


def _in_hub_cache(about: Any) -> bool:
    """Whether the weights were downloaded before."""
    from huggingface_hub import constants, try_to_load_from_cache

    if constants.HF_HUB_OFFLINE or about.file:
        return True  # nothing will be downloaded: what is missing is an error at once
    if not about.hf_hub_id:
        return os.path.exists(os.path.join(torch.hub.get_dir(), "checkpoints", os.path.basename(about.url)))
    names = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(about.hf_hub_id, file), str) for file in names)


def _not_downloaded(name: str, reason: str) -> InputError:
    remedy = "set `backbone.weights` to a file, or `backbone.pretrained=False` to start from random weights"
    return InputError(f"the pretrained weights of {name} could not be downloaded ({reason}); {remedy}")


def _opened(file: Path) -> safe_open:
    try:
        return safe_open(file, framework="pt")
    except FileNotFoundError as error:
        raise InputError("backbone.weights", f"{printable(file)} does not exist; check the path") from error
    except (SafetensorError, OSError) as error:
        found = f"{printable(file)} is not a readable safetensors file ({printable(error)})"
        remedy = "convert other files with safetensors.torch.save_file"
        raise InputError("backbone.weights", f"{found}; {remedy}") from error


def _metadata(file: Path) -> dict[str, str]:
    with _opened(file) as tensors:
        return tensors.metadata() or {}


def _numbers(text: str | None) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split()) if text else ()
