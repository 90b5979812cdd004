"""Run folders to index.html: view.py collects what is shown, page.html.jinja and style.css lay it out."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

from tcm.analysis.run_record import Record, read_record
from tcm.errors import InputError
from tcm.figures.confusion import NAMES_UP_TO
from tcm.figures.curves import SMOOTH_ABOVE, learning_curves
from tcm.figures.svg import inline_svg, visible
from tcm.report.answer import answer
from tcm.report.comparison import comparisons, run_labels
from tcm.report.mechanism_cards import page_judgement
from tcm.report.mechanisms import Loaded
from tcm.report.view import PICTURES, run_view, task_samples
from tcm.training.files import make_folder, write_atomically

_HERE = Path(__file__).parent
LARGEST = 3_000_000  # bytes of a page, so that it can be sent by mail


def write_report(runs: Sequence[Path], out: Path, loaded: Loaded = Loaded()) -> Path:
    """Writes `out`/index.html about these run folders, in this order, and returns its path.

    `loaded` is what the process has of them in memory already. Predictions that are too many for a page are written
    beside it, as predictions.csv.
    """
    if not runs:
        raise InputError("no run folder is given; name at least one")
    records = [read_record(Path(run)) for run in runs]
    page = render_page(records, out, loaded)
    make_folder(out)
    for name, content in page.files.items():
        write_atomically(out / name, content)
    return write_page(page.html, out)


def write_page(page: str, out: Path) -> Path:
    """Writes `out`/index.html and returns its path."""
    make_folder(out)
    write_atomically(out / "index.html", page.encode())
    return out / "index.html"


class Page(NamedTuple):
    """A page, and the files beside it that it links to."""

    html: str
    files: dict[str, bytes]


def render_page(records: Sequence[Record], out: Path, loaded: Loaded = Loaded()) -> Page:
    """The page for the folder `out`, of at most LARGEST bytes; the same records give the same text.

    A page of many runs has fewer pictures of each.
    """
    for pictures in (PICTURES, PICTURES // 3):
        page = _render(records, out, loaded, pictures)
        if len(page.html.encode()) <= LARGEST:
            return page
    return _render(records, out, loaded, pictures=0)


def _render(records: Sequence[Record], out: Path, loaded: Loaded, pictures: int) -> Page:
    labels, judgement = run_labels(records), page_judgement(records)
    views = [
        run_view(record, label, f"run-{i}", loaded, judgement, pictures)
        for i, (record, label) in enumerate(zip(records, labels, strict=True), 1)
    ]
    found = answer(views, out)
    html = template("page.html.jinja").render(
        views=views,
        answer=found,
        comparisons=comparisons(views),
        samples=task_samples(records),
        curves=_curves(dict(zip(labels, (record.history for record in records), strict=True))),
        smoothed=any(len(record.history) > SMOOTH_ABOVE for record in records),
        names_up_to=NAMES_UP_TO,
    )
    return Page(html, {link.name: link.content for link in found.downloads if link.content} if found else {})


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of this folder; it escapes everything."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
    )
    environment.filters |= {"percent": _percent, "points": _points, "duration": _duration}
    environment.globals["style"] = Markup((_HERE / "style.css").read_text(encoding="utf-8"))
    return environment.get_template(name)


def _curves(histories: dict[str, list[dict[str, Any]]]) -> list[tuple[str, Markup]]:
    """Title and inline SVG of each learning curve; nothing if no run has logged two steps."""
    if all(len({row["step"] for row in rows}) < 2 for rows in histories.values()):
        return []
    runs = "; ".join(histories)
    return [
        (title, Markup(inline_svg(figure, f"curve-{title}", f"{title} against training step, for {runs}.")))
        for title, figure in learning_curves(histories).items()
    ]


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _points(difference: float | None) -> str:
    """A difference, with its sign."""
    return "–" if difference is None else f"{difference:+.1f}".replace("-", "−")


def _duration(seconds: float | None) -> str:
    """The time in its two largest units."""
    if seconds is None:
        return "–"
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
