"""The demo on the built-in digits: four methods side by side, the mechanisms, and a page that shows them."""

from pathlib import Path
from typing import Any

from tcm.classifier.train import TrainConfig, train_classifier
from tcm.data.task import DataConfig
from tcm.mechanisms.train import MechanismsConfig, preset_bank, train_mechanisms
from tcm.mechanisms.transport import transport
from tcm.methods import preset_method
from tcm.methods.tcm.tcm import preset_tcm
from tcm.pipeline import FitConfig, StageOne, StageTwo, fit_pipeline
from tcm.report import write_report

MECHANISM_STEPS = 250  # a step of all mechanisms costs as much as twenty of a method


def run_demo(out: Path, seed: int, steps: int, quiet: bool) -> tuple[list[Path], Path]:
    """Trains source-only, DANN, the Baseline and TCM below `out`; the folders of the methods and the report's page."""
    data, few = DataConfig(benchmark="digits"), min(steps, MECHANISM_STEPS)

    def trained(name: str, mechanisms: Path | None = None) -> Path:
        config: TrainConfig[Any] = TrainConfig(
            method=preset_method(name, "default", small=True), data=data, steps=steps, seed=seed, mechanisms=mechanisms
        )
        train_classifier(name, config, out / name, quiet)
        return out / name

    folders = [trained("erm"), trained("dann")]
    cyclegan = MechanismsConfig(
        data=data, steps=few, seed=seed, k=1, preset="paper", bank=preset_bank("paper", small=True)
    )
    train_mechanisms(cyclegan, out / "cyclegan", quiet)
    transport(out / "cyclegan", quiet=quiet)
    folders.append(trained("baseline", out / "cyclegan"))
    both = FitConfig(
        data=data,
        seed=seed,
        mechanisms=StageOne(steps=few, bank=preset_bank("paper", small=True)),
        classifier=StageTwo(steps=steps, method=preset_tcm("default", small=True)),
    )
    stages, _ = fit_pipeline(both, out / "tcm", quiet)
    folders.append(stages.classifier)
    return folders, write_report([*folders, stages.mechanisms], out / "report")
