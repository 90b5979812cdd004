"""The demo: two methods on the built-in digits, and a page that compares them."""

from pathlib import Path
from typing import Any

from tcm.data.task import DataConfig
from tcm.experiment import TrainConfig, train
from tcm.methods import METHODS
from tcm.report import write_report


def run_demo(out: Path, seed: int, steps: int, quiet: bool) -> tuple[list[Path], Path]:
    """Trains source-only and DANN below `out`; the run folders and the report's page."""
    folders = []
    for name in ("erm", "dann"):
        config: TrainConfig[Any] = TrainConfig(
            method=METHODS[name](), data=DataConfig(benchmark="digits"), steps=steps, seed=seed
        )
        folders.append(out / name)
        train(name, config, folders[-1], quiet)
    return folders, write_report(folders, out / "report")
