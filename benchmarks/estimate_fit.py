"""Fits combinations of estimators to known cases, and measures how far off they are on tasks that were left out."""

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear
from scipy.stats import spearmanr

from tcm.estimation.estimate import NEED_HELD_OUT
from tcm.estimation.known_cases import Combination, Reliable, Warned

Case = dict[str, Any]  # ABOUT, and every estimate by its name
ABOUT = ("kind", "task", "group", "run", "method", "truth")  # what a case has beside estimates
LEVEL = 0.9  # of the interval
CLEARLY = 0.003  # a second estimator must lower the error by this much
# What a combination may be made from; the pools that need most come first.
ALWAYS = ("confidence", "cot", "training-cot", "neighbours-source", "neighbours-target")
POOLS = (
    ("agreement", *ALWAYS, *NEED_HELD_OUT),
    (*ALWAYS, *NEED_HELD_OUT),
    ("agreement", *ALWAYS),
    ALWAYS,
    ("confidence", "cot", "training-cot"),
)


def cases_of(rows: Iterable[Any]) -> list[Case]:
    """One case per run, from rows of single estimates. Variants of a pair of domains are in one group."""
    found: dict[tuple[str, str], Case] = defaultdict(dict)
    for row in rows:
        case = found[row.task, row.run]
        case |= {"kind": row.kind, "task": row.task, "run": row.run, "method": row.method, "truth": float(row.truth)}
        case["group"] = re.sub(r" \(.*\)$", "", row.task)
        case[row.estimator] = float(row.estimate)
    return list(found.values())


def fitted_weights(cases: Sequence[Case], names: Sequence[str]) -> tuple[NDArray[np.float64], float]:
    """Weights of at least 0 and an intercept, by least squares; every group counts the same."""
    inputs = np.array([[case[name] for name in names] + [1.0] for case in cases])
    truth = np.array([case["truth"] for case in cases])
    sizes = defaultdict(int)
    for case in cases:
        sizes[case["group"]] += 1
    scale = np.sqrt([1 / sizes[case["group"]] for case in cases])
    lowest = [0.0] * len(names) + [-np.inf]
    found = lsq_linear(inputs * scale[:, None], truth * scale, bounds=(lowest, np.inf)).x
    return found[:-1], float(found[-1])


def left_out_values(cases: Sequence[Case], names: Sequence[str], by: str = "group") -> NDArray[np.float64]:
    """The estimate of each case by weights that were fitted without its group (or `kind`), clipped to [0, 1]."""
    values = np.empty(len(cases))
    for group in {case[by] for case in cases}:
        weights, intercept = fitted_weights([case for case in cases if case[by] != group], names)
        for place, case in enumerate(cases):
            if case[by] == group:
                values[place] = intercept + sum(w * case[name] for w, name in zip(weights, names, strict=True))
    return values.clip(0, 1)


def fitted_combination(name: str, cases: Sequence[Case], names: Sequence[str]) -> Combination:
    """The combination fitted to all cases, with the errors on groups that were left out.

    The half width of the interval is a quantile of these errors. Its coverage is measured with the quantile of the
    other groups.
    """
    usable = [case for case in cases if all(each in case for each in names)]
    errors = np.abs(left_out_values(usable, names) - [case["truth"] for case in usable])
    groups = np.array([case["group"] for case in usable])
    inside = np.concatenate(
        [errors[groups == group] <= np.quantile(errors[groups != group], LEVEL) for group in sorted({*groups})]
    )
    half_width, weights, intercept = float(np.quantile(errors, LEVEL)), *fitted_weights(usable, names)
    elsewhere = np.abs(left_out_values(usable, names, "kind") - [case["truth"] for case in usable])
    return Combination(
        name=name,
        weights={each: round(float(weight), 4) for each, weight in zip(names, weights, strict=True)},
        intercept=round(intercept, 4),
        error=round(float(errors.mean()), 4),
        half_width=round(half_width, 4),
        level=LEVEL,
        coverage=round(float(inside.mean()), 4),
        error_elsewhere=round(float(elsewhere.mean()), 4),
        coverage_elsewhere=round(float((elsewhere <= half_width).mean()), 4),
        cases=len(usable),
        tasks=len({*groups}),
    )


