"""The screening of changes: benchmarks/screening.py and the method that has them, benchmarks/candidate.py."""

import csv
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from support.small_tcm import COUNT, built, losses, random_batch, small
from torch import nn

from tcm.methods import METHODS

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def screening() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)  # as Python does with the folder of a script
        spec = importlib.util.spec_from_file_location("screening", BENCHMARKS / "screening.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
        METHODS.pop(module.NAME, None)
        sys.modules.pop("candidate", None)


def test_every_change_is_in_half_of_the_runs_and_independent_of_every_other(screening: ModuleType):
    runs = np.array(list(screening.design(fold=False).values())) * 2 - 1
    assert runs.shape == (12, len(screening.CHANGES))
    assert (runs.sum(axis=0) == 0).all()
    assert (runs.T @ runs == 12 * np.eye(len(screening.CHANGES))).all()
    assert (np.array(list(screening.design(fold=True).values())) * 2 - 1 == -runs).all()


def test_known_effects_are_found(screening: ModuleType, tmp_path: Path):
    truth = np.linspace(-1, 1, len(screening.CHANGES))
    rows = []
    for fold in (False, True):
        for run, levels in screening.design(fold).items():
            found = dict.fromkeys(screening.COLUMNS, "") | {"run": run, "task": "A>C", "seed": "0"}
            found |= {name: str(int(level)) for name, level in zip(screening.CHANGES, levels, strict=True)}
            rows.append(found | {"accuracy": f"{60 + truth @ np.array(levels):.6f}"})
    effect, _ = screening.effects(rows[:12], "A>C", "accuracy")
    assert np.allclose(effect, truth)
    effect, error = screening.effects(rows, "A>C", "accuracy")
    assert np.allclose(effect, truth)
    assert (error < 1e-5).all()
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, screening.COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
    shown = screening.table(tmp_path / "rows.csv")
    assert next(iter(shown.columns[0].cells)) == list(screening.CHANGES)[-1], "the best first"


def test_the_commands_run_as_they_are_printed(
    screening: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.argv", ["screening.py", "commands", "--out", str(tmp_path), "--options", "--steps 1"])
    screening.main()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(set(lines)) == 12
    everything = max(lines, key=len).split()[1:]
    monkeypatch.setattr("sys.argv", [*everything, "--quiet", "--batch", "8", "--device", "cpu"])
    with pytest.raises(SystemExit) as ended:
        screening.main()
    assert ended.value.code == 0
    (row,) = screening.rows(tmp_path)
    assert row["task"] == "source>target"
    assert sum(row[name] == "1" for name in screening.CHANGES) == 6
    assert 0 <= float(row["accuracy"]) <= 100


def test_without_changes_the_candidate_is_the_control(screening: ModuleType):
    candidate = built(screening.CandidateConfig.for_images(small=True))
    plain, found = losses(small("tcm-control")), losses(candidate)
    assert found.keys() == plain.keys()
    for name, loss in plain.items():
        torch.testing.assert_close(found[name], loss)


def test_mixed_statistics_lie_between_those_of_both_images(screening: ModuleType):
    from candidate import with_mixed_statistics  # pyright: ignore[reportMissingImports]

    maps = torch.randn(2, 3, 16, 16, dtype=torch.float64) * 5 + torch.tensor([1.0, 7.0])[:, None, None, None]
    mixed = with_mixed_statistics(maps, torch.tensor([1.0, 0.0]), torch.tensor([1, 0]))
    torch.testing.assert_close(mixed[1], maps[1])
    torch.testing.assert_close(mixed[0].mean(dim=(1, 2)), maps[1].mean(dim=(1, 2)))
    torch.testing.assert_close(mixed[0].std(dim=(1, 2)), maps[1].std(dim=(1, 2)), rtol=1e-5, atol=0)


def test_statistics_come_from_the_other_domain_and_never_in_a_prediction(screening: ModuleType):
    from candidate import StatisticsMixing  # pyright: ignore[reportMissingImports]

    mixing = StatisticsMixing()
    mixing.draw(1.0, COUNT, 5, torch.device("cpu"))
    assert mixing.partner is not None
    partner = (mixing.partner // COUNT).reshape(5, COUNT)[:, 0].tolist()
    assert partner == [2, 3, 0, 1, 4]
    layer, maps = nn.Identity(), torch.rand(5 * COUNT, 2, 4, 4)
    assert not torch.equal(mixing(layer.train(), None, maps), maps)
    assert mixing(layer.eval(), None, maps) is maps


def test_rare_classes_count_more(screening: ModuleType):
    method = built(screening.CandidateConfig(rounds=1, balance=1.0))
    method.frequency.copy_(torch.tensor([0.4, 0.1, 0.2, 0.2, 0.1]))  # pyright: ignore[reportCallIssue]
    weights = method.class_weights(random_batch().labels)  # pyright: ignore[reportCallIssue]
    assert weights.mean().item() == pytest.approx(1)
    assert weights[1] > weights[2] > weights[0]


def test_the_first_round_can_start_with_labels_of_self_training(
    screening: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    words = ["--steps", "2", "--batch", "8", "--device", "cpu", "--quiet", "--out", str(tmp_path / "run")]
    options = ["--data.benchmark", "digits", "--method.start", "--method.maximum", "--method.rounds", "2"]
    monkeypatch.setattr("sys.argv", ["screening.py", "run", *words, *options])
    seen: list[torch.Tensor] = []
    candidate = sys.modules["candidate"].Candidate
    pseudo_labels = candidate.pseudo_labels
    monkeypatch.setattr(
        candidate, "pseudo_labels", lambda self, *args: seen.append(self.former.clone()) or pseudo_labels(self, *args)
    )
    with pytest.raises(SystemExit) as ended:
        screening.main()
    assert ended.value.code == 0
    first, second = seen
    torch.testing.assert_close(first.sum(dim=1), torch.ones(len(first)))
    assert first.amax(dim=1).mean().item() == pytest.approx(0.85, abs=0.01)
    assert not torch.equal(first, second), "the second round has labels of the first"
