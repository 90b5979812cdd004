"""The figures of a suite: each as PNG and SVG in OUT/figures, or a sentence that says why it is not there."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from tcm.analysis.curves import accuracy_curves, k_curves
from tcm.analysis.embedding import embed_runs
from tcm.analysis.grad_cam import compare_runs
from tcm.bench.finished import SuiteRun, compared_pair, mechanisms_of, without_ablation
from tcm.errors import InputError, printable
from tcm.figures.activation import activation_figure
from tcm.figures.distances import distances_figure
from tcm.figures.embedding import embedding_figure
from tcm.figures.mechanisms import mechanisms_figure
from tcm.figures.panels import panels_figure
from tcm.figures.svg import inline_svg, write_figure
from tcm.mechanisms.gallery import run_galleries
from tcm.methods import DEFAULT
from tcm.progress import ProgressDisplay
from tcm.training.files import make_folder, write_atomically
from tcm.training.run_folder import Run

IMAGES = 6  # in the figures that show some
SUFFIXES = (".png", ".svg")
SHOWN = "shown.json"  # which models each picture shows: it is drawn again when they are others


class SuiteFigure(NamedTuple):
    """A figure that was drawn, or why it was not."""

    name: str  # of its files
    title: str
    caption: str  # what to look for
    svg: str = ""  # of lines, for the page
    inches: float = 0.0  # its width
    png: Path | None = None  # of images
    missing: str = ""
    folded: bool = False  # the page shows it when it is asked for


@dataclass(frozen=True)
class Plan:
    """A figure to be drawn."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]
    runs: Sequence[Path]  # that it shows
    lines: bool = False  # drawn in no time, and as SVG in the page
    folded: bool = False


def suite_figures(
    out: Path, runs: Sequence[SuiteRun], k: int, device: str = "auto", quiet: bool = False
) -> list[SuiteFigure]:
    """Draws what can be drawn of these finished runs; pictures of models that are drawn already stay as they are.

    `k` is the suite's usual number of mechanisms.
    """
    plans = [
        *_line_plans(runs, k),
        *_picture_plans(runs, k, device),
        *_distance_plans(runs, k),
    ]
    folder = out / "figures"
    make_folder(folder)
    found = []
    with ProgressDisplay("figures", len(plans), unit="figure", quiet=quiet) as show:
        for number, plan in enumerate(plans):
            show.update(number, plan.name)
            found.append(_drawn(plan, folder))
        show.update(len(plans), "")
    return found


def _line_plans(runs: Sequence[SuiteRun], k: int) -> list[Plan]:
    by_task: dict[str, list[Path]] = {}
    for run in without_ablation(runs, k):
        by_task.setdefault(run.task, []).append(run.folder)
    plans = [_accuracy_plan(task, folders, task != runs[0].task) for task, folders in by_task.items()]
    varied = [run for run in runs if run.method == DEFAULT]
    numbers = sorted({run.k for run in varied if run.k})
    return [*plans, _k_plan([run.folder for run in varied], numbers)] if len(numbers) > 1 else plans


def _accuracy_plan(task: str, folders: Sequence[Path], folded: bool) -> Plan:
    return Plan(
        f"accuracy-{task}",
        f"Accuracy over training, {task}",
        "Accuracy on the target against training steps, the mean over seeds with a band of one standard deviation and "
        "the other methods in grey: look for lines that end high, no longer move and have narrow bands.",
        lambda: panels_figure(accuracy_curves(folders), along="step", up="target accuracy", ends=True),
        folders,
        lines=True,
        folded=folded,
    )


def _k_plan(folders: Sequence[Path], numbers: Sequence[int]) -> Plan:
    along = "k, the number of mechanisms"
    return Plan(
        "k",
        "Number of mechanisms",
        "Accuracy on the target, last iterate, against the number of mechanisms k of tcm (Table 4 and Figure 6 of the "
        "paper): look for the k from which more mechanisms no longer help.",
        lambda: panels_figure(k_curves(folders), along=along, up="target accuracy", ticks=numbers),
        folders,
        lines=True,
    )


