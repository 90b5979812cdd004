"""The commands that draw figures of finished runs, and their errors."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tcm.cli.app import main
from tcm.training.run_folder import Run

SMALL = "--backbone.name small --data.size 32 --data.crop 32"


def draw_domain(folder: Path, seed: int) -> None:
    random = np.random.default_rng(seed)
    for name in ("cup", "hat", "key"):
        (folder / name).mkdir(parents=True)
        for number in range(4):
            pixels = random.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished run of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate(("Art", "Clipart", "Product")):
        draw_domain(folder / "data" / name, seed)
    common = f"--data.root {folder}/data --data.source Art --steps 2 --batch 4 --device cpu --quiet --out {folder}"

    def run(words: str) -> None:
        assert main(words.split()) == 0

    for method in ("erm", "dann"):
        run(f"train {method} {SMALL} --data.target Clipart {common}/{method}")
    run(f"train erm {SMALL} --data.target Product {common}/product")
    sides = "--data.size 32 --data.crop 32 --bank.generator.width 4 --bank.generator.blocks 1 --bank.critic.width 4"
    run(f"mechanisms --k 2 {sides} --data.target Clipart {common}/mechanisms")
    run(f"transport {folder}/mechanisms --device cpu --quiet")
    run(f"train tcm {SMALL} --mechanisms {folder}/mechanisms --data.target Clipart {common}/tcm")
    shutil.copytree(folder / "erm", folder / "unfinished")
    (folder / "unfinished" / "model.safetensors").unlink()
    return folder


def refusal(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of the command's error."""
    capsys.readouterr()
    assert main(words) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


def test_embedding(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "new" / "figure.png"
    assert main(["figure", "embedding", f"{runs}/dann", f"{runs}/tcm", "--out", str(out), "--device", "cpu"]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    with Image.open(out) as image:
        assert image.width > 1000


def test_activation(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    # Two steps teach them little: give one a right answer that the other has not.
    out, words = tmp_path / "figure.pdf", ["figure", "activation", f"{runs}/erm", f"{runs}/tcm", "--device", "cpu"]
    for name, guesses in (("erm", [0] * 12), ("tcm", [1] * 12)):
        file = runs / name / "evaluation.npz"
        with np.load(file) as stored:
            arrays = {**stored, "probabilities": np.eye(3, dtype=np.float32)[guesses]}
        np.savez(file, allow_pickle=False, **arrays)
    assert main([*words, "--images", "3", "--out", str(out)]) == 0
    assert out.read_bytes().startswith(b"%PDF")
    assert "--images is 0; give 1 or more" in refusal([*words, "--images", "0"], capsys)
    assert "--source-images is -1; give 0 or more" in refusal([*words, "--source-images", "-1"], capsys)


def test_activation_of_three_runs_with_source_images_and_of_images_that_all_get_wrong(runs: Path, tmp_path: Path):
    three = [f"{runs}/{name}" for name in ("erm", "dann", "tcm")]
    for name in ("erm", "dann", "tcm"):
        file = runs / name / "evaluation.npz"
        with np.load(file) as stored:
            arrays = {**stored, "probabilities": np.eye(3, dtype=np.float32)[[0 if name == "erm" else 1] * 12]}
        np.savez(file, allow_pickle=False, **arrays)
    words, sizes = ["figure", "activation", *three, "--device", "cpu", "--quiet", "--images", "2"], []
    for more in ([], ["--source-images", "3"], ["--show", "wrong"]):
        assert main([*words, *more, "--out", f"{tmp_path}/figure.png"]) == 0
        with Image.open(tmp_path / "figure.png") as image:
            sizes.append(image.size)
    assert sizes[1][1] > 2 * sizes[0][1] - 200
    assert sizes[2] == sizes[0]


def test_a_figure_of_too_few_runs(runs: Path, capsys: pytest.CaptureFixture[str]):
    assert "no run folder is given; name at least one" in refusal(["figure", "embedding"], capsys)
    words = ["figure", "activation", f"{runs}/dann"]
    assert "the figure compares two runs or more, but was given 1; name others" in refusal(words, capsys)


def test_accuracy_and_k(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert (
        main(
            ["figure", "accuracy", *(f"{runs}/{name}" for name in ("erm", "dann", "tcm")), "--out", f"{tmp_path}/a.svg"]
        )
        == 0
    )
    said = refusal(["figure", "k", f"{runs}/tcm", "--out", f"{tmp_path}/k.pdf"], capsys)
    assert "every run has k = 2, but the figure shows accuracy against k; name runs with different" in said
    assert {file.name for file in tmp_path.iterdir()} == {"a.svg"}
    another = Run(shutil.copytree(runs / "tcm", tmp_path / "k3"))
    tensors, about = another.load_model()
    another.save_model(tensors, {**about, "k": 3})
    assert main(["figure", "k", f"{runs}/tcm", f"{tmp_path}/k3", "--out", f"{tmp_path}/k.pdf"]) == 0
    assert (tmp_path / "k.pdf").read_bytes().startswith(b"%PDF")
    said = refusal(["figure", "k", f"{runs}/tcm", f"{runs}/mechanisms"], capsys)
    assert "/mechanisms holds no classifier; name the folder" in said
    assert "/unfinished is not finished" in refusal(["figure", "accuracy", f"{runs}/unfinished"], capsys)
    assert "/gone is not a folder" in refusal(["figure", "accuracy", f"{runs}/gone"], capsys)


TWO = [
    ("{runs}/dann {runs}/dann", "/dann is given twice; name each run once"),
    ("{runs}/dann {runs}/erm/../dann", "/dann is given twice"),
    ("{runs}/dann {runs}/product", "Art → Clipart) and"),
    ("{runs}/dann {runs}/product", "have different images; name runs on the same data with the same --data.size"),
    ("{runs}/dann {runs}/mechanisms", "/mechanisms holds no classifier; name the folder"),
    ("{runs}/unfinished {runs}/dann", "/unfinished is not finished; repeat its command"),
    ("{runs}/dann {runs}/gone", "/gone is not a run folder"),
    ("{runs}/dann {runs}/erm --out x.jpeg", "--out is x.jpeg, which is not a figure file"),
]


@pytest.mark.parametrize(("words", "says"), TWO)
@pytest.mark.parametrize("name", ["embedding", "activation"])
def test_two_runs_that_cannot_be_compared(
    name: str, words: str, says: str, runs: Path, capsys: pytest.CaptureFixture[str]
):
    assert says in refusal(["figure", name, *words.format(runs=runs).split()], capsys)
