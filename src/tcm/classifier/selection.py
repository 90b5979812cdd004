"""Model selection without target labels: scores of a model, and the evaluation of a run that they choose.

A larger score means a better model. docs/results/selection.md shows how well each score agrees with target
accuracy.
"""

import difflib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.classifier.evaluate import Predictions
from tcm.errors import InputError

SCORES = ("entropy", "information", "snd", "dev", "source")
RULES = ("last", *SCORES, "oracle")
PREFIX = "select/"  # of the names of the scores in metrics.jsonl
ACCURACY = "target/accuracy"
TEMPERATURE = 0.05  # of SND
AT_ONCE = 2**20  # similarities that SND holds in memory: they fit into the cache of a processor
DENSE = 20_000  # images that SND compares with each other: a million would take hours at each evaluation
FITTED = 5000  # images of each domain that DEV's domain classifier is fitted on

Rows = Sequence[Mapping[str, Any]]  # of metrics.jsonl


def negative_entropy(probabilities: Tensor) -> float:
    """-mean H(p) of class probabilities [n, classes], in [-log classes, 0] (Morerio et al., 2018)."""
    return -float(torch.special.entr(probabilities).sum(dim=1).mean())


def information(probabilities: Tensor) -> float:
    """H(mean p) - mean H(p): the mutual information of image and class, in [0, log classes] (Bridle et al., 1991)."""
    return float(torch.special.entr(probabilities.mean(dim=0)).sum()) + negative_entropy(probabilities)


