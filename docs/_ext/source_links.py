"""Sphinx extension: code such as `src/tcm/nn/losses.py::proxy_loss` in a page becomes a link to that line.

The source files that pages name are shown on the site, so that the way from the paper to the code is one click.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).parents[2]
TARGET = re.compile(r"((?:src|tests|benchmarks|examples)/[\w/.-]+\.py)(?:::([\w.]+))?")


def line_of(file: Path, name: str) -> int | None:
    """The line that defines a function, a class, a method (Class.method) or a constant; None if nothing does."""
    body: list[ast.stmt] = ast.parse(file.read_text()).body
    found = None
    for part in name.split("."):
        found = next((node for node in body if part in defined(node)), None)
        if found is None:
            return None
        body = getattr(found, "body", [])
    return found.lineno if found else None


def defined(node: ast.stmt) -> list[str]:
    """The names that a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


class LinkSources(SphinxPostTransform):
    """Puts the links in place."""

    default_priority = 900
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Wraps every piece of code that names a file of ours."""
        for literal in list(self.document.findall(nodes.literal)):
            found = TARGET.fullmatch(literal.astext())
            if found is None or isinstance(literal.parent, nodes.reference) or not (ROOT / found[1]).is_file():
                continue
            line = line_of(ROOT / found[1], found[2]) if found[2] else 1
            if line is None:  # tests/docs/test_paper_map.py reports it
                continue
            address = relative_uri(f"{self.env.docname}.html", f"{page_of(found[1])}.html")
            link = nodes.reference("", "", internal=True, refuri=f"{address}#line-{line}")
            literal.replace_self(link)
            link += literal


def page_of(file: str) -> str:
    """The name of the page that shows a file."""
    return f"code/{file.removesuffix('.py')}"


def source_pages(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The pages of the files that the site's pages name."""
    named = {found[1] for name in app.env.found_docs for found in TARGET.finditer(app.env.doc2path(name).read_text())}
    formatter = HtmlFormatter(linenos="inline", lineanchors="line", anchorlinenos=True, wrapcode=True)
    for file in sorted(file for file in named if (ROOT / file).is_file()):
        code = highlight((ROOT / file).read_text(), PythonLexer(), formatter)
        body = f'<h1>{Path(file).name}</h1><p><code>{file}</code></p><div class="source">{code}</div>'
        yield page_of(file), {"title": file, "body": body}, "page.html"


def setup(app: Any) -> dict[str, bool]:
    """Registers the links and the pages."""
    app.add_post_transform(LinkSources)
    app.connect("html-collect-pages", source_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
