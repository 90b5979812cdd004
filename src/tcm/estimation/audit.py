"""An audit: a person labels a random sample of target images, and accuracy on the target gets an exact interval."""

import csv
import dataclasses
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tcm.errors import InputError, printable
from tcm.estimation.inputs import RunPredictions, read_predictions, run_folder
from tcm.training.files import write_atomically
from tcm.training.run_folder import read_json

SAMPLE, RESULT = "audit-sample.json", "audit.json"
COLUMNS = ("sample", "number", "path", "label")
UNSURE, NONE = "(cannot tell)", "(none of these)"  # labels beside the classes
LEVEL = 0.95


@dataclass(frozen=True)
class Sample:
    """Target images that were drawn for an audit, in random order."""

    identity: str  # of the run's images and the draw: labels of another sample have another one
    seed: int
    paths: list[str]


@dataclass(frozen=True)
class Audit:
    """The result of an audit. The interval is exact: it contains the accuracy on the target with at least `level`."""

    accuracy: float  # share of right predictions among the images with a label
    low: float
    high: float
    level: float
    right: int
    labelled: int
    unsure: int  # images that the person could not label
    sample: str  # identity of the sample
    labels: Mapping[str, str]  # by path

    @property
    def sentence(self) -> str:
        """The result in words."""
        found = f"{self.right} of {self.labelled} labelled images are right: {100 * self.accuracy:.0f} %"
        interval = f"{100 * self.level:.0f} % interval {100 * self.low:.0f} to {100 * self.high:.0f} %"
        unsure = f"; {self.unsure} could not be labelled and widen the interval" if self.unsure else ""
        return f"{found}, {interval}{unsure}"


def draw_sample(run: Path, count: int, seed: int) -> Sample:
    """Draws target images of a finished run without looking at predictions.

    The same count and seed always give the same sample. A target with fewer images is taken as a whole.
    """
    if count < 1:
        raise InputError("n", f"is {count}; give 1 or more")
    if seed < 0:
        raise InputError("seed", f"is {seed}; give 0 or more")
    return sample_of(read_predictions(run), count, seed)


def note_sample(run: Path, sample: Sample) -> None:
    """Writes down which sample was drawn, so that the labels of no other one are taken."""
    write_atomically(run_folder(run) / SAMPLE, json.dumps(dataclasses.asdict(sample), indent=2).encode())


def sample_of(run: RunPredictions, count: int, seed: int) -> Sample:
    """`count` of the run's target images in random order."""
    order = np.random.default_rng(seed).permutation(len(run.paths))[:count]
    paths = [str(run.paths[index]) for index in order]
    content = json.dumps([run.task, run.classes, seed, paths]).encode()
    return Sample(hashlib.blake2b(content, digest_size=6).hexdigest(), seed, paths)


def read_sample(run: Path) -> Sample:
    """The sample that was drawn last."""
    file = run_folder(run) / SAMPLE
    if not file.exists():
        raise InputError(f"{printable(file.parent)} has no sample; draw one with tcm audit {printable(run)}")
    content = read_json(file)
    names = {field.name for field in dataclasses.fields(Sample)}
    if not isinstance(content, dict) or content.keys() != names:
        raise InputError(f"{printable(file)} is damaged; draw the sample again with tcm audit {printable(run)}")
    return Sample(**content)