def chosen_estimators(cases: Sequence[Case], pool: Sequence[str]) -> tuple[str, ...]:
    """One estimator of the pool, or two if this is clearly better.

    The choice is by the mean of two errors: on groups, and on kinds of data, that were left out. All choices are
    compared on the same cases.
    """
    usable = [case for case in cases if all(name in case for name in pool)]
    truth = np.array([case["truth"] for case in usable])

    def error(names: Sequence[str]) -> float:
        return float(np.mean([np.abs(left_out_values(usable, names, by) - truth) for by in ("group", "kind")]))

    one, two = (min(itertools.combinations(pool, size), key=error) for size in (1, 2))
    return two if error(two) < error(one) - CLEARLY else one


def fitted_combinations(cases: Sequence[Case]) -> list[Combination]:
    """The best combination of each pool, without those that another pool has too.

    With repeated runs at hand, their agreement must be worth its place.
    """
    best = {pool: chosen_estimators(cases, pool) for pool in POOLS}
    chosen = dict.fromkeys(names for pool, names in best.items() if "agreement" not in pool or "agreement" in names)
    found = [fitted_combination(" + ".join(names), cases, names) for names in chosen]
    return sorted(found, key=lambda combination: combination.error)


def score_reliabilities(cases: Sequence[Case], found: Sequence[Combination]) -> dict[str, Reliable]:
    """How well every estimator, score and combination ranks the runs of a task, on average over tasks."""
    scored = [dict(case) for case in cases]
    for combination in found:
        for case in scored:
            if combination.possible(case):
                case[combination.name] = combination.value(case)
    no_scores = re.compile(r"\(training\)$|^calibration/")
    names = sorted({name for case in scored for name in case if not no_scores.search(name)} - {*ABOUT})
    return {name: reliable for name in names if (reliable := _reliability(scored, name))}


def _reliability(cases: Sequence[Mapping[str, Any]], name: str) -> Reliable | None:
    tasks: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for case in cases:
        if name in case:
            tasks[case["task"]].append((case[name], case["truth"]))
    several = [np.array(pairs).T for pairs in tasks.values() if len(pairs) > 2]
    if not several:
        return None
    correlations = [float(spearmanr(score, truth).statistic) for score, truth in several if len({*score}) > 1]  # pyright: ignore
    regrets = [float(truth.max() - truth[score.argmax()]) for score, truth in several]
    known = [value for value in correlations if not math.isnan(value)]
    return Reliable(
        correlation=round(float(np.mean(known)), 3) if known else 0.0,
        regret=round(float(np.mean(regrets)), 4),
        worst=round(max(regrets), 4),
        tasks=len(several),
    )


def measured_warnings(cases: Sequence[Case], found: Sequence[Combination]) -> Warned:
    """How often estimates recognise that a run is worse than source-only training with as many steps and the same seed.

    Each run has the estimate that `tcm estimate` gives it, by weights that were fitted to all tasks.
    """

    def value(case: Case) -> float:
        return next(each for each in found if each.possible(case)).value(case)

    plain = {(case["task"], _sort_of(case)): case for case in cases if case["method"] == "erm"}
    adapted = [case for case in cases if case["method"] not in ("erm", "short")]
    pairs = [(case, plain.get((case["task"], _sort_of(case)))) for case in adapted]
    known = [(value(case) < value(erm), case["truth"] < erm["truth"]) for case, erm in pairs if erm]
    warned = sum(said for said, _ in known)
    right = sum(said and true for said, true in known)
    return Warned(warned, right, sum(true and not said for said, true in known), len(known))


def _sort_of(case: Case) -> str:
    return case["run"].removeprefix(case["method"])
