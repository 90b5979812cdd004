"""Model selection without target labels: scores of a model, and which evaluation of a run they choose.

Every score is larger for a better model, by its own lights. docs/selection.md says what each is worth trusting for.
"""

import difflib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.classifier.evaluate import Predictions
from tcm.errors import InputError

SCORES = ("entropy", "information", "snd", "dev", "source")
RULES = ("last", *SCORES, "oracle")
PREFIX = "select/"  # of the scores' names in metrics.jsonl
ACCURACY = "target/accuracy"
TEMPERATURE = 0.05  # of SND
AT_ONCE = 2**20  # similarities that SND holds in memory: they fit a processor's cache
FITTED = 5000  # images of each domain that DEV's domain classifier is fitted on

Rows = Sequence[Mapping[str, Any]]  # of metrics.jsonl


def negative_entropy(probabilities: Tensor) -> float:
    """-mean H(p) of class probabilities [n, classes], in [-log classes, 0] (Morerio et al., 2018)."""
    return -float(torch.special.entr(probabilities).sum(dim=1).mean())


def information(probabilities: Tensor) -> float:
    """H(mean p) - mean H(p): the mutual information of image and class, in [0, log classes] (Bridle et al., 1991)."""
    return float(torch.special.entr(probabilities.mean(dim=0)).sum()) + negative_entropy(probabilities)


def neighbourhood_density(probabilities: Tensor, at_once: int = AT_ONCE) -> float:
    """SND (Saito et al., 2021): how many images share an image's prediction, as the mean entropy of
    P_ij = softmax over j of f_i f_j / temperature, f the probabilities [n, classes] at length 1.

    As in the paper's code the similarity of an image with itself counts as -1. At most `at_once` similarities, and no
    fewer than one image's, are in memory together.
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

    By Bayes' rule n_s / n_t times the odds that a domain classifier gives for target: here a logistic regression on
    standardised features, with scikit-learn's regularisation.
    """
    from sklearn.exceptions import ConvergenceWarning  # scikit-learn takes a second to import
    from sklearn.linear_model import LogisticRegression
    from threadpoolctl import threadpool_limits

    source, target = spread(source, FITTED), spread(target, FITTED)
    both = torch.cat([source, target]).double()
    mean, deviation = both.mean(dim=0), both.std(dim=0)
    deviation = torch.where(deviation > 0, deviation, 1.0)
    domain = torch.arange(len(both)) >= len(source)
    # One thread: the solver's many small products would mostly wait for each other's.
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # a hundred iterations are near enough
        fitted = LogisticRegression(tol=1e-3).fit(((both - mean) / deviation).numpy(), domain.numpy())
    slope = torch.from_numpy(fitted.coef_[0]) / deviation
    log_odds = validation.double() @ slope + float(fitted.intercept_[0]) - mean @ slope
    return log_odds.exp() * len(source) / len(target)


def spread(rows: Tensor, most: int) -> Tensor:
    """At most so many of the rows, evenly spread: always the same ones, and of every class if they are in order."""
    return rows if len(rows) <= most else rows[torch.linspace(0, len(rows) - 1, most).long()]


def embedded_validation(weights: Tensor, errors: Tensor) -> float:
    """DEV, minus the target risk estimated from labelled source images (You et al., 2019, Algorithm 1): of their
    importance weights w and errors l, both [n], -(mean(w l) + eta mean(w) - eta), eta = -Cov(w l, w) / Var(w).

    The mean of w is known to be 1; the control variate eta takes what it misses out of the estimate.
    """
    weighted = weights * errors
    variance = weights.var(unbiased=False)
    covariance = ((weighted - weighted.mean()) * (weights - weights.mean())).mean()
    eta = -covariance / variance if variance > 0 else torch.zeros_like(variance)
    return -float(weighted.mean() + eta * weights.mean() - eta)


