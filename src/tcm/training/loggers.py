"""The loggers behind `tracking.py`: those of Lightning Fabric, and others with the same interface."""

import importlib
import os
from abc import abstractmethod
from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
from lightning_fabric.loggers.csv_logs import CSVLogger
from lightning_fabric.loggers.logger import Logger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from numpy.typing import NDArray
from PIL import Image

from tcm.errors import InputError, printable
from tcm.training.tracking import TrackerName

PROJECT = "tcm"  # of trackers that have projects; WANDB_PROJECT and TRACKIO_PROJECT name another


class ImageLogger(Logger):
    """A logger of Fabric that also takes images."""

    @abstractmethod
    def log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Records an image [height, width, 3]."""


def make_logger(
    name: TrackerName, run: Path, folder: Path, identity: str, sent: int, settings: dict[str, Any]
) -> ImageLogger:
    """The logger of a run. `folder` is for its files, `sent` the last step that it has already."""
    if name == "csv":
        return FileLogger(folder)
    if name == "tensorboard":
        return EventLogger(folder, sent)
    about = {"name": f"{run.name}-{identity}", "group": run.resolve().parent.name, "config": settings}
    kind = WandbLogger if name == "wandb" else TrackioLogger
    try:
        return kind(folder, identity, about)
    except Exception as error:  # each has many reasons; for the user they are one
        why = printable(" ".join(str(error).split()))
        remedy = "log in, or set WANDB_MODE=offline" if name == "wandb" else "see its documentation"
        raise InputError("log", f"is {name}, which did not start ({why}); {remedy}, and repeat the command") from error


class FileLogger(CSVLogger, ImageLogger):  # pyright: ignore[reportIncompatibleMethodOverride]
    """log/csv/metrics.csv, with images in log/images."""

    def __init__(self, folder: Path):
        super().__init__(folder, name="", version="csv")
        self.images = folder / "images"
        (folder / "csv" / "metrics.csv").unlink(missing_ok=True)

    def log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Writes a PNG file."""
        self.images.mkdir(exist_ok=True)
        Image.fromarray(image).save(self.images / f"{name.replace('/', '-')}-{step:06d}.png")


class EventLogger(TensorBoardLogger, ImageLogger):
    """log/tensorboard, for `tensorboard --logdir`."""

    def __init__(self, folder: Path, sent: int):
        # TensorBoard then forgets later steps of a process that was killed before it noted them.
        forget: dict[str, Any] = {"purge_step": sent + 1} if sent else {}
        super().__init__(folder, name="", version="tensorboard", default_hp_metric=False, **forget)

    def log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Adds the image to the events."""
        self.experiment.add_image(name, image, step, dataformats="HWC")


class WandbLogger(ImageLogger):
    """Weights & Biases. Its own rule drops rows of steps that it has."""

    def __init__(self, folder: Path, identity: str, about: dict[str, Any]):
        wandb = importlib.import_module("wandb")
        self.image = wandb.Image
        settings = wandb.Settings(console="off", silent=True)
        project = os.environ.get("WANDB_PROJECT", PROJECT)
        self.run = wandb.init(project=project, id=identity, resume="allow", dir=str(folder), settings=settings, **about)

    @property
    def name(self) -> str | None:
        """The name of the run."""
        return self.run.name

    @property
    def version(self) -> str | None:
        """The identity of the run."""
        return self.run.id

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """Adds to the settings of the run."""
        self.run.config.update(vars(params) if isinstance(params, Namespace) else params)

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Adds a row."""
        self.run.log(metrics, step=step)

    def log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Adds the image to the row of the step."""
        self.run.log({name: self.image(image)}, step=step)

    def finalize(self, status: str) -> None:
        """Sends what is left and ends the run."""
        self.run.finish(exit_code=int(status != "success"))


class TrackioLogger(ImageLogger):
    """Trackio, which keeps its data on this machine or in a Space of Hugging Face."""

    def __init__(self, folder: Path, identity: str, about: dict[str, Any]):
        trackio = importlib.import_module("trackio")
        self.image = trackio.Image
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        self.run = trackio.init(project=project, resume="allow", embed=False, **about)

    @property
    def name(self) -> str | None:
        """The name of the run."""
        return self.run.name

    @property
    def version(self) -> str | None:
        """Trackio has names only."""
        return None

    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        """The settings are given at the start."""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Adds a row."""
        self.run.log(metrics, step=step)

    def log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        """Adds the image as a row of its own."""
        self.run.log({name: self.image(image)}, step=step)

    def finalize(self, status: str) -> None:
        """Sends what is left and ends the run."""
        self.run.finish()
