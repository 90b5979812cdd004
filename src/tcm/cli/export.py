"""tcm export: the model of a finished run for other programs."""

import sys
from pathlib import Path
from typing import Literal

from tcm.cli.arguments import OptionalText, Output, Quiet, Run
from tcm.errors import InputError, printable
from tcm.export.check import LIMIT
from tcm.export.export import Exported, Format, export_classifier, export_mechanisms
from tcm.export.hub import push as push_folder
from tcm.mechanisms.pair import Side


def export(
    run: Run,
    format: Format,
    out: Output,
    what: Literal["classifier", "mechanisms"] = "classifier",
    to: Side = "target",
    preprocessing: bool = False,
    fast: bool = False,
    images: Path | None = None,
    licence: OptionalText = None,
    push: OptionalText = None,
    overwrite: bool = False,
    quiet: Quiet = False,
) -> int:
    """Write the model of a finished run for other programs, and check it on real images at once.

    The exit code is 1 if the outputs differ from those of the run by more than 0.001. The file stays.

    Args:
        run: Folder of a finished run of tcm train, tcm fit or, for mechanisms, tcm mechanisms.
        format: onnx: for ONNX Runtime and others. pt2: for PyTorch alone (torch.export). hub: a folder for the Hugging
            Face Hub with safetensors, config.json and a model card.
        out: File to write; for hub, the folder.
        what: The classifier, or the networks of the mechanisms.
        to: For mechanisms: the domain to which images are transported.
        preprocessing: The file takes images as uint8 [n, size, size, 3] and makes the centre crop itself. Without this
            it takes floats [n, 3, crop, crop] in [0, 1]. Normalisation is always part of the file.
        fast: Predict from the image alone, without its counterfactuals. Methods without counterfactuals do not change.
        images: Folder of images for the check. Default: the images of the run.
        licence: For hub: the licence of the model, such as cc-by-4.0. Default: none is stated.
        push: For hub: upload the folder as this repository, such as name/model. Default: no upload.
        overwrite: Replace the file or the files of the folder.
        quiet: Print only the result, no progress.
    """
    if push is not None and format != "hub":
        raise InputError("push", f"uploads a folder, but `format` is {format}; give `format=hub`")
    if what == "classifier":
        options = {"preprocessing": preprocessing, "fast": fast, "images": images, "licence": licence}
        made = export_classifier(run, out, format, **options, overwrite=overwrite, quiet=quiet)
    elif fast or licence:
        raise InputError("fast" if fast else "licence", "is for classifiers, but `what` is mechanisms; leave it out")
    else:
        options = {"to": to, "preprocessing": preprocessing, "images": images}
        made = export_mechanisms(run, out, format, **options, overwrite=overwrite, quiet=quiet)
    return report(made, "probabilities" if what == "classifier" else "pixels in [0, 1]", push)


def report(made: Exported, outputs: str, repository: str | None) -> int:
    """Prints what was written and how it compares with the run; a folder that passes the check is uploaded."""
    place, (largest, count, origin) = printable(made.place), made.checked
    images = f"{count} images of {printable(origin)}"
    print(f"{place}: {made.bytes / 1e6:.1f} MB")
    if not made.checked.passed:
        found = f"{place} does not compute what the run computes: on {images} the largest difference of {outputs}"
        print(f"error: {found} is {largest:.2g}, the limit is {LIMIT}; do not use it", file=sys.stderr)
        return 1
    print(f"checked on {images}: the largest difference of {outputs} is {largest:.1e}")
    if repository is not None:
        print(f"uploaded: {push_folder(made.place, repository)}")
    return 0
