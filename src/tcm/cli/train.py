"""tcm train METHOD and tcm fit."""

import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.cli.arguments import Log, OptionalInt, OptionalOutput, Output, Quiet, SourceFolder, TargetFolder
from tcm.cli.messages import is_first_process, with_options
from tcm.cli.show import print_log, print_remarks, scores_table
from tcm.data.task import DataConfig
from tcm.errors import InputError, printable
from tcm.estimation.estimate import read_estimate
from tcm.methods import METHODS
from tcm.methods.method import RecipeName
from tcm.pipeline.config import FitConfig
from tcm.pipeline.fit import PREDICTIONS, fit_pipeline
from tcm.pipeline.folder import default_out
from tcm.pipeline.plan import WITH_MECHANISMS, data_for_fit
from tcm.training.run_folder import Run, mechanisms_run, read_json
from tcm.training.tracking import TrackerName

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
        k: OptionalInt = None,
        log: Log = None,
        quiet: Quiet = False,
    ) -> int:
        require_k(method, config, k)
        return train_method(method, config, out, quiet, log)

    def train_or_freeze(
        out: Output,
        config: Annotated[TrainConfig[METHODS[method]], tyro.conf.arg(name="")] = start,  # pyright: ignore
        recipe: RecipeName = "common",
        frozen: bool = False,
        k: OptionalInt = None,
        log: Log = None,
        quiet: Quiet = False,
    ) -> int:
        require_k(method, config, k)
        settings = replace(config.method, frozen=frozen or config.method.frozen)
        return train_method(method, replace(config, method=settings), out, quiet, log)

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
        k: Number of mechanisms that --mechanisms must have. Default: any. Only for methods that use counterfactuals.
        log: Also send the metrics to a tracker; csv: files in the run.
        quiet: Print only the result, no progress.
    """


def require_k(name: str, config: TrainConfig[Any], k: int | None) -> None:
    """An error if the method uses no mechanisms, or the given mechanisms are not k."""
    if k is None:
        return
    if not config.method.uses_counterfactuals:
        raise InputError("k", f"has no meaning for {name}, which uses no mechanisms; leave it out")
    if config.mechanisms is not None:
        folder = mechanisms_run(config.mechanisms.expanduser())
        found = Run(folder).about_model().get("k")
        if found != k:
            remedy = f"leave it out, or train others: tcm mechanisms --k {k}"
            raise InputError("k", f"is {k}, but {printable(folder)} has {found} mechanisms; {remedy}")


def train_method(
    name: str, config: TrainConfig[Any], out: Path, quiet: bool = False, log: TrackerName | None = None
) -> int:
    """Trains, or continues an interrupted run, and prints the result."""
    trained = train_classifier(name, config, out, quiet, log=log)
    if not is_first_process():
        return 0
    if not trained:
        print(f"{out} is finished; nothing to do. tcm report {out} shows it.")
        return 0
    Console(markup=False).print(scores_table([read_json(out / "evaluation.json")]))
    print_remarks(out)
    if not quiet:
        print(f"The model: {Run(out).model_file}; tcm report {out} writes a page about it")
        print_log(log, out)
    return 0


def fit_command(parsed: Mapping[str, Any] | None) -> Callable[..., int]:
    """The command from two folders to a classifier, with defaults that fit the images."""
    start = FitConfig()
    if parsed is not None:
        data = parsed["config"].data
        with suppress(InputError), warnings.catch_warnings():  # the command itself will report both
            warnings.simplefilter("ignore")
            data = fit_data(data, parsed.get("source"), parsed.get("target"))
        sides = DataConfig(size=data.size, crop=data.crop, shift=data.shift)
        start = replace(FitConfig.for_images(data.is_small), data=sides)

    def fit(
        source: SourceFolder = None,
        target: TargetFolder = None,
        out: OptionalOutput = None,
        config: Annotated[FitConfig, tyro.conf.arg(name="")] = start,
        probabilities: bool = False,
        log: Log = None,
        quiet: Quiet = False,
    ) -> int:
        """From two folders to a classifier: check the data, train source only and TCM, choose without target labels,
        and write a report, the predictions and the model.

        Small images (below 64 pixels): both stages, with mechanisms. Photographs: TCM without mechanisms, because
        counterfactuals have not helped there so far; --k 4 asks for them. Photographs without a GPU: a linear
        classifier and self-training on pretrained features; --no-frozen trains the network.

        Args:
            source: Labelled images in class folders; or several: A,B.
            target: Images to adapt to, with or without class folders.
            out: Folder for the result. Repeat the command to continue. Default: runs/SOURCE-to-TARGET.
            probabilities: Write the probabilities of all classes into predictions.csv.
            log: Also send the metrics of all runs to a tracker; csv: files in each run.
            quiet: Print only the result, no progress.
        """
        data = fit_data(config.data, source, target)
        return fit_folders(replace(config, data=data), out or default_out(data), probabilities, quiet, log)

    return fit


def fit_data(data: DataConfig, source: Path | None, target: Path | None) -> DataConfig:
    """The data of a fit: the two folders of the command, or those of the options; with a size that suits the images."""
    if (source is None) != (target is None):
        raise InputError("one folder is given; give two: tcm fit SOURCE TARGET")
    if source is not None and (data.benchmark or data.root or data.source_dir or data.source_list):
        raise InputError("two folders are given and so are options of `data`; leave one of them out")
    if source is not None:
        data = replace(data, source_dir=source, target_dir=target)
    elif not (data.benchmark or data.root or data.source_dir or data.source_list or data.target_list):
        raise InputError("no data is given; name two folders: tcm fit SOURCE TARGET")
    return data_for_fit(data)


def fit_folders(
    config: FitConfig,
    out: Path,
    probabilities: bool = False,
    quiet: bool = False,
    log: TrackerName | None = None,
) -> int:
    """Fits, or continues an interrupted fit, and prints the result."""
    from tcm.report import write_report
    from tcm.report.mechanisms import Loaded

    def say(text: str) -> None:
        if not quiet:
            print(with_options(text), file=sys.stderr)

    fitted = fit_pipeline(config, out, quiet, probabilities=probabilities, say=say, log=log)
    if not is_first_process():
        return 0
    page = out / "report" / "index.html"
    if fitted.task is not None or not page.exists():
        page = write_report(fitted.runs, out / "report", Loaded(fitted.task, fitted.trained))
    runs = [run for run in fitted.runs if (run / "evaluation.json").exists()]
    estimates = [read_estimate(run) for run in runs]
    Console(markup=False).print(scores_table([read_json(run / "evaluation.json") for run in runs], estimates))
    for run in dict.fromkeys([fitted.model, *(run for run in fitted.runs if run.name == WITH_MECHANISMS)]):
        print_remarks(run)
    print(f"Chosen without target labels: {fitted.chosen} ({with_options(fitted.reason)})")
    if estimated := read_estimate(fitted.model):
        print(f"Estimated target accuracy: {estimated.sentence}")
    if not quiet:
        print(f"The report: {page}")
        print(f"The predictions: {out / PREDICTIONS}")
        print(f"The model: {out / 'model.safetensors'}; tcm predict {out} FOLDER classifies new images")
        print_log(log, out)
    return 0
