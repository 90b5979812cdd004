"""tcm train METHOD and tcm fit."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tcm.classifier.train import TrainConfig, train_classifier
from tcm.cli.show import print_remarks, scores_table
from tcm.methods import METHODS
from tcm.pipeline import FitConfig, fit_pipeline
from tcm.training.run_folder import Run, read_json


def train_command(method: str, parsed: TrainConfig[Any] | None) -> Callable[..., int]:
    """The command that trains a method; `parsed` is what the options say so far, on which their defaults depend."""
    start = TrainConfig(method=METHODS[method].for_images(small=parsed is not None and parsed.data.is_small))

    def train(
        out: Path,
        config: Annotated[TrainConfig[METHODS[method]], tyro.conf.arg(name="")] = start,  # pyright: ignore
        quiet: bool = False,
    ) -> int:
        return train_method(method, config, out, quiet)

    train.__doc__ = documented(purpose_of(method))
    return train


def purpose_of(method: str) -> str:
    """The first line of a method's documentation."""
    return (METHODS[method].__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")


def print_methods() -> None:
    """The methods that `tcm train` knows, with their purpose."""
    console = Console()
    console.print("[bold]tcm train METHOD[/bold]: train one of these methods.\n")
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    for name in METHODS:
        table.add_row(f"[bold]tcm train {name}[/bold]", escape(purpose_of(name)))
    console.print(table)
    console.print("\ntcm train dann --help explains the options of a method.", highlight=False)


def documented(purpose: str) -> str:
    """The documentation of a training command, which tyro shows as its help."""
    return f"""{purpose}

    Args:
        out: Folder of the run. Repeating the command continues it.
        quiet: No progress, only the result.
    """


def train_method(name: str, config: TrainConfig[Any], out: Path, quiet: bool = False) -> int:
    """Trains, or continues where the run stopped, and prints the result."""
    if not train_classifier(name, config, out, quiet):
        print(f"{out} is finished; nothing to do. tcm report {out} shows it.")
        return 0
    Console().print(scores_table([read_json(out / "evaluation.json")]))
    print_remarks(out)
    if not quiet:
        print(f"The model: {Run(out).model_file}; a page about it: tcm report {out}")
    return 0


def fit_command(parsed: FitConfig | None) -> Callable[..., int]:
    """The command that runs both stages; `parsed` is what the options say so far, on which their defaults depend."""
    start = FitConfig.for_images(small=parsed is not None and parsed.data.is_small)

    def fit(out: Path, config: Annotated[FitConfig, tyro.conf.arg(name="")] = start, quiet: bool = False) -> int:
        return fit_both_stages(config, out, quiet)

    fit.__doc__ = documented("Train mechanisms, write their counterfactuals, and train the classifier tcm with them.")
    return fit


def fit_both_stages(config: FitConfig, out: Path, quiet: bool = False) -> int:
    """Runs both stages, or what is left of them, and prints the result."""
    from tcm.report import write_report

    stages, worked = fit_pipeline(config, out, quiet)
    if not worked:
        print(f"{out} is finished; nothing to do. tcm report {stages.classifier} shows it.")
        return 0
    page = write_report([stages.classifier, stages.mechanisms], out / "report")
    Console().print(scores_table([read_json(stages.classifier / "evaluation.json")]))
    print_remarks(stages.classifier)
    if not quiet:
        print(f"The model: {Run(stages.classifier).model_file}; tcm predict {stages.classifier} classifies new images")
        print(f"The report: {page}")
    return 0
