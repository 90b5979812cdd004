"""The judgement of mechanisms whose verdicts are known: the digits have true counterfactuals."""

import numpy as np
import pytest
import torch
from torch import Tensor

from tcm.config import from_json, to_json
from tcm.data import digits as built_in
from tcm.data.task import Task
from tcm.mechanisms.digit_reader import digit_reader
from tcm.mechanisms.judgement import Judgement, Verdict, judged, remarks
from tcm.mechanisms.measurements import Measurements, Pixels, kappa, measure
from tcm.mechanisms.pair import SIDES, Side
from tcm.training.device import make_fabric
from tcm.training.source_probe import Recognition

FABRIC = make_fabric("cpu", "fp32")
TRUE, BLACK, COPY, IDENTITY, SHUFFLED = range(5)


def true_counterfactuals(side: built_in.Side) -> Tensor:
    """The digits of one domain in the style of the other."""
    return torch.from_numpy(built_in.domain(side, "target" if side == "source" else "source").images)


def made_of(store_images: Tensor, side: built_in.Side) -> Tensor:
    """Counterfactuals [n, 5, 32, 32, 3] by mechanisms that are right, black, a near copy, idle, and destructive."""
    true = true_counterfactuals(side)
    noise = torch.from_numpy(np.random.default_rng(0).integers(-1, 2, true.shape))
    copy = (true.long() + noise).clamp(0, 255).byte()
    pieces = true.unflatten(1, (4, 8)).unflatten(3, (4, 8))  # [n, 4, 8, 4, 8, 3]
    order = torch.tensor([2, 0, 3, 1])
    shuffled = pieces[:, order][:, :, :, order.flip(0)].flatten(3, 4).flatten(1, 2)
    return torch.stack([true, torch.zeros_like(true), copy, store_images, shuffled], dim=1)


@pytest.fixture(scope="module")
def made(digits: Task) -> tuple[Tensor, Tensor]:
    return made_of(digits.source.images, "source"), made_of(digits.target.images, "target")


@pytest.fixture(scope="module")
def judgement(digits: Task, made: tuple[Tensor, Tensor]) -> Judgement:
    winner = (torch.arange(len(made[0])) % 5, torch.arange(len(made[1])) % 5)
    return judged(measure(FABRIC, None, digits, made, 32, winner))


def test_broken_duplicate_and_idle_mechanisms_are_named(judgement: Judgement):
    for side in SIDES:
        reasons = [verdict.reasons for verdict in judgement.of(side)]
        assert reasons[TRUE] == ()
        assert reasons[BLACK] == ("blank", "unrecognisable")
        assert reasons[COPY] == ("duplicate",)
        assert judgement.of(side)[COPY].same_as == TRUE
        assert reasons[IDENTITY] == ("unchanged",)
        assert reasons[SHUFFLED] == ("unrecognisable",)
    assert judgement.used == ([TRUE], [TRUE])


def test_true_counterfactuals_are_still_recognised(judgement: Judgement):
    assert judgement.recognised > 0.9
    true, black = (judgement.of("source")[number].recognised for number in (TRUE, BLACK))
    assert true is not None
    assert true > 0.6
    assert black is not None
    assert black < 0.25
    assert judgement.of("target")[TRUE].recognised is None  # target images have no labels here


def test_pretrained_features_add_the_distance(digits: Task, made: tuple[Tensor, Tensor]):
    found = judged(measure(FABRIC, digit_reader().backbone, digits, made, 32))
    for side in SIDES:
        verdicts = found.of(side)
        assert verdicts[TRUE].reasons == ()
        assert verdicts[IDENTITY].reasons == ("unchanged", "not nearer")
        assert verdicts[IDENTITY].distance == pytest.approx(1, abs=1e-3)
        assert "blank" in verdicts[BLACK].reasons
        assert verdicts[TRUE].wins is None
        assert "dead" not in {reason for verdict in verdicts for reason in verdict.reasons}
    assert found.used == ([TRUE], [TRUE])


def test_what_is_noted_is_read_again(judgement: Judgement):
    assert from_json(Judgement, to_json(judgement)) == judgement


def measurements(wins: list[float], change: list[float], apart: list[list[float]]) -> Measurements:
    pixels = Pixels(torch.tensor(change), torch.zeros(len(change)), torch.tensor(apart))
    fine = Recognition(images=100, classes=10, before=0.9, after=0.85, p_value=0.2)
    both: dict[Side, Pixels] = {"source": pixels, "target": pixels}
    number = len(wins)
    return Measurements({"source": wins, "target": wins}, both, [fine] * number, [0.8] * number, None)


def test_a_mechanism_that_never_wins_is_dead_and_the_rarer_of_two_equal_ones_a_duplicate():
    apart = [[0.0, 0.3, 0.01], [0.3, 0.0, 0.3], [0.01, 0.3, 0.0]]
    found = judged(measurements([0.3, 0.005, 0.695], [0.2, 0.3, 0.2], apart))
    assert [verdict.reasons for verdict in found.of("source")] == [("duplicate",), ("dead",), ()]
    assert found.of("source")[0].same_as == 2
    assert found.used == ([2], [2])


def test_a_loss_that_may_be_noise_or_an_ignorant_classifier_condemns_nothing():
    fine = measurements([0.5, 0.5], [0.2, 0.2], [[0.0, 0.2], [0.2, 0.0]])
    for before, after, p_value, destroyed in (
        (0.9, 0.4, 0.001, True),
        (0.9, 0.4, 0.2, False),
        (0.9, 0.6, 0.001, False),
        (0.12, 0.02, 0.001, False),
    ):
        one = Recognition(100, 10, before, after, p_value)
        found = judged(Measurements(fine.wins, fine.pixels, [one, fine.recognised[1]], [0.8, 0.8], None))
        assert (found.of("source")[0].reasons == ("unrecognisable",)) is destroyed


def test_remarks_name_mechanisms_from_one_with_their_reasons():
    def verdict(number: int, origin: str, *reasons: str, same_as: int | None = None) -> Verdict:
        return Verdict(number, origin, 0.5, 0.2, 0.0, None, None, None, same_as, reasons)  # pyright: ignore

    def of(*verdicts: Verdict) -> list[str]:
        return remarks(Judgement(0.9, None, verdicts))

    assert of(verdict(0, "source"), verdict(0, "target")) == []
    both = of(verdict(0, "source"), verdict(0, "target"), verdict(1, "source", "dead"), verdict(1, "target", "dead"))
    assert both == ["mechanism 2 is not used: never wins an image"]
    one_way = of(verdict(0, "source", "duplicate", same_as=2), verdict(0, "target"))
    assert one_way[0] == "mechanism 1 is not used for source images: makes the same images as mechanism 3"
    assert one_way[1].startswith("no mechanism is left for source images: training went on without counterfactuals")
    none_left = of(*(verdict(number, side, "blank") for number in (0, 1) for side in SIDES))
    assert none_left[0] == "mechanisms 1 and 2 are not used: makes blank images"
    assert none_left[1].startswith("no mechanism is left: training went on without counterfactuals")


def test_kappa_is_that_of_scikit_learn():
    from sklearn.metrics import cohen_kappa_score

    one, other = torch.randint(0, 4, (2, 200), generator=torch.Generator().manual_seed(0))
    mixed = torch.where(torch.arange(200) % 3 == 0, other, one)
    assert kappa(one, mixed) == pytest.approx(cohen_kappa_score(one, mixed), abs=1e-6)
    assert kappa(one, one) == 1
    assert kappa(one, torch.zeros_like(one)) == pytest.approx(0, abs=1e-6)
