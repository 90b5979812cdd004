"""From two folders to a chosen classifier (TCM Algorithm 1, with source only beside it)."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from tcm.classifier.augmentation_evidence import settled_data
from tcm.classifier.train import train_classifier
from tcm.data.task import DataConfig, Task, default_cache, load_task
from tcm.mechanisms.load import TrainedMechanisms, load_mechanisms
from tcm.mechanisms.train import train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.pipeline.choice import RunChoice, choose
from tcm.pipeline.config import FitConfig
from tcm.pipeline.folder import FitFolder, write_predictions
from tcm.pipeline.plan import (
    STAGE_ONE,
    WITH_MECHANISMS,
    Plan,
    described,
    given_json,
    make_plan,
    mechanisms_config,
    train_config,
)
from tcm.pipeline.preflight import TimeEstimate, in_stage_one, preflight, require_settings
from tcm.progress import StageProgress, format_duration
from tcm.training.launch import start_processes
from tcm.training.tracking import TrackerName, require_tracker

LONG = 3600.0  # seconds from which on a remedy is offered
PREDICTIONS = "predictions.csv"


class Fit(NamedTuple):
    """A finished fit, and the images and mechanisms that were loaded for it."""

    folder: Path
    plan: Plan
    chosen: str  # the name of the chosen run, and of its folder
    reason: str  # why it was chosen
    task: Task | None  # None if everything was finished already
    trained: TrainedMechanisms | None

    @property
    def model(self) -> Path:
        """The folder of the chosen run."""
        return self.folder / self.chosen

    @property
    def runs(self) -> list[Path]:
        """The folders of all runs for a report: the chosen one first, stage 1 last."""
        others = [name for name in self.plan.methods if name != self.chosen]
        names = [self.chosen, *others, *([STAGE_ONE] if self.plan.has_stage_one else [])]
        return [self.folder / name for name in names]


def fit_pipeline(
    config: FitConfig,
    out: Path,
    quiet: bool = False,
    *,
    probabilities: bool = False,
    say: Callable[[str], None] = lambda _: None,
    log: TrackerName | None = None,
) -> Fit:
    """Runs all stages in subfolders of `out`, or continues them; chooses a run without target labels.

    `say` gets a few sentences: the plan, how long it will take, and what was decided. `log` names a tracker that gets
    a copy of the metrics of all runs.
    """
    require_tracker(log)
    processes, folder = start_processes(config.devices, config.device, config.batch), FitFolder(out)
    quiet = quiet or not processes.first
    if processes.from_first(lambda: opened(folder, config)):
        chosen, reason = processes.from_first(lambda: finished(folder, probabilities))
        return Fit(out, folder.plan, chosen, reason, None, None)
    task = processes.first_then_others(lambda: load_task(config.data, quiet))
    # One process decides; the stages are the work of all.
    plan, estimate = processes.from_first(lambda: planned(folder, config, task, quiet, say))
    trained = run_stages(config, plan, task, out, StageProgress(estimate.stages), quiet, log)

    def conclude() -> RunChoice:
        folder.finish(*choose(plan, out))
        return finished(folder, probabilities)

    chosen, reason = processes.from_first(conclude)
    return Fit(out, plan, chosen, reason, task, trained)


def opened(folder: FitFolder, config: FitConfig) -> bool:
    """Whether the fit is finished; an error if the folder cannot be used, or was started with other settings."""
    folder.require_free()
    if folder.exists:
        folder.require_same(given_json(config))
    else:
        require_settings(config)
    return folder.chosen is not None


def planned(
    folder: FitFolder, config: FitConfig, task: Task, quiet: bool, say: Callable[[str], None]
) -> tuple[Plan, TimeEstimate]:
    """The plan of the fit, which its folder keeps, and how long its stages will take. All of them are tried first."""
    plan = folder.plan if folder.exists else make_plan(config, task)
    say(described(plan, task))
    if plan.frozen and config.frozen is None:
        say("There is no GPU, so the network is not trained; `frozen=False` trains it and takes hours.")
    if not (folder.exists or plan.frozen):
        plan = replace(plan, data=allowed_data(config, task, quiet, say))
    estimate = preflight(config, plan, task, folder.folder)
    say(how_long(estimate, plan))
    if not folder.exists:
        folder.start(given_json(config), plan)
    return plan, estimate


def finished(folder: FitFolder, probabilities: bool) -> RunChoice:
    """Writes the predictions of the run that a finished fit has chosen, and returns the choice."""
    found = folder.content()
    write_predictions(folder.folder / PREDICTIONS, folder.folder / found["chosen"], probabilities)
    return RunChoice(found["chosen"], found["reason"])


def allowed_data(config: FitConfig, task: Task, quiet: bool, say: Callable[[str], None]) -> DataConfig:
    """The data with the augmentations that keep the class of the source images. `say` gets the evidence."""
    file = (config.data.cache or default_cache()) / "augmentation" / f"{task.source.fingerprint}.json"
    small = config.data.is_small
    network = None if small else config.backbone.resolved(small_images=False).build()
    data, evidence = settled_data(config.data, task, network, file, quiet)
    for sentence in evidence.sentences if evidence else ():
        say(f"{sentence[0].upper()}{sentence[1:]}.")
    return data


def run_stages(
    config: FitConfig,
    plan: Plan,
    task: Task,
    out: Path,
    progress: StageProgress,
    quiet: bool,
    log: TrackerName | None,
) -> TrainedMechanisms | None:
    """Runs all stages in their order, or continues them. Returns the mechanisms of stage 1, if there are any."""
    trained = None
    for stage in plan.stages:
        with progress.stage(stage):
            if stage == STAGE_ONE:
                with in_stage_one():
                    train_mechanisms(mechanisms_config(config, plan), out / STAGE_ONE, quiet, task, log)
            elif stage == "counterfactuals":
                trained = load_mechanisms(out / STAGE_ONE)
                transport(
                    out / STAGE_ONE,
                    device=config.device,
                    devices=config.devices,
                    quiet=quiet,
                    task=task,
                    trained=trained,
                )
                trained.bank.to("cpu", memory_format=torch.contiguous_format)  # pyright: ignore[reportCallIssue]
            else:
                given = trained if stage == WITH_MECHANISMS else None
                settings = train_config(stage, config, plan, out)
                train_classifier(stage, settings, out / stage, quiet, task, given, log)
    return trained


def how_long(estimate: TimeEstimate, plan: Plan) -> str:
    """The estimated time of all stages, with a remedy if it is long."""
    parts = ", ".join(f"{name} {format_duration(seconds)}" for name, seconds in estimate.stages.items())
    text = f"About {format_duration(estimate.total)} on this machine: {parts}."
    if estimate.total < LONG or plan.frozen:
        return text
    if estimate.frozen is not None and estimate.frozen < estimate.total / 10:
        return f"{text} `frozen=True` takes about {format_duration(estimate.frozen)}, without training the network."
    fewer = " or `k=0`, without stage 1" if plan.has_stage_one else ""
    return f"{text} To make it shorter, give a smaller `steps`{fewer}."
