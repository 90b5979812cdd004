"""An estimate of a run's target accuracy without target labels, with the error that it had where labels are known."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcm.errors import InputError, printable
from tcm.estimation.calibration import fitted_temperature, with_temperature
from tcm.estimation.estimators import (
    accuracy,
    agreement,
    corrected_agreement,
    difference_of_confidences,
    mean_confidence,
    negative_entropy,
    thresholded_confidence,
    transport_accuracy,
)
from tcm.estimation.inputs import RunPredictions, read_predictions, run_folder
from tcm.estimation.known_cases import combinations
from tcm.training.files import write_atomically
from tcm.training.run_folder import read_json

FILE = "estimate.json"
# What each estimator is, for tables. Those of NEED_HELD_OUT are there only if source images were held out.
ESTIMATORS = {
    "confidence": "mean confidence on the target",
    "cot": "confidence optimal transport (Lu et al., 2023)",
    "training-cot": "confidence optimal transport, with the temperature of training images",
    "neighbours-target": "agreement with the nearest target images",
    "neighbours-source": "agreement with the nearest source images",
    "calibrated": "mean confidence, with the temperature of held-out source images",
    "calibrated-cot": "confidence optimal transport, with the temperature of held-out source images",
    "doc": "difference of confidences (Guillory et al., 2021)",
    "atc": "average thresholded confidence (Garg et al., 2022)",
    "atc-entropy": "average thresholded confidence by entropy (Garg et al., 2022)",
    "neighbours": "agreement with the nearest source images, less its error on held-out ones",
    "agreement": "agreement of runs that differ in the seed (GDE, Jiang et al., 2022)",
}
NEED_HELD_OUT = ("calibrated", "calibrated-cot", "doc", "atc", "atc-entropy", "neighbours")


@dataclass(frozen=True)
class Estimate:
    """What the accuracy of a run on its target probably is. All numbers but `cases` and `held_out` are shares."""

    accuracy: float
    low: float  # the interval, which contained `level` of the known cases
    high: float
    estimator: str  # the combination of estimators that gave `accuracy`
    error: float  # mean absolute error of this estimator on known cases, whose task had no part in fitting it
    cases: int  # how many known cases there were
    level: float  # share of known cases in their interval, as measured
    held_out: int  # source images that training did not see
    estimators: Mapping[str, float]  # every single estimate, by its name in ESTIMATORS

    @property
    def sentence(self) -> str:
        """The estimate in words: 72 % ± 9; on 40 known cases it was off by 6 on average."""
        return f"{self.in_short}; on {self.cases} known cases it was off by {100 * self.error:.0f} on average"

    @property
    def in_short(self) -> str:
        """The estimate with its interval: 72 % ± 9."""
        points = 100 * max(self.high - self.accuracy, self.accuracy - self.low)
        return f"{100 * self.accuracy:.0f} % ± {points:.0f}"

    @property
    def remark(self) -> str:
        """What would make the estimate more exact; empty if nothing is known to."""
        best = combinations()[0]
        missing = best.weights.keys() - self.estimators.keys()
        if best.error >= self.error or not missing:
            return ""
        needed = ["naming a second run that differs in the seed alone"] * ("agreement" in missing)
        needed += ["training with `held_out=0.1`"] * bool(missing & {*NEED_HELD_OUT})
        points = f"from {100 * self.error:.1f} to {100 * best.error:.1f} points"
        text = f"{' and '.join(needed)} would lower the mean error {points}"
        return text[0].upper() + text[1:]


def estimate_run(run: Path, others: Sequence[Path] = ()) -> Estimate:
    """Estimates the target accuracy of a finished run, and writes it to estimate.json in its folder.

    Of the `others`, which must be of the same images, those that differ in the seed alone are compared with it.
    """
    predictions = read_predictions(run)
    found = estimate(predictions, [read_predictions(other) for other in others])
    content = {**dataclasses.asdict(found), "sentence": found.sentence}
    write_atomically(predictions.folder / FILE, json.dumps(content, indent=2).encode())
    return found


def read_estimate(run: Path) -> Estimate | None:
    """What `estimate_run` wrote into the run; None before it."""
    file = run_folder(run) / FILE
    if not file.exists():
        return None
    content = read_json(file)
    names = {field.name for field in dataclasses.fields(Estimate)}
    if not isinstance(content, dict) or not names <= content.keys():
        raise InputError(f"{printable(file)} is damaged; repeat tcm estimate {printable(file.parent)}")
    return Estimate(**{name: content[name] for name in names})


def estimate(run: RunPredictions, others: Sequence[RunPredictions] = ()) -> Estimate:
    """The estimate by the most exact combination of estimators that the run has what it needs for."""
    found = estimates(run, others)
    chosen = next(combination for combination in combinations() if combination.possible(found))
    value = chosen.value(found)
    low, high = max(value - chosen.half_width, 0.0), min(value + chosen.half_width, 1.0)
    about: dict[str, Any] = {"estimator": chosen.name, "error": chosen.error, "cases": chosen.cases}
    held_out = int(run.held_out.sum())
    return Estimate(value, low, high, **about, level=chosen.coverage, held_out=held_out, estimators=found)


def estimates(run: RunPredictions, others: Sequence[RunPredictions] = ()) -> dict[str, float]:
    """Every single estimate that is possible, by its name in ESTIMATORS."""
    trained = ~run.held_out
    sharpened = with_temperature(run.target, fitted_temperature(run.source[trained], run.labels[trained]))
    found = {
        "confidence": mean_confidence(run.target),
        "cot": transport_accuracy(run.target, run.source_shares),
        "training-cot": transport_accuracy(sharpened, run.source_shares),
    }
    for side in ("target", "source"):
        if (share := run.neighbours[side]) is not None:
            found[f"neighbours-{side}"] = share
    if run.held_out.any():
        found |= from_source(run, run.held_out)
    if same := [other for other in others if is_repetition(run, other)]:
        found["agreement"] = sum(agreement(run.target, other.target) for other in same) / len(same)
    return found


def from_source(run: RunPredictions, chosen: NDArray[np.bool_]) -> dict[str, float]:
    """The estimates of NEED_HELD_OUT from the `chosen` source images, bool [n]: those that were held out."""
    source, labels = run.source[chosen], run.labels[chosen]
    calibrated = with_temperature(run.target, fitted_temperature(source, labels))
    found = {
        "calibrated": mean_confidence(calibrated),
        "calibrated-cot": transport_accuracy(calibrated, run.source_shares),
        "doc": difference_of_confidences(source, labels, run.target),
        "atc": thresholded_confidence(source, labels, run.target),
        "atc-entropy": thresholded_confidence(source, labels, run.target, negative_entropy),
    }
    on_target, on_held_out = run.neighbours["source"], run.neighbours["held_out"]
    if on_target is not None and on_held_out is not None:
        found["neighbours"] = corrected_agreement(on_target, on_held_out, accuracy(source, labels))
    return found


def is_repetition(run: RunPredictions, other: RunPredictions) -> bool:
    """Whether the other run differs in the seed alone. An error if it is of other images."""
    if not run.same_data(other):
        found = f"{printable(other.folder)} has other target images or classes than {printable(run.folder)}"
        raise InputError(f"{found}; give runs on the same data")
    return other.settings == run.settings and other.seed != run.seed
