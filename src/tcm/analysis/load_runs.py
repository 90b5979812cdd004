"""Finished runs on the same images, loaded together to compare them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tcm.classifier.trained import Trained, load_trained
from tcm.config import to_json
from tcm.data.domains import folder_names
from tcm.data.task import Task, load_task
from tcm.errors import InputError, printable
from tcm.results.identity import RunFacts, distinct, identities, labels
from tcm.results.store import number_of_mechanisms, portable_config
from tcm.training.device import Compute, inference_on


class SideBySide(NamedTuple):
    """Runs on the same task, on one device."""

    fabric: Compute
    task: Task
    crop: int
    runs: tuple[Trained, ...]


def open_side_by_side(folders: Sequence[Path], device: str = "auto", quiet: bool = False) -> SideBySide:
    """The runs in these folders; an error unless they are classifiers of the same images with the same crop."""
    if not folders:
        raise InputError("no run folder is given; name at least one")
    require_distinct(folders)
    runs = tuple(load_trained(folder) for folder in folders)
    tasks = [load_task(run.config.data, quiet) for run in runs]
    kinds = [(*(store.fingerprint for store in task), task.source.classes) for task in tasks]
    crops = [run.config.data.view.crop for run in runs]
    for folder, task, kind, crop in zip(folders[1:], tasks[1:], kinds[1:], crops[1:], strict=True):
        if kind != kinds[0]:
            names = [printable(f"{one.source.name} → {one.target.name}") for one in (tasks[0], task)]
            found = f"{printable(folders[0])} ({names[0]}) and {printable(folder)} ({names[1]}) have different images"
            raise InputError(f"{found}; name runs on the same data with the same `data.size`")
        if crop != crops[0]:
            found = f"{printable(folders[0])} has `data.crop` {crops[0]} and {printable(folder)} {crop}"
            raise InputError(f"{found}; name runs with the same `data.crop`")
    fabric = inference_on(device, runs[0].config.precision)
    for run in runs:
        fabric.to_device(run.method)
    return SideBySide(fabric, tasks[0], crops[0], runs)


def require_distinct(folders: Sequence[Path]) -> None:
    """An error if a run is named twice."""
    seen: set[Path] = set()
    for folder in folders:
        if folder.resolve() in seen:
            raise InputError(f"{printable(folder)} is given twice; name each run once")
        seen.add(folder.resolve())


def run_titles(runs: Sequence[Trained], folders: Sequence[Path]) -> list[str]:
    """A title for each run: its method and the settings, seed or folder in which it differs from the others."""
    facts = []
    for run, folder in zip(runs, folders, strict=True):
        config = portable_config(to_json(run.config))
        facts.append(RunFacts(run.name, number_of_mechanisms(folder, config), None, config))
    seeds = [f"seed {run.config.seed}" for run in runs]
    return distinct(labels(identities(facts)), seeds, folder_names(folders))
