"""tcm train METHOD and tcm fit."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from tcm.classifier.train import TrainConfig, train_classifier
from tcm.cli.arguments import Output, Quiet
from tcm.cli.show import print_remarks, scores_table
from tcm.methods import METHODS
from tcm.methods.method import RecipeName
from tcm.pipeline import FitConfig, fit_pipeline
from tcm.training.run_folder import Run, read_json

RECIPE = """    recipe: common: the same optimiser, length and batch for all methods. authors: those of the method's
            authors on Office-Home, as far as they differ. Other options change either.
    """
FROZEN = """    frozen: Train nothing, but label the target domain from the features of the pretrained backbone.
            Short for --method.frozen.
    """


def train_command(method: str, parsed: Mapping[str, Any] | None) -> Callable[..., int]:
    """The command that trains a method, with defaults that fit the arguments parsed so far."""
    recipe, small = ("common", False) if parsed is None else (parsed["recipe"], parsed["config"].data.is_small)
    start = TrainConfig.with_recipe(METHODS[method], recipe, small)
    if parsed is not None and parsed.get("frozen"):
        start = replace(start, steps=None)  # nothing is trained, so the length of the recipe does not count

    def train(
        out: Output,
        config: Annotated[TrainConfig[METHODS[method]], tyro.conf.arg(name="")] = start,  # pyright: ignore
        recipe: RecipeName = "common",
        quiet: Quiet = False,
    ) -> int:
        return train_method(method, config, out, quiet)

    def train_or_freeze(
        out: Output,
        config: Annotated[TrainConfig[METHODS[method]], tyro.conf.arg(name="")] = start,  # pyright: ignore
        recipe: RecipeName = "common",
        frozen: bool = False,
        quiet: Quiet = False,
    ) -> int:
        settings = replace(config.method, frozen=frozen or config.method.frozen)
        return train_method(method, replace(config, method=settings), out, quiet)

    has_frozen_form = "frozen" in METHODS[method].__dataclass_fields__
    command = train_or_freeze if has_frozen_form else train
    command.__doc__ = documented(purpose_of(method)) + RECIPE + (FROZEN if has_frozen_form else "")
    return command


def purpose_of(method: str) -> str:
    """The first line of a method's documentation."""
    return (METHODS[method].__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")


def documented(purpose: str) -> str:
    """The documentation of a training command, which tyro shows as its help."""
    return f"""{purpose}

    Args:
        out: Folder of the run. Repeat the command to continue a run that was interrupted.
        quiet: Print only the result, no progress.
    """


def train_method(name: str, config: TrainConfig[Any], out: Path, quiet: bool = False) -> int:
    """Trains, or continues an interrupted run, and prints the result."""
    if not train_classifier(name, config, out, quiet):
        print(f"{out} is finished; nothing to do. tcm report {out} shows it.")
        return 0
    Console().print(scores_table([read_json(out / "evaluation.json")]))
    print_remarks(out)
    if not quiet:
        print(f"The model: {Run(out).model_file}; tcm report {out} writes a page about it")
    return 0


def fit_command(parsed: Mapping[str, Any] | None) -> Callable[..., int]:
    """The command that runs both stages, with defaults that fit the arguments parsed so far."""
    start = FitConfig.for_images(small=parsed is not None and parsed["config"].data.is_small)

    def fit(out: Output, config: Annotated[FitConfig, tyro.conf.arg(name="")] = start, quiet: Quiet = False) -> int:
        return fit_both_stages(config, out, quiet)

    fit.__doc__ = documented("Train mechanisms, write their counterfactuals, and train a classifier with them (TCM).")
    return fit


def fit_both_stages(config: FitConfig, out: Path, quiet: bool = False) -> int:
    """Runs both stages, or continues an interrupted run, and prints the result."""
    from tcm.report import write_report
    from tcm.report.mechanisms import Loaded

    stages, task, trained = fit_pipeline(config, out, quiet)
    if task is None:
        print(f"{out} is finished; nothing to do. tcm report {out} shows it.")
        return 0
    page = write_report([stages.classifier, stages.mechanisms], out / "report", Loaded(task, trained))
    Console().print(scores_table([read_json(stages.classifier / "evaluation.json")]))
    print_remarks(stages.classifier)
    if not quiet:
        print(f"The model: {Run(stages.classifier).model_file}; tcm predict {out} FOLDER classifies new images")
        print(f"The report: {page}")
    return 0
