"""The figures of a suite, each as PNG and SVG in OUT/figures. A figure that cannot be drawn has a reason instead."""

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
from tcm.bench.finished import SuiteRun, compared_runs, mechanisms_of, without_ablation
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

IMAGES = 6  # in figures that show images
SOURCE_IMAGES = 2  # above them, in the figure of activation maps
SUFFIXES = (".png", ".svg")
SHOWN = "shown.json"  # the models that each picture shows; with other models it is drawn again


class SuiteFigure(NamedTuple):
    """A figure that was drawn, or the reason why it was not."""

    name: str  # of its files
    title: str
    caption: str  # what it shows and what to look for
    svg: str = ""  # a line plot, for the page
    inches: float = 0.0  # width of the line plot
    png: Path | None = None  # a figure of images
    missing: str = ""  # the reason
    folded: bool = False  # the page shows it on a click


@dataclass(frozen=True)
class FigurePlan:
    """A figure to draw."""

    name: str
    title: str
    caption: str
    draw: Callable[[], Figure]
    runs: Sequence[Path]  # the runs that it shows
    lines: bool = False  # a line plot: drawn every time, because it is fast, and in the page as SVG
    folded: bool = False


def suite_figures(
    out: Path, runs: Sequence[SuiteRun], k: int, device: str = "auto", quiet: bool = False
) -> list[SuiteFigure]:
    """Draws all figures that these finished runs allow. Pictures that show the same models are not drawn again.

    `k` is the suite's usual number of mechanisms.
    """
    plans = [
        *line_plans(runs, k),
        *picture_plans(runs, k, device),
        *distance_plans(runs, k),
    ]
    folder = out / "figures"
    make_folder(folder)
    found = []
    with ProgressDisplay("figures", len(plans), unit="figure", quiet=quiet) as show:
        for number, plan in enumerate(plans):
            show.update(number, plan.name)
            found.append(_draw(plan, folder))
        show.update(len(plans), "")
    return found


def line_plans(runs: Sequence[SuiteRun], k: int) -> list[FigurePlan]:
    """Accuracy over training for every task, and accuracy against the number of mechanisms if it varies."""
    by_task: dict[str, list[Path]] = {}
    for run in without_ablation(runs, k):
        by_task.setdefault(run.task, []).append(run.folder)
    plans = [_accuracy_plan(task, folders, task != runs[0].task) for task, folders in by_task.items()]
    varied = [run for run in runs if run.method == DEFAULT]
    numbers = sorted({run.k for run in varied if run.k})
    return [*plans, _k_plan([run.folder for run in varied], numbers)] if len(numbers) > 1 else plans


def _accuracy_plan(task: str, folders: Sequence[Path], folded: bool) -> FigurePlan:
    return FigurePlan(
        f"accuracy-{task}",
        f"Accuracy over training, {task}",
        "Accuracy on the target against training steps: the mean over seeds, with a band of one standard deviation and "
        "the other methods in grey. Look for lines that end high and level, with narrow bands.",
        lambda: panels_figure(accuracy_curves(folders), along="step", up="target accuracy", ends=True),
        folders,
        lines=True,
        folded=folded,
    )


def _k_plan(folders: Sequence[Path], numbers: Sequence[int]) -> FigurePlan:
    along = "k, the number of mechanisms"
    return FigurePlan(
        "k",
        "Number of mechanisms",
        "Accuracy of tcm on the target, last iterate, against the number of mechanisms k (Table 4 and Figure 6 of the "
        "paper). Look for the k from which more mechanisms no longer help.",
        lambda: panels_figure(k_curves(folders), along=along, up="target accuracy", ticks=numbers),
        folders,
        lines=True,
    )


def picture_plans(runs: Sequence[SuiteRun], k: int, device: str) -> list[FigurePlan]:
    """Figures of images, only for the first task."""
    task = runs[0].task
    of_task = [run for run in runs if run.task == task]
    pair, three = (compared_runs(of_task, k, rivals) for rivals in (1, 2))
    mechanisms = mechanisms_of(runs, task, k)
    return [
        FigurePlan(
            f"embedding-{task}",
            f"Features, {task}",
            f"Features of the same images in {_names(pair)}, as points in a plane by t-SNE (Figure 7 of the paper). "
            "Look for target triangles among the source circles of the same class. A smaller proxy A-distance means "
            "that the domains are harder to distinguish.",
            lambda: embedding_figure(embed_runs(_some(pair), device, quiet=True)),
            [run.folder for run in pair],
        ),
        *activation_plans(three, task, device),
        FigurePlan(
            f"mechanisms-{mechanisms.parent.name if mechanisms else task}",
            "Mechanisms",
            "Images and their counterfactuals under each mechanism of stage 1 (Figure 4 of the paper). Look for "
            "mechanisms that each change one thing, such as colour or contrast, and do not change the object.",
            lambda: mechanisms_figure(run_galleries(_finished(mechanisms), IMAGES, device, quiet=True)),
            [mechanisms] if mechanisms else [],
        ),
    ]


