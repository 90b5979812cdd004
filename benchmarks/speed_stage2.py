"""Stage 2: a step of the default method against a plain implementation and a bare backbone, and a prediction."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from speed_input import random_store
from timing import seconds_a_call
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from tcm.data.augment import View
from tcm.data.batch import Batch, StrongViews
from tcm.data.store import ImageStore
from tcm.data.stream import Stream, Strong
from tcm.data.strong_views import PHOTOGRAPHS, SMALL_IMAGES
from tcm.methods.dann import DANNConfig
from tcm.methods.method import Method, MethodConfig, Problem
from tcm.methods.tcm.tcm import TCM, TCMConfig
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import make_fabric

WORKERS = 16
BF16_RATE = 790.0  # TFLOP/s of a product of large matrices on an H200
FORWARD_AND_BACKWARD = 3  # the backward pass takes twice the operations of the forward pass


class Size:
    """The networks and images of the comparison: those of Office-Home, or small ones for a quick check."""

    def __init__(self, quick: bool):
        self.quick, self.k, self.views = quick, 2, 4
        self.batch, self.stored, self.crop, self.images = (8, 36, 32, 64) if quick else (32, 256, 224, 2000)
        self.backbone, self.repeats, self.workers = ("small", 2, 0) if quick else ("resnet50.tv_in1k", 10, WORKERS)

    @property
    def view(self) -> View:
        return View(self.crop, flip=True, shift=0)


class PlainSamples(Dataset[tuple[Tensor, ...]]):
    """An image and a strong view of it or of a counterfactual, made by torchvision on the CPU, image by image."""

    def __init__(self, store: ImageStore, made: Tensor, crop: int):
        self.store, self.made = store, made
        self.weak = v2.Compose([v2.RandomCrop(crop), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
        resized = [v2.RandomResizedCrop(crop, (0.35, 1.0), antialias=True), v2.RandomHorizontalFlip()]
        changed = [v2.RandAugment(2, 10), v2.ToDtype(torch.float32, scale=True), v2.RandomErasing(0.5)]
        self.strong = v2.Compose([*resized, *changed])

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        image = self.store.images[index].permute(2, 0, 1)
        start = image
        if np.random.rand() < 0.5:
            start = self.made[index, np.random.randint(self.made.shape[1])].permute(2, 0, 1)
        return self.weak(image), self.strong(start), self.store.labels[index]


class PassPerView(TCM):
    """One pass of the backbone for every view of a batch."""

    at_once = 32

    def features(self, images: Tensor) -> Tensor:
        """The features, view by view."""
        return torch.cat([super(PassPerView, self).features(part) for part in images.split(self.at_once)])


def plain_batches(stores: list[ImageStore], made: list[Tensor], size: Size, device: torch.device) -> Iterator[Batch]:
    """Endless batches from a DataLoader with workers for each domain."""
    loaders = [
        DataLoader(
            PlainSamples(store, own, size.crop),
            size.batch,
            shuffle=True,
            drop_last=True,
            num_workers=size.workers // 2,
            pin_memory=device.type == "cuda",
            persistent_workers=size.workers > 0,
        )
        for store, own in zip(stores, made, strict=True)
    ]
    while True:
        for pair in zip(*loaders, strict=True):
            (source, strong, labels), (target, strong_target, _) = (
                [part.to(device, non_blocking=True) for part in parts] for parts in pair
            )
            yield Batch(source, labels, target, strong=StrongViews(strong, strong_target))


def built(kind: type[Method], config: MethodConfig, size: Size, device: torch.device) -> Method:
    """An untrained method on an untrained backbone, on the device."""
    backbone = BackboneConfig(size.backbone, pretrained=False).build()
    backbone.pretrained = True
    return kind(Problem(65, backbone), config).to(device)


def stage2(quick: bool, forms: list[str]) -> None:
    """Steps of the default method, with making their batches, against the plain form and the bare backbone."""
    size = Size(quick)
    device = make_fabric("auto", "auto").device
    with TemporaryDirectory() as folder:
        stores = [random_store(Path(folder) / side, side, size.images, size.stored) for side in ("source", "target")]
        made = [store.images[:, None].expand(-1, size.k, -1, -1, -1) for store in stores]
        strong = Strong(SMALL_IMAGES if quick else PHOTOGRAPHS, 0.5)
        options = {"batch": size.batch, "seed": 0, "view": size.view, "device": device}
        stream = Stream(*stores, **options, transported=(made[0], made[1]), strong=strong)
        config = TCMConfig.for_images(small=quick)
        ours = step_time(TCM, config, stream.batch, size, "auto", compiled=True)
        report_share(size, ours, bare_step(size), device)
        report_prediction(size)
        dann = Stream(*stores, **options)
        step_time(DANNConfig.method, DANNConfig(), dann.batch, size, "auto", compiled=True)
        # Last: it takes far longer than all the others.
        plain = plain_batches(stores, made, size, device)
        slow = step_time(PassPerView, config, lambda _: next(plain), size, "fp32", compiled=False)
    print(f"tcm, with making the batch: {slow / ours:.1f} times the images/s of the plain form")


def report_share(size: Size, ours: float, bare: float, device: torch.device) -> None:
    """Prints the speed of a step that takes `ours` seconds beside that of the bare backbone, `bare` seconds."""
    images = size.views * size.batch
    print(f"tcm, with making the batch: {images / ours:.0f} images/s")
    print(
        f"the bare backbone, forward and backward: {images / bare:.0f} images/s; tcm reaches {100 * bare / ours:.0f} %"
    )
    if device.type == "cuda" and not size.quick:
        rate = FORWARD_AND_BACKWARD * 2 * 4.09e9 * images / ours / 1e12
        print(f"{rate:.0f} TFLOP/s, {100 * rate / BF16_RATE:.0f} % of the card's rate for products of matrices in bf16")


def step_time(
    kind: type[Method],
    config: MethodConfig,
    batch: Callable[[int], Batch],
    size: Size,
    precision: str,
    *,
    compiled: bool,
) -> float:
    """Seconds of a training step with making its batch. Prints the memory that it takes per image of all views."""
    torch.compiler.reset()  # else a second batch size makes the compiler use slower code for any batch size
    fabric = make_fabric("auto", precision)
    on_gpu = fabric.device.type == "cuda"
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision != "fp32"
    method = built(kind, config, size, fabric.device).train()
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    before = torch.cuda.memory_allocated() if on_gpu else 0
    optimizers = method.build_optimizers()
    if compiled and on_gpu:
        method.accelerate()

    def step(number: int) -> None:
        torch.manual_seed(number)
        shown = batch(number)
        if on_gpu:
            torch.compiler.cudagraph_mark_step_begin()
        with fabric.autocast():
            method.update(shown, 0.5, optimizers)

    taken = seconds_a_call({"step": step}, fabric.device, size.repeats)["step"]
    if on_gpu:
        images = size.batch * (size.views if kind is not DANNConfig.method else 2)
        used = (torch.cuda.max_memory_reserved() - before) / images / 2**20
        print(f"{kind.__name__}: {images / taken:.0f} images/s, {used:.0f} MiB per image at most")
    return taken


def bare_step(size: Size) -> float:
    """Seconds of a forward and backward pass of the compiled backbone alone on all views of a step."""
    torch.compiler.reset()
    fabric = make_fabric("auto", "auto")
    backbone = BackboneConfig(size.backbone, pretrained=False).build().to(fabric.device).train()
    if fabric.device.type == "cuda":
        backbone.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        backbone.compile(mode="reduce-overhead")
    images = torch.rand(size.views * size.batch, 3, size.crop, size.crop, device=fabric.device)
    images = images.contiguous(memory_format=torch.channels_last)

    def step(_: int) -> None:
        if fabric.device.type == "cuda":
            torch.compiler.cudagraph_mark_step_begin()
        with fabric.autocast():
            backbone(images).float().square().mean().backward()
        for parameter in backbone.parameters():
            parameter.grad = None

    return seconds_a_call({"step": step}, fabric.device, size.repeats)["step"]


def report_prediction(size: Size) -> None:
    """Prints the cost of a prediction of the default method in passes of the backbone alone."""
    fabric = make_fabric("auto", "auto")
    method = built(TCM, TCMConfig.for_images(small=size.quick), size, fabric.device).eval()
    method.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    for count in (size.batch, 8 * size.batch):  # the host is the limit for few images, the GPU for many
        images = torch.rand(count, 3, size.crop, size.crop, device=fabric.device)
        images = images.contiguous(memory_format=torch.channels_last)

        def timed(call: Callable[[Tensor], object], images: Tensor = images) -> Callable[[int], object]:
            def run(_: int) -> None:
                with torch.inference_mode(), fabric.autocast():
                    call(images)

            return run

        calls = {"bare": timed(method.backbone), "tcm": timed(method.predict)}
        took = seconds_a_call(calls, fabric.device, size.repeats)
        print(f"a prediction of tcm for {count} images takes {took['tcm'] / took['bare']:.2f} times the bare backbone")
