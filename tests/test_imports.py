"""Data flows one way: a package imports only from the packages above it, and from itself without a circle."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "tcm"
ORDER = (
    *("errors", "config", "progress"),
    *("data", "nn", "training", "mechanisms", "methods", "classifier"),
    *("estimation", "export", "pipeline"),
    *("results", "analysis", "figures", "report", "bench", "cli"),
)
ENTRANCES = {"__init__", "__main__"}  # the public API and `python -m tcm` look down on everything


def part(module: str) -> str:
    """The package, or the file, of the tree's first level."""
    return module.split(".")[1]


def module_of(file: Path) -> str:
    inner = file.relative_to(PACKAGE.parent).with_suffix("")
    return ".".join(inner.parts).removesuffix(".__init__")


MODULES = {module_of(file): file for file in PACKAGE.rglob("*.py")}


def imports(file: Path, whole: bool) -> set[str]:
    """The modules of this package that a file imports; those inside functions only for the `whole` file."""
    tree = ast.parse(file.read_text())
    found = set()
    for node in ast.walk(tree) if whole else tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tcm":
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in MODULES else node.module for name in inner}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "tcm"}
    return found - {"tcm"}  # its version


def test_the_first_level_of_the_tree_is_the_architecture():
    assert {part(name) for name in MODULES if name != "tcm"} == {*ORDER, "__main__"}


def test_packages_import_only_what_stands_above_them():
    wrong = [
        f"{name} imports {other}"
        for name, file in MODULES.items()
        if name != "tcm" and part(name) not in ENTRANCES
        for other in imports(file, whole=True)
        if part(other) != part(name) and ORDER.index(part(other)) > ORDER.index(part(name))
    ]
    assert wrong == []


def test_no_import_goes_in_a_circle():
    graph = {name: imports(file, whole=False) - {name} for name, file in MODULES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) >= len(MODULES) - 1


def test_every_package_says_what_comes_in_and_what_goes_out():
    for name, file in MODULES.items():
        if file.name == "__init__.py" and name != "tcm":
            text = ast.get_docstring(ast.parse(file.read_text())) or ""
            text = " ".join(text.split())
            assert all(word in text for word in ("In:", "Out:", "Start with")), name


def test_only_the_command_line_knows_its_library():
    users = {part(name) for name, file in MODULES.items() if "import tyro" in file.read_text()}
    assert users == {"cli"}


def test_no_two_classes_have_one_name():
    found: dict[str, list[str]] = {}
    for name, file in MODULES.items():
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ClassDef):
                found.setdefault(node.name, []).append(name)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}
