"""How Sphinx builds the site: `make docs`, or `python -m sphinx -W docs docs/_build/html`. No network is needed."""

import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from docutils import nodes

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "src")]

import tcm  # noqa: E402

project = "tcm"
author = "The tcm authors"
copyright = f"{author}, MIT license"
version = release = tcm.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "cli_reference", "source_links"]
exclude_patterns = ["_build"]
suppress_warnings = ["myst.xref_ambiguous"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
smartquotes = False  # it would turn `--out` into a dash

html_theme = "furo"
html_title = f"tcm {release}"
html_static_path = ["_static"]
html_css_files = ["tcm.css"]
html_show_sphinx = False
html_copy_source = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = False  # True changes the documented functions in the building process
python_maximum_signature_line_length = 88
default_role = "code"  # docstrings put names between single backticks


def read_as_plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with names in backticks; an indented paragraph of its own is an example."""
    paragraphs = re.split(r"\n(?: *\n)+", "\n".join(lines))
    text = []
    for before, paragraph in pairwise(["", *paragraphs]):
        if paragraph.startswith("    "):
            text += [paragraph] if before.startswith("    ") else ["::", paragraph]
        else:
            text.append(escaped(paragraph))
    lines[:] = "\n\n".join(text).split("\n")


def escaped(paragraph: str) -> str:
    """The paragraph without what reStructuredText would read as markup; names between backticks stay."""
    parts = paragraph.split("`")
    parts[::2] = [re.sub(r"([*|]|_(?=\W|$))", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)


def tidy_text(app: Any, doctree: nodes.document, name: str) -> None:
    """Cells of tables do not break within "42.7 ± 0.2" and "Figure 4"; parameters have a dash before their text."""
    for text in list(doctree.findall(nodes.Text)):
        tidy = str(text)
        if tidy == " -- ":
            tidy = " – "
        elif any(isinstance(parent, nodes.entry) for parent in (text.parent.parent, text.parent)):
            tidy = re.sub(r"\b(Eq\.|line|Figure|Table) (?=[(\dA])", "\\1\u00a0", tidy.replace(" ± ", "\u00a0±\u00a0"))
        if tidy != text:
            text.parent.replace(text, nodes.Text(tidy))


def copy_digits_page(app: Any, exception: Exception | None) -> None:
    """The example report, which is a page of its own, keeps its address: digits/index.html."""
    if exception is None and app.builder.format == "html":
        shutil.copytree(HERE / "digits", Path(app.outdir) / "digits", dirs_exist_ok=True)


def setup(app: Any) -> None:
    """Connects the functions above."""
    app.connect("autodoc-process-docstring", read_as_plain_text, priority=100)  # before napoleon reads the sections
    app.connect("doctree-resolved", tidy_text)
    app.connect("build-finished", copy_digits_page)
