"""What the page says of a run of stage 1, alone and beside runs of methods."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.pages import Page, page_of

from tcm.cli.app import main
from tcm.report import write_report
from tcm.training.run_folder import Run

OPTIONS = ["--data.benchmark", "digits", "--steps", "4", "--batch", "4", "--k", "2", "--log-every", "2", "-q"]
NEAR = "Distance to the other domain"  # the title of what a run shows that measured it


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "mechanisms"
    assert main(["mechanisms", *OPTIONS, "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "mechanisms"))


def pictures(page: Page) -> list[str]:
    """The descriptions of all counterfactuals in the galleries."""
    return [alt for alt in page.attributes("img", "alt") if alt and "under mechanism" in alt and ":" not in alt]


def test_a_run_shows_images_wins_and_factors(run: Path):
    page = page_of(run)
    assert "Mechanisms that transport images between digits source and digits target, learned in" in page.text
    assert "Source to target: digits source → digits target" in page.text
    assert "Target to source: digits target → digits source" in page.text
    assert len(pictures(page)) == 2 * 6 * 2
    assert sum("the winner" in alt for alt in pictures(page)) == 2 * 6
    assert page.attributes("td", "class").count("winner") == 2 * 6
    described = [label for label in page.attributes("svg", "aria-label") if label]
    assert any("share of wins" in label for label in described)
    assert any("source images of each class" in label for label in described)
    assert any("mechanism 2 changes" in label for label in described)
    assert "Specialisation is 0." in page.text
    for number in (1, 2):
        assert f"M{number}: " in page.text
        assert any(f"under mechanism {number}: " in alt for alt in page.attributes("img", "alt") if alt)
    assert "Back to the source: " in page.text
    assert "Used in training" not in page.text  # no run of stage 2 says so
    for title in ("adversarial", "cycle", "identity", "critics"):
        assert f"Loss: {title}" in page.text
    assert "wins/source" not in page.text
    assert NEAR not in page.text
    assert "Target accuracy" not in page.text
    assert "How to reproduce" in page.text
    assert [int(heading[1]) for heading in page.headings].count(1) == 1
    assert all(page.attributes("th", "scope"))


def test_a_run_that_watched_shows_its_distances(run: Path):
    with (run / "metrics.jsonl").open("a") as file:
        for step, together in ((2, 90.0), (4, 33.5)):
            made = {f"frechet/{to}/{name}": together for to in ("source", "target") for name in ("0", "1", "together")}
            file.write(json.dumps({"step": step, "frechet/untouched": 205.25, **made}) + "\n")
    page = page_of(run)
    assert NEAR in page.text
    assert "Frechet: " not in page.text  # no curve of its own for each
    (told,) = [label for label in page.attributes("svg", "aria-label") if label and "Frechet" in label]
    assert "source to target 33.5, target to source 33.5; 205.2 between the untouched domains" in told
    assert "untouched" in page.text
    (run / "model.safetensors").unlink()
    assert NEAR in page_of(run).text  # also before the end


def test_transported_images_are_read_and_no_network_makes_them(run: Path, monkeypatch: pytest.MonkeyPatch):
    computed = [source for source in page_of(run).attributes("img", "src") if source]
    assert main(["transport", str(run), "-q"]) == 0

    def never(*words: object, **named: object) -> None:
        raise AssertionError("transported again")

    monkeypatch.setattr("tcm.report.mechanisms.run_galleries", never)
    page = page_of(run)
    assert len(pictures(page)) == 2 * 6 * 2
    # The originals, after the two cards of the mechanisms, and the same winners.
    assert [source for source in page.attributes("img", "src") if source][4::3] == computed[4::3]
    assert page.attributes("td", "class").count("winner") == 2 * 6


def test_beside_runs_of_methods(run: Path, make_run: Callable[..., Path]):
    page = page_of(make_run("a"), run, make_run("b", seed=1))
    assert "2 runs of dann" in page.text
    assert ", and 1 run of stage 1" in page.text
    names = [row[0] for row in page.rows if len(row) == 6 and "steps" in row[0]]
    assert [name.split(", ")[-1] for name in names] == ["a", "b"]
    assert {"#run-1", "#run-3"} <= set(page.attributes("a", "href"))
    assert "mechanisms, seed 0" in page.text
    assert len(pictures(page)) == 2 * 6 * 2
    identifiers = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))


def test_a_run_of_stage_2_says_which_mechanisms_it_uses(run: Path, make_run: Callable[..., Path]):
    classifier = make_run("a")
    verdicts = [
        {"mechanism": 0, "origin": "source", "reasons": []},
        {"mechanism": 0, "origin": "target", "reasons": ["dead"]},
        {"mechanism": 1, "origin": "source", "reasons": ["blank", "not nearer"]},
        {"mechanism": 1, "origin": "target", "reasons": ["blank"]},
    ]
    (classifier / "mechanisms.json").write_text(json.dumps({"verdicts": verdicts}))
    text = page_of(classifier, run).text
    assert "Not used for target images: it never wins an image." in text
    assert "Not used: it makes blank images, it brings images no nearer to the other domain." in text
    (classifier / "mechanisms.json").write_text(json.dumps({"verdicts": verdicts[:1]}))
    assert "Used in training." in page_of(classifier, run).text


def test_several_runs_of_stage_1_alone(run: Path):
    other = Path(shutil.copytree(run, run.parent / "other"))
    page = page_of(run, other)
    assert "2 runs of stage 1" in page.text
    assert "Target accuracy" not in page.text
    assert len(pictures(page)) == 2 * 2 * 6 * 2


def test_an_unfinished_run_shows_its_wins(run: Path):
    (run / "model.safetensors").unlink()
    page = page_of(run)
    assert "did all 4 steps" in page.text
    assert "shown when the run is finished" in page.text
    assert any("share of wins" in label for label in page.attributes("svg", "aria-label") if label)
    assert pictures(page) == []


def test_a_run_that_ended_with_fewer_mechanisms(run: Path):
    tensors, about = Run(run).load_model()
    Run(run).save_model(tensors, {**about, "numbers": [0, 2]})
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for row in rows:  # mechanism 1 of what were three was dropped at the end
        row |= {key.replace("/1", "/2", 1): value for key, value in row.items() if "wins/" in key and "/1" in key}
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = page_of(run)
    assert page.text.count("dropped") == 3  # in two panels, and among the rows of classes
    assert "2 mechanisms" in page.text


def test_a_run_whose_images_are_gone_is_reported_all_the_same(run: Path):
    tensors, about = Run(run).load_model()
    Run(run).save_model(tensors, {**about, "classes": ["cup"]})
    page = page_of(run)
    assert "There are no counterfactuals to show: the classes of digits source are 0, 1," in page.text
    assert "Loss: critics" in page.text


def test_the_same_run_gives_the_same_page(run: Path):
    pages = [write_report([run], run.parent / name).read_bytes() for name in ("one", "two")]
    assert pages[0] == pages[1]


def test_the_figure_is_written_from_the_run(run: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["figure", "mechanisms", str(run), "--images", "2"]) == 0
    assert capsys.readouterr().out.strip() == str(run / "mechanisms.png")
    first = (run / "mechanisms.png").read_bytes()
    assert main(["figure", "mechanisms", str(run), "--images", "2", "-q", "--out", str(run / "again.png")]) == 0
    assert (run / "again.png").read_bytes() == first
    assert json.loads((run / "config.json").read_text())["kind"] == "mechanisms"
