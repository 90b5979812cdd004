"""The suites of the paper's Tables 2 and 3 with all their methods, end to end on small trees of the true layout."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tcm.cli.app import main
from tcm.results.paper_tables import PAPER_ROWS
from tcm.results.table import paper_rows

SMALL = "--size 32 --crop 32 --steps 2 --batch 4 --seeds 1 --mechanisms.steps 2 --mechanisms.batch 2 --k 2"
# The rows of the tables; ResNet-50 is source only, RevGrad is another name of DANN.
METHODS = {
    "ResNet-50": "erm",
    "DAN": "dan",
    "DANN": "dann",
    "RevGrad": "dann",
    "MADA": "mada",
    "CDAN": "cdan",
    "A²LP": "a2lp",
    "SymNets": "symnets",
    "ETD": "etd",
    "GTA": "gta",
    "MDD": "mdd",
    "GVB-GD": "gvb",
    "DMRL": "dmrl",
    "Baseline": "baseline",
    "TCM": "tcm-paper",
}
VISDA = ["aeroplane", "bicycle", "bus", "car", "horse", "knife", "motorcycle", "person", "plant", "skateboard"]
VISDA += ["train", "truck"]


def draw(file: Path, seed: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(file)


def imageclef_da(root: Path) -> Path:
    """c in folders of Caltech-256, i and p flat, the classes in lists: two images of each of 12 classes."""
    names = {"c": "{0}.class-{0}/{1:04}.jpg", "i": "n0269{0:04}_{1}.JPEG", "p": "2008_{0:03}{1:03}.jpg"}
    for domain, pattern in names.items():
        lines = []
        for label in range(12):
            for number in range(2):
                file = f"{domain}/{pattern.format(label, number)}"
                draw(root / file, 100 * label + number + ord(domain))
                lines.append(f"{file} {label}\n")
        (root / "list").mkdir(exist_ok=True)
        (root / "list" / f"{domain}List.txt").write_text("".join(lines))
    return root


def visda_2017(root: Path) -> Path:
    """train and validation with a folder of each class and a list."""
    for domain, pattern in (("train", "src_{}.png"), ("validation", "{}.jpg")):
        lines = []
        for label, name in enumerate(VISDA):
            for number in range(2):
                file = f"{name}/{pattern.format(number)}"
                draw(root / domain / file, 100 * label + number + len(domain))
                lines.append(f"{file} {label}\n")
        (root / domain / "image_list.txt").write_text("".join(lines))
    return root


def test_every_row_of_the_tables_has_a_method():
    assert {row.method for row in PAPER_ROWS if row.table in (2, 3)} == set(METHODS)


@pytest.mark.usefixtures("few_points")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("benchmark", "name", "task"), [("ImageCLEF-DA", "image_CLEF", "C>P"), ("VisDA-2017", "visda", "Synthetic>Real")]
)
def test_the_suite_runs_every_method_of_its_table(
    benchmark: str, name: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    root = (imageclef_da if benchmark == "ImageCLEF-DA" else visda_2017)(tmp_path / name)
    quoted = [row.method for row in paper_rows(benchmark) if row.table in (2, 3)]
    # The default as well: figures compare it with others.
    methods = list(dict.fromkeys([*(METHODS[method] for method in quoted), "tcm"]))
    chosen = f"--methods {','.join(methods)} --tasks {task.replace('>', '2')}"
    words = f"bench {benchmark.lower()} --root {root} {chosen} {SMALL}"
    code = main([*words.split(), "--device", "cpu", "--quiet", "--out", f"{tmp_path}/out"])
    said = capsys.readouterr()
    assert code == 0, said.err
    with (tmp_path / "out" / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["selection"] == "last"]
    assert {(row["benchmark"], row["task"], row["method"]) for row in rows} == {
        (benchmark, task, method) for method in methods
    }
    assert all(0 <= float(row["accuracy"]) <= 100 for row in rows)
    lines = said.out.splitlines()
    assert all(any(line.startswith(method) or f" {method} " in line for line in lines) for method in methods)
    drawn = {file.stem.split("-")[0] for file in (tmp_path / "out" / "figures").glob("*.png")}
    assert drawn >= {"accuracy", "activation", "embedding", "mechanisms"}
    assert (tmp_path / "out" / "report" / "index.html").stat().st_size > 10_000