def sample_csv(sample: Sample, labels: Mapping[str, str] | None = None) -> str:
    """The sample as CSV with a column for labels, in the form that `read_labels` takes."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for number, path in enumerate(sample.paths, start=1):
        writer.writerow([sample.identity, number, path, (labels or {}).get(path, "")])
    return text.getvalue()


def read_labels(file: Path, sample: Sample, classes: Sequence[str]) -> dict[str, str]:
    """The labels by path, in the order of the sample; images without one are left out.

    An `InputError` says what is wrong: another sample, an unknown path or class.
    """
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            rows = list(csv.DictReader(text))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise InputError("labels", f"{printable(file)} cannot be read ({reason}); name the CSV of an audit") from error
    if not rows or not set(COLUMNS) <= set(rows[0]):
        needed = f"the columns {', '.join(COLUMNS)}"
        raise InputError("labels", f"{printable(file)} has not {needed}; name the CSV that the page exported")
    found: dict[str, str] = {}
    for row in rows:
        if row["sample"] != sample.identity:
            other = f"labels the sample {printable(row['sample'])}, but the sample of this run is {sample.identity}"
            raise InputError("labels", f"{printable(file)} {other}; draw that sample again or label this one")
        if row["path"] not in sample.paths:
            raise InputError("labels", f"{printable(row['path'])} in {printable(file)} is not in the sample; remove it")
        if label := (row["label"] or "").strip():
            found[row["path"]] = _known_label(label, classes, row["path"], file)
    if not any(label != UNSURE for label in found.values()):
        raise InputError("labels", f"{printable(file)} has no label; fill in the column label")
    return {path: found[path] for path in sample.paths if path in found}


def _known_label(label: str, classes: Sequence[str], path: str, file: Path) -> str:
    if label not in (*classes, UNSURE, NONE):
        found = f"{printable(file)} calls {printable(path)} {printable(label)}, which is not a class"
        raise InputError("labels", f"{found}; give one of {printable(', '.join(classes[:5]))}..., {NONE} or {UNSURE}")
    return label


def audit_run(run: Path, labels: Path) -> Audit:
    """The accuracy by the labels of a person, written to audit.json in the run's folder."""
    predictions, sample = read_predictions(run), read_sample(run)
    if sample != sample_of(predictions, len(sample.paths), sample.seed):
        found = f"the sample in {printable(predictions.folder)} is not of its target images"
        raise InputError(f"{found}; draw it again with tcm audit {printable(run)}")
    given = read_labels(labels, sample, predictions.classes)
    predicted = {
        str(path): predictions.classes[guess]
        for path, guess in zip(predictions.paths, predictions.predicted, strict=True)
    }
    found = audit(predicted, sample, given)
    content = {**dataclasses.asdict(found), "sentence": found.sentence}
    write_atomically(predictions.folder / RESULT, json.dumps(content, indent=2).encode())
    return found


def audit(predicted: Mapping[str, str], sample: Sample, labels: Mapping[str, str]) -> Audit:
    """The share of right predictions with the exact interval of Clopper and Pearson (1934).

    The sample ends with the last labelled image: what comes before it is in random order, so it is a sample too. An
    image in it without a label, or with UNSURE, counts as wrong for the lower end and as right for the upper end.
    """
    last = max(place for place, path in enumerate(sample.paths) if path in labels)
    used = sample.paths[: last + 1]
    known = [path for path in used if labels.get(path, UNSURE) != UNSURE]
    right = sum(predicted[path] == labels[path] for path in known)
    unsure = len(used) - len(known)
    low = exact_interval(right, len(used))[0]
    high = exact_interval(right + unsure, len(used))[1]
    return Audit(right / len(known), low, high, LEVEL, right, len(known), unsure, sample.identity, dict(labels))


def exact_interval(right: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of Clopper and Pearson (1934) for a share of which `right` of `count` were seen."""
    from scipy.stats import binomtest

    found = binomtest(right, count).proportion_ci(level, method="exact")
    return float(found.low), float(found.high)


def read_audit(run: Path) -> Audit | None:
    """The result of the last audit of a run; None before it."""
    file = run_folder(run) / RESULT
    if not file.exists():
        return None
    content = read_json(file)
    names = {field.name for field in dataclasses.fields(Audit)}
    if not isinstance(content, dict) or not names <= content.keys():
        raise InputError(f"{printable(file)} is damaged; repeat tcm audit with the labels")
    return Audit(**{name: content[name] for name in names})
