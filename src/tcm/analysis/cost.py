"""The multiply-adds and parameters that each method adds to its backbone (the table in the paper's appendix).

A multiply-add counts as one operation, as in the paper. Only forward passes count. The networks are built and run under
PyTorch's counter, which counts matrix products and convolutions; `NotCounted` replaces the parts that do not count.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor, nn

from tcm.data.batch import Batch, Counterfactuals, StrongViews
from tcm.errors import InputError
from tcm.mechanisms.train import bank_config
from tcm.methods import METHODS, MethodConfig
from tcm.methods.method import Method, Problem
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators

BATCH = 32  # images of each domain in a step, as in the paper
SIDE = 8  # pixels of images that only go to parts that are not counted
PAPER_BACKBONE = 133.0  # billions of multiply-adds


class Price(NamedTuple):
    """The cost of a forward pass."""

    multiply_adds: float  # billions
    parameters: float  # millions


# The paper's appendix: what each method adds on Office-Home with ResNet-50.
PAPER = {
    "dann": Price(0.084, 1.3),
    "cdan": Price(1.158, 18.1),
    "gvb": Price(0.092, 1.4),
    "baseline": Price(0.072, 1.1),
    "tcm-paper": Price(0.364, 10.1),
    "tcm-release": Price(0.364, 10.1),
}


class Cost(NamedTuple):
    """The cost of one method."""

    name: str
    images: int  # images that pass the backbone in a step
    modules: Price  # of everything but backbone, bottleneck and classifier
    prediction: float  # billions of multiply-adds of backbone and mechanisms to predict one image

    @property
    def paper(self) -> Price | None:
        """The paper's numbers for the modules, if there are any."""
        return PAPER.get(self.name)


class Costs(NamedTuple):
    """The costs of the methods and of the backbone."""

    backbone: Price  # of one image
    rows: list[Cost]


class NotCounted(nn.Module):
    """Replaces a network: returns zeros of the same width at no cost, and counts its input images."""

    pretrained = False

    def __init__(self, width: int):
        super().__init__()
        self.features, self.width, self.images = width, width, 0

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width]."""
        self.images += len(x)
        return torch.zeros(len(x), self.features)

    def add_maximum(self) -> None:
        """Nothing: the maximum of a feature costs no products."""


def count_costs(
    backbone: BackboneConfig, classes: int, k: int, methods: Mapping[str, MethodConfig] | None = None
) -> Costs:
    """The costs of these methods, or of all methods, on this backbone.

    `k` is the number of mechanisms of methods that can use any number of them.
    """
    for name, value, least in (("classes", classes, 2), ("k", k, 1)):
        if value < least:
            raise InputError(name, f"is {value}; give {least} or more")
    backbone = backbone.resolved(small_images=False)
    small = backbone.name == "small"
    side = 32 if small else 224
    backbone.require_crop(side)
    # Counting needs only the shapes, so no numbers are computed.
    with torch.device("meta"):
        network = backbone.build(initialise=False).eval()
        each = Price(multiply_adds(lambda: network(torch.empty(1, 3, side, side))), parameters(network))
    rows = []
    every_method = {name: config.for_images(small) for name, config in METHODS.items()}
    for name, config in (every_method if methods is None else methods).items():
        mechanisms = (config.number_of_mechanisms or k) if config.uses_counterfactuals else 0
        method, images, modules = _modules(config, network.features, classes, mechanisms)
        passes, made = _prediction(method)
        making = made * generator_multiply_adds(small, side) if made else 0.0
        rows.append(Cost(name, images, modules, passes * each.multiply_adds + making))
    return Costs(each, rows)


def multiply_adds(run: Callable[[], object]) -> float:
    """Billions of multiply-adds in the forward passes of `run`."""
    from torch.utils.flop_counter import FlopCounterMode  # imported here: it loads triton

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        run()
    # The counter counts a multiply-add as two operations.
    return counter.get_total_flops() / 2e9


def parameters(module: nn.Module) -> float:
    """Millions of parameters."""
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


def generator_multiply_adds(small: bool, side: int) -> float:
    """Billions of multiply-adds for one counterfactual of one image."""
    with torch.device("meta"):
        generator = bank_config("paper", small).generator.build()
        return multiply_adds(lambda: generator(torch.empty(1, 3, side, side)))


def _modules(config: MethodConfig, features: int, classes: int, k: int) -> tuple[Method, int, Price]:
    """The method with its common parts not counted, the images that pass its backbone in a step, the modules' price."""
    backbone, inverse = NotCounted(features), None
    if config.runs_inverse:
        inverse = FrozenGenerators(nn.Identity() for _ in range(k))  # pyright: ignore[reportArgumentType]
    method = config.build(Problem(classes, backbone, inverse))  # pyright: ignore[reportArgumentType]
    for name, width in (("bottleneck", method.recipe.bottleneck), ("classifier", classes)):
        if hasattr(method, name):
            setattr(method, name, NotCounted(width))
    images = torch.zeros(BATCH, 3, SIDE, SIDE)
    made = Counterfactuals(*[images.expand(k, *images.shape)] * 2) if k else None
    strong = StrongViews(images, images) if config.strong_counterfactuals is not None else None
    batch = Batch(images, torch.zeros(BATCH, dtype=torch.long), images, made, strong)
    price = Price(multiply_adds(lambda: method.train().losses(batch, 1.0)), parameters(method))
    return method, backbone.images, price


