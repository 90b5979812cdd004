"""The demo on the built-in digits: four mechanisms, two methods, and a page that shows them."""

from pathlib import Path
from typing import Any

from tcm.data.task import DataConfig
from tcm.experiment import TrainConfig, train
from tcm.mechanisms.discovery import DiscoveryConfig, discover, preset_bank
from tcm.methods import METHODS
from tcm.report import write_report

MECHANISM_STEPS = 400  # a step of all mechanisms costs as much as ten of a method


def run_demo(out: Path, seed: int, steps: int, quiet: bool) -> tuple[list[Path], Path]:
    """Trains source-only, DANN and mechanisms below `out`; the folders of the methods and the report's page."""
    data, folders = DataConfig(benchmark="digits"), []
    for name in ("erm", "dann"):
        config: TrainConfig[Any] = TrainConfig(method=METHODS[name](), data=data, steps=steps, seed=seed)
        folders.append(out / name)
        train(name, config, folders[-1], quiet)
    few = min(steps, MECHANISM_STEPS)
    mechanisms = DiscoveryConfig(data=data, steps=few, seed=seed, bank=preset_bank("default", small=True))
    discover(mechanisms, out / "mechanisms", quiet)
    return folders, write_report([*folders, out / "mechanisms"], out / "report")
