"""A program that a test starts: it compares runs on two processes with runs on one, and writes what it finds.

    python tests/support/two_processes.py FOLDER
    TCM_TEST_DEVICE=cuda:0 python tests/support/two_processes.py FOLDER learners

The processes are forks of this one, because importing PyTorch takes most of the time of so short runs. They find their
places in the variables that torchrun sets. The second form compares learners alone, in two processes that share a GPU:
NCCL refuses that, so they exchange through gloo, which takes tensors of GPUs as well.
"""

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
import torch._dynamo  # which optimizers import
import torch.distributed as dist
from torch import Tensor, nn

from support.divided import (
    ALL,
    BATCH,
    DoubleStream,
    PartStream,
    build,
    difference,
    saved_run,
    small_task,
    state_of,
    steps_of,
)
from tcm.data.task import DataConfig, Task
from tcm.errors import InputError, Interrupted
from tcm.mechanisms.bank import BankConfig
from tcm.mechanisms.load import TrainedMechanisms
from tcm.mechanisms.train import KIND, MechanismsConfig
from tcm.mechanisms.transport import counterfactuals, transport
from tcm.nn.critic import CriticConfig
from tcm.nn.divided import divide_batches, gathered_rows, sum_over_processes, summed
from tcm.nn.generator import GeneratorConfig
from tcm.training.launch import start_processes
from tcm.training.processes import ALONE, Processes, current_processes
from tcm.training.run_folder import Run

RESUMED = ("tcm in two rounds", "shot", "mechanisms paper")


def compare(folder: Path, processes: Processes) -> dict[str, Any]:
    """All comparisons of two processes with one."""
    task = small_task()
    return {
        **compare_learners(folder, processes),
        "norms of each process": against_one("erm", task, folder, processes, divided_with_own_norms),
        "losses of each process": against_one("mcc", task, folder, processes, divided_as_usual, PartStream),
        "resumed": {name: resumed(name, task, folder, processes) for name in RESUMED},
        "functions": functions(processes),
        "norms": {kind: norm(kind, processes) for kind in ("plain", "cumulative")},
        "noise": noise(processes),
        "errors": errors(processes),
        "transport": transported(task, folder),
    }


def compare_learners(folder: Path, processes: Processes) -> dict[str, Any]:
    """Every learner in two processes and in one."""
    task = small_task()
    return {"learners": {name: against_one(name, task, folder, processes) for name in ALL}}


def divided(learner: Any, processes: Processes) -> None:
    learner.divide(processes)


def divided_with_own_norms(learner: Any, processes: Processes) -> None:
    with patch("tcm.nn.divided.with_global_norms"):
        learner.divide(processes)


def divided_as_usual(learner: Any, processes: Processes) -> None:
    """Each process has losses of its own images, and gradients are averaged."""
    for parameter in learner.parameters():
        parameter.register_hook(lambda gradient: sum_over_processes(gradient) / processes.size)


def against_one(
    name: str,
    task: Task,
    folder: Path,
    processes: Processes,
    divide: Callable[[Any, Processes], None] = divided,
    stream: type[DoubleStream] = DoubleStream,
) -> dict[str, Any]:
    """How far the weights after some steps are from those of one process, and how far these are from the start."""
    learner, batches = build(name, task), stream(name, task)
    if isinstance(batches, PartStream):
        batches.processes = processes
    divide(learner, processes)
    found = steps_of(learner, batches, Run(folder, processes))
    sums = gathered_objects([float(x.abs().sum()) for x in found.values()], processes)
    if not processes.first:
        return {}
    alone = build(name, task)
    start = state_of(alone)
    expected = steps_of(alone, DoubleStream(name, task), Run(folder))
    change = difference(expected, start)
    return {"difference": difference(found, expected), "processes agree": sums[0] == sums[1], "change": change}


def gathered_objects(own: Any, processes: Processes) -> list[Any]:
    found: list[Any] = [None] * processes.size
    dist.all_gather_object(found, own)
    return found


def resumed(name: str, task: Task, folder: Path, processes: Processes) -> float:
    """The difference between an uninterrupted run and one that was resumed; leaves runs to be resumed by others."""
    whole = saved_run(name, task, folder / "whole" / name, processes)
    saved_run(name, task, folder / "here" / name, processes, last=2)
    for count in (1, 4):
        saved_run(name, task, folder / str(count) / name, processes, last=2)
    if processes.first:
        torch.save(whole, folder / "whole" / name / "weights.pt")
    return difference(whole, saved_run(name, task, folder / "here" / name, processes))


def functions(processes: Processes) -> dict[str, float]:
    """Errors of the gathered rows, of the sum, and of the gradients of a function of both."""
    torch.manual_seed(1)
    rows, weights = torch.randn(5, 3).double(), torch.randn(5, 5).double()

    def value(all_rows: Tensor, total: Tensor) -> Tensor:
        return (weights * (all_rows @ all_rows.T)).sum() * total.square().sum()

    whole = rows.clone().requires_grad_()
    value(whole, whole.sum(dim=0)).backward()
    own = processes.own(rows).clone().requires_grad_()
    # The same value in each process. It sees the sum through a part of the value, as normalised features do.
    everything, total = gathered_rows(own, 5), summed(own.sum(dim=0))
    found = value(everything, total / processes.size + total.detach() * (1 - 1 / processes.size))
    found.backward()
    assert whole.grad is not None
    assert own.grad is not None
    return {
        "rows": float((everything.detach() - rows).abs().max()),
        "sum": float((total.detach() - rows.sum(dim=0)).abs().max()),
        "gradient": float((own.grad - processes.own(whole.grad)).abs().max()),
    }


