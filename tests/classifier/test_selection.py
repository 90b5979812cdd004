"""Every selection score on a case whose answer is known, and what the rules choose."""

import inspect
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.classifier.evaluate import Predictions
from tcm.classifier.selection import (
    FITTED,
    RULES,
    SCORES,
    TEMPERATURE,
    agreement,
    collapse_warning,
    embedded_validation,
    evenly_spaced,
    importance_weights,
    information,
    negative_entropy,
    neighbourhood_density,
    regret,
    scores,
    selected,
)
from tcm.errors import InputError

CPU = torch.device("cpu")
CLASSES, EACH = 5, 8
# A discrete problem: the shares of three kinds of image in both domains, and how often each is misread.
IN_SOURCE, IN_TARGET, WRONG = torch.tensor([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.1, 0.5, 0.8]], dtype=torch.float64)
RISK = float(IN_TARGET @ WRONG)


def one_hot() -> Tensor:
    """Sure predictions, as many of each class: [CLASSES * EACH, CLASSES]."""
    return torch.eye(CLASSES, dtype=torch.float64).repeat(EACH, 1)


def random_predictions(count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(count, CLASSES, generator=generator, dtype=torch.float64)).softmax(dim=1)


def test_entropy_is_0_where_predictions_are_sure_and_least_where_they_are_uniform():
    assert negative_entropy(one_hot()) == 0
    uniform = torch.full((7, CLASSES), 1 / CLASSES, dtype=torch.float64)
    assert negative_entropy(uniform) == pytest.approx(-math.log(CLASSES))
    half = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    assert negative_entropy(half) == pytest.approx(-math.log(2) / 2)


def test_information_is_log_classes_when_balanced_and_sure_and_0_when_collapsed():
    assert information(one_hot()) == pytest.approx(math.log(CLASSES))
    assert information(one_hot()[:1].repeat(9, 1)) == 0
    assert information(random_predictions(1).repeat(9, 1)) == pytest.approx(0)
    # Two classes, one of which has a quarter of the images.
    some = torch.tensor([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert information(some) == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))


def density_of_clusters(mates: int, others: int) -> float:
    """SND of equal clusters that are at right angles: similarity 1, 0, and -1 to oneself, over the temperature."""
    logits = torch.tensor([1.0] * mates + [0.0] * others + [-1.0], dtype=torch.float64) / TEMPERATURE
    return float(torch.special.entr(logits.softmax(dim=0)).sum())


def test_density_of_perfect_clusters_is_the_logarithm_of_their_size():
    found = neighbourhood_density(one_hot())
    assert found == pytest.approx(density_of_clusters(EACH - 1, EACH * (CLASSES - 1)), rel=1e-12)
    assert found == pytest.approx(math.log(EACH - 1), abs=1e-5)
    assert found > neighbourhood_density(random_predictions(len(one_hot())))


def test_density_takes_a_collapse_for_one_large_cluster():
    """The score's known blind spot, which docs/selection.md warns of."""
    uniform = torch.full((12, CLASSES), 1 / CLASSES, dtype=torch.float64)
    assert neighbourhood_density(uniform) == pytest.approx(density_of_clusters(11, 0), rel=1e-12)
    assert neighbourhood_density(uniform) == pytest.approx(math.log(11))