def _picture_plans(runs: Sequence[SuiteRun], k: int, device: str) -> list[Plan]:
    """Of the first task alone."""
    task = runs[0].task
    pair = compared_pair([run for run in runs if run.task == task], k)
    mechanisms = mechanisms_of(runs, task, k)
    folders = [run.folder for run in pair] if pair else []
    who = " and ".join(f"{run.method} (seed {run.seed})" for run in pair) if pair else "two methods"
    return [
        Plan(
            f"embedding-{task}",
            f"Features, {task}",
            f"Features of the same images under {who} as points of a plane by t-SNE (Figure 7 of the paper): look for "
            "target triangles in the midst of the source circles of one class; a smaller proxy A-distance means that "
            "the domains are harder to tell apart.",
            lambda: embedding_figure(embed_runs(_two(folders), device, quiet=True)),
            folders,
        ),
        Plan(
            f"activation-{task}",
            f"Where the models look, {task}",
            f"Target images that one of {who} gets right and the other wrong, and what spoke for the predicted class "
            "(Figure 8 of the paper): look for colour on the object rather than around it.",
            lambda: activation_figure(compare_runs(_two(folders), IMAGES, device, quiet=True)),
            folders,
        ),
        Plan(
            f"mechanisms-{mechanisms.parent.name if mechanisms else task}",
            "Mechanisms",
            "Images and what each mechanism of stage 1 makes of them (Figure 4 of the paper): look for mechanisms that "
            "each change one thing, such as colour or contrast, and leave the object as it is.",
            lambda: mechanisms_figure(run_galleries(_finished(mechanisms), IMAGES, device, quiet=True)),
            [mechanisms] if mechanisms else [],
        ),
    ]


def _distance_plans(runs: Sequence[SuiteRun], k: int) -> list[Plan]:
    """Of the mechanisms of every pair of domains that watched how near they come."""
    found = dict.fromkeys(mechanisms_of(runs, run.task, k) for run in runs)
    watched = [folder for folder in found if folder and Run(folder).config()["watch"]["images"]]
    return [
        Plan(
            f"distances-{folder.parent.name}",
            f"How near the other domain, {folder.parent.name}",
            "Frechet distances between images that each mechanism carried to a domain and the images of that domain, "
            "over the steps of stage 1; dashed: between the domains as they are. Look for lines below the dashed one "
            "that have become level.",
            lambda folder=folder: _distances(folder),
            [folder],
            lines=True,
            folded=folder != watched[0],
        )
        for folder in watched
    ]


def _distances(mechanisms: Path) -> Figure:
    figure = distances_figure(Run(mechanisms).metrics())
    if figure is None:
        raise InputError("no distances were measured")
    return figure


def _two(folders: Sequence[Path]) -> Sequence[Path]:
    if not folders:
        raise InputError("it takes a finished run of tcm with the usual k and one of another method")
    return folders


def _finished(mechanisms: Path | None) -> Path:
    if mechanisms is None:
        raise InputError("there are no finished mechanisms")
    return mechanisms


def _drawn(plan: Plan, folder: Path) -> SuiteFigure:
    """The figure in its files, drawn unless they show these very models."""
    files = [folder / f"{plan.name}{suffix}" for suffix in SUFFIXES]
    told = partial(SuiteFigure, plan.name, plan.title, plan.caption, folded=plan.folded)
    try:
        shows = [[str(Path(*run.parts[-3:])), Run(run).model_file.stat().st_mtime_ns] for run in plan.runs]
        known = _known(folder)
        current = shows and known.get(plan.name) == shows and all(file.exists() for file in files)
        if current and not plan.lines:
            return told(png=files[0])
        figure = plan.draw()
        for file in files:
            write_figure(figure, file)
        if plan.lines:
            svg = inline_svg(figure, plan.name, plan.caption)
            return told(svg=svg, inches=figure.get_figwidth())
        write_atomically(folder / SHOWN, json.dumps({**known, plan.name: shows}, indent=2).encode())
        return told(png=files[0])
    except Exception as error:  # whatever it is, a figure is not worth the rest of the report
        with suppress(OSError):
            for file in files:
                file.unlink(missing_ok=True)
        said = printable(error).rstrip(".") or type(error).__name__
        return told(missing=f"Not drawn: {said}.")


def _known(folder: Path) -> dict[str, object]:
    try:
        found = json.loads((folder / SHOWN).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
