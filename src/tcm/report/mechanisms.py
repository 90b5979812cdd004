"""What the page shows of a run of stage 1: counterfactuals, wins, distances, and the factors that mechanisms change."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from matplotlib.figure import Figure

from tcm.analysis.curves import History
from tcm.analysis.run_record import Record
from tcm.config import from_json
from tcm.data.task import Task, load_task
from tcm.errors import InputError
from tcm.figures.distances import DIRECTIONS, distances_figure
from tcm.figures.factors import factors_figure
from tcm.figures.svg import inline_svg
from tcm.figures.wins import class_wins_figure, wins_figure
from tcm.mechanisms.disentanglement import Disentanglement, disentanglement
from tcm.mechanisms.gallery import Gallery, run_galleries, stored_galleries
from tcm.mechanisms.load import TrainedMechanisms, load_mechanisms
from tcm.mechanisms.train import MechanismsConfig
from tcm.report.mechanism_cards import LARGEST, MechanismCard, mechanism_cards
from tcm.report.pictures import Picture, picture
from tcm.training.run_folder import Run

IMAGES = 6  # shown of each domain
MEASURED = 24  # images of each domain from which the words for a mechanism come, if their counterfactuals are on disk


class Loaded(NamedTuple):
    """The images and the mechanisms of a run of stage 1, where the process has them in memory already."""

    task: Task | None = None
    trained: TrainedMechanisms | None = None


@dataclass(frozen=True)
class GalleryRow:
    """An image, its counterfactuals, and the number of the winner, from 1."""

    name: str  # of its class; empty if unknown
    original: Picture
    made: list[Picture]
    winner: int


@dataclass(frozen=True)
class GalleryView:
    """One direction of transport."""

    origin: str
    goal: str
    domain: str
    other: str
    rows: list[GalleryRow]


class Logged(NamedTuple):
    """Figures of what a run logged, finished or not."""

    wins: Markup | None  # over the steps
    class_wins: Markup | None  # by class
    distances: Markup | None  # over the steps, if the run measured them


@dataclass(frozen=True)
class MechanismsView:
    """All that the template shows of the mechanisms of a run."""

    cards: list[MechanismCard]
    galleries: list[GalleryView]
    missing: str  # why there are no galleries; empty if there are
    logged: Logged
    factors: Markup | None
    measured: Disentanglement | None  # only for the digits, whose factors are known

    @property
    def k(self) -> int:
        """The number of mechanisms that are shown."""
        return len(self.galleries[0].rows[0].made) if self.galleries else 0


def mechanisms_view(
    record: Record, name: str, loaded: Loaded = Loaded(), judgement: Mapping[str, Any] | None = None
) -> MechanismsView:
    """What is shown of a run of stage 1. Without its images, or before its end, only what was logged.

    Counterfactuals that were transported are read from the run's folder; without them, the mechanisms make a few.
    `judgement` is what a run of stage 2 noted about these mechanisms.
    """
    logged = _logged(record, name)
    if not record.finished:
        return MechanismsView([], [], "The mechanisms are shown when the run is finished.", logged, None, None)
    try:
        shown, measured, found = _galleries(record.folder, loaded)
    except InputError as error:
        return MechanismsView([], [], f"There are no counterfactuals to show: {error}.", logged, None, None)
    cards, views = mechanism_cards(shown, measured, judgement or {}), list(map(_gallery_view, shown))
    if found is None:
        return MechanismsView(cards, views, "", logged, None, None)
    table = "; ".join(f"mechanism {i + 1} changes {factor} most" for i, factor in enumerate(found.leading))
    factors = Markup(inline_svg(factors_figure(found), f"{name}-factors", f"How far each factor changes: {table}."))
    return MechanismsView(cards, views, "", logged, factors, found)


def _galleries(folder: Path, loaded: Loaded) -> tuple[list[Gallery], list[Gallery], Disentanglement | None]:
    """The images to show, those to measure, and for the digits how far their factors change."""
    config = from_json(MechanismsConfig, Run(folder).config_of_model(Run(folder).about_model()), str(folder))
    task = loaded.task or load_task(config.data, quiet=True)
    try:
        shown, measured = (stored_galleries(folder, task, images) for images in (IMAGES, MEASURED))
    except InputError:  # not transported, not completely, or by other mechanisms
        shown = measured = run_galleries(folder, IMAGES, quiet=True)
    if not config.data.is_digits:
        return shown, measured, None
    return shown, measured, disentanglement((loaded.trained or load_mechanisms(folder)).bank.transport, task)


def _logged(record: Record, name: str) -> Logged:
    numbers = None  # before the run is finished; the galleries report a model that cannot be read
    if record.finished:
        with suppress(InputError):
            numbers = Run(record.folder).about_model().get("numbers")

    def drawn(figure: Figure | None, part: str, description: str) -> Markup | None:
        return Markup(inline_svg(figure, f"{name}-{part}", description)) if figure else None

    return Logged(
        drawn(
            wins_figure(record.history, numbers),
            "wins",
            "Each mechanism's share of wins against the training step, for source images and target images.",
        ),
        drawn(
            class_wins_figure(record.history, numbers),
            "class-wins",
            "Each mechanism's share of the source images of each class, at the last count.",
        ),
        drawn(distances_figure(record.history, numbers), "distances", _distances_text(record.history)),
    )


def _distances_text(history: History) -> str:
    """The plot of distances in words, with the last distances of all mechanisms together."""
    measured = [row for row in history if "frechet/untouched" in row]
    text = "Frechet distances of transported images to the other domain against the training step."
    if not measured or "frechet/target/together" not in measured[-1]:
        return text
    ends = (f"{title} {measured[-1][f'frechet/{to}/together']:.1f}" for title, to in DIRECTIONS.items())
    between = f"{measured[-1]['frechet/untouched']:.1f} between the untouched domains"
    return f"{text} At the last step, with the changes of all mechanisms: {', '.join(ends)}; {between}."


def _gallery_view(gallery: Gallery) -> GalleryView:
    rows = [
        GalleryRow(name, picture(original, LARGEST), [picture(image, LARGEST) for image in made], int(winner) + 1)
        for name, original, made, winner in zip(
            gallery.classes, gallery.originals, gallery.counterfactuals, gallery.winner, strict=True
        )
    ]
    goal = "target" if gallery.origin == "source" else "source"
    return GalleryView(gallery.origin, goal, gallery.domain, gallery.other, rows)