def test_density_by_hand():
    points = F.normalize(random_predictions(6), dim=1)
    expected = 0.0
    for i in range(6):
        similar = [float(points[i] @ points[j]) if j != i else -1.0 for j in range(6)]
        weights = [math.exp(s / 0.05) for s in similar]
        shares = [weight / sum(weights) for weight in weights]
        expected -= sum(share * math.log(share) for share in shares if share > 0) / 6
    assert neighbourhood_density(random_predictions(6)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("at_once", [1, 37 * 5, 37 * 36])
def test_density_in_portions_is_that_of_all_at_once(at_once: int):
    probabilities = random_predictions(37)
    whole = neighbourhood_density(probabilities, at_once=37 * 37)
    assert neighbourhood_density(probabilities, at_once) == pytest.approx(whole, rel=1e-13)


def test_density_never_holds_more_similarities_than_it_may(monkeypatch: pytest.MonkeyPatch):
    sizes: list[int] = []
    whole = Tensor.log_softmax
    monkeypatch.setattr(Tensor, "log_softmax", lambda x, **kw: sizes.append(x.numel()) or whole(x, **kw))
    neighbourhood_density(random_predictions(50), at_once=50 * 3)
    assert max(sizes) == 150
    assert sum(sizes) == 50 * 50


def drawn(count: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Importance weights and errors of source images of the discrete problem."""
    kind = torch.from_numpy(generator.choice(3, count, p=IN_SOURCE.numpy()))
    errors = torch.from_numpy(generator.random(count)) < WRONG[kind]
    return (IN_TARGET / IN_SOURCE)[kind], errors.double()


def test_dev_of_a_sample_in_exact_proportion_is_minus_the_target_risk():
    counts = [(kind, wrong) for kind in range(3) for wrong in (0, 1)]
    kinds, errors = [], []
    for kind, wrong in counts:
        share = IN_SOURCE[kind] * (WRONG[kind] if wrong else 1 - WRONG[kind])
        kinds += [kind] * round(float(share) * 100)
        errors += [wrong] * round(float(share) * 100)
    weights = (IN_TARGET / IN_SOURCE)[torch.tensor(kinds)]
    assert len(kinds) == 100
    assert embedded_validation(weights, torch.tensor(errors).double()) == pytest.approx(-RISK, rel=1e-12)


def test_dev_recovers_the_target_risk_with_less_variance_than_weights_alone():
    generator = np.random.default_rng(0)
    samples = [drawn(400, generator) for _ in range(1500)]
    dev = np.array([-embedded_validation(*sample) for sample in samples])
    plain = np.array([float((weights * errors).mean()) for weights, errors in samples])
    source = np.array([float(errors.mean()) for _, errors in samples])
    assert abs(dev.mean() - RISK) < 4 * dev.std() / math.sqrt(len(dev)) + 1 / 400  # the control variate's bias: O(1/n)
    assert abs(source.mean() - RISK) > 0.2  # what is wrong without weights
    assert dev.var() < 0.5 * plain.var()


def test_dev_knows_the_risk_of_a_model_that_is_always_wrong():
    """Its estimate is then 1 whatever the weights; without the control variate it is their mean."""
    weights = torch.tensor([0.1, 3.0, 0.4, 0.7], dtype=torch.float64)
    assert embedded_validation(weights, torch.ones(4).double()) == pytest.approx(-1, rel=1e-12)
    assert embedded_validation(weights, torch.zeros(4).double()) == 0


def test_dev_with_equal_weights_is_the_weighted_error():
    assert embedded_validation(torch.ones(4).double(), torch.tensor([1.0, 0, 0, 0])) == -0.25


def normal_features() -> tuple[Tensor, Tensor]:
    """Normal features at 0 in 1,500 source images and at 1 in 4,500 target images, and a constant one."""
    generator = torch.Generator().manual_seed(0)
    source, target = (torch.randn(count, 1, generator=generator) for count in (1500, 4500))
    return F.pad(source, (0, 1), value=7.0), F.pad(target + 1, (0, 1), value=7.0)


def test_weights_are_the_ratio_of_densities_whatever_the_sizes_of_the_domains():
    """It is exp(x - 1/2)."""
    points = torch.tensor([[-1.0, 7], [0.0, 7], [1.0, 7], [2.0, 7]])
    found = importance_weights(*normal_features(), points)
    torch.testing.assert_close(found, (points[:, 0].double() - 0.5).exp(), rtol=0.1, atol=0.0)


def test_dev_finds_the_target_risk_by_the_weights_of_its_own():
    """A model that is wrong above 1 is wrong on half of the target images, and on 16% of the source's."""
    source, target = normal_features()
    errors = (source[:, 0] > 1).double()
    assert float(errors.mean()) < 0.2
    assert embedded_validation(importance_weights(source, target, source), errors) == pytest.approx(-0.5, abs=0.05)


def test_a_few_rows_are_always_the_same_and_evenly_spread():
    rows = torch.arange(10 * FITTED)
    assert torch.equal(evenly_spaced(rows[:7], 7), rows[:7])
    few = evenly_spaced(rows, FITTED)
    assert len(few) == FITTED
    assert (few[0], few[-1]) == (0, len(rows) - 1)
    assert set(few.diff().tolist()) <= {10, 11}


def prediction(seed: int, count: int = 40) -> Predictions:
    generator = torch.Generator().manual_seed(seed)
    return Predictions(random_predictions(count, seed).float(), torch.randn(count, 6, generator=generator) + seed)


def test_scores_are_those_of_the_held_out_images():
    source, target, labels = prediction(0), prediction(1), torch.arange(40) % CLASSES
    held_out = torch.arange(40) < 12
    found = scores(source, labels, target, held_out, CPU)
    assert set(found) == {f"select/{name}" for name in SCORES}
    right = source.probabilities.argmax(dim=1) == labels
    weights = importance_weights(source.features[12:], target.features, source.features[:12])
    assert found["select/source"] == pytest.approx(float(right[:12].float().mean()))
    assert found["select/dev"] == embedded_validation(weights, (~right[:12]).double())
    assert found["select/entropy"] == negative_entropy(target.probabilities)
    assert found["select/information"] == information(target.probabilities)
    assert found["select/snd"] == neighbourhood_density(target.probabilities.double())


def test_snd_compares_some_images_of_a_large_target(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tcm.classifier.selection.DENSE", 10)
    source, target, labels = prediction(0), prediction(1), torch.arange(40) % CLASSES
    found = scores(source, labels, target, None, CPU)
    some = evenly_spaced(target.probabilities, 10).double()
    assert len(some) == 10
    assert found["select/snd"] == neighbourhood_density(some)


def test_without_held_out_images_all_source_images_are_looked_at():
    source, target, labels = prediction(0), prediction(1), torch.arange(40) % CLASSES
    found = scores(source, labels, target, None, CPU)
    right = source.probabilities.argmax(dim=1) == labels
    weights = importance_weights(source.features, target.features, source.features)
    assert found["select/source"] == pytest.approx(float(right.float().mean()))
    assert found["select/dev"] == embedded_validation(weights, (~right).double())


def test_a_model_that_has_run_away_has_no_scores():
    source, target = prediction(0), prediction(1)
    target.features[3, 2] = torch.inf
    assert scores(source, torch.zeros(40), target, None, CPU) == {}


def test_no_score_can_be_given_target_labels():
    assert list(inspect.signature(scores).parameters) == ["source", "labels", "target", "held_out", "device"]
    assert Predictions._fields == ("probabilities", "features", "variants")


ROWS = [
    {"step": 5, "loss/classification": 1.0},
    {"step": 10, "source/accuracy": 0.5, "target/accuracy": 0.3, "select/snd": 2.0, "select/source": 0.5},
    {"step": 20, "source/accuracy": 0.9, "target/accuracy": 0.7, "select/snd": 1.0, "select/source": 1.0},
    {"step": 30, "source/accuracy": 0.9, "target/accuracy": 0.6, "select/snd": 1.5, "select/source": 1.0},
    {"step": 35, "loss/classification": 0.1},
]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [("last", (30, 0.6)), ("snd", (10, 0.3)), ("source", (30, 0.6)), ("oracle", (20, 0.7))],
)
def test_each_rule_chooses_its_evaluation(rule: str, expected: tuple[int, float]):
    assert selected(ROWS, rule) == expected
    assert selected(ROWS[::-1], rule) == expected
    assert regret(ROWS, rule) == pytest.approx(0.7 - expected[1])


def test_without_target_labels_there_is_a_step_and_no_accuracy():
    rows = [{key: value for key, value in row.items() if key != "target/accuracy"} for row in ROWS]
    assert selected(rows, "snd") == (10, None)
    with pytest.raises(InputError, match=r'no evaluation has target/accuracy, which the selection rule "oracle"'):
        selected(rows, "oracle")


def test_an_unknown_rule_is_told_the_nearest():
    with pytest.raises(InputError, match='no selection rule "entorpy"; did you mean "entropy"'):
        selected(ROWS, "entorpy")
    with pytest.raises(InputError, match=f"there are {', '.join(RULES)}"):
        selected(ROWS, "xyzzy")
    with pytest.raises(InputError, match=r'no evaluation has select/dev, which the selection rule "dev" needs'):
        selected(ROWS, "dev")


def test_agreement_is_over_all_evaluations_and_in_each_run():
    other = [
        {"step": 10, "source/accuracy": 1.0, "target/accuracy": 0.9, "select/snd": 0.5, "select/source": 1.0},
        {"step": 20, "source/accuracy": 1.0, "target/accuracy": 0.8, "select/snd": 0.4, "select/source": 1.0},
    ]
    found = agreement([ROWS, other])
    assert set(found) == {"snd", "source"}
    # Ranks of snd, 5 3 4 2 1, against those of accuracy, 1 3 2 5 4: 1 - 6 * 38 / 120.
    assert found["snd"].correlation == pytest.approx(-0.9)
    assert found["snd"].regret == pytest.approx(0.9 - 0.3)
    assert found["snd"].regret_in_runs == pytest.approx((0.7 - 0.3 + 0) / 2)
    assert math.isnan(agreement([other])["source"].correlation)
    assert agreement([]) == {}


@pytest.mark.parametrize(("used", "warned"), [(2, True), (4, True), (5, False), (10, False)])
def test_predictions_that_use_less_than_half_of_the_classes_are_a_collapse(used: int, warned: bool):
    probabilities = torch.eye(10)[torch.arange(60) % used] * 0.9 + 0.1 / 10
    probabilities = torch.where(torch.arange(10) < used, probabilities, 0)
    probabilities = probabilities / probabilities.sum(dim=1, keepdim=True)
    row = {"select/entropy": negative_entropy(probabilities), "select/information": information(probabilities)}
    said = collapse_warning([{"loss": 1.0}, row, {"loss": 0.5}], 10)
    assert said.startswith(f"The predictions on the target use about {used} of the 10 classes") == warned
    assert bool(said) == warned


def test_without_scores_nothing_is_said_of_a_collapse():
    assert collapse_warning([{"step": 1, "source/accuracy": 0.5}], 10) == ""
