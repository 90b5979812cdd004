"""What each method costs beside its backbone (the appendix' table): multiply-adds and parameters.

A multiply-add counts once, as in the paper; only forward passes are counted. Networks are built and run, with stand-ins
for whatever is not to be counted, and PyTorch's counter looks on: it sees matrix products and convolutions.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from rich.box import SIMPLE_HEAD
from rich.table import Table
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tcm.data.batch import Batch, Counterfactuals
from tcm.errors import InputError
from tcm.mechanisms.train import bank_config
from tcm.methods import METHODS, MethodConfig
from tcm.methods.method import Method, Problem
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators

BATCH = 32  # images of each domain in a step, as in the paper
SIDE = 8  # of images that only stand-ins look at
PAPER_BACKBONE = 133.0  # GFLOPS


class Price(NamedTuple):
    """Billions of multiply-adds of a step's forward pass, and millions of parameters."""

    giga: float
    mega: float


# The appendix, on Office-Home with ResNet-50: additional GFLOPS and parameters.
PAPER = {
    "dann": Price(0.084, 1.3),
    "cdan": Price(1.158, 18.1),
    "baseline": Price(0.072, 1.1),
    "tcm-paper": Price(0.364, 10.1),
    "tcm-release": Price(0.364, 10.1),
}


class Cost(NamedTuple):
    """One method."""

    name: str
    images: int  # that pass the backbone in a step
    modules: Price  # all but backbone, bottleneck and classifier
    predicting: float  # billions of multiply-adds of backbone and mechanisms to predict one image

    @property
    def paper(self) -> Price | None:
        """The paper's figures of its modules, if the paper has any."""
        return PAPER.get(self.name)


class Costs(NamedTuple):
    """The table, and what a pass of the backbone costs."""

    backbone: Price  # of one image
    rows: list[Cost]


class StandIn(nn.Module):
    """Zeros of the right width in place of a network, for nothing; it counts what it was shown."""

    pretrained = False

    def __init__(self, width: int):
        super().__init__()
        self.features, self.shown = width, 0

    def forward(self, x: Tensor) -> Tensor:
        """[batch, width]."""
        self.shown += len(x)
        return torch.zeros(len(x), self.features)


def count_costs(
    backbone: BackboneConfig, classes: int, k: int, methods: Mapping[str, MethodConfig] | None = None
) -> Costs:
    """The costs of these methods, or of all, on this backbone; k is the number of mechanisms of those that use any
    number of counterfactuals."""
    for name, value, least in (("classes", classes, 2), ("k", k, 1)):
        if value < least:
            raise InputError(name, f"is {value}; give {least} or more")
    backbone = backbone.resolved(small_images=False)
    small = backbone.name == "small"
    side = 32 if small else 224
    backbone.require_crop(side)
    # Nothing is computed here: tensors without content have shapes enough.
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
        rows.append(Cost(name, images, modules, passes * each.giga + making))
    return Costs(each, rows)


def multiply_adds(run: Callable[[], object]) -> float:
    """Billions of them in the forward passes that `run` makes."""
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        run()
    # The counter counts a multiplication and an addition as two.
    return counter.get_total_flops() / 2e9


def parameters(module: nn.Module) -> float:
    """Millions of them."""
    return sum(parameter.numel() for parameter in module.parameters()) / 1e6


def generator_multiply_adds(small: bool, side: int) -> float:
    """Billions of them for one counterfactual of one image."""
    with torch.device("meta"):
        generator = bank_config("paper", small).generator.build()
        return multiply_adds(lambda: generator(torch.empty(1, 3, side, side)))


def _modules(config: MethodConfig, features: int, classes: int, k: int) -> tuple[Method, int, Price]:
    """The method with stand-ins for what all methods have, the images that pass its backbone, and the rest's price."""
    backbone, inverse = StandIn(features), FrozenGenerators(nn.Identity() for _ in range(k))  # pyright: ignore
    method = config.build(Problem(classes, backbone, inverse if k else None))  # pyright: ignore[reportArgumentType]
    for name, width in (("bottleneck", method.recipe.bottleneck), ("classifier", classes)):
        if hasattr(method, name):
            setattr(method, name, StandIn(width))
    images = torch.zeros(BATCH, 3, SIDE, SIDE)
    made = Counterfactuals(*[images.expand(k, *images.shape)] * 2) if k else None
    batch = Batch(images, torch.zeros(BATCH, dtype=torch.long), images, made)
    giga = multiply_adds(lambda: method.train().losses(batch, 1.0))
    return method, backbone.shown, Price(giga, parameters(method))


def _prediction(method: Method) -> tuple[int, int]:
    """How many images the backbone looks at to predict one, and how many counterfactuals are made for it."""
    backbone, mechanisms = method.backbone, list(method.inverse or ())
    assert isinstance(backbone, StandIn)
    before, made = backbone.shown, []
    for mechanism in mechanisms:
        mechanism.register_forward_hook(lambda *_: made.append(1))
    with torch.no_grad():
        method.eval().predict(torch.zeros(1, 3, SIDE, SIDE))
    return backbone.shown - before, len(made)


def costs_table(found: Costs) -> Table:
    """A row a method: ours, the paper's, and their ratio."""
    title = f"multiply-adds (G) and parameters (M), batch {BATCH} + {BATCH}"
    table = Table(title=title, title_style="bold", box=SIMPLE_HEAD, padding=0)  # fits into 80 letters
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
        cells = [str(row.images), f"{row.images * found.backbone.giga:.0f}"]
        for ours, theirs in zip(row.modules, paper, strict=True):
            beside = [f"{theirs:g}", f"{ours / theirs:.2f}"] if theirs else ["", ""]
            cells += [f"{ours:.3f}", *beside]
        table.add_row(row.name, *cells, f"{row.predicting:.1f}")
    return table


def costs_notes(found: Costs) -> list[str]:
    """What must be known to read the table, a line each."""
    giga, mega = found.backbone
    once = BATCH * giga
    compared = f"{BATCH} of them {once:.3g} G; the paper says {PAPER_BACKBONE:.0f}, {once / PAPER_BACKBONE:.2f} times"
    return [
        "A multiply-add counts once, as in the paper; forward passes only, without the backward pass.",
        "The paper's figures are those of ResNet-50 with 65 classes.",
        f"The backbone: {mega:.1f} M parameters, {giga:.3g} G an image, {compared}.",
        "images: what passes the backbone in a step, counterfactuals included. The paper counts its backbone on "
        f"{BATCH} images, its modules on {2 * BATCH}. mcd looks at its images six times a step; one time counts here.",
        "modules: all but backbone, bottleneck and classifier; with a causal head f_y, and solving h_y once a step.",
        "The paper's figures fit discriminators of class probabilities and counterfactuals one at a time, as "
        "tcm-release has them. As the text writes it (tcm-paper, baseline) they look at features, and at all k.",
        "predict: backbone and mechanisms for one image; making its k counterfactuals is most of it.",
    ]