def activation_plans(runs: Sequence[SuiteRun], task: str, device: str) -> list[FigurePlan]:
    """Activation maps of images that only one run gets right, with images of the source, and that all get wrong."""
    names, folders = _names(runs), [run.folder for run in runs]
    return [
        FigurePlan(
            f"activation-{task}",
            f"Where the models look, {task}",
            f"Source images, target images that only one of {names} classifies correctly, and the regions that support "
            "the predicted class (Figure 8 of the paper). Look for colour on the object rather than around it.",
            lambda: activation_figure(compare_runs(_some(runs), IMAGES, device, quiet=True, sources=SOURCE_IMAGES)),
            folders,
        ),
        FigurePlan(
            f"activation-wrong-{task}",
            f"Where the models look when all are wrong, {task}",
            f"The same for target images that {names} all classify wrongly (Figure A5 of the paper). Look for images "
            "in which the object is small or hard to recognise.",
            lambda: activation_figure(compare_runs(_some(runs), IMAGES, device, quiet=True, shown="wrong")),
            folders,
            folded=True,
        ),
    ]


def distance_plans(runs: Sequence[SuiteRun], k: int) -> list[FigurePlan]:
    """The Frechet distances of every pair of domains for which stage 1 measured them."""
    found = dict.fromkeys(mechanisms_of(runs, run.task, k) for run in runs)
    watched = [folder for folder in found if folder and Run(folder).config()["watch"]["images"]]
    return [
        FigurePlan(
            f"distances-{folder.parent.name}",
            f"Distance to the other domain, {folder.parent.name}",
            "Frechet distances between images that each mechanism transported to a domain and the images of that "
            "domain, against the steps of stage 1. Dashed: the distance between the untouched domains. Look for lines "
            "below the dashed one that have become level.",
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


def _names(runs: Sequence[SuiteRun]) -> str:
    named = [f"{run.method} (seed {run.seed})" for run in runs]
    return " and ".join([", ".join(named[:-1]), named[-1]]) if named else "several methods"


def _some(runs: Sequence[SuiteRun]) -> list[Path]:
    if not runs:
        raise InputError("this figure needs a finished run of tcm with the usual k and one of another method")
    return [run.folder for run in runs]


def _finished(mechanisms: Path | None) -> Path:
    if mechanisms is None:
        raise InputError("there are no finished mechanisms")
    return mechanisms


def _draw(plan: FigurePlan, folder: Path) -> SuiteFigure:
    """The figure in its files. A picture is drawn only if its files do not show these models yet."""
    files = [folder / f"{plan.name}{suffix}" for suffix in SUFFIXES]
    result = partial(SuiteFigure, plan.name, plan.title, plan.caption, folded=plan.folded)
    try:
        models = [[str(Path(*run.parts[-3:])), Run(run).model_file.stat().st_mtime_ns] for run in plan.runs]
        shown = _shown(folder)
        current = models and shown.get(plan.name) == models and all(file.exists() for file in files)
        if current and not plan.lines:
            return result(png=files[0])
        figure = plan.draw()
        for file in files:
            write_figure(figure, file)
        if plan.lines:
            svg = inline_svg(figure, plan.name, plan.caption)
            return result(svg=svg, inches=figure.get_figwidth())
        write_atomically(folder / SHOWN, json.dumps({**shown, plan.name: models}, indent=2).encode())
        return result(png=files[0])
    except Exception as error:  # any error: without one figure, the rest of the report is still useful
        with suppress(OSError):
            for file in files:
                file.unlink(missing_ok=True)
        reason = printable(error).rstrip(".") or type(error).__name__
        return result(missing=f"Not drawn: {reason}.")


def _shown(folder: Path) -> dict[str, object]:
    """The models that the pictures in the folder show, by the picture's name."""
    try:
        found = json.loads((folder / SHOWN).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
