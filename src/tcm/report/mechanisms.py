"""What the page shows of a run of stage 1: counterfactuals, wins, distances, and the factors that mechanisms move."""

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup
from matplotlib.figure import Figure

from tcm.analysis.curves import History
from tcm.analysis.run_record import Record
from tcm.errors import InputError
from tcm.figures.distances import DIRECTIONS, distances_figure
from tcm.figures.factors import factors_figure
from tcm.figures.svg import inline_svg
from tcm.figures.wins import class_wins_figure, wins_figure
from tcm.mechanisms.disentanglement import Disentanglement, disentanglement
from tcm.mechanisms.gallery import Gallery, galleries
from tcm.mechanisms.transport import open_for_transport
from tcm.report.pictures import Picture, picture
from tcm.training.run_folder import Run

IMAGES, LARGEST = 6, 128  # images shown of each domain, and the side to which they are reduced


@dataclass(frozen=True)
class GalleryRow:
    """An image, what the mechanisms made of it, and the number of the winner, from 1."""

    name: str  # of its class; empty where unknown
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
    """What the metrics of a run give, finished or not."""

    wins: Markup | None  # over the steps
    class_wins: Markup | None  # by class
    distances: Markup | None  # over the steps, of a run that watched


@dataclass(frozen=True)
class MechanismsView:
    """All that the template shows of the mechanisms of a run."""

    galleries: list[GalleryView]
    missing: str  # why there are no galleries; empty where there are
    logged: Logged
    factors: Markup | None
    measured: Disentanglement | None  # of the digits, whose factors are known

    @property
    def k(self) -> int:
        """The number of mechanisms that are shown."""
        return len(self.galleries[0].rows[0].made) if self.galleries else 0


def mechanisms_view(record: Record, name: str) -> MechanismsView:
    """What is shown of a run of stage 1; without its data, or before its end, only what was logged."""
    logged = _logged(record, name)
    if not record.finished:
        return MechanismsView([], "The mechanisms are shown when the run is finished.", logged, None, None)
    try:
        setup = open_for_transport(record.folder, quiet=True)
    except InputError as error:
        return MechanismsView([], f"Nothing can be transported: {error}.", logged, None, None)
    shown = [_gallery_view(gallery) for gallery in galleries(setup.fabric, setup.bank, setup.task, IMAGES)]
    if not setup.config.data.is_digits:
        return MechanismsView(shown, "", logged, None, None)
    found = disentanglement(setup.bank.to("cpu").transport, setup.task)
    table = "; ".join(f"mechanism {i + 1} leads on {factor}" for i, factor in enumerate(found.leading))
    factors = Markup(inline_svg(factors_figure(found), f"{name}-factors", f"How far each factor is moved: {table}."))
    return MechanismsView(shown, "", logged, factors, found)


def _logged(record: Record, name: str) -> Logged:
    numbers = None  # of a run that still goes on; a model that cannot be read is told of by the galleries
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
        drawn(distances_figure(record.history, numbers), "distances", _distances_told(record.history)),
    )


def _distances_told(history: History) -> str:
    """The plot of distances in words, with the last of those of all mechanisms together."""
    watched = [row for row in history if "frechet/untouched" in row]
    told = "Frechet distances of transported images to the other domain against the training step."
    if not watched or "frechet/target/together" not in watched[-1]:
        return told
    ends = (f"{title} {watched[-1][f'frechet/{to}/together']:.1f}" for title, to in DIRECTIONS.items())
    between = f"{watched[-1]['frechet/untouched']:.1f} between the domains as they are"
    return f"{told} At the last step, with all changes together: {', '.join(ends)}; {between}."


def _gallery_view(gallery: Gallery) -> GalleryView:
    rows = [
        GalleryRow(name, picture(original, LARGEST), [picture(image, LARGEST) for image in made], int(winner) + 1)
        for name, original, made, winner in zip(
            gallery.classes, gallery.originals, gallery.counterfactuals, gallery.winner, strict=True
        )
    ]
    goal = "target" if gallery.origin == "source" else "source"
    return GalleryView(gallery.origin, goal, gallery.domain, gallery.other, rows)
