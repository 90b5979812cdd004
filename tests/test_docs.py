"""The documentation does not rot: its links exist, its commands parse, its code runs."""

import contextlib
import functools
import importlib.util
import math
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric
from PIL import Image
from support.documents import DOCS, GENERATED, PAGES, ROOT, blocks, name_of, without_blocks
from support.fake_runs import write_run

import tcm
from tcm.classifier.selection import SCORES
from tcm.classifier.train_config import TrainConfig
from tcm.cli.app import COMMANDS, HELP, PROGRAM_OPTIONS, commands_of, parsed_call, split_command
from tcm.config import from_json, to_json
from tcm.data.batch import Batch
from tcm.data.stream import Stream
from tcm.data.task import DataConfig, Task
from tcm.methods import METHODS
from tcm.methods.method import Method, Problem
from tcm.nn.backbone import BackboneConfig
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run

README = ROOT / "README.md"
PYTHON = DOCS / "python.md"
SKLEARN = DOCS / "scikit-learn.md"
SELECTION = DOCS / "selection.md"
HOW_TO = DOCS / "adding-a-method.md"  # its commands are those of a method that is not there
CLASSES = 10
SMALL = {"data": {"size": 32}, "quiet": True}
SHORT = {"mechanisms": {"steps": 2, "batch": 4}, "k": 2, "steps": 2, "batch": 8}


def shown_commands(page: Path) -> Iterator[list[str]]:
    """The words of every `tcm ...` line of the page's shell blocks."""
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("tcm "):
                yield shlex.split(line.split(" > ")[0], comments=True)[1:]


def mentioned_commands(page: Path) -> Iterator[list[str]]:
    """The words of every `tcm ...` in running text."""
    yield from (mention.split() for mention in re.findall(r"`tcm ([^`]+)`", without_blocks(page)))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_exists(page: Path):
    targets = re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", page.read_text()) + re.findall(r'href="([^"]+)"', page.read_text())
    files = [page.parent / target.split("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]
    missing = [file for file in files if not file.exists() and GENERATED not in file.parents]
    assert missing == []


@pytest.mark.parametrize("page", [page for page in PAGES if page != HOW_TO], ids=name_of)
def test_every_command_shown_is_one(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for words in shown_commands(page):
        if words[0] in PROGRAM_OPTIONS:  # of the program itself: --help, --version
            continue
        if "--config" in words:  # the page shows what is in the file
            (settings,) = blocks(page, "yaml")
            Path(words[words.index("--config") + 1]).write_text(settings)
        parsed_call(words)  # a mistake raises an InputError
    if page.name == "CHANGELOG.md":  # which also mentions commands that were
        return
    for words in mentioned_commands(page):
        words = words[1:] if words[0] == "help" and len(words) > 1 else words
        if words[0] not in PROGRAM_OPTIONS:
            name, *options = (word for word in words if word not in HELP)
            assert commands_of(name)
            if options and not (name == "train" and options[0] == "NAME"):
                with contextlib.suppress(SystemExit):  # --help
                    split_command(words)


def test_the_readme_shows_commands():
    shown = {" ".join(words[:2]) for words in shown_commands(README)}
    assert {"data check", "fit photos"} <= shown
    assert {"fit", "predict", "bench", "table"} <= {words.split()[0] for words in shown}


def test_the_readme_is_short_and_names_every_command_and_package():
    text = README.read_text()
    assert len(text.splitlines()) <= 150
    assert [name for name in COMMANDS if not name.startswith("figure") and f"tcm {name}" not in text] == []
    drawn = [name.removeprefix("figure ") for name in COMMANDS if name.startswith("figure ")]
    assert [name for name in [*METHODS, *drawn] if not re.search(rf"[` ]{name}[` ]", text)] == []
    packages = [folder.parent.name for folder in (ROOT / "src" / "tcm").glob("*/__init__.py")]
    assert [name for name in packages if f"src/tcm/{name}/ " not in text] == []


def test_every_python_block_is_run_by_a_test():
    assert {page for page in PAGES if blocks(page, "python")} == {README, PYTHON, SKLEARN, SELECTION, HOW_TO}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders that the pages speak of: labelled photos, cliparts without labels, new images."""
    monkeypatch.chdir(tmp_path)
    generator = torch.Generator().manual_seed(0)

    def write(folder: str, count: int) -> None:
        Path(folder).mkdir(parents=True)
        for number in range(1, count + 1):
            pixels = torch.randint(256, (32, 32, 3), generator=generator, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(Path(folder) / f"{number}.png")

    for name, count in {"photos/cup": 10, "photos/pen": 10, "cliparts": 20, "new-images": 2}.items():
        write(name, count)
    return tmp_path


def test_the_python_page_works(folders: Path, digits: Task):
    found: dict[str, Any] = {}
    exec("".join(blocks(PYTHON, "python")), found)
    assert found["logits"].shape == (32, CLASSES)
    assert found["counterfactuals"].shape == found["back"].shape == (2, 5, 3, 28, 28)
    assert found["made"].shape == (1, 2, 32, 32, 3)
    assert found["losses"].keys() == {"classification", "domain"}
    assert list(found["model"].classes) == ["cup", "pen"]


def test_the_page_on_scikit_learn_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    exec("".join(blocks(SKLEARN, "python")), found)
    assert (found["again"].predict(found["X"]) == found["estimator"].predict(found["X"])).all()
    assert {*found["adapted"].classes_} == {"cup", "pen"}
    assert found["search"].best_params_["method"] in ("erm", "mcc")


def test_the_readme_works_with_shorter_runs(folders: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tcm, "fit", functools.partial(tcm.fit, **SMALL, **SHORT))
    full_train = tcm.train

    def train(name: str, **settings: Any) -> Any:
        return full_train(name, **{**settings, **SMALL, "steps": 2, "batch": 8})

    monkeypatch.setattr(tcm, "train", train)
    found: dict[str, Any] = {}
    (code,) = blocks(README, "python")
    exec(code, found)
    assert found["model"].predict_proba("new-images").shape == (2, 2)


def test_the_selection_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)
    for name in ("erm", "dann"):
        write_run(tmp_path / "runs" / name, method=name, selection=SCORES)
    (code,) = blocks(SELECTION, "python")
    exec(code, {})
    printed = capsys.readouterr().out
    assert "step=50" in printed
    assert all(name in printed for name in SCORES)


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
    fabric = Fabric(accelerator="cpu", devices=1)
    view = DataConfig(benchmark="digits").resolved().view
    stream = Stream(*digits, batch=8, seed=5, view=view, device=fabric.device)
    run = Run(tmp_path / "run")
    run.start({"method_name": "coral"})
    schedule = Schedule(steps=4, log_every=1, evaluate_every=100, save_every=100)
    training_loop(fabric, build(coral), stream, run, schedule=schedule, seed=5, evaluate=dict, quiet=True)
    losses = [row["loss/covariance"] for row in run.metrics() if "loss/covariance" in row]
    assert len(losses) == 4
    assert all(map(math.isfinite, losses))
