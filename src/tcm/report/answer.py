"""The first screen of a page: which model, how good it probably is, and what to do next."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tcm.estimation.known_cases import warnings_measured
from tcm.report.downloads import FIT, Download, downloads, fit_folder
from tcm.report.known_accuracy import Known
from tcm.report.view import RunView
from tcm.training.run_folder import read_json

# What the methods that `tcm fit` may choose are, for readers who do not know their names.
IN_WORDS = {
    "erm": "Source only: a classifier trained on source images alone",
    "tcm": "TCM with counterfactuals",
    "tcm-control": "TCM without counterfactuals",
    "self-training": "Self-training on pretrained features",
}
FROZEN_IN_WORDS = {
    "erm": "Source only: a linear classifier on pretrained features",
    "a2lp": "Label propagation on pretrained features",
}
SOURCE_ONLY = ("erm", "frozen-erm")  # the methods that use no target image


@dataclass(frozen=True)
class Step:
    """Something to do next, with the command for it if there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True)
class PageAnswer:
    """The model that the page is about."""

    view: RunView
    reason: str  # why this model; empty if there is only one
    known: Known | None
    source_only: RunView | None
    warnings: list[str]
    steps: list[Step]
    downloads: list[Download]

    @property
    def method_in_words(self) -> str:
        """What the method is; empty for methods that only their users know."""
        record = self.view.record
        known = FROZEN_IN_WORDS if record.config["method"].get("frozen") else IN_WORDS
        return known.get(record.method, "")

    @property
    def gain(self) -> float | None:
        """Points by which the model is better than source only; None if both are not known in the same way."""
        if self.known is None or self.source_only is None or self.source_only.known is None:
            return None
        other = self.source_only.known
        return 100 * (self.known.accuracy - other.accuracy) if other.how == self.known.how else None

    @property
    def certain(self) -> bool:
        """Whether the intervals of the model and of source only do not overlap."""
        if self.known is None or self.source_only is None or self.source_only.known is None:
            return False
        other = self.source_only.known
        return self.known.low > other.high or self.known.high < other.low


def answer(views: Sequence[RunView], out: Path) -> PageAnswer | None:
    """The answer of a page in the folder `out`; None if there is no finished run, or several tasks or models.

    Target labels choose nothing: it is the run that a fit has chosen, the only one, or the one with the highest
    estimate.
    """
    finished = [view for view in views if view.record.evaluation]
    if not finished or len({view.record.data for view in finished}) > 1:
        return None
    chosen, reason = _chosen(finished)
    if chosen is None:
        return None
    baseline = next((view for view in finished if view.record.method in SOURCE_ONLY and view is not chosen), None)
    found = PageAnswer(chosen, reason, chosen.known, baseline, [], [], downloads(chosen.record, out))
    found.warnings.extend(_warnings(found))
    found.steps.extend(_steps(found, len(finished)))
    return found


def _chosen(views: Sequence[RunView]) -> tuple[RunView | None, str]:
    for view in views:
        folder = fit_folder(view.record)
        content = read_json(folder / FIT) if folder else {}
        if content.get("chosen") == view.record.folder.resolve().name:
            return view, str(content.get("reason") or "")
    if len(views) == 1:
        return views[0], ""
    if any(view.estimate is None for view in views):
        return None, ""
    best = max(views, key=lambda view: view.estimate.accuracy if view.estimate else 0.0)
    return best, f"it has the highest estimate of {len(views)} runs"


def _warnings(found: PageAnswer) -> list[str]:
    warnings = [found.view.collapse] if found.view.collapse else []
    if found.gain is not None and found.gain < 0:
        warnings.append(_negative_transfer(found))
    return warnings


def _negative_transfer(found: PageAnswer) -> str:
    """The warning that adaptation did harm, as sure as the accuracies are."""
    assert found.gain is not None, "there is something to warn of"
    if found.certain:
        return "This model is worse than source only, so adaptation did harm: use the source-only model"
    points = f"{-found.gain:.1f} points below source only"
    if found.known is None or found.known.how != "estimated":
        return f"This model is {points}, so adaptation probably did not help. The intervals overlap"
    measured = warnings_measured()
    known = f"{measured.right} of {measured.warned} such warnings were right on known cases"
    return f"The estimate of this model is {points}, so adaptation may have done harm: {known}"


def _steps(found: PageAnswer, runs: int) -> list[Step]:
    record, known = found.view.record, found.known
    folder = shlex.quote(str(fit_folder(record) or record.folder))
    steps = []
    if known is None or known.how == "estimated":
        text = "Measure it: label 100 random target images with one key each. The result is an exact interval."
        steps.append(Step(text, f"tcm audit {folder} --n 100"))
    if runs == 1 and record.method not in SOURCE_ONLY:
        steps.append(Step("Train source only (tcm train erm) on the same data: this model must beat it."))
    steps.append(Step("Classify new images:", f"tcm predict {folder} FOLDER --csv out.csv"))
    return steps