def _prediction(method: Method) -> tuple[int, int]:
    """How many images pass the backbone to predict one image, and how many counterfactuals are made for it."""
    backbone, mechanisms = method.backbone, list(method.inverse or ())
    assert isinstance(backbone, NotCounted)
    before, made = backbone.images, []
    for mechanism in mechanisms:
        mechanism.register_forward_hook(lambda *_: made.append(1))
    with torch.no_grad():
        method.eval().predict(torch.zeros(1, 3, SIDE, SIDE))
    return backbone.images - before, len(made)


def costs_table(found: Costs) -> Table:
    """One row per method: our numbers, the paper's numbers and their ratio."""
    title = f"multiply-adds (G) and parameters (M), batch {BATCH} + {BATCH}"
    table = Table(title=title, title_style="bold", box=SIMPLE_HEAD, padding=0)  # fits into 80 columns
    heads = (
        "images",
        "backbone\nG",
        "modules\nG",
        "paper\nG",
        "ratio",
        "modules\nM",
        "paper\nM",
        "ratio",
        "predict\nG",
    )
    for head in ("method", *heads):
        table.add_column(head, justify="left" if head == "method" else "right", no_wrap=True)
    for row in found.rows:
        paper = row.paper or Price(0.0, 0.0)
        cells = [str(row.images), f"{row.images * found.backbone.multiply_adds:.0f}"]
        for ours, theirs in zip(row.modules, paper, strict=True):
            beside = [f"{theirs:g}", f"{ours / theirs:.2f}"] if theirs else ["", ""]
            cells += [f"{ours:.3f}", *beside]
        table.add_row(row.name, *cells, f"{row.prediction:.1f}")
    return table


def costs_notes(found: Costs) -> list[str]:
    """Notes that explain the table."""
    image, millions = found.backbone
    batch = BATCH * image
    ratio = batch / PAPER_BACKBONE
    return [
        "A multiply-add counts once, as in the paper. Only forward passes count, not the backward pass.",
        "The paper's numbers are for ResNet-50 with 65 classes.",
        f"The backbone has {millions:.1f} M parameters. It needs {image:.3g} G per image, {batch:.3g} G for {BATCH} "
        f"images; the paper's number is {PAPER_BACKBONE:.0f} G (ratio {ratio:.2f}).",
        "images: how many images pass the backbone in a step, with counterfactuals. The paper counts its backbone on "
        f"{BATCH} images and its modules on {2 * BATCH}. mcd uses its images six times in a step; one counts here.",
        "modules: everything but backbone, bottleneck and classifier. With a causal head it includes f_y, and solving "
        "for h_y once per step. That of cada includes the gradient behind its attention.",
        "The paper's number of parameters for GVB-GD fits the discriminator and both bridges with the classifier.",
        "The paper's numbers for TCM fit one discriminator of class probabilities, the VAE and f_xhat (10.1 M), the "
        f"first two on {2 * BATCH} images (0.364 G). tcm-release, the authors' script for Office-Home, has a second "
        "discriminator and two plain classifiers, and all that it computes counts. In the text of the paper "
        "(tcm-paper) the discriminators see features and all k counterfactuals.",
        "predict: backbone and mechanisms for one image. For tcm-paper most of it is the making of its k "
        "counterfactuals; the other methods need none.",
    ]
