"""The finished runs that are served: their models, their images and their mechanisms."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from tcm.analysis.load_runs import require_distinct, run_titles
from tcm.classifier.evaluate import Predictions, predict_images, probabilities
from tcm.classifier.trained import Trained, load_trained
from tcm.data.task import Task, load_task
from tcm.errors import InputError, explain_out_of_memory, printable
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.load import load_mechanisms, sides_in_training
from tcm.mechanisms.pair import Side
from tcm.mechanisms.transport import TransportedBatch, counterfactuals
from tcm.training.device import Compute, inference_on
from tcm.training.run_folder import chosen_run


class ServedModel(NamedTuple):
    """A trained classifier on its device. Images are uint8 [n, size, size, 3]."""

    title: str
    folder: Path
    trained: Trained
    fabric: Compute

    @property
    def size(self) -> int:
        """Side in pixels to which images are resized."""
        return self.trained.config.data.sides[0]

    @property
    def crop(self) -> int:
        """Side in pixels of the centre that the network sees."""
        return self.trained.config.data.sides[1]

    def answer(self, images: Tensor) -> Predictions:
        """Predictions and features for target images."""
        return predict_images(self.fabric, self.trained.method.answer, images, self.crop)

    def answer_fast(self, images: Tensor) -> Predictions:
        """The same for source images, without counterfactuals."""
        return predict_images(self.fabric, self.trained.method.answer_fast, images, self.crop)

    def on_counterfactuals(self, images: Tensor) -> Tensor:
        """Class probabilities [n, classes] of counterfactuals, which are of the source domain."""
        return probabilities(self.fabric, self.trained.method.predict_fast, images, self.crop)


class Transport(NamedTuple):
    """Mechanisms on their device, and the side that the target had when they were trained."""

    fabric: Compute
    bank: MechanismBank
    origin: Side

    def counterfactuals(self, images: Tensor) -> TransportedBatch:
        """M_i^-1 of target images uint8 [n, size, size, 3], and the winners (TCM Eq. (2))."""
        return counterfactuals(self.fabric, self.bank, self.origin, images.to(self.fabric.device))


class ServedRuns(NamedTuple):
    """All that a server has in memory. What is missing is None, and `notes` says why."""

    models: tuple[ServedModel, ...]
    task: Task | None
    transport: Transport | None
    notes: list[str]

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes, which all models share."""
        return self.models[0].trained.classes


@explain_out_of_memory("the page", "free some, or set `device=cpu`")
def open_runs(folders: Sequence[Path], device: str = "auto", quiet: bool = False) -> ServedRuns:
    """The finished runs in these folders; an error unless they have the same classes and images.

    A run whose images or mechanisms are gone is served without them.
    """
    if not folders:
        raise InputError("there are no runs; name at least one")
    folders = [chosen_run(folder) for folder in folders]
    require_distinct(folders)
    trained = [load_trained(folder) for folder in folders]
    for folder, run in zip(folders, trained, strict=True):
        if run.classes != trained[0].classes:
            found = f"{printable(folder)} has other classes than {printable(folders[0])}"
            raise InputError(f"{found}; name runs on the same data")
        if run.config.data.sides[0] != trained[0].config.data.sides[0]:
            found = f"{printable(folder)} has another `data.size` than {printable(folders[0])}"
            raise InputError(f"{found}; name runs with the same one")
    models = []
    for title, folder, run in zip(run_titles(trained, folders), folders, trained, strict=True):
        fabric = inference_on(device, run.config.precision)
        fabric.to_device(run.method)
        models.append(ServedModel(title, folder, run, fabric))
    notes: list[str] = []
    task = _shared_task(models, quiet, notes)
    return ServedRuns(tuple(models), task, _transport(models, task, device, notes), notes)


def _shared_task(models: Sequence[ServedModel], quiet: bool, notes: list[str]) -> Task | None:
    """The images of the first run, which the other runs must have too; None if they are gone."""
    try:
        tasks = [load_task(model.trained.config.data, quiet) for model in models]
    except InputError as error:
        notes.append(f"The images of the run cannot be read: {error}")
        return None
    kinds = [[store.fingerprint for store in task] for task in tasks]
    for model, kind in zip(models, kinds, strict=True):
        if kind != kinds[0]:
            found = f"{printable(model.folder)} and {printable(models[0].folder)} have different images"
            raise InputError(f"{found}; name runs on the same data with the same `data.size`")
    return tasks[0]


def _transport(models: Sequence[ServedModel], task: Task | None, device: str, notes: list[str]) -> Transport | None:
    """The mechanisms of the first run that has some; None if there are none or if they are gone."""
    folder = next((model.trained.config.mechanisms for model in models if model.trained.config.mechanisms), None)
    if folder is None:
        return None
    try:
        config, bank = load_mechanisms(folder)
        config.bank.generator.require_side(models[0].size)
    except InputError as error:
        notes.append(f"The mechanisms of the run cannot be read: {error}")
        return None
    fabric = inference_on(device, config.precision)
    fabric.to_device(bank)
    return Transport(fabric, bank, sides_in_training(folder, task)[1] if task else "target")
