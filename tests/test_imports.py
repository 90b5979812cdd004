"""Data flows one way: a module imports only what stands above it in this list."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "tcm"
ORDER = [
    "",  # the package itself: its version
    "errors",
    "config",
    "schedules",
    "losses",
    "progress",
    "learner",
    "graphs",
    *(f"data.{name}" for name in ("images", "domains", "lists", "folders", "counts", "benchmarks", "reading", "cache")),
    *(f"data.{name}" for name in ("store", "digits", "factors", "augment", "stream", "holdout", "task")),
    "data.layouts",
    "data.check",
    *(f"nn.{name}" for name in ("heads", "backbone", "generator", "critic", "vae")),
    "run",
    "transported",
    "train",
    "settings",
    *(f"mechanisms.{name}" for name in ("competition", "bands", "pool", "pair", "bank", "census")),
    *(f"mechanisms.{name}" for name in ("disentangle", "reader", "distance", "discovery")),
    *(f"mechanisms.{name}" for name in ("transport", "handover", "gallery", "quality")),
    "methods.method",
    *(f"methods.{name}" for name in ("erm", "dan", "dann", "cdan", "mcd", "mdd")),
    "methods.proxy",
    *(f"methods.{name}" for name in ("views", "alignment", "causal", "tcm", "baseline")),
    "methods",
    "evaluate",
    "select",
    "outcome",
    "experiment",
    "predict",
    "pipeline",
    "results",
    "suite_config",
    "suite",
    "suite_runs",
    "bench",
    "quoted",
    "table",
    "typeset",
    "cost",
    "side_by_side",
    "embedding",
    *(f"figures.{name}" for name in ("svg", "curves", "panels", "confusion", "mechanisms", "steps", "wins")),
    *(f"figures.{name}" for name in ("distances", "factors", "embedding")),
    *(f"report.{name}" for name in ("record", "scores", "readings", "pictures", "mechanisms", "comparison")),
    *(f"report.{name}" for name in ("selection", "view", "page")),
    "report",
    "seeds",
    "activation",
    "figures.activation",
    "suite_figures",
    "report.suite",
    "demo",
    "commands",
    "mechanism_commands",
    "figure_commands",
    "manual",
    "cli",
]
EMPTY = {"data", "nn", "figures", "mechanisms"}  # packages whose __init__ imports nothing


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").removesuffix(".")


def imported_modules(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tcm":
            module = node.module.removeprefix("tcm").removeprefix(".")
            inner = {f"{module}.{alias.name}".removeprefix(".") for alias in node.names}
            found |= {name if name in ORDER else module for name in inner}
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("tcm.") for alias in node.names if alias.name.startswith("tcm.")}
    return found


def test_every_module_has_its_place():
    assert {name_of(file) for file in PACKAGE.rglob("*.py")} == {*ORDER, *EMPTY}


def test_imports_go_one_way():
    wrong = [
        f"{name} imports {other}"
        for file in PACKAGE.rglob("*.py")
        for name in [name_of(file)]
        for other in imported_modules(file)
        if name in ORDER and ORDER.index(other) >= ORDER.index(name)
    ]
    assert wrong == []


def test_only_the_command_line_knows_its_library():
    users = {name_of(file) for file in PACKAGE.rglob("*.py") if "import tyro" in file.read_text()}
    assert users == {"cli"}
