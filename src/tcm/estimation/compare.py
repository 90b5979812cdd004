"""Which of several runs is best, without target labels? Scores that rank them, and how far these can be trusted."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tcm.classifier.selection import PREFIX, SCORES
from tcm.errors import InputError, printable
from tcm.estimation.estimate import Estimate, estimate
from tcm.estimation.estimators import agreement
from tcm.estimation.inputs import RunPredictions, read_predictions
from tcm.estimation.known_cases import Reliable, combinations, reliabilities, warnings_measured
from tcm.training.run_folder import Run

SOURCE_ONLY = "erm"
NEAR = 0.005  # regrets that differ less are equal: chance decides between them
FEW = 0.5  # share of the classes below which predictions have collapsed


@dataclass(frozen=True)
class ComparedRun:
    """One run of a comparison."""

    run: Path
    method: str
    estimate: Estimate
    score: float  # by which the runs are ranked
    used_classes: float  # how many classes the predictions use: exp of the entropy of their shares
    shares: NDArray[np.float64]  # [classes], of the predictions on the target
    warnings: list[str]


@dataclass(frozen=True)
class Comparison:
    """Runs on the same data, the best by the ranking score first."""

    runs: list[ComparedRun]
    ranked_by: str  # the score, a key of `scores`
    scores: Mapping[str, Reliable]  # what all runs have, by name: how well each ranked known cases
    choices: Mapping[str, Path]  # the run with the highest value of each score
    agreement: NDArray[np.float64]  # [runs, runs], share of target images with the same prediction
    classes: list[str]
    source_shares: NDArray[np.float64]  # [classes]


def compare_runs(runs: Sequence[Path]) -> Comparison:
    """Ranks finished runs on the same data by the score that was most reliable on known cases."""
    if len(runs) < 2:
        raise InputError(f"a comparison needs two runs or more, but was given {len(runs)}; name runs on the same data")
    read = [read_predictions(run) for run in runs]
    for run, other in zip(runs[1:], read[1:], strict=True):
        if not read[0].same_data(other):
            found = f"{printable(run)} has other target images or classes than {printable(runs[0])}"
            raise InputError(f"{found}; compare runs on the same data")
    estimates = [estimate(run, [other for other in read if other is not run]) for run in read]
    values = [run_scores(run, found) for run, found in zip(read, estimates, strict=True)]
    known = {name: each for name, each in reliabilities().items() if all(name in found for found in values)}
    ranked_by = most_reliable(known)
    source_only = [found.accuracy for run, found in zip(read, estimates, strict=True) if run.method == SOURCE_ONLY]
    order = sorted(range(len(runs)), key=lambda place: -values[place][ranked_by])
    return Comparison(
        runs=[
            ComparedRun(
                run=runs[place],
                method=read[place].method,
                estimate=estimates[place],
                score=values[place][ranked_by],
                used_classes=used_classes(read[place].target_shares),
                shares=read[place].target_shares,
                warnings=run_warnings(read[place], estimates[place], source_only),
            )
            for place in order
        ],
        ranked_by=ranked_by,
        scores=known,
        choices={name: runs[int(np.argmax([found[name] for found in values]))] for name in known},
        agreement=np.array([[agreement(read[i].target, read[j].target) for j in order] for i in order]),
        classes=read[0].classes,
        source_shares=read[0].source_shares,
    )


def most_reliable(known: Mapping[str, Reliable]) -> str:
    """The score with the highest rank correlation, among those whose regret is near the lowest."""
    lowest = min(each.regret for each in known.values())
    near = [name for name, each in known.items() if each.regret <= lowest + NEAR]
    return max(near, key=lambda name: known[name].correlation)


def run_scores(run: RunPredictions, found: Estimate) -> dict[str, float]:
    """Every number that may rank runs: single estimates, combinations, and the selection scores of the last model."""
    values = dict(found.estimators)
    values |= {each.name: each.value(found.estimators) for each in combinations() if each.possible(found.estimators)}
    scored = [row for row in Run(run.folder).metrics() if any(PREFIX + name in row for name in SCORES)]
    last = max(scored, key=lambda row: row["step"], default={})
    return values | {PREFIX + name: last[PREFIX + name] for name in SCORES if PREFIX + name in last}


def used_classes(shares: NDArray[np.float64]) -> float:
    """exp(H(shares)): how many classes of equal size have this entropy."""
    positive = shares[shares > 0]
    return math.exp(-float((positive * np.log(positive)).sum()))


def run_warnings(run: RunPredictions, found: Estimate, source_only: Sequence[float]) -> list[str]:
    """What is probably wrong with a run: collapse, or an estimate below that of source-only training."""
    warnings = []
    used, classes = used_classes(run.target_shares), len(run.classes)
    if used < FEW * classes:
        text = f"collapse: the predictions use about {used:.0f} of {classes} classes"
        warnings.append(f"{text}, unless the target has so few")
    if source_only and run.method != SOURCE_ONLY and found.accuracy < min(source_only):
        fall = 100 * (min(source_only) - found.accuracy)
        measured = warnings_measured()
        known = f"{measured.right} of {measured.warned} such warnings were right on known cases"
        warnings.append(f"negative transfer: the estimate is {fall:.0f} points below source only; {known}")
    return warnings