def norm(kind: str, processes: Processes) -> float:
    """The largest error of output, gradients and running statistics of a network with batch normalisation."""
    torch.manual_seed(2)
    layer = {"plain": nn.BatchNorm2d(4), "cumulative": nn.BatchNorm2d(4, momentum=None)}[kind]
    network, images = nn.Sequential(nn.Conv2d(3, 4, 3), layer, nn.Flatten()).double(), torch.randn(5, 3, 6, 6).double()

    def seen(network: nn.Module) -> dict[str, Tensor]:
        outputs = [network(images * factor) for factor in (1, 3)]
        sum(output.pow(3).mean() for output in outputs).backward()  # pyright: ignore[reportAttributeAccessIssue]
        gradients = {f"gradient of {key}": x.grad for key, x in network.named_parameters() if x.grad is not None}
        states = {key: x.double().clone() for key, x in network.state_dict().items()}
        with torch.no_grad():
            used = network.eval()(images)
        return {"output": torch.stack(outputs).detach(), "used": used, **gradients, **states}

    start = {key: x.clone() for key, x in network.state_dict().items()}
    expected = seen(network)
    network.load_state_dict(start)
    network.train().zero_grad(set_to_none=True)
    divide_batches(network, processes.rank, processes.size)
    found = seen(network)
    assert found.keys() == expected.keys()
    return difference(found, expected)


def noise(processes: Processes) -> dict[str, bool]:
    """What dropout in the divided network draws, and random numbers outside of it."""
    network = nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.5))
    plain = nn.Sequential(nn.Linear(50, 50))
    for part in (network, plain):
        divide_batches(part, processes.rank, processes.size)
    torch.manual_seed(3)
    alone = torch.rand(3)
    torch.manual_seed(3)
    plain(torch.ones(4, 50))
    after_plain = torch.rand(3)
    torch.manual_seed(3)
    first, second = ((network(torch.ones(4, 50)) == 0).float() for _ in range(2))
    after = gathered_objects(torch.rand(3), processes)
    return {
        "rows differ": not torch.equal(first[0], first[2]),
        "passes differ": not torch.equal(first, second),
        "outside is the same": torch.equal(after[0], after[1]),
        "outside is as in one process": torch.equal(alone, after_plain),
    }


def errors(processes: Processes) -> dict[str, str]:
    """What each process raises if one of them does."""
    found = {}
    for rank in range(2):
        try:
            with processes.together():
                if processes.rank == rank:
                    raise InputError("data.crop", "is 8; give 32")
        except InputError as error:
            found[f"together {rank}"] = gathered_objects(str(error), processes)
    try:
        processes.from_first(lambda: next(message for message in [explode()]))
    except InputError as error:
        found["from first"] = gathered_objects(str(error), processes)
    return found


def explode() -> str:
    raise InputError("the disk is full; free some space")


def finish(folder: Path, processes: Processes) -> dict[str, float]:
    """The difference between an uninterrupted run of two processes and one that this many have finished."""
    task = small_task()
    found = {}
    for name in RESUMED:
        weights = saved_run(name, task, folder / str(processes.size) / name, processes)
        found[name] = difference(weights, torch.load(folder / "whole" / name / "weights.pt"))
    return found


def transport_into(out: str, task: Task, folder: Path) -> None:
    torch.manual_seed(0)
    generator, critic = GeneratorConfig(2, 1, 1, kernel=3), CriticConfig(4, 1)
    bank = BankConfig(generator=generator, critic=critic)
    config = MechanismsConfig(data=DataConfig(benchmark="digits"), k=2, steps=1, bank=bank).resolved()
    trained = TrainedMechanisms(config, bank.build(2, 32, 1, 10).eval())
    run = Run(folder / "mechanisms", current_processes())
    run.folder.mkdir(exist_ok=True)
    run.save_model(trained.bank.weights(), {"kind": KIND, "k": 2, "classes": task.source.classes})
    current_processes().largest(0)  # the file is there
    transport(run.folder, folder / out, batch=8, device="cpu", quiet=True, task=task, trained=trained)


def transported(task: Task, folder: Path) -> list[str]:
    """Transports everything, and then again until the second process gets the signal to stop; what each says then."""
    transport_into("whole", task, folder)
    calls = []

    def told_to_stop(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 3 and not current_processes().first:
            os.kill(os.getpid(), signal.SIGTERM)
        return counterfactuals(*arguments)

    try:
        with patch("tcm.mechanisms.transport.counterfactuals", told_to_stop):
            transport_into("stopped", task, folder)
    except Interrupted as stopped:
        return gathered_objects(str(stopped), current_processes())
    return []


def forked(count: int, work: Callable[[Processes], Any], file: Path) -> None:
    """Calls `work` in forks of this process, and writes what it returns in the first of them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    os.environ |= {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count), "GLOO_SOCKET_IFNAME": "lo"}
    children = []
    for rank in range(count):
        if (child := os.fork()) == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            try:
                processes = start_processes(1, "cpu", BATCH)
                found = work(processes)
                if processes.first:
                    file.write_text(json.dumps(found))
                processes.largest(0)  # nobody leaves before the others
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert codes == [0] * count, codes


def main(folder: Path, only: str = "") -> None:
    if only:
        forked(2, partial(compare_learners, folder), folder / "2.json")
        return
    forked(2, partial(compare, folder), folder / "2.json")
    forked(4, partial(finish, folder), folder / "4.json")
    (folder / "1.json").write_text(json.dumps(finish(folder, ALONE)))
    for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"):
        del os.environ[name]
    for out in ("stopped", "alone"):
        transport_into(out, small_task(), folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
