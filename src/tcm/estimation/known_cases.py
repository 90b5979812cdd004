"""What was measured on runs whose target labels are known: how to combine estimators, and how far off they were.

known_cases.json has these numbers. `benchmarks/estimates.py --write` makes it from finished runs.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("known_cases.json")


@dataclass(frozen=True)
class Combination:
    """A weighted sum of estimators, with its error on cases whose task had no part in fitting the weights."""

    name: str
    weights: Mapping[str, float]  # by the name of the estimator
    intercept: float
    error: float  # mean absolute error
    half_width: float  # of the interval
    level: float  # share of the cases that the interval is meant to contain
    coverage: float  # share that it contained
    error_elsewhere: float  # mean absolute error when all cases of the same kind of data were left out
    coverage_elsewhere: float  # share that the interval contained then
    cases: int
    tasks: int

    def possible(self, estimates: Mapping[str, float]) -> bool:
        """Whether every estimator that it needs is there."""
        return all(name in estimates for name in self.weights)

    def value(self, estimates: Mapping[str, float]) -> float:
        """The combined estimate, in [0, 1]."""
        total = self.intercept + sum(weight * estimates[name] for name, weight in self.weights.items())
        return min(max(total, 0.0), 1.0)


@dataclass(frozen=True)
class Reliable:
    """How well a label-free score ranks the runs of one task, on average over tasks."""

    correlation: float  # rank correlation (Spearman) with target accuracy
    regret: float  # accuracy of the best run minus that of the chosen one
    worst: float  # the largest regret of a task
    tasks: int


@dataclass(frozen=True)
class Warned:
    """How often a run was worse than source-only training on the same task, and how often the estimate said so."""

    warned: int  # runs whose estimate was lower
    right: int  # of these, runs whose accuracy was lower
    missed: int  # other runs whose accuracy was lower
    runs: int  # all runs that were compared with source only


@cache
def _content() -> dict[str, Any]:
    return json.loads(FILE.read_text(encoding="utf-8"))


def combinations() -> list[Combination]:
    """The combinations, the most exact first. The last needs nothing but the target's predictions."""
    return [Combination(**found) for found in _content()["combinations"]]


def reliabilities() -> dict[str, Reliable]:
    """How well each score ranks runs, by its name."""
    return {name: Reliable(**found) for name, found in _content()["scores"].items()}


def warnings_measured() -> Warned:
    """How far warnings of negative transfer could be trusted."""
    return Warned(**_content()["negative_transfer"])
