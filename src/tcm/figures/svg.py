"""Shared parts of all figures: colours, and writing a `Figure` as a file or as SVG for an HTML page."""

import html
import io
import re
import warnings
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from tcm.errors import InputError, printable
from tcm.training.files import make_folder, write_atomically

FORMATS = ("png", "svg", "pdf")

# Text, axes and grid are drawn in INK, which inline SVG replaces by the colour of the surrounding text: one
# figure is right for light pages, dark pages and print.
INK = "#1f2a37"

# The palette of Okabe and Ito, for all common kinds of colour blindness; without its yellow, too faint on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)

# From nothing to blue by opacity, so that an empty cell has the colour of the page, light or dark.
SHADES = LinearSegmentedColormap.from_list("shades", [(*to_rgb(PALETTE[0]), 0.0), (*to_rgb(PALETTE[0]), 1.0)])

_TAG = re.compile(r"<[^>]+>")
# Names that nothing refers to and that a second figure would repeat, and fonts that the page chooses.
_SUPERFLUOUS = re.compile(r' id="[A-Za-z0-9]+(?:\.[a-z0-9]+)*_\d+"| font-family: [^;"]*;')
_STYLE_SHEET = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)


def visible(text: str) -> str:
    """The text with every control character, line break and lone surrogate written as its escape."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def shortened(text: str, most: int) -> str:
    """The text, cut to that many letters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def style_axes(axes: Axes) -> None:
    """Plain axes: no box, thin lines, small labels."""
    axes.set_facecolor("none")
    axes.spines[["top", "right"]].set_visible(False)
    for spine in axes.spines.values():
        spine.set(color=INK, alpha=0.45, linewidth=0.8)
    axes.tick_params(color=INK, labelcolor=INK, labelsize=8.5, length=3, width=0.8)


def format_of(file: Path) -> str:
    """The format in the file's name; an error if figures cannot be written in it."""
    kind = file.suffix.removeprefix(".").lower()
    if kind not in FORMATS:
        raise InputError("out", f"is {printable(file)}, which is not a figure file; end it in .{', .'.join(FORMATS)}")
    return kind


def write_figure(figure: Figure, file: Path) -> None:
    """Writes the figure in the format of the file's name, whole or not at all."""
    kind = format_of(file)
    buffer = io.BytesIO()
    nothing = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
    with matplotlib.rc_context({"svg.hashsalt": "tcm"}):
        figure.savefig(buffer, format=kind, dpi=160, metadata=nothing)
    make_folder(file.parent)
    write_atomically(file, buffer.getvalue())


def inline_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as one `<svg>` element for an HTML page: the same text every time, no prolog, no fixed size.

    `name` must be unique in the page, since references inside the SVG depend on it. Screen readers read the
    `description` in place of the figure. Text stays text, in the font of the page.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        # Browsers have glyphs that matplotlib's font lacks; only the measured widths are approximate.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    head, body = text[text.index("<svg") :].split(">", 1)
    box = re.search(r'viewBox="[^"]*"', head)
    assert box is not None, "matplotlib always writes a viewBox"
    # Its style sheet would change the whole page; the `stroke-linejoin` below replaces it.
    body = _TAG.sub(_clean_tag, _STYLE_SHEET.sub("", body, count=1)).strip()
    return (
        f'<svg {box.group()} role="img" aria-label="{html.escape(visible(description))}" stroke-linejoin="round">{body}'
    )


def _clean_tag(tag: re.Match[str]) -> str:
    return _SUPERFLUOUS.sub("", tag.group()).replace(INK, "currentColor")
