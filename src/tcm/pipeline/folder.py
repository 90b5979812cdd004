"""The folder of a fit: fit.json says what was asked for, what was planned and, in the end, which run was chosen."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from tcm.classifier.predict import Predicted, predictions_csv
from tcm.config import differences, from_json, to_json
from tcm.data.sources import each
from tcm.data.task import DataConfig
from tcm.errors import InputError
from tcm.pipeline.plan import Plan
from tcm.training.files import holds_files, make_folder, write_atomically
from tcm.training.run_folder import FIT_FILE, NOT_EXTENDED, WRITTEN_BY, is_changeable, read_json, require_format


class FitFolder:
    """A fit on disk."""

    def __init__(self, folder: Path):
        self.folder, self.file = folder, folder / FIT_FILE

    @property
    def exists(self) -> bool:
        """Whether a fit was started here."""
        return os.path.isfile(self.file)

    def content(self) -> dict[str, Any]:
        """What fit.json says."""
        found = read_json(self.file)
        require_format(found.get("written_by"), self.folder)
        return found

    @property
    def plan(self) -> Plan:
        """The plan that the fit was started with."""
        return from_json(Plan, self.content()["plan"], str(self.file))

    @property
    def chosen(self) -> str | None:
        """The name of the chosen run; None before the end."""
        return self.content()["chosen"] if self.exists else None

    def require_free(self) -> None:
        """An error if the folder holds something else than a fit."""
        if os.path.isfile(self.folder) or (os.path.isdir(self.folder) and not self.exists and holds_files(self.folder)):
            raise InputError("out", f"{self.folder} is not empty and holds no fit; choose a new or empty folder")

    def require_same(self, given: dict[str, Any]) -> None:
        """An error unless the fit was started with these settings; those that change no result may differ."""
        found = differences(self.content()["config"], given)
        changed = [line for line in found if not is_changeable(line.split(": ")[0])]
        if {line.split(": ")[0] for line in changed} in ({"steps"}, {"mechanisms.steps"}):
            reason = f"{self.folder} holds a fit of another length ({changed[0]}): {NOT_EXTENDED}"
            raise InputError("out", f"{reason}; choose another folder, or repeat its options")
        if changed:
            reason = f"{self.folder} holds a fit with other settings ({'; '.join(changed)})"
            raise InputError("out", f"{reason}; repeat its options or choose another folder")

    def start(self, given: dict[str, Any], plan: Plan) -> None:
        """Makes the folder and notes the settings and the plan."""
        make_folder(self.folder)
        self._write({"config": given, "plan": to_json(plan), "chosen": None})

    def finish(self, chosen: str, reason: str) -> None:
        """Copies the model of the chosen run and notes the choice, which makes the fit complete."""
        model = self.folder / "model.safetensors"
        temporary = model.with_name(".model.safetensors.tmp")
        temporary.unlink(missing_ok=True)
        try:
            os.link(self.folder / chosen / model.name, temporary)  # takes no room
        except OSError:
            shutil.copyfile(self.folder / chosen / model.name, temporary)
        model.unlink(missing_ok=True)  # renaming a link to the same file would leave both
        os.replace(temporary, model)
        content = self.content()
        self._write({**content, "chosen": chosen, "reason": reason})

    def _write(self, content: dict[str, Any]) -> None:
        write_atomically(self.file, json.dumps({**content, "written_by": WRITTEN_BY}, indent=2).encode())


def default_out(data: DataConfig) -> Path:
    """runs/SOURCE-to-TARGET, by the names of the domains; runs/digits for built-in data."""
    if data.is_digits:
        return Path("runs") / str(data.benchmark)
    data = data.resolved()
    source = _name_of(data.source, data.source_dir, data.source_list)
    target = _name_of(data.target, data.target_dir, data.target_list)
    return Path("runs") / f"{source}-to-{target}"


def write_predictions(file: Path, run: Path, probabilities: bool) -> None:
    """Writes the predictions of a finished run for all target images of its task as CSV."""
    with np.load(run / "evaluation.npz", allow_pickle=False) as arrays:
        paths, found = arrays["paths"].tolist(), arrays["probabilities"]
    text = predictions_csv(Predicted(paths, read_json(run / "evaluation.json")["classes"], found), probabilities)
    write_atomically(file, text.encode("utf-8", "surrogateescape"))


def _name_of(
    name: str | tuple[str, ...] | None, folder: Path | tuple[Path, ...] | None, file: Path | tuple[Path, ...] | None
) -> str:
    """The name of a domain by its name, its folder or its list; several have a plus between them."""
    if name:
        return "+".join(each(name))
    if folder:
        return "+".join(one.name for one in each(folder))
    return "+".join(one.stem for one in each(file)) if file else "data"
