"""The page of an audit: one file that shows the sample and takes one key per label. It needs no network."""

import base64
import io
import string
from collections.abc import Sequence
from pathlib import Path

import jinja2
import numpy as np
from PIL import Image

from tcm.config import from_json
from tcm.data.task import DataConfig, load_task
from tcm.errors import InputError, printable
from tcm.estimation.audit import COLUMNS, NONE, UNSURE, Sample
from tcm.estimation.inputs import read_predictions
from tcm.training.files import write_atomically
from tcm.training.run_folder import Run

KEYS = string.digits + string.ascii_lowercase
SMALL = 64  # pixels: up to here images are stored without loss


def class_keys(classes: Sequence[str]) -> list[str]:
    """A key for each class: the first letter or digit of its name that is free, else any. Empty if there are too many.

    Names of one character come first, so that digit 7 has the key 7.
    """
    if len(classes) > len(KEYS):
        return []
    keys: dict[str, str] = {}
    for name in sorted(classes, key=len):
        free = (key for key in (*name.lower(), *KEYS) if key in KEYS and key not in keys.values())
        keys[name] = next(free)
    return [keys[name] for name in classes]


def write_audit_page(run: Path, sample: Sample, file: Path, quiet: bool = False) -> Path:
    """Writes the page of the sample. The images are read from the data of the run."""
    predictions = read_predictions(run)
    config = from_json(DataConfig, Run(predictions.folder).config()["data"], str(predictions.folder))
    store = load_task(config, quiet).target
    places = {path: place for place, path in enumerate(store.paths)}
    missing = [path for path in sample.paths if path not in places]
    if missing:
        found = f"{printable(store.name)} has no {printable(missing[0])}, which the run was evaluated on"
        raise InputError(f"{found}; restore the data or repeat tcm evaluate {printable(predictions.folder)}")
    images = [{"path": path, "data": data_uri(np.asarray(store.images[places[path]]))} for path in sample.paths]
    content = {
        "sample": sample.identity,
        "classes": predictions.classes,
        "keys": class_keys(predictions.classes),
        "columns": COLUMNS,
        "unsure": UNSURE,
        "none": NONE,
        "images": images,
    }
    names = {"target": predictions.task[1], "run": printable(run)}
    page = _template().render(content=content, small=store.size <= SMALL, **names)
    write_atomically(file, page.encode("utf-8", "surrogateescape"))
    return file


def data_uri(pixels: np.ndarray) -> str:
    """The image uint8 [height, width, 3] as text for a page: PNG if it is small, else JPEG."""
    kind = "PNG" if max(pixels.shape[:2]) <= SMALL else "JPEG"
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, quality=85)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _template() -> jinja2.Template:
    text = Path(__file__).with_name("audit.html.jinja").read_text(encoding="utf-8")
    return jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(text)
