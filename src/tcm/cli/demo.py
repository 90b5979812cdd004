"""tcm demo: four methods on the built-in digits, and a page that compares them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.cli.arguments import Output, Quiet
from tcm.cli.show import scores_table
from tcm.data.task import DataConfig
from tcm.mechanisms.train import MechanismsConfig, bank_config, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.methods import METHODS
from tcm.report import write_report
from tcm.training.run_folder import read_json

MECHANISM_STEPS = 250  # a step of stage 1 takes as long as twenty steps of a method


def demo(out: Output = Path("runs/demo"), seed: int = 0, steps: int = 600, quiet: Quiet = False) -> int:
    """Train source-only, DANN, the paper's Baseline and TCM on the built-in digits, and compare them.

    Args:
        out: Folder for the runs and the report.
        seed: Seed of all random choices.
        steps: Training steps of each method.
        quiet: Print only the result, no progress.
    """
    folders, page = run_demo(out, seed, steps, quiet)
    summaries = [read_json(folder / "evaluation.json") for folder in folders]
    console = Console()
    console.print(scores_table(summaries))
    console.print(f"The report: {page}", soft_wrap=True, highlight=False, markup=False)
    return 0


def run_demo(out: Path, seed: int, steps: int, quiet: bool) -> tuple[list[Path], Path]:
    """Trains the four methods below `out`. Returns the run folder of each method, and the page of the report."""
    data, few = DataConfig(benchmark="digits"), min(steps, MECHANISM_STEPS)

    def trained(name: str, mechanisms: Path | None = None) -> Path:
        config: TrainConfig[Any] = TrainConfig(
            method=METHODS[name].for_images(small=True), data=data, steps=steps, seed=seed, mechanisms=mechanisms
        )
        train_classifier(name, config, out / name, quiet)
        return out / name

    folders = [trained("erm"), trained("dann")]
    cyclegan = MechanismsConfig(data=data, steps=few, seed=seed, k=1, bank=bank_config("paper", small=True))
    for name, method, config in (("cyclegan", "baseline", cyclegan), ("mechanisms", "tcm", replace(cyclegan, k=4))):
        train_mechanisms(config, out / name, quiet)
        transport(out / name, quiet=quiet)
        folders.append(trained(method, out / name))
    return folders, write_report([*folders, out / "mechanisms"], out / "report")
