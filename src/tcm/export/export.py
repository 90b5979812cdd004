"""Exports the classifier or the mechanisms of a finished run, and checks the result on real images at once."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor

from tcm import __version__
from tcm.classifier.evaluate import probabilities
from tcm.classifier.load import load_classifier
from tcm.classifier.trained import Trained, load_trained
from tcm.data.augment import as_input
from tcm.errors import InputError, explain_out_of_memory, printable
from tcm.export.check import Checked, RealImages, compare, real_images
from tcm.export.formats import FileFormat, loaded, onnx_bytes, pt2_bytes, require_packages
from tcm.export.graph import ExportedNetwork, Preprocessing, Probabilities, traced
from tcm.export.hub import write_folder
from tcm.mechanisms.load import load_mechanisms
from tcm.mechanisms.pair import Side, opposite
from tcm.nn.generator import FrozenGenerators
from tcm.training.device import make_fabric
from tcm.training.files import holds_files, write_atomically
from tcm.training.run_folder import chosen_run, mechanisms_run

Format = Literal["onnx", "pt2", "hub"]
IMAGES, TRANSPORTED_IMAGES = 64, 8  # for the check; a mechanism costs as much as a hundred classifiers

exporting = explain_out_of_memory("exporting", "free some, or export on another machine")


class Exported(NamedTuple):
    """What was written, and how far it is from the run."""

    place: Path  # a file, or a folder
    bytes: int
    checked: Checked


@exporting
def export_classifier(
    run: Path,
    out: Path,
    format: Format,
    *,
    preprocessing: bool = False,
    fast: bool = False,
    images: Path | None = None,
    licence: str | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Exported:
    """Writes the classifier of a finished run as `out`, and compares it with the run on 64 images of its target.

    Args:
        run: Folder of a run of `tcm train` or `tcm fit`.
        out: The file, for "hub" the folder, to write.
        format: "onnx", "pt2" (torch.export) or "hub" (a folder for the Hugging Face Hub).
        preprocessing: The file takes stored images, uint8 [n, size, size, 3], and crops them itself.
        fast: Predict from the image alone, without its counterfactuals.
        images: Folder of images for the check, in place of those of the run's target.
        licence: The licence of the model, for the model card of "hub".
        overwrite: Replace what is at `out`.
        quiet: Show no progress.
    """
    require_place(out, format, overwrite)
    require_packages(format)
    if format == "hub" and (preprocessing or fast):
        name = "preprocessing" if preprocessing else "fast"
        raise InputError(name, "is an option of files, but `format` is hub; leave it out, or give `format=onnx`")
    require_licence(licence, format)
    folder = chosen_run(run)
    trained = load_trained(folder)
    real = real_images(trained.config.data, "target", images, IMAGES)
    if format == "hub":
        write_folder(folder, trained, out, licence)
        found = as_tensor(load_classifier(out, "cpu").probabilities)
        return Exported(out, size_of(out), compare(found, run_probabilities(trained, False), real, quiet))
    network = ExportedNetwork(
        Probabilities(trained.method, fast), Preprocessing(*trained.config.data.sides), preprocessing
    )
    return written(
        network, format, out, about_classifier(trained, network, fast), run_probabilities(trained, fast), real, quiet
    )


@exporting
def export_mechanisms(
    run: Path,
    out: Path,
    format: Format,
    *,
    to: Side = "target",
    preprocessing: bool = False,
    images: Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
) -> Exported:
    """Writes the generators of a finished run of stage 1 as `out`, and compares them with the run on 8 images.

    The output is [k, n, 3, size, size] in [0, 1]: M_i of source images if `to` is "target", M_i^-1 of target images if
    it is "source". `run` may be a folder of `tcm fit`. The other arguments are those of `export_classifier`.
    """
    if format == "hub":
        raise InputError("format", "is hub, which is for classifiers; give `format=onnx` or `format=pt2`")
    require_place(out, format, overwrite)
    require_packages(format)
    config, bank = load_mechanisms(mechanisms_run(run))
    real = real_images(config.data, opposite(to), images, TRANSPORTED_IMAGES)
    size = config.data.sides[0]
    generators = FrozenGenerators(pair.network(to) for pair in bank.pairs())
    network = ExportedNetwork(generators, Preprocessing(size, size), preprocessing)
    about = {"task": "image-to-image", "to": to, "mechanisms": bank.k, **about_input(network)}

    @torch.no_grad()
    def expected(stored: Tensor) -> Tensor:
        return bank.transport(as_input(stored), to)

    return written(network, format, out, about, expected, real, quiet)


def written(
    network: ExportedNetwork,
    format: FileFormat,
    out: Path,
    about: dict[str, Any],
    expected: Callable[[Tensor], Tensor],
    real: RealImages,
    quiet: bool,
) -> Exported:
    """Writes the network as a file, loads it again and compares it with what is expected of stored images."""
    output = "probabilities" if about["task"] == "image-classification" else "counterfactuals"
    program = traced(network)
    content = onnx_bytes(program, about, output) if format == "onnx" else pt2_bytes(program, about)
    write_atomically(out, content)
    run_file = loaded(out, format)
    return Exported(out, len(content), compare(lambda x: run_file(network.input_of(x)), expected, real, quiet))


def about_classifier(trained: Trained, network: ExportedNetwork, fast: bool) -> dict[str, Any]:
    """The description of a classifier's file, as JSON types."""
    backbone = trained.method.backbone
    return {
        "task": "image-classification",
        "method": trained.name,
        "classes": list(trained.classes),
        "fast": fast,
        "mean": [round(value, 6) for value in backbone.mean.flatten().tolist()],
        "std": [round(value, 6) for value in backbone.sd.flatten().tolist()],
        "normalisation": "inside the model",
        **about_input(network),
    }


