"""A method on feature vectors: batches of rows of a table, a small network, and the usual training loop."""

import dataclasses
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tcm.config import from_json, to_json
from tcm.data.batch import Batch, StrongViews
from tcm.data.stream import SIDES, derived_generator, derived_seed, indices_at
from tcm.errors import InputError
from tcm.methods import METHODS
from tcm.methods.method import Answer, Method, MethodConfig, Problem, TargetImages, TaskFeatures
from tcm.nn.vector_net import vector_backbone
from tcm.training.device import inference_on
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run

REPLACED = 0.3  # share of the values that a strong view replaces
AT_ONCE = 8192  # rows in a pass
HIDDEN = 128  # width of discriminators: a thousand, as for images, would take most of the time


class VectorNetwork(NamedTuple):
    """All that builds the network of a method on vectors."""

    name: str  # of the method
    config: MethodConfig
    inputs: int
    widths: tuple[int, ...]
    classes: int

    def build(self, target: TargetImages | None = None, features: Callable[..., TaskFeatures] | None = None) -> Method:
        """The method with new weights; `target` and `features` are only for training."""
        backbone = vector_backbone(self.inputs, self.widths)
        return self.config.build(Problem(self.classes, backbone, None, target, features))

    def about(self) -> dict[str, Any]:
        """This as JSON types, which `read` turns into it again."""
        return {**self._asdict(), "config": to_json(self.config)}

    @classmethod
    def read(cls, about: dict[str, Any], where: str) -> "VectorNetwork":
        """What `about` returned."""
        config = from_json(METHODS[about["name"]], about["config"], where)
        return cls(about["name"], config, about["inputs"], tuple(about["widths"]), about["classes"])


class VectorStream:
    """Batches of standardised vectors, a function of the seed and the step."""

    def __init__(self, source: Tensor, labels: Tensor, target: Tensor, batch: int, seed: int, strong: bool):
        self.rows, self.labels, self.batch_size, self.seed = (source, target), labels, batch, seed
        self.strong = strong

    def batch(self, step: int) -> Batch:
        """The batch of this step. A domain with fewer rows than a batch is in it more than once."""
        places = [
            indices_at(self.seed, side, step, self.batch_size, len(rows)).to(rows.device)
            for side, rows in zip(SIDES, self.rows, strict=True)
        ]
        source, target = (rows[chosen] for rows, chosen in zip(self.rows, places, strict=True))
        strong = StrongViews(self.strong_views(source, 0, step), self.strong_views(target, 1, step))
        return Batch(source, self.labels[places[0]], target, None, strong if self.strong else None, places[1])

    def strong_views(self, chosen: Tensor, side: int, step: int) -> Tensor:
        """The rows with a share of their values replaced by those of random rows of the domain, feature by feature.

        This is the corruption of SCARF (Bahri et al., ICLR 2022), at half of its share.
        """
        generator, rows = derived_generator(self.seed, SIDES[side], "strong view", step), self.rows[side]
        others = torch.randint(len(rows), chosen.shape, generator=generator).to(rows.device)
        replaced = torch.rand(chosen.shape, generator=generator).to(rows.device) < REPLACED
        return torch.where(replaced, rows.gather(0, others), chosen)


def fit_vectors(
    network: VectorNetwork,
    source: NDArray[np.float64],
    labels: NDArray[np.int64],
    target: NDArray[np.float64],
    *,
    steps: int,
    batch: int,
    seed: int,
    device: str,
    quiet: bool,
) -> Method:
    """Trains the method on vectors [n, inputs] and returns it in float64, on the CPU and in evaluation mode."""
    both = np.concatenate([source, target])
    mean, sd = both.mean(axis=0), both.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    fabric = inference_on(device, "fp32")
    rows = [torch.from_numpy((part - mean) / sd).float().to(fabric.device) for part in (source, target)]
    classes = torch.from_numpy(labels).to(fabric.device)

    def answers(method: Method) -> Answer:
        with torch.inference_mode():
            found = [method.answer(some) for some in rows[1].split(AT_ONCE)]
        return Answer(torch.cat([one.logits for one in found]), torch.cat([one.features for one in found]))

    def all_features(of: Callable[[Tensor], Tensor]) -> TaskFeatures:
        with torch.inference_mode():
            source, target = (torch.cat([of(some) for some in part.split(AT_ONCE)]) for part in rows)
        return TaskFeatures(source, classes, target)

    images = TargetImages(
        len(target), lambda method: answers(method).logits.softmax(dim=1), lambda method: answers(method).features
    )
    torch.manual_seed(derived_seed(seed, "weights"))
    method = network.build(images, all_features)
    stream = VectorStream(rows[0], classes, rows[1], batch, seed, network.config.strong_counterfactuals is not None)

    def conclude() -> None:
        with torch.inference_mode():
            method.conclude(rows[1].split(AT_ONCE), ())

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run, schedule = Run(Path(folder) / "run"), Schedule(steps, max(steps // 10, 1), steps, steps)
        run.start({"method_name": network.name})
        training_loop(
            *(fabric, method, stream, run),
            schedule=schedule,
            seed=seed,
            evaluate=dict,
            conclude=conclude,
            title=network.name,
            quiet=quiet,
        )
        run.release()
    needed = {name: tensor for name, tensor in method.state_dict().items() if name not in method.training_only}
    backbone = {"backbone.mean": torch.from_numpy(mean), "backbone.sd": torch.from_numpy(sd)}
    return restored(network, {**needed, **backbone})


def restored(network: VectorNetwork, tensors: dict[str, Tensor]) -> Method:
    """The trained method from its weights, in float64: predictions do not depend on the size of a batch."""
    method = network.build().double()
    method.load_state_dict(tensors)
    return method.requires_grad_(False).eval()


def probabilities(method: Method, vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Class probabilities [n, classes] of vectors [n, inputs]."""
    with torch.inference_mode():
        logits = [method(some) for some in torch.tensor(vectors).split(AT_ONCE)]
    return torch.cat(logits).double().softmax(dim=1).numpy()


def default_settings(name: str) -> MethodConfig:
    """The default settings of a method on vectors."""
    config = METHODS[name].for_images(small=True)
    has_hidden = "hidden" in (field.name for field in dataclasses.fields(config))
    return dataclasses.replace(config, hidden=HIDDEN) if has_hidden else config


def require_vectors(name: str) -> None:
    """An error if the method cannot train on vectors."""
    config = METHODS[name]
    if config.uses_counterfactuals or config.needs_images:
        why = "uses counterfactuals of images" if config.uses_counterfactuals else "generates images"
        others = ", ".join(usable_on_vectors())
        raise InputError("method", f"is {name}, which {why}, but X holds feature vectors; give one of {others}")


def usable_on_vectors() -> Sequence[str]:
    """The methods that train on vectors; tcm does so without mechanisms."""
    found = [name for name, kind in METHODS.items() if not (kind.uses_counterfactuals or kind.needs_images)]
    return ["tcm", *found]
