from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw
from support.mistakes import draw_domain

from tcm.cli.app import main


@pytest.fixture
def arrows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of two folders with arrows to the left and to the right."""
    monkeypatch.setattr("tcm.training.source_probe.STEPS", 60)
    monkeypatch.setenv("COLUMNS", "300")
    rng = np.random.default_rng(0)
    for domain in ("day", "night"):
        for number in range(60):
            image = Image.new("RGB", (48, 48), "white" if domain == "day" else "black")
            pen, (x, y), way = ImageDraw.Draw(image), rng.uniform(20, 28, 2), (-1) ** number
            points = [(x + 14 * way, y), (x - 6 * way, y - 12), (x - 6 * way, y + 12)]
            pen.polygon(points, fill=tuple(rng.integers(60, 200, 3).tolist()))
            file = tmp_path / domain / ("right" if way > 0 else "left") / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            image.save(file)
    folders = ["--data.source-dir", str(tmp_path / "day"), "--data.target-dir", str(tmp_path / "night")]
    return ["data", "check", *folders, "--data.size", "32", "--quiet"]


def test_a_check_says_what_may_be_mirrored_and_shows_it(
    arrows: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    sheet = tmp_path / "sheets" / "sheet.png"
    assert main([*arrows, "--out", str(sheet)]) == 0
    said = capsys.readouterr().out
    assert "No problems found." in said
    assert "Mirrored images do not keep their class: a small network recognises" in said
    assert "is taken for" in said
    assert "Strongly cropped and turned images keep their class" in said
    assert "give other commands --data.no-flip.\n" in said
    assert f"Images as training sees them: {sheet}" in said
    assert min(Image.open(sheet).size) > 500


def test_what_the_user_states_is_not_asked_for_again(arrows: list[str], capsys: pytest.CaptureFixture[str]):
    assert main([*arrows, "--data.no-flip"]) == 0
    said = capsys.readouterr().out
    assert "Mirrored images do not keep their class" in said
    assert "give other commands" not in said


def test_a_sheet_needs_a_task_and_a_known_format(arrows: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["data", "check", str(tmp_path), "--out", str(tmp_path / "x.png"), "--quiet"]) == 2
    assert "--out needs a source and a target; name both" in capsys.readouterr().err
    assert main([*arrows, "--out", str(tmp_path / "x.tex")]) == 2
    assert "x.tex, which is not a figure file" in capsys.readouterr().err


def test_several_sources_are_checked_packed_and_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("COLUMNS", "300")
    for place, name in enumerate(("Art", "Clip art", "Real")):
        draw_domain(tmp_path / name, first_seed=1000 * place)
    names = ["--data.root", str(tmp_path), "--data.source", "art,clip_art", "--data.target", "real"]
    assert main(["data", "check", *names, "--quiet"]) == 0
    said = capsys.readouterr().out
    assert all(f"│ {name} " in said for name in ("Art", "Clip art", "Real"))
    assert main(["data", "pack", *names, "--data.size", "32", "--quiet"]) == 0
    said = capsys.readouterr().out
    assert "Art+Clip art: 24 images of side 32" in said
    assert "\n  Art: 12 images\n  Clip art: 12 images\n" in said
    folders = ["--data.source-dir", f"{tmp_path}/Art,{tmp_path}/Clip art", "--data.target-dir", str(tmp_path / "Real")]
    small = ["--data.size", "32", "--data.crop", "32", "--steps", "2", "--batch", "4", "--device", "cpu", "--quiet"]
    for form, out in ((names, "named"), (folders, "folders")):
        run = str(tmp_path / "runs" / out)
        assert main(["train", "erm", *form, *small, "--backbone.name", "small", "--out", run]) == 0
        said = capsys.readouterr().out
        assert "Art+Clip art → Real" in said
        assert "source accuracy ┃ " in said
        assert "┃    Art ┃ Clip art ┃" in said
    models = [(tmp_path / "runs" / out / "evaluation.npz").read_bytes() for out in ("named", "folders")]
    assert models[0] == models[1]
    assert main(["evaluate", run, "--device", "cpu", "--quiet"]) == 0
