"""The mechanisms that belong to a finished run of stage 2, to transport any image."""

import os
from pathlib import Path

from tcm.classifier.trained import Trained
from tcm.errors import InputError, printable
from tcm.mechanisms.load import load_mechanisms
from tcm.mechanisms.pair import Side, opposite
from tcm.nn.generator import FrozenGenerators
from tcm.training.run_folder import FIT_FILE, Run


def generators_of(run: Path, trained: Trained, to: Side) -> FrozenGenerators:
    """M_1^-1 to M_k^-1 for to="source", M_1 to M_k for to="target", on the CPU; an error if the run has none.

    They are those of the fit that the run belongs to, those that it was trained with, or those inside its model, which
    lead to the source only.
    """
    if to not in ("source", "target"):
        raise InputError("to", f'is "{printable(to)}"; give "source" or "target"')
    folder = mechanisms_folder(run, trained)
    if folder is not None:
        bank = load_mechanisms(folder).bank
        side = opposite(to) if are_exchanged(run, folder) else to
        return FrozenGenerators(pair.network(side) for pair in bank.pairs())
    if trained.method.inverse is not None and to == "source":
        return trained.method.inverse
    given = trained.config.mechanisms
    if given is not None:
        raise InputError(f"the mechanisms of {printable(run)} are not at {printable(given)}; restore them there")
    remedy = "load a run that was trained with mechanisms, or the folder of a tcm fit with `k=4`"
    raise InputError(f"{printable(run)} has no mechanisms, so its images have no counterfactuals; {remedy}")


def mechanisms_folder(run: Path, trained: Trained) -> Path | None:
    """The folder of the run's stage 1, if it is there."""
    fits = (folder for folder in (run, run.parent) if os.path.isfile(folder / FIT_FILE))
    given = trained.config.mechanisms
    # A model outside its run folder has only the name of the folder.
    known = [given] if given is not None and given.is_absolute() else []
    found = (folder for folder in [*(fit / "mechanisms" for fit in fits), *known] if Run(folder).finished)
    return next(found, None)


def are_exchanged(run: Path, mechanisms: Path) -> bool:
    """Whether the source of the run was the target of stage 1, whose mechanisms serve in both directions."""
    own, theirs = Run.of_model(run).images(), Run(mechanisms).images()
    return own is not None and theirs is not None and own != theirs and own == theirs[::-1]
