"""Stage 1 as a run: from a task's images to a folder with k trained mechanisms (TCM Algorithm 1, lines 4 to 9)."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import torch

from tcm.config import to_json
from tcm.data.stream import derived_seed
from tcm.data.task import Task, load_task
from tcm.errors import InputError, explain_out_of_memory
from tcm.mechanisms.bank import BankConfig
from tcm.mechanisms.distance import Watch, WatchConfig
from tcm.mechanisms.image_grid import image_grid
from tcm.mechanisms.pair import SIDES
from tcm.mechanisms.usage import UsageCounter
from tcm.nn.backbone import BackboneConfig
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig
from tcm.training.device import free_memory
from tcm.training.loop import LESS_MEMORY, training_loop
from tcm.training.run_config import RunConfig, open_run, open_stream, prepare_learner, require_valid_numbers
from tcm.training.tracking import Tracker, TrackerName, require_tracker

KIND = "mechanisms"  # the kind of run, in config.json and model.safetensors
AUTO_K = 8  # number of mechanisms at the start of a run with `k` auto
Form = Literal["paper", "release", "disentangled"]
FORMS: dict[Form, BankConfig] = {
    "paper": BankConfig(),
    # The authors' scripts: every image goes to a random mechanism, in all steps.
    "release": BankConfig(warmup=0, assignment="random"),
    # Each mechanism makes a part of the change to the other domain and changes one factor.
    "disentangled": BankConfig(
        generator=GeneratorConfig(residual=True),
        critic=CriticConfig(zero_init_last=True),
        critic_sees="combined",
        cycle=0.2,
        identity=0.1,
        overlap=0.02,
        score="adversarial",
        warmup=0,
        assignment="random",
        critic_lr=4e-4,
    ),
}
# The same for images below 64 pixels, with networks that train in minutes.
SMALL = {"generator": GeneratorConfig(8, 1, 1, kernel=3), "critic": CriticConfig(16, 2), "lr": 1e-3, "critic_lr": 1e-3}
SMALL_FORMS: dict[Form, BankConfig] = {
    "paper": replace(FORMS["paper"], **SMALL, warmup=200),
    "release": replace(FORMS["release"], **SMALL),
    # Small networks learn faster, so these losses have more weight.
    "disentangled": replace(
        FORMS["disentangled"],
        generator=GeneratorConfig(8, 1, 1, kernel=3, residual=True),
        critic=CriticConfig(16, 2),
        lr=2e-3,
        critic_lr=3e-4,
        cycle=1.0,
        identity=0.3,
        overlap=0.3,
    ),
}


def bank_config(form: Form, small: bool) -> BankConfig:
    """The settings of a form; `small` is for images below 64 pixels."""
    return SMALL_FORMS[form] if small else FORMS[form]


@dataclass(frozen=True, kw_only=True)
class MechanismsConfig(RunConfig):
    """A training run of stage 1."""

    steps: int | None = None
    """Training steps. Default: 50000, digits 500."""
    batch: int = 8
    """Images of each domain in a step."""
    k: int | Literal["auto"] = 4
    """Number of mechanisms. auto: start with 8 and drop those that are unused."""
    form: Form = "paper"
    """The defaults of `bank`. paper: as in the paper. release: as in the authors' scripts. disentangled: each mechanism
    changes one factor. Images below 64 pixels have small networks."""
    bank: BankConfig = field(default_factory=BankConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    backbone: BackboneConfig = field(default_factory=BackboneConfig)
    """The network whose features `watch` compares. Digits: a network of their own."""

    @property
    def initial_k(self) -> int:
        """The number of mechanisms at the start."""
        return AUTO_K if self.k == "auto" else self.k

    def resolved(self) -> "MechanismsConfig":
        """This config with all defaults filled in; an error if a value cannot be used."""
        resolved = self.with_defaults(steps=500 if self.data.is_digits else 50_000)
        if self.initial_k < 1:
            raise InputError("k", f"is {self.k}; give 1 or more mechanisms")
        # `warmup` and `pool` may be 0, which turns them off.
        positive = {key: value for key, value in to_json(self.bank).items() if key not in ("warmup", "pool")}
        require_valid_numbers(positive, "bank")
        self.bank.require_usable(resolved.data.view.crop)
        self.watch.require_usable()
        if self.bank.warmup < resolved.schedule.steps:
            return resolved
        half = replace(self.bank, warmup=resolved.schedule.steps // 2)  # else the mechanisms would never compete
        return replace(resolved, bank=half)


@explain_out_of_memory("training", LESS_MEMORY)
def train_mechanisms(
    config: MechanismsConfig,
    out: Path,
    quiet: bool = False,
    task: Task | None = None,
    log: TrackerName | None = None,
) -> bool:
    """Trains the mechanisms in the folder `out`, or resumes the run there. False if it was finished already.

    `task` has the images of the config, if they are loaded already. `log` names a tracker that gets a copy of the
    metrics, with images.
    """
    require_tracker(log)
    config = config.resolved()
    fabric, run = open_run(config, out, {"kind": KIND})
    processes = run.processes
    if processes.from_first(lambda: run.finished):
        return False
    quiet = quiet or not processes.first
    try:
        with processes.together():
            require_room(config, free_memory(fabric.device))
            network = config.watch.build(config.backbone, config.data) if processes.first else None
        task = task or processes.first_then_others(lambda: load_task(config.data, quiet))
        with processes.together():
            run.require_inputs([store.fingerprint for store in task])
            stream = open_stream(config, task, fabric)
            torch.manual_seed(derived_seed(config.seed, "weights"))
            classes = task.source.classes
            bank = config.bank.build(config.initial_k, config.data.view.crop, config.schedule.steps, len(classes))
    except InputError:
        run.undo_start()
        raise
    run.write_environment(str(fabric.device))
    prepare_learner(fabric, bank, config, processes)
    title = f"mechanisms {task.source.name} ↔ {task.target.name}"
    usage = UsageCounter(bank, classes, drops=config.k == "auto")
    watch = Watch(fabric, bank, network, task, config.data.view.crop, config.watch.images) if network else dict

    def evaluate() -> dict[str, float]:
        return {**processes.from_first(watch), **usage()}  # the usage may drop mechanisms

    settings = to_json(config, names_only=True)
    training_loop(
        fabric,
        bank,
        stream,
        run,
        schedule=config.schedule,
        seed=config.seed,
        evaluate=evaluate,
        title=title,
        quiet=quiet,
        tracker=Tracker(log, run, {"kind": KIND, **settings}),
        images=lambda: {"mechanisms": image_grid(fabric, bank, task.source)},
    )
    domains = [store.name for store in task]
    about = {"kind": KIND, "config": settings, "k": bank.k, "domains": domains, "classes": list(classes)}
    # The saved mechanisms are numbered from 0. `numbers` are their numbers in the metrics, from before any was dropped.
    processes.from_first(lambda: run.save_model(bank.weights(), {**about, "numbers": bank.active}))
    return True


def require_room(config: MechanismsConfig, room: float) -> None:
    """An error if the mechanisms, their gradients and Adam's moments do not fit into memory."""
    with torch.device("meta"):
        numbers = sum(parameter.numel() for parameter in config.bank.generator.build().parameters())
    one = len(SIDES) * 4 * 4 * numbers  # bytes
    if config.initial_k * one > room:
        found = f"is {config.initial_k}, but the memory holds {int(room // one)} mechanisms of {one / 2**20:.0f} MiB"
        raise InputError("k", f"{found}; give a smaller `k` or `bank.generator.width`")
