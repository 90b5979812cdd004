"""Means and deviations over seeds with known answers, on invented runs."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tcm.analysis.curves import Curve, accuracy_curves, k_curves, over_seeds
from tcm.errors import InputError
from tcm.figures.curves import curves_figure
from tcm.training.run_folder import Run

ARRAYS = ("source_images", "source_labels", "target_images", "shown_index", "shown_images")


def write_run(
    folder: Path,
    accuracy: float | None,
    *,
    method: str = "tcm",
    seed: int = 0,
    k: int | None = None,
    target: str = "Clipart",
    steps: int = 20,
    finished: bool = True,
    source_images: int = 9,
    **changed: Any,
) -> Path:
    """The folder of a run whose accuracy is half its last one after half of the steps."""
    folder.mkdir()
    config = {"method_name": method, "steps": steps, "seed": seed, "mechanisms": f"m-{k}-{seed}" if k else None}
    config |= {"data": {"source": "Art", "target": target}, **changed}
    Run(folder).start(config)
    rows = [{"step": steps // 2, "target/accuracy": (accuracy or 0) / 2}, {"step": steps, "target/accuracy": accuracy}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    scores = {"accuracy": accuracy, "mean_class_accuracy": accuracy}
    sides = {
        "source": {"name": "Art", "images": source_images},
        "target": {"name": target, "images": 2, "labelled": 2, **scores},
    }
    summary = {"selection": "last", "step": steps, "seconds": 1.0, "classes": ["cup", "hat"], **sides}
    (folder / "evaluation.json").write_text(json.dumps(summary))
    arrays = {name: np.zeros(0) for name in ARRAYS}
    arrays |= {"probabilities": np.eye(2), "labels": np.zeros(2), "paths": np.array(["a", "b"])}
    np.savez(folder / "evaluation.npz", allow_pickle=False, **arrays)
    if finished:
        Run(folder).save_model({"w": torch.zeros(1)}, {"k": k} if k else {})
    return folder


def test_the_mean_and_its_deviation_where_all_have_a_point():
    lines = [Curve(np.array([1, 2, 3]), np.array([0.1, 0.2, 0.3])), Curve(np.array([1, 3]), np.array([0.3, 0.3]))]
    found = over_seeds(lines)
    assert found.at.tolist() == [1, 3]
    assert found.values == pytest.approx([0.2, 0.3])
    assert found.deviation == pytest.approx([np.sqrt(0.02), 0])
    assert over_seeds(lines[:1]).deviation is None


def test_accuracy_has_a_line_for_each_method_and_k(tmp_path: Path):
    folders = [
        write_run(tmp_path / "d0", 0.4, method="dann"),
        write_run(tmp_path / "t0", 0.6, k=2),
        write_run(tmp_path / "d1", 0.6, method="dann", seed=1),
        write_run(tmp_path / "t1", 0.8, k=3),
    ]
    found = accuracy_curves(folders)
    assert list(found) == ["dann (2 seeds)", "tcm, k = 2", "tcm, k = 3"]
    assert found["dann (2 seeds)"].at.tolist() == [10, 20]
    assert found["dann (2 seeds)"].values == pytest.approx([0.25, 0.5])
    assert found["dann (2 seeds)"].deviation == pytest.approx([np.sqrt(0.005), np.sqrt(0.02)])


def test_lines_of_one_method_are_labelled_by_the_settings_that_differ(tmp_path: Path):
    folders = [
        write_run(tmp_path / f"{lr}-{seed}", 0.5, method="dann", lr=lr, seed=seed) for lr in (1, 2) for seed in (0, 1)
    ]
    assert list(accuracy_curves(folders)) == ["dann, lr 1 (2 seeds)", "dann, lr 2 (2 seeds)"]


def test_mechanisms_of_another_form_are_another_line(tmp_path: Path):
    for form in ("paper", "release"):
        Run(tmp_path / form).start({"form": form, "k": 2, "steps": 5, "bank": {"lr": form}})
    folders = [
        write_run(tmp_path / f"on-{form}", 0.5, k=2, mechanisms=str(tmp_path / form)) for form in ("paper", "release")
    ]
    assert list(accuracy_curves(folders)) == ["tcm, mechanisms.form paper", "tcm, mechanisms.form release"]


def test_lines_of_equal_settings_and_task_are_labelled_by_their_folders(tmp_path: Path):
    for way in ("slow", "fast"):
        (tmp_path / way).mkdir()
        for k in (1, 2):
            images = 9 if way == "slow" else 10
            write_run(tmp_path / way / f"{k}", 0.5, k=k, source_images=images)
    folders = [tmp_path / way / str(k) for way in ("slow", "fast") for k in (1, 2)]
    assert list(k_curves(folders)) == ["tcm, slow/1", "tcm, fast/1"]


def test_k_is_read_from_the_model(tmp_path: Path):
    accuracies = {(1, 0): 0.5, (1, 1): 0.7, (5, 0): 0.8, (3, 0): 0.9}
    folders = [write_run(tmp_path / f"{k}-{seed}", value, k=k, seed=seed) for (k, seed), value in accuracies.items()]
    ((label, found),) = k_curves(folders).items()
    assert label == "tcm (1 to 2 seeds)"
    assert found.at.tolist() == [1, 3, 5]
    assert found.values == pytest.approx([0.6, 0.9, 0.8])
    assert found.deviation is not None
    assert found.deviation == pytest.approx([np.sqrt(0.02), np.nan, np.nan], nan_ok=True)


def test_k_has_a_line_for_each_task(tmp_path: Path):
    folders = [write_run(tmp_path / f"{target}{k}", 0.5, k=k, target=target) for target in "CP" for k in (1, 2)]
    assert list(k_curves(folders)) == ["tcm, Art → C", "tcm, Art → P"]


def test_a_band_is_drawn_around_a_mean_and_explained():
    found = Curve(np.array([1, 5]), np.array([0.5, 0.7]), np.array([0.1, 0.2]))
    figure = curves_figure({"tcm": found}, percent=True, ticks=(1, 5))
    (band,) = figure.axes[0].collections
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    assert (heights.min(), heights.max()) == (pytest.approx(0.4), pytest.approx(0.9))
    assert figure.legends[0].get_title().get_text() == "band: mean ± standard deviation over seeds"
    assert list(figure.axes[0].get_xticks()) == [1, 5]
    alone = curves_figure({"tcm": found._replace(deviation=None)}, percent=True)
    assert not alone.axes[0].collections
    assert not alone.legends


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ({"method": "dann", "k": None}, "second is a run of dann, without k; name runs with different numbers"),
        ({"finished": False}, "second is not finished; repeat its command"),
        ({"accuracy": None}, "second has no target labels, so no accuracy"),
        ({}, "first and .*second are the same run; name one of them"),
        ({"seed": 1}, "every run has k = 2, but .* name runs with different numbers of mechanisms"),
    ],
)
def test_runs_that_have_no_place_in_the_figure(second: dict[str, Any], says: str, tmp_path: Path):
    first = write_run(tmp_path / "first", 0.5, k=2)
    with pytest.raises(InputError, match=says):
        k_curves([first, write_run(tmp_path / "second", **{"accuracy": 0.5, "k": 2, **second})])


def test_one_run_given_twice_and_runs_of_different_data(tmp_path: Path):
    first, second = (write_run(tmp_path / name, 0.5, method="dann", target=name) for name in ("C", "P"))
    with pytest.raises(InputError, match="C is given twice"):
        accuracy_curves([first, first])
    with pytest.raises(InputError, match=r"C \(Art → C\) and .*P \(Art → P\) have different data"):
        accuracy_curves([first, second])