def scores(
    source: Predictions, labels: Tensor, target: Predictions, held_out: Tensor | None, device: torch.device
) -> dict[str, float]:
    """Every score by its name in metrics.jsonl; nothing of a model whose numbers are not finite.

    `labels` are the source's; there is no place for the target's. dev and source look at the source images that
    `held_out` marks, bool [n], which training did not see. Without any they look at those it did see: optimistic.
    """
    told = (part for domain in (source, target) for part in (domain.probabilities, domain.features))
    if not all(bool(part.isfinite().all()) for part in told):
        return {}
    fitted = source.features if held_out is None else source.features[~held_out]
    validation = torch.ones(len(labels), dtype=torch.bool) if held_out is None else held_out
    errors = (source.probabilities.argmax(dim=1) != labels)[validation].double()
    weights = importance_weights(fitted, target.features, source.features[validation])
    found = {
        "entropy": negative_entropy(target.probabilities),
        "information": information(target.probabilities),
        # In float64: a GPU may round the factors of float32 products to 10 bits.
        "snd": neighbourhood_density(target.probabilities.to(device, torch.float64)),
        "dev": embedded_validation(weights, errors),
        "source": 1 - float(errors.mean()),
    }
    return {PREFIX + name: value for name, value in found.items() if math.isfinite(value)}


def collapse(rows: Rows, classes: int) -> str:
    """A warning if the newest model gives target images less than half of the classes; nothing otherwise.

    The number of classes in use is exp(H(mean p)), the same for any order of the images and for any target labels.
    """
    names = PREFIX + "information", PREFIX + "entropy"
    scored = [[row[name] for name in names] for row in rows if all(name in row for name in names)]
    if not scored:
        return ""
    used = math.exp(scored[-1][0] - scored[-1][1])
    if used >= classes / 2:
        return ""
    found = f"The predictions on the target use about {used:.0f} of the {classes} classes"
    return f"{found}: unless the target has so few, training has collapsed onto them"


class Selected(NamedTuple):
    """The evaluation that a rule chooses."""

    step: int
    accuracy: float | None  # on the target; None where it has no labels


def selected(rows: Rows, rule: str) -> Selected:
    """The evaluation that the rule chooses from a run's metrics: `last`, the one with the highest score of that name,
    or `oracle`, the highest target accuracy, which is shown beside the others and never reported. Of equals the latest.
    """
    if rule not in RULES:
        near = difflib.get_close_matches(rule, RULES, n=1)
        hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(RULES)}"
        raise InputError(f'there is no selection rule "{rule}"; {hint}')
    key = {"last": "source/accuracy", "oracle": ACCURACY}.get(rule, PREFIX + rule)
    judged = [row for row in rows if isinstance(row.get(key), int | float)]
    if not judged:
        raise InputError(f'no evaluation has {key}, which the selection rule "{rule}" goes by; choose another rule')
    best = max(judged, key=lambda row: (0 if rule == "last" else row[key], row["step"]))
    return Selected(best["step"], best.get(ACCURACY))


def regret(rows: Rows, rule: str) -> float:
    """The target accuracy that the rule misses: the oracle's less that of its choice. The rows may be of many runs."""
    best, chosen = selected(rows, "oracle").accuracy, selected(rows, rule).accuracy
    if best is None or chosen is None:
        raise InputError(f'the rule "{rule}" chooses an evaluation without {ACCURACY}; give the target labels')
    return best - chosen


class Agreement(NamedTuple):
    """How well a score orders models."""

    correlation: float  # Spearman's, with target accuracy, over all evaluations of all runs; nan if either is constant
    regret: float  # when one evaluation is chosen among those of all runs
    regret_in_runs: float  # mean over runs, when one is chosen in each


def agreement(runs: Sequence[Rows]) -> dict[str, Agreement]:
    """The agreement with the true target accuracy of every score that all the runs have, by its name."""
    from scipy.stats import rankdata

    found: dict[str, Agreement] = {}
    for name in SCORES:
        judged = [[row for row in rows if {PREFIX + name, ACCURACY} <= row.keys()] for rows in runs]
        if not judged or not all(judged):
            continue
        together = [row for rows in judged for row in rows]
        pairs = [[row[key] for row in together] for key in (PREFIX + name, ACCURACY)]
        constant = any(len(set(values)) == 1 for values in pairs)
        correlation = math.nan if constant else float(np.corrcoef([rankdata(values) for values in pairs])[0, 1])
        within = [regret(rows, name) for rows in judged]
        found[name] = Agreement(correlation, regret(together, name), sum(within) / len(within))
    return found
