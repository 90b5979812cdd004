"""Which run of a fit to use, without target labels."""

from pathlib import Path
from typing import NamedTuple

from tcm.classifier.selection import collapse_warning
from tcm.estimation.estimate import Estimate, estimate_run
from tcm.pipeline.plan import Plan
from tcm.training.run_folder import Run, read_json


class RunChoice(NamedTuple):
    """The chosen run."""

    name: str  # of its method and of its folder
    reason: str  # why it was chosen, in words


def choose(plan: Plan, out: Path) -> RunChoice:
    """The run to use. Its estimated accuracy, and that of all others, is written into the runs.

    It is the last method of the plan, which is the default, unless there is evidence against it: its predictions
    collapse, or the estimate of another run is higher by more than the estimates were off on known cases.
    """
    found = {name: estimate_run(out / name) for name in plan.methods}
    return chosen_by(plan.methods[-1], found, {name for name in plan.methods if has_collapsed(out / name)})


def chosen_by(default: str, estimates: dict[str, Estimate], collapsed: set[str]) -> RunChoice:
    """The choice from the estimates of all runs and the names of those whose predictions collapsed."""
    usable = [name for name in estimates if name not in collapsed] or [default]
    best = max(usable, key=lambda name: estimates[name].accuracy)
    ahead = estimates[best].accuracy - estimates[default].accuracy
    if default in usable and ahead <= estimates[default].error:
        return RunChoice(default, "the default; no other run has a clearly higher estimate")
    if default not in usable:
        return RunChoice(best, f"the predictions of {default} use less than half of the classes")
    return RunChoice(best, f"its estimated accuracy is {100 * ahead:.0f} points above that of {default}")


def has_collapsed(run: Path) -> bool:
    """Whether the predictions of a finished run use less than half of the classes."""
    return bool(collapse_warning(Run(run).metrics(), len(read_json(run / "evaluation.json")["classes"])))
