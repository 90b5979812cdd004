"""Run folders to index.html: view.py collects what is shown, page.html.jinja and style.css lay it out."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from tcm.analysis.run_record import Record, read_record
from tcm.errors import InputError
from tcm.figures.confusion import NAMES_UP_TO, NUMBERS_UP_TO
from tcm.figures.curves import SMOOTH_ABOVE, learning_curves
from tcm.figures.svg import inline_svg, visible
from tcm.report.comparison import comparisons, run_labels
from tcm.report.view import run_view, task_samples
from tcm.training.files import make_folder, write_atomically

_HERE = Path(__file__).parent


def write_report(runs: Sequence[Path], out: Path) -> Path:
    """Writes `out`/index.html about these run folders, in this order, and returns its path."""
    if not runs:
        raise InputError("no run folder is given; name at least one")
    records = [read_record(Path(run)) for run in runs]
    page = render_page(records)
    return write_page(page, out)


def write_page(page: str, out: Path) -> Path:
    """Writes `out`/index.html and returns its path."""
    make_folder(out)
    write_atomically(out / "index.html", page.encode())
    return out / "index.html"


def render_page(records: Sequence[Record]) -> str:
    """The page as HTML; the same records give the same text."""
    labels = run_labels(records)
    return template("page.html.jinja").render(
        views=[
            run_view(record, label, f"run-{i}")
            for i, (record, label) in enumerate(zip(records, labels, strict=True), 1)
        ],
        comparisons=comparisons(records, labels),
        samples=task_samples(records),
        curves=_curves(dict(zip(labels, (record.history for record in records), strict=True))),
        smoothed=any(len(record.history) > SMOOTH_ABOVE for record in records),
        numbers_up_to=NUMBERS_UP_TO,
        names_up_to=NAMES_UP_TO,
    )


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
    """Title and inline SVG of each learning curve."""
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
