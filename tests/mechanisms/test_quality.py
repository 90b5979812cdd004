from pathlib import Path

import pytest
import torch
from torch import Tensor

from tcm.cli.app import main
from tcm.data.augment import as_input
from tcm.data.task import Task
from tcm.errors import InputError
from tcm.mechanisms.bank import BankConfig, MechanismBank
from tcm.mechanisms.digit_reader import digit_reader
from tcm.mechanisms.distance import features, frechet, frechet_distance, single_and_combined, trained_backbone
from tcm.mechanisms.pair import Side
from tcm.nn.backbone import BackboneConfig
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig
from tcm.training.device import make_fabric

FABRIC = make_fabric("cpu", "fp32")


def exact_sample(mean: Tensor, covariance: Tensor, count: int = 40) -> Tensor:
    """Features whose sample mean and sample covariance are exactly these."""
    noise = torch.randn(count, len(mean), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    noise = torch.linalg.qr(noise - noise.mean(dim=0)).Q * (count - 1) ** 0.5
    return mean + noise @ torch.linalg.cholesky(covariance).T


def test_the_distance_of_known_gaussians():
    one, two = torch.tensor([1.0, 2.0, 0.0]).double(), torch.tensor([1.0, 0.0, 1.0]).double()
    a = exact_sample(one, torch.diag(torch.tensor([1.0, 4.0, 9.0]).double()))
    b = exact_sample(two, torch.diag(torch.tensor([4.0, 4.0, 1.0]).double()), count=25)
    assert frechet_distance(a, b) == pytest.approx(5 + (2 - 1) ** 2 + (3 - 1) ** 2, abs=1e-10)


def test_the_distance_of_gaussians_that_share_no_axes():
    # tr (AB)^(1/2) of 2 x 2 matrices is sqrt(tr AB + 2 sqrt(det AB)).
    a = torch.tensor([[2.0, 1.0], [1.0, 3.0]]).double()
    b = torch.tensor([[4.0, -1.0], [-1.0, 1.0]]).double()
    cross = ((a @ b).trace() + 2 * (a @ b).det().sqrt()).sqrt()
    zero = torch.zeros(2).double()
    expected = float(a.trace() + b.trace() - 2 * cross)
    assert frechet_distance(exact_sample(zero, a), exact_sample(zero, b)) == pytest.approx(expected, abs=1e-10)


def test_the_distance_is_zero_for_equal_sets_in_any_order_and_symmetric():
    a, b = torch.randn(2, 50, 8, generator=torch.Generator().manual_seed(1))
    assert frechet_distance(a, a.flip(0)) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(a, b) == pytest.approx(frechet_distance(b.flip(0), a), abs=1e-10)
    assert frechet_distance(a, b) > 0


def test_fewer_images_than_features():
    # In two of a hundred dimensions: the rest is constant, so the distance is that of the plane.
    a, b = torch.randn(2, 10, 2, generator=torch.Generator().manual_seed(2)).double() * torch.tensor([1.0, 3.0])
    wide = [torch.cat([part, torch.ones(10, 98)], dim=1) for part in (a, b)]
    assert frechet_distance(*wide) == pytest.approx(frechet_distance(a, b), abs=1e-9)
    many = torch.randn(2, 10, 100, generator=torch.Generator().manual_seed(3)).double()
    covariances = [torch.cov(part.T) for part in many]
    cross = torch.linalg.eigvals(covariances[0] @ covariances[1]).real.clamp(min=0).sqrt().sum()
    means = (many[0].mean(dim=0) - many[1].mean(dim=0)).square().sum()
    expected = float(means + sum(c.trace() for c in covariances) - 2 * cross)
    assert frechet_distance(*many) == pytest.approx(expected, rel=1e-4)


def test_features_are_those_of_the_centre_in_the_order_of_the_images(digits: Task):
    torch.manual_seed(0)
    backbone = BackboneConfig("small").build().eval()
    images = digits.source.images[:300]  # more than a batch
    found = features(FABRIC, backbone, images, crop=24)
    assert found.shape == (300, 64)
    with torch.inference_mode():
        torch.testing.assert_close(found, backbone(as_input(images[:, 4:28, 4:28])), atol=1e-5, rtol=1e-4)


def test_what_lies_nearer_to_the_other_domain_has_the_smaller_distance(digits: Task):
    """Halfway between the domains, all the way, and not at all."""
    count = 400
    other = {"target": as_input(digits.target.images[-count:]), "source": as_input(digits.source.images[-count:])}

    def transport(images: Tensor, to: Side) -> Tensor:
        there = other[to][: len(images)]
        mixed = torch.cat([images[::2], there[1::2]])
        return torch.stack([images, mixed, there])

    found = frechet(FABRIC, transport, digit_reader().backbone, digits, 32, images=count, batch=count)
    for side in ("source", "target"):
        nothing, half, whole = found.transported[side]
        assert nothing == pytest.approx(found.untouched, rel=1e-3)
        assert found.untouched > 2 * half > 4 * whole


def bank_of(critic_sees: str) -> MechanismBank:
    torch.manual_seed(0)
    generator = GeneratorConfig(2, 1, 1, kernel=3, residual=critic_sees == "combined")
    return BankConfig(generator=generator, critic=CriticConfig(2, 2), critic_sees=critic_sees).build(3, 32, 10).eval()  # pyright: ignore


@torch.inference_mode()
def test_all_changes_combined_come_last_if_critics_see_them_so():
    images = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    alone = bank_of("each")
    torch.testing.assert_close(single_and_combined(alone)(images, "target"), alone.transport(images, "target"))
    bank = bank_of("combined")
    made = single_and_combined(bank)(images, "source")
    assert len(made) == 4
    torch.testing.assert_close(made[:3], bank.transport(images, "source"))
    changes = sum(pair.to_source(2 * images - 1) - (2 * images - 1) for pair in bank.pairs()) / 2
    torch.testing.assert_close(made[3], (images + changes).clamp(0, 1))


def test_a_network_with_random_weights_is_refused():
    with pytest.raises(InputError, match=r"random weights.*`backbone.weights`"):
        trained_backbone(BackboneConfig("small"), crop=32)
    with pytest.raises(InputError, match="random weights"):
        trained_backbone(BackboneConfig("resnet18", pretrained=False), crop=32)


def test_the_command_measures_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "160")
    run, options = tmp_path / "run", ["--data.benchmark", "digits", "--k", "2", "--steps", "2", "--device", "cpu", "-q"]
    assert main(["mechanisms", *options, "--form", "disentangled", "--out", str(run)]) == 0
    capsys.readouterr()
    assert main(["quality", str(run), "--images", "60", "--device", "cpu", "-q"]) == 0
    shown = capsys.readouterr().out
    rows = ("untouched", "mechanism 1", "mechanism 2", "all together")
    assert all(words in shown for words in (*rows, "distance to the source", "digits read, to the target"))
    assert main(["quality", str(run), "--images", "1"]) == 2
    assert capsys.readouterr().err == "error: --images is 1; give 2 or more\n"
    assert main(["quality", str(run), "--backbone.weights", "nowhere.safetensors", "-q"]) == 2
    assert "--backbone.weights nowhere.safetensors" in capsys.readouterr().err


def test_imagenet_features_of_office_home(shared_data: Path):
    file = shared_data / "resnet50-imagenet.safetensors"
    if not file.exists():
        pytest.skip("no ImageNet weights")
    backbone = trained_backbone(BackboneConfig(weights=file), crop=64)
    images = torch.randint(0, 256, (6, 72, 72, 3), generator=torch.Generator().manual_seed(0)).byte()
    found = features(FABRIC, backbone, images, crop=64)
    assert found.shape == (6, 2048)
    assert frechet_distance(found[:3], found[3:]) > 0
