"""Labels that a person gives on the page, as CSV files in the run's folder.

Labels of the random sample are in the file that `tcm audit` takes. Labels of other images, such as those that are
sorted by doubt, are in a file of their own: doubtful images are no random sample, so they never count for an audit.
"""

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from tcm.errors import InputError, printable
from tcm.estimation.audit import (
    NONE,
    SAMPLE,
    UNSURE,
    Audit,
    Sample,
    audit_run,
    note_sample,
    read_sample,
    sample_csv,
    sample_of,
)
from tcm.estimation.inputs import RunPredictions
from tcm.training.files import write_atomically

DOUBT_FILE = "doubt-labels.csv"
DOUBT_COLUMNS = ("path", "label")
LOCK_SECONDS = 10.0


class LabelNotStored(InputError):
    """A label that could not be written. The labels before it are unchanged."""


class LabelFolder:
    """The labels of a run. Each one is on disk when the call returns, and several servers may share the folder."""

    def __init__(self, predictions: RunPredictions, count: int):
        self.folder, self.classes = predictions.folder, predictions.classes
        self.paths = {str(path): number for number, path in enumerate(predictions.paths)}
        self.sample = usual_sample(predictions, count)
        self.audit_file = self.folder / f"labels-{self.sample.identity}.csv"
        self.doubt_file = self.folder / DOUBT_FILE
        self._lock = FileLock(self.folder / ".labels.lock", timeout=LOCK_SECONDS, thread_local=False)

    def audit_labels(self) -> dict[str, str]:
        """The labels of the random sample, by path."""
        return stored_labels(self.audit_file, self.sample.paths, self.classes)

    def doubt_labels(self) -> dict[str, str]:
        """The other labels, by path."""
        return stored_labels(self.doubt_file, self.paths, self.classes)

    def label_for_audit(self, path: str, label: str | None) -> int:
        """Stores a label of an image of the sample, or takes it back (None). Returns the number of labels."""
        assert path in self.sample.paths
        with self._writing():
            labels = changed(self.audit_labels(), path, label)
            if not (self.folder / SAMPLE).exists():
                note_sample(self.folder, self.sample)
            _write(self.audit_file, sample_csv(self.sample, labels) if labels else "")
        return len(labels)

    def label_doubtful(self, path: str, label: str | None) -> int:
        """Stores a label of any image apart from the audit, or takes it back (None). Returns the number of labels."""
        with self._writing():
            labels = changed(self.doubt_labels(), path, label)
            _write(self.doubt_file, doubt_csv(labels) if labels else "")
        return len(labels)

    def audit(self, run: Path) -> Audit:
        """The accuracy of a run on the same images by the labels of the sample; it is stored in the run."""
        if not (run / SAMPLE).exists():
            note_sample(run, self.sample)
        if not self.audit_file.exists():
            raise InputError("no image of the random sample has a label; label some first")
        return audit_run(run, self.audit_file)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Keeps other servers and threads out of the folder."""
        try:
            self._lock.acquire()
        except OSError as error:  # also the timeout
            raise LabelNotStored(
                f"{printable(self.folder)} cannot be written ({error}); the label is not stored"
            ) from error
        try:
            yield
        finally:
            self._lock.release()


def usual_sample(predictions: RunPredictions, count: int) -> Sample:
    """The sample that `tcm audit` drew for this run, or a new one of `count` images."""
    if (predictions.folder / SAMPLE).exists():
        drawn = read_sample(predictions.folder)
        if drawn == sample_of(predictions, len(drawn.paths), drawn.seed):
            return drawn
    return sample_of(predictions, count, seed=0)


def changed(labels: Mapping[str, str], path: str, label: str | None) -> dict[str, str]:
    """The labels with a new one at the end, or without this path."""
    others = {key: value for key, value in labels.items() if key != path}
    return others if label is None else {**others, path: label}


def doubt_csv(labels: Mapping[str, str]) -> str:
    """Path and label of every image, in the order in which they were labelled."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([DOUBT_COLUMNS, *labels.items()])
    return text.getvalue()


def stored_labels(file: Path, paths: Collection[str], classes: Sequence[str]) -> dict[str, str]:
    """The labels of a file by path; empty if there is none. An `InputError` names what does not belong to this run."""
    if not file.exists():
        return {}
    known = {*classes, NONE, UNSURE}
    try:
        text = file.read_bytes().decode("utf-8", "surrogateescape")
        found = {row["path"]: row["label"] for row in csv.DictReader(io.StringIO(text, newline="")) if row["label"]}
    except (OSError, KeyError, csv.Error) as error:
        raise InputError(f"{printable(file)} is damaged ({printable(error)}); move it away") from error
    for path, label in found.items():
        if path not in paths or label not in known:
            wrong = f"{printable(path)}, {printable(label)}"
            raise InputError(f"{printable(file)} has a row of other data ({wrong}); move the file away")
    return found


def _write(file: Path, text: str) -> None:
    try:
        if text:
            write_atomically(file, text.encode("utf-8", "surrogateescape"))
        else:
            file.unlink(missing_ok=True)
    except (InputError, OSError) as error:
        raise LabelNotStored(str(error)) from error
