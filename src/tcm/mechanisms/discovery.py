"""Stage 1 as a run: from a task's images to a folder with k trained mechanisms (Algorithm 1, lines 4 to 9)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from tcm.config import from_json, to_json
from tcm.data.stream import derived_seed
from tcm.data.task import load_task
from tcm.errors import InputError
from tcm.mechanisms.bank import BankConfig, MechanismBank
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig
from tcm.run import Run
from tcm.settings import RunConfig, open_run, open_stream, place, require_usable
from tcm.train import fit

KIND = "mechanisms"  # what config.json and model.safetensors say that they hold
Preset = Literal["paper", "small"]
PRESETS: dict[Preset, BankConfig] = {
    "paper": BankConfig(),
    # The paper's form for 32 x 32 images: small networks, and a warm-up that suits a run of minutes.
    "small": BankConfig(generator=GeneratorConfig(8, 1, 1, kernel=3), critic=CriticConfig(16, 2), warmup=200, lr=1e-3),
}


@dataclass(frozen=True, kw_only=True)
class DiscoveryConfig(RunConfig):
    """A training run of stage 1."""

    steps: int | None = None
    """Training steps. Default: 50000, digits 400."""
    batch: int = 8
    """Images of each domain in a step."""
    k: int = 4
    """Number of mechanisms."""
    preset: Preset = "paper"
    """Where the values of --bank start: the paper's, or small ones for 32 x 32 images (the default for digits)."""
    bank: BankConfig = field(default_factory=BankConfig)

    def resolved(self) -> "DiscoveryConfig":
        """This config with every default filled in; mistakes are found here, before anything is written."""
        settled = self.settled(steps=400 if self.data.is_digits else 50_000)
        if self.k < 1:
            raise InputError(f"--k is {self.k}; give 1 or more mechanisms")
        # A warm-up or a pool of 0 means to do without.
        positive = {key: value for key, value in to_json(self.bank).items() if key not in ("warmup", "pool")}
        require_usable(positive, "--bank")
        self.bank.require_usable(settled.data.view.crop)
        return settled


class Discovered(NamedTuple):
    """A finished run of stage 1."""

    config: DiscoveryConfig
    bank: MechanismBank


def discover(config: DiscoveryConfig, out: Path, quiet: bool = False) -> bool:
    """Trains the mechanisms in the folder `out`, from where it stopped; False if they were finished already."""
    config = config.resolved()
    fabric, run = open_run(config, out, {"kind": KIND})
    if run.finished:
        return False
    try:
        task = load_task(config.data, quiet)
        stream = open_stream(config, task, fabric)
        torch.manual_seed(derived_seed(config.seed, "weights"))
        bank = config.bank.build(config.k, config.data.view.crop, config.rhythm.steps)
    except InputError:
        run.take_back_start()
        raise
    run.write_environment(str(fabric.device))
    place(fabric, bank, config)
    title = f"mechanisms {task.source.name} ↔ {task.target.name}"
    fit(fabric, bank, stream, run, rhythm=config.rhythm, seed=config.seed, evaluate=dict, title=title, quiet=quiet)
    about = {"kind": KIND, "config": to_json(config), "domains": [store.name for store in task]}
    # The critics and their pools have served; transport needs the mechanisms alone.
    run.save_model(bank.mechanisms.state_dict(), about)
    return True


def load_mechanisms(folder: Path) -> Discovered:
    """The mechanisms of a finished run, on the CPU and in evaluation mode."""
    tensors, about = Run(folder).load_model()
    if about.get("kind") != KIND:
        raise InputError(f"{folder} holds no mechanisms; name the --out of a tcm mechanisms run")
    config = from_json(DiscoveryConfig, about["config"], str(folder))
    bank = config.bank.build(config.k, config.data.view.crop, config.rhythm.steps)
    try:
        bank.mechanisms.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{folder} holds weights that do not fit its configuration; train it again") from error
    return Discovered(config, bank.eval())
