"""Finished runs on the same images, opened together so that what they make of them can be compared."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lightning_fabric import Fabric

from tcm.classifier.train import Trained, load_trained
from tcm.data.task import Task, load_task
from tcm.errors import InputError, printable
from tcm.training.run_config import make_fabric


class SideBySide(NamedTuple):
    """Runs of one task, on one device."""

    fabric: Fabric
    task: Task
    crop: int
    runs: tuple[Trained, ...]


def open_side_by_side(folders: Sequence[Path], device: str = "auto", quiet: bool = False) -> SideBySide:
    """The runs in these folders; an error unless they are several classifiers of the same images, cut alike."""
    require_distinct(folders)
    runs = tuple(load_trained(folder) for folder in folders)
    tasks = [load_task(run.config.data, quiet) for run in runs]
    kinds = [(*(store.fingerprint for store in task), task.source.classes) for task in tasks]
    crops = [run.config.data.view.crop for run in runs]
    for folder, task, kind, crop in zip(folders[1:], tasks[1:], kinds[1:], crops[1:], strict=True):
        if kind != kinds[0]:
            names = [printable(f"{one.source.name} → {one.target.name}") for one in (tasks[0], task)]
            found = f"{printable(folders[0])} ({names[0]}) and {printable(folder)} ({names[1]}) are of different images"
            raise InputError(f"{found}; name runs of the same data and --data.size")
        if crop != crops[0]:
            found = f"{printable(folders[0])} cuts images to {crops[0]} pixels and {printable(folder)} to {crop}"
            raise InputError(f"{found}; name runs of the same --data.crop")
    fabric = make_fabric(device, runs[0].config.precision)
    for run in runs:
        fabric.to_device(run.method)
    return SideBySide(fabric, tasks[0], crops[0], runs)


def require_distinct(folders: Sequence[Path]) -> None:
    """An error if a run is named twice: there would be nothing to compare it with."""
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise InputError(f"{printable(folder)} is given twice; name each run once")
        seen.add(folder.resolve())


def run_titles(runs: Sequence[Trained], folders: Sequence[Path]) -> list[str]:
    """A name for each run: its method, a preset that is not the default, and the folder where that is not enough."""
    names = [run.name for run in runs]
    if len(set(names)) == len(names):
        return names
    return [f"{name} ({where})" for name, where in zip(names, folder_names(folders), strict=True)]


def folder_names(folders: Sequence[Path]) -> list[str]:
    """The last parts of each folder's path, as many as tell these different folders apart."""
    parts = [folder.resolve().parts for folder in folders]
    tails = ([str(Path(*part[-count:])) for part in parts] for count in range(1, max(map(len, parts)) + 1))
    return next(names for names in tails if len(set(names)) == len(names))
