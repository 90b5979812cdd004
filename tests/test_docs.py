"""The documentation does not rot: its links exist, its commands parse, its code runs, its file map is whole."""

import contextlib
import csv
import importlib.util
import json
import math
import re
import shlex
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tcm.classifier.train import TrainConfig
from tcm.cli.app import parse
from tcm.cli.help import COMMANDS, split_command
from tcm.config import from_json, to_json
from tcm.data.batch import Batch
from tcm.data.stream import Stream
from tcm.data.task import DataConfig, Task
from tcm.methods.method import Method, Problem
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import make_fabric
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
HOW_TO = ROOT / "docs" / "adding-a-method.md"  # its commands are those of a method that is not there
CLASSES = 10


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of that language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The words of every `tcm ...` line of the page's shell blocks."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("tcm "):
                yield shlex.split(line, comments=True)[1:]


def mentioned_commands(page: Path) -> Iterator[list[str]]:
    """The words of every `tcm ...` in running text."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    yield from (mention.split() for mention in re.findall(r"`tcm ([^`]+)`", text))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_exists(page: Path):
    targets = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", page.read_text())
    files = [target.split("#")[0] for target in targets if not re.match(r"[a-z]+:", target)]
    assert [file for file in files if file and not (page.parent / file).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != HOW_TO], ids=name_of)
def test_every_command_shown_is_one(page: Path):
    for words in shown_commands(page):
        name, options = split_command(words)
        assert name in COMMANDS
        with contextlib.suppress(SystemExit):  # --help; a mistake raises an InputError
            parse(name, options)
    for words in mentioned_commands(page):
        assert words[0].startswith("--") or split_command(words)[0] in COMMANDS


def test_the_readme_shows_commands():
    shown = {split_command(words)[0] for words in shown_commands(ROOT / "README.md")}
    assert {"train erm", "train dann", "report", "predict"} <= shown


def test_the_file_map_names_every_source_file():
    _, _, section = (ROOT / "README.md").read_text().partition("\n## File map\n")
    named = re.findall(r"^([\w./-]+)  +\S", section, flags=re.MULTILINE)
    assert [path for path in named if not (ROOT / path).exists()] == []
    kinds = {".py", ".jinja", ".css"}
    sources = sorted(name_of(file) for file in (ROOT / "src" / "tcm").rglob("*") if file.suffix in kinds)
    assert [path for path in sources if path not in named] == []


def test_the_accuracies_are_those_of_the_results():
    groups: dict[tuple[str, str, str], list[float]] = {}
    for file in ROOT.glob("benchmarks/results/*.csv"):
        for row in csv.DictReader(file.read_text().splitlines()):
            # A row of mechanisms has a specialisation where a method's has an accuracy; one of real images has neither.
            name = next((name for name in ("accuracy", "specialisation") if name in row), None)
            if name is None:
                continue
            # Every seed has its own mechanisms; the form tells which kind they are.
            same = {**json.loads(row["config"]), "seed": None, "mechanisms": row.get("form")}
            same["method_name"] = row.get("method")
            # A row from before an option was there is one of a run without it.
            same["data"] = {key: value for key, value in same.get("data", {}).items() if value is not None}
            groups.setdefault((file.name, json.dumps(same), name), []).append(float(row[name]))
    measured = {
        f"{statistics.mean(g):.{digits}f} ± {statistics.stdev(g):.{digits}f}"
        for (*_, name), g in groups.items()
        if len(g) > 1
        for digits in [1 if name == "accuracy" else 2]
    }
    _, _, results = (ROOT / "README.md").read_text().partition("\n## Results so far\n")
    quoted = re.findall(r"\| ([\d.]+ ± [\d.]+) (?=\|)", results)
    assert quoted
    assert set(quoted) <= measured


def test_the_parts_work_as_documented(digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec("".join(blocks(ROOT / "docs" / "library.md", "python")), found)
    assert found["logits"].shape == found["probabilities"].shape == (32, CLASSES)
    assert found["made"].shape == found["back"].shape == (2, 32, 3, 32, 32)
    assert found["losses"].keys() == {"classification", "domain"}


@pytest.fixture(scope="module")
def coral(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The method that docs/adding-a-method.md adds, as a module."""
    (code,) = blocks(HOW_TO, "python")
    file = tmp_path_factory.mktemp("methods") / "coral.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("coral", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["coral"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["coral"]


def build(coral: ModuleType) -> Method:
    torch.manual_seed(0)
    return coral.CORALConfig().build(Problem(CLASSES, BackboneConfig("small").build()))


def random_batch() -> Batch:
    images = torch.rand(2, 8, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Batch(images[0], torch.arange(8), images[1])


def test_the_documented_method_updates_and_predicts(coral: ModuleType):
    method = build(coral).train()
    losses = method.update(random_batch(), 0.5, method.build_optimizers())
    assert losses.keys() == {"classification", "covariance"}
    assert all(torch.isfinite(loss) and loss.ndim == 0 for loss in losses.values())
    assert method.eval().predict(random_batch().target).shape == (8, CLASSES)


def test_the_documented_loss_is_zero_for_equal_covariances(coral: ModuleType):
    features = torch.rand(8, 5, generator=torch.Generator().manual_seed(1))
    assert coral.covariance_distance(features, features + 3) < 1e-12
    # Doubled features have four times the covariance: the difference is 3 C.
    expected = (3 * torch.cov(features.T)).square().sum() / (4 * 5**2)
    torch.testing.assert_close(coral.covariance_distance(2 * features, features), expected)


def test_the_documented_config_survives_json(coral: ModuleType):
    config = TrainConfig(method=coral.CORALConfig(trade_off=0.5), data=DataConfig(benchmark="digits")).resolved()
    assert from_json(TrainConfig[coral.CORALConfig], to_json(config)) == config


def test_the_documented_method_trains(coral: ModuleType, digits: Task, tmp_path: Path):
    fabric = make_fabric("cpu", "fp32")
    view = DataConfig(benchmark="digits").resolved().view
    stream = Stream(*digits, batch=8, seed=5, view=view, device=fabric.device)
    run = Run(tmp_path / "run")
    run.start({"method_name": "coral"})
    schedule = Schedule(steps=4, log_every=1, evaluate_every=100, save_every=100)
    training_loop(fabric, build(coral), stream, run, schedule=schedule, seed=5, evaluate=dict, quiet=True)
    losses = [row["loss/covariance"] for row in run.metrics() if "loss/covariance" in row]
    assert len(losses) == 4
    assert all(map(math.isfinite, losses))