def about_input(network: ExportedNetwork) -> dict[str, Any]:
    """What a file takes, as JSON types."""
    size, crop = network.preprocessing
    stored, cropped = f"uint8 [n, {size}, {size}, 3]", f"float32 [n, 3, {crop}, {crop}] in [0, 1]"
    return {
        "size": size,
        "crop": crop,
        "preprocessing": network.included,
        "input": stored if network.included else cropped,
        "resize": f"{size} x {size}, bicubic, aspect ratio not kept",
        "tcm": __version__,
    }


def run_probabilities(trained: Trained, fast: bool) -> Callable[[Tensor], Tensor]:
    """What the run itself predicts for stored images, on the CPU in single precision."""
    fabric, crop = make_fabric("cpu", "fp32"), trained.config.data.sides[1]
    predict = trained.method.predict_fast if fast else trained.method.predict
    return lambda stored: probabilities(fabric, predict, stored, crop)


def as_tensor(predict: Callable[..., Any]) -> Callable[[Tensor], Tensor]:
    """A function of arrays as one of tensors."""
    return lambda stored: torch.from_numpy(predict(stored.numpy()))


def require_place(out: Path, format: str, overwrite: bool) -> None:
    """An error if `out` cannot be written, or something is there. Called before the work; it changes no file."""
    if format not in get_args(Format):
        raise InputError("format", f'is "{printable(format)}"; give one of {", ".join(get_args(Format))}')
    kind = "folder" if format == "hub" else "file"
    parent = Path(os.path.abspath(out)).parent
    if not os.path.isdir(parent):
        raise InputError("out", f"is in {printable(parent)}, which is not a folder; make it, or choose another")
    if not os.access(parent, os.W_OK):
        raise InputError("out", f"is in {printable(parent)}, which is not writable; choose another place")
    if os.path.lexists(out) and os.path.isdir(out) != (format == "hub"):
        other = "file" if kind == "folder" else "folder"
        raise InputError("out", f"{printable(out)} is a {other}, but `format={format}` writes a {kind}; choose another")
    is_there = holds_files(out) if os.path.isdir(out) else os.path.lexists(out)
    if is_there and not overwrite:
        found = "is not empty" if kind == "folder" else "exists"
        raise InputError("out", f"{printable(out)} {found}; choose another, or replace it with `overwrite=True`")


def require_licence(licence: str | None, format: str) -> None:
    """An error if a licence is given that no model card could state."""
    if licence is not None and format != "hub":
        raise InputError("licence", f"is for the model card of hub, but `format` is {format}; leave it out")
    if licence is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]*", licence):
        raise InputError("licence", f'is "{printable(licence)}"; give an identifier of the Hub such as cc-by-4.0')


def size_of(folder: Path) -> int:
    """The bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
