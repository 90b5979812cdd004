"""Links of a page to files: predictions inside the page or beside it, and the model in its run."""

import base64
import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from tcm.analysis.run_record import Evaluation, Record
from tcm.progress import format_size

EMBEDDED = 300_000  # bytes of predictions that the page may hold
PREDICTIONS, MODEL, FIT = "predictions.csv", "model.safetensors", "fit.json"


@dataclass(frozen=True)
class Download:
    """A link: what it gives, its address, and the name of the file."""

    text: str
    address: str
    name: str
    size: str
    content: bytes = b""  # to be written beside the page


def fit_folder(record: Record) -> Path | None:
    """The folder of the fit that a run belongs to; None for a run of its own."""
    parent = record.folder.resolve().parent
    return record.folder.parent if (parent / FIT).is_file() else None


def downloads(record: Record, out: Path) -> list[Download]:
    """The predictions and the model of a finished run, for a page in the folder `out`.

    A fit has both beside its runs. Otherwise the page holds the predictions; too many for it are written beside it.
    """
    assert record.evaluation is not None, "only a finished run has something to download"
    place = fit_folder(record) or record.folder
    written = place / PREDICTIONS
    found = [_link("Predictions", written, out) if written.is_file() else _predictions(record.evaluation)]
    model = next((folder / MODEL for folder in (place, record.folder) if (folder / MODEL).is_file()), None)
    return [*found, _link("Model", model, out)] if model else found


def _predictions(evaluation: Evaluation) -> Download:
    content = predictions_csv(evaluation)
    about = f"{len(evaluation.predictions):,} images, CSV"
    if len(content) > EMBEDDED:
        return Download("Predictions", PREDICTIONS, PREDICTIONS, about, content)
    return Download("Predictions", f"data:text/csv;base64,{base64.b64encode(content).decode()}", PREDICTIONS, about)


def predictions_csv(evaluation: Evaluation) -> bytes:
    """Path, class and confidence of every target image, as `tcm predict` writes them."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["path", "class", "confidence"])
    rows = zip(evaluation.arrays["paths"].tolist(), evaluation.predictions, evaluation.confidence, strict=True)
    writer.writerows([path, evaluation.classes[guess], f"{confidence:.4f}"] for path, guess, confidence in rows)
    return text.getvalue().encode("utf-8", "surrogateescape")


def _link(text: str, file: Path, out: Path) -> Download:
    try:
        address = quote(Path(os.path.relpath(file.resolve(), out.resolve())).as_posix())
    except ValueError:  # another drive of Windows
        address = file.resolve().as_uri()
    return Download(text, address, file.name, format_size(file.stat().st_size))
