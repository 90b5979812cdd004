"""Folders as users name them: of a run, of a fit with several runs, or of a suite."""

import os
from collections.abc import Sequence
from pathlib import Path

from tcm.errors import InputError, printable
from tcm.pipeline.folder import FitFolder
from tcm.pipeline.plan import STAGE_ONE
from tcm.training.run_folder import Run, chosen_run

RESULTS = "results.csv"


def runs_below(folder: Path) -> list[Path]:
    """The folder of a run itself, or all runs of a fit, the chosen one first and stage 1 last."""
    fit = FitFolder(folder)
    if not fit.exists:
        return [folder]
    chosen = chosen_run(folder)
    others = [folder / name for name in fit.plan.methods if folder / name != chosen]
    return [chosen, *others, *([folder / STAGE_ONE] if fit.plan.has_stage_one else [])]


def compared_runs(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    """The runs to compare: a fit stands for its chosen run, but alone for all its runs of stage 2."""
    if len(folders) != 1 or not FitFolder(folders[0]).exists:
        return folders
    return tuple(run for run in runs_below(folders[0]) if run.name != STAGE_ONE)


def classifiers_below(folders: Sequence[Path], method: str | None = None) -> list[Path]:
    """The runs of stage 2 in these folders: of a run itself, of a fit the chosen one, of a suite all that are finished.

    With `method`, only its runs are taken from a suite.
    """
    found: list[Path] = []
    for folder in folders:
        if not os.path.isfile(folder / RESULTS):
            found.append(chosen_run(folder))
            continue
        runs = [file.parent for file in sorted(folder.glob("runs/*/*/config.json")) if Run(file.parent).finished]
        fitting = [run for run in runs if method is None or Run(run).config().get("method_name") == method]
        if not fitting:
            kind = f"{method} runs" if method else "runs"
            raise InputError(f"{printable(folder)} has no finished {kind}; continue the suite or name runs")
        found += fitting
    return found


def store_of(path: Path) -> Path:
    """The file of results of a suite's folder; a file is returned as it is."""
    if os.path.isdir(path) and not os.path.isfile(path / RESULTS):
        raise InputError(f"{printable(path)} has no {RESULTS}; name the folder of a suite, or a CSV of results")
    return path / RESULTS if os.path.isdir(path) else path
