"""How Sphinx builds the site: `make docs`, or `python -m sphinx -W docs docs/_build/html`. No network is needed."""

import re
import shutil
import sys
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
autodoc_preserve_defaults = True
python_maximum_signature_line_length = 88
default_role = "code"  # docstrings put names between single backticks


def escape_markup(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text with names in backticks: what reStructuredText would read as markup is escaped."""
    for number, line in enumerate(lines):
        # The parts at odd places stand between backticks.
        parts = line.split("`")
        parts[::2] = [re.sub(r"([*|]|_(?=\W|$))", r"\\\1", part) for part in parts[::2]]
        lines[number] = "`".join(parts)


def keep_together(app: Any, doctree: nodes.document, name: str) -> None:
    """Cells of tables do not break within "42.7 ± 0.2" and "Figure 4"."""
    for cell in doctree.findall(nodes.entry):
        for text in list(cell.findall(nodes.Text)):
            kept = re.sub(r" ± ", "\u00a0±\u00a0", re.sub(r"\b(Eq\.|line|Figure|Table) (?=[(\dA])", "\\1\u00a0", text))
            text.parent.replace(text, nodes.Text(kept))


def copy_digits_page(app: Any, exception: Exception | None) -> None:
    """The example report, which is a page of its own, keeps its address: digits/index.html."""
    if exception is None and app.builder.format == "html":
        shutil.copytree(HERE / "digits", Path(app.outdir) / "digits", dirs_exist_ok=True)


def setup(app: Any) -> None:
    """Connects the functions above."""
    app.connect("autodoc-process-docstring", escape_markup, priority=100)  # before napoleon reads the sections
    app.connect("doctree-resolved", keep_together)
    app.connect("build-finished", copy_digits_page)