def neighbourhood_density(probabilities: Tensor, at_once: int = AT_ONCE) -> float:
    """SND (Saito et al., 2021): how many images share the prediction of an image, as the mean entropy of
    P_ij = softmax over j of f_i f_j / temperature, where f are the probabilities [n, classes] scaled to length 1.

    The similarity of an image with itself counts as -1, as in the code of that paper. At most `at_once` similarities
    are in memory together, but at least those of one image.
    """
    points = F.normalize(probabilities, dim=1)
    count, total = len(points), points.new_zeros(())
    for rows in torch.arange(count, device=points.device).split(max(1, at_once // count)):
        similarity = points[rows] @ points.T
        similarity[torch.arange(len(rows), device=points.device), rows] = -1
        logs = (similarity / TEMPERATURE).log_softmax(dim=1)
        total -= (logs.exp() * logs).sum()
    return float(total) / count


def importance_weights(source: Tensor, target: Tensor, validation: Tensor) -> Tensor:
    """The density ratio target : source at the validation features, float64 [n] (You et al., 2019).

    By Bayes' rule this is n_s / n_t times the odds of "target" under a domain classifier: here a logistic regression
    on standardised features, with the regularisation of scikit-learn.
    """
    from sklearn.exceptions import ConvergenceWarning  # scikit-learn takes a second to import
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    source, target = evenly_spaced(source, FITTED), evenly_spaced(target, FITTED)
    both = torch.cat([source, target]).double()
    mean, deviation = both.mean(dim=0), both.std(dim=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)
    domain = torch.arange(len(both)) >= len(source)
    # One thread: the many small products of the solver would mostly wait for each other.
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # a hundred iterations are enough
        fitted = LogisticRegression(tol=1e-3).fit(((both - mean) / deviation).numpy(), domain.numpy())
    slope = torch.from_numpy(fitted.coef_[0]) / deviation
    log_odds = validation.double() @ slope + float(fitted.intercept_[0]) - mean @ slope
    return log_odds.exp() * len(source) / len(target)


def evenly_spaced(rows: Tensor, count: int) -> Tensor:
    """At most `count` of the rows, at even distances: always the same ones, and all classes if rows are sorted."""
    return rows if len(rows) <= count else rows[torch.linspace(0, len(rows) - 1, count).long()]


def embedded_validation(weights: Tensor, errors: Tensor) -> float:
    """DEV (You et al., 2019, Algorithm 1): minus the target risk, estimated on labelled source images.

    With their importance weights w and errors l, both [n]: -(mean(w l) + eta mean(w) - eta) where
    eta = -Cov(w l, w) / Var(w). The true mean of w is 1; the control variate eta corrects for the sample mean.
    """
    weighted = weights * errors
    variance = weights.var(unbiased=False)
    covariance = ((weighted - weighted.mean()) * (weights - weights.mean())).mean()
    eta = -covariance / variance if variance > 0 else torch.zeros_like(variance)
    return -float(weighted.mean() + eta * weights.mean() - eta)


def scores(
    source: Predictions, labels: Tensor, target: Predictions, held_out: Tensor | None, device: torch.device
) -> dict[str, float]:
    """Every score by its name in metrics.jsonl; none if a prediction or a feature is not finite.

    `labels` are those of the source; there is no argument for target labels. dev and source use the source images
    marked by `held_out`, bool [n], which training does not see. Without `held_out` they use the training images, and
    are too optimistic.
    """
    numbers = (part for domain in (source, target) for part in (domain.probabilities, domain.features))
    if not all(bool(part.isfinite().all()) for part in numbers):
        return {}
    fitted = source.features if held_out is None else source.features[~held_out]
    validation = torch.ones(len(labels), dtype=torch.bool) if held_out is None else held_out
    errors = (source.probabilities.argmax(dim=1) != labels)[validation].double()
    weights = importance_weights(fitted, target.features, source.features[validation])
    compared = evenly_spaced(target.probabilities, DENSE)
    found = {
        "entropy": negative_entropy(target.probabilities),
        "information": information(target.probabilities),
        # In float64: a GPU may round the factors of float32 products to 10 bits. Apple's have no float64.
        "snd": neighbourhood_density(compared.to("cpu" if device.type == "mps" else device, torch.float64)),
        "dev": embedded_validation(weights, errors),
        "source": 1 - float(errors.mean()),
    }
    return {PREFIX + name: value for name, value in found.items() if math.isfinite(value)}


def collapse_warning(rows: Rows, classes: int) -> str:
    """A warning if the newest model predicts less than half of the classes on the target; empty otherwise.

    The number of predicted classes is exp(H(mean p)), which needs no target labels.
    """
    names = PREFIX + "information", PREFIX + "entropy"
    scored = [[row[name] for name in names] for row in rows if all(name in row for name in names)]
    if not scored:
        return ""
    used = math.exp(scored[-1][0] - scored[-1][1])
    if used >= classes / 2:
        return ""
    found = f"The predictions on the target use about {used:.0f} of the {classes} classes"
    return f"{found}: unless the target has so few classes, training has collapsed"


class Selected(NamedTuple):
    """The evaluation that a rule chooses."""

    step: int
    accuracy: float | None  # on the target; None if it has no labels


def selected(rows: Rows, rule: str) -> Selected:
    """The evaluation that a rule chooses from the metrics of a run; of equals the latest.

    The rules: `last`, the name of a score (its highest value), and `oracle`, the highest target accuracy, which is only
    shown for comparison and never reported.
    """
    if rule not in RULES:
        near = difflib.get_close_matches(rule, RULES, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(RULES)}"
        raise InputError(f'there is no selection rule "{rule}"; {hint}')
    key = {"last": "source/accuracy", "oracle": ACCURACY}.get(rule, PREFIX + rule)
    scored = [row for row in rows if isinstance(row.get(key), int | float)]
    if not scored:
        raise InputError(f'no evaluation has {key}, which the selection rule "{rule}" needs; choose another rule')
    best = max(scored, key=lambda row: (0 if rule == "last" else row[key], row["step"]))
    return Selected(best["step"], best.get(ACCURACY))


def regret(rows: Rows, rule: str) -> float:
    """Target accuracy of the oracle minus that of the rule. The rows may come from several runs."""
    best, chosen = selected(rows, "oracle").accuracy, selected(rows, rule).accuracy
    if best is None or chosen is None:
        raise InputError(f'the rule "{rule}" chooses an evaluation without {ACCURACY}; give the target labels')
    return best - chosen


class Agreement(NamedTuple):
    """How well a score ranks models."""

    correlation: float  # rank correlation (Spearman) with target accuracy over all runs; nan if either is constant
    regret: float  # when one evaluation is chosen from all runs
    regret_in_runs: float  # mean over runs, when one evaluation is chosen in each run


def agreement(runs: Sequence[Rows]) -> dict[str, Agreement]:
    """The agreement with target accuracy of every score that all runs have, by the name of the score."""
    from scipy.stats import spearmanr

    found: dict[str, Agreement] = {}
    for name in SCORES:
        scored = [[row for row in rows if {PREFIX + name, ACCURACY} <= row.keys()] for rows in runs]
        if not scored or not all(scored):
            continue
        all_rows = [row for rows in scored for row in rows]
        score, accuracy = ([row[key] for row in all_rows] for key in (PREFIX + name, ACCURACY))
        constant = len(set(score)) == 1 or len(set(accuracy)) == 1
        correlation = math.nan if constant else float(spearmanr(score, accuracy).statistic)  # pyright: ignore
        regrets = [regret(rows, name) for rows in scored]
        found[name] = Agreement(correlation, regret(all_rows, name), sum(regrets) / len(regrets))
    return found
