from pathlib import Path

import pytest
import torch

from tcm.cli.app import main
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.mechanisms.bank import BankConfig
from tcm.mechanisms.gallery import diverse_images, galleries, run_galleries, spread_over_classes, stored_galleries
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig
from tcm.training.device import make_fabric


def test_candidates_are_spread_over_classes_and_within_them():
    labels = torch.tensor([0] * 10 + [1] * 2 + [2] * 10)
    found = spread_over_classes(labels, 7).tolist()
    assert found == [0, 10, 12, 4, 11, 16, 9]
    assert spread_over_classes(torch.full((10,), -1), 3).tolist() == [0, 4, 9]
    assert sorted(spread_over_classes(labels, 100).tolist()) == list(range(22))


def test_shown_images_have_different_winners_then_different_classes():
    winners, classes = [0, 0, 0, 1, 0, 2], [5, 5, 6, 7, 8, 5]
    assert diverse_images(winners, classes, 3) == [0, 3, 5]
    assert diverse_images(winners, classes, 4) == [0, 2, 3, 5]
    assert diverse_images([1, 1], [0, 0], 5) == [0, 1]


def test_a_gallery_of_each_domain(digits: Task):
    torch.manual_seed(0)
    bank = BankConfig(generator=GeneratorConfig(2, 1, 1, kernel=3), critic=CriticConfig(2, 2)).build(3, 32, 10).eval()
    source, target = galleries(make_fabric("cpu", "fp32"), bank, digits, images=4)
    assert (source.origin, source.domain, source.other) == ("source", "digits source", "digits target")
    assert (target.origin, target.domain) == ("target", "digits target")
    assert source.counterfactuals.shape == (4, 3, 32, 32, 3)
    assert source.winner.tolist() == sorted(source.winner.tolist())
    for place, image in enumerate(source.originals):
        number = next(i for i, stored in enumerate(digits.source.images) if (stored.numpy() == image).all())
        assert source.classes[place] == digits.source.classes[digits.source.labels[number]]
        carried = bank.transport(torch.from_numpy(image).permute(2, 0, 1)[None] / 255, to="target")[:, 0]
        expected = (carried.detach().permute(0, 2, 3, 1) * 255).round().numpy()
        assert abs(expected - source.counterfactuals[place]).max() <= 1


def test_stored_counterfactuals_give_the_same_galleries(digits: Task, tmp_path: Path):
    run, options = tmp_path / "run", "--data.benchmark digits --steps 2 --batch 4 --k 2 --device cpu --quiet"
    assert main(["mechanisms", *options.split(), "--out", str(run)]) == 0
    with pytest.raises(InputError, match="holds no transported images"):
        stored_galleries(run, digits, images=3)
    assert main(["transport", str(run), "--device", "cpu", "--quiet"]) == 0
    computed = run_galleries(run, images=3, device="cpu", quiet=True)
    for stored, made in zip(stored_galleries(run, digits, images=3), computed, strict=True):
        assert (stored.origin, stored.domain, stored.other, stored.classes) == (*made[:3], made.classes)
        assert stored.winner.tolist() == made.winner.tolist()
        assert (stored.originals == made.originals).all()
        # In batches of another size the last bits of a network differ.
        assert abs(stored.counterfactuals.astype(int) - made.counterfactuals.astype(int)).max() <= 1
    weights = run / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    with pytest.raises(InputError, match="made by other mechanisms"):
        stored_galleries(run, digits, images=3)
