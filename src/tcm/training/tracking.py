"""A copy of a run's metrics, and images, for a program that shows experiments.

metrics.jsonl stays the source: when a run continues, what the copy lacks is sent from there, and nothing is sent twice.
"""

import importlib
import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from tcm.errors import InputError, Interrupted, printable
from tcm.training.files import make_folder, write_atomically
from tcm.training.run_folder import Run, read_json

if TYPE_CHECKING:
    from tcm.training.loggers import ImageLogger

TrackerName = Literal["csv", "tensorboard", "wandb", "trackio"]
EXTRA = "pip install 'tcm[track]'"
FOLDER = "log"  # inside the run
# Trackers that keep the rows of steps that are taken again: to them each step is sent once, even if a process that was
# killed took their last rows with it. The others forget these rows and get them again.
CANNOT_FORGET = ("wandb", "trackio")


def require_tracker(name: TrackerName | None) -> None:
    """An error if the package of the tracker is not installed."""
    if name is None or name == "csv":
        return
    try:
        importlib.import_module(name)
    except ImportError as error:
        found = f"is {name}, which needs the package {name} ({printable(error)})"
        raise InputError("log", f"{found}; install it with {EXTRA}") from error


class Tracker:
    """Sends the rows and images of a run to a logger of Lightning Fabric. Without a name it does nothing."""

    def __init__(self, name: TrackerName | None, run: Run, settings: dict[str, Any]):
        """`settings` are those of the run, for trackers that show them."""
        self.name: TrackerName | None = name if run.processes.first else None  # of several processes one sends
        self.run, self.settings = run, settings
        self.folder = run.folder / FOLDER
        self.note_file = self.folder / f"{name}.json"
        self.logger: ImageLogger | None = None
        self.sent = 0  # the last step that was sent before this process

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Inside the block, rows and images are sent. Rows of metrics.jsonl that were not sent yet are sent first."""
        if self.name is None:
            yield
            return
        self.open(self.name)
        assert self.logger
        try:
            yield
        except BaseException as error:
            self.logger.finalize("aborted" if isinstance(error, Interrupted | KeyboardInterrupt) else "failed")
            raise
        self.logger.finalize("success")

    def open(self, name: TrackerName) -> None:
        """Opens the logger and sends what it lacks."""
        from tcm.training.loggers import make_logger  # imported here: Fabric takes as long as PyTorch itself

        make_folder(self.folder)
        noted = read_json(self.note_file) if self.note_file.exists() else {"id": uuid.uuid4().hex[:8], "step": 0}
        self.id, self.sent = noted["id"], 0 if name == "csv" else noted["step"]  # a CSV file is written again whole
        self.logger = make_logger(name, self.run.folder, self.folder, self.id, self.sent, self.settings)
        for row in self.run.metrics():
            self.log(row)

    def log(self, row: dict[str, float]) -> None:
        """Sends a row of metrics.jsonl, unless its step was sent by an earlier process."""
        if self.logger is None or row["step"] <= self.sent:
            return
        step = int(row["step"])
        self.logger.log_metrics({name: value for name, value in row.items() if name != "step"}, step)
        self.logger.save()
        if self.name in CANNOT_FORGET:
            self.note(step)

    def saved(self, step: int) -> None:
        """Notes that training continues from this step if it is stopped."""
        if self.logger is not None and self.name not in CANNOT_FORGET:
            self.note(max(step, self.sent))

    def note(self, step: int) -> None:
        """Writes down the step up to which the tracker has everything."""
        write_atomically(self.note_file, json.dumps({"id": self.id, "step": step}).encode())

    def log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Sends an image [height, width, 3], unless its step was sent by an earlier process."""
        if self.logger is not None and step > self.sent:
            self.logger.log_image(name, image, step)
