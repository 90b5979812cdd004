"""Starts the processes of a run on this machine, or joins those that torchrun or srun started.

Lightning Fabric has a launcher too. But as soon as one process ends with an error, it kills the others, without a word
and perhaps while they save.
"""

import atexit
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import torch

from tcm.errors import InputError, Interrupted, printable
from tcm.training.connection import TORCHRUN, World, joined
from tcm.training.device import accelerator_of, cpu_count, require_device
from tcm.training.processes import ALONE, Processes, begin, current_processes

GRACE = 20.0  # seconds for a run to end by itself after one of its processes has ended
CALL = "from tcm.training.launch import make_call; make_call()"  # what a process runs that is given a call
PARENT = "TCM_STARTED_BY"  # in the environment of the processes that `launch` starts: the process that did


def start_processes(
    devices: int, device: str, batch: int | None = None, call: Callable[[], None] | None = None
) -> Processes:
    """The processes of this run: those that torchrun or srun started, or `devices` on this machine.

    Called at the start of a run, in every process. `batch` is the number of images of which each must have one. The
    processes that this one starts make the `call`, which can be pickled; without it, they are the same program again.
    """
    if devices < 1:
        raise InputError("devices", f"is {devices}; give 1 or more")
    found = current_processes()
    if found.size > 1:
        require_images(batch, found.size)
        return found
    world = external_world()
    if world is None and devices == 1:
        return ALONE
    if world is not None and devices not in (1, world.local_size):
        given = f"is {devices}, but {world.local_size} processes were started on this machine"
        raise InputError("devices", f"{given}; leave it out: torchrun and srun decide it")
    require_devices(world.local_size if world else devices, device)
    require_images(batch, world.size if world else devices)
    world = world or launch(devices, call)
    if not os.environ.get("OMP_NUM_THREADS"):
        torch.set_num_threads(max(cpu_count() // world.local_size, 1))
    return begin(joined(world, on_gpu=accelerator_of(device) == "cuda"))


def require_devices(count: int, device: str) -> None:
    """An error if there are fewer GPUs than processes on this machine. On a CPU there may be any number."""
    require_device(device)
    accelerator = accelerator_of(device)
    if accelerator == "mps" and count > 1:
        raise InputError("devices", f"is {count}, but an Apple computer has one GPU; give 1 or `device=cpu`")
    if accelerator == "cuda" and count > torch.cuda.device_count():
        found = f"is {count}, but the number of GPUs here is {torch.cuda.device_count()}"
        raise InputError("devices", f"{found}; give at most so many, or `device=cpu`")


def require_images(batch: int | None, size: int) -> None:
    """An error if there are more processes than images in a batch."""
    if batch is not None and batch < size:
        raise InputError("batch", f"is {batch}, but the run has {size} processes; give {size} or more")


def require_one_process(command: str) -> None:
    """An error if torchrun or srun started several processes, for a command that uses one."""
    if external_world() is not None:
        found = f"{command} runs in one process, but several were started"
        raise InputError(f"{found}; start it without torchrun or srun")


def external_world() -> World | None:
    """The place of this process among those that torchrun, srun or `launch` started; None if it is alone."""

    def number(name: str, default: int = 1) -> int:
        return int(os.environ.get(name, default))

    if number("WORLD_SIZE") > 1 and "RANK" in os.environ and "LOCAL_RANK" in os.environ:
        places = number("RANK"), number("WORLD_SIZE"), number("LOCAL_RANK"), number("LOCAL_WORLD_SIZE")
        if PARENT not in os.environ:
            return World(*places, TORCHRUN)
        parent = int(os.environ[PARENT])
        if os.getppid() != parent:  # while this process loaded
            raise InputError("the process that started this one has ended; repeat the command to continue")
        threading.Thread(target=end_with, args=(parent,), daemon=True).start()
        return World(*places, f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}")
    # Only srun sets this variable. A batch script without srun is one process, whatever it asked for.
    if number("SLURM_STEP_NUM_TASKS") > 1:
        from lightning_fabric.plugins.environments.slurm import SLURMEnvironment

        size, nodes = number("SLURM_STEP_NUM_TASKS"), number("SLURM_STEP_NUM_NODES", number("SLURM_NNODES"))
        names = os.environ.get("SLURM_STEP_NODELIST") or os.environ["SLURM_NODELIST"]
        host = os.environ.get("MASTER_ADDR") or SLURMEnvironment.resolve_root_node_address(names)
        port = number("MASTER_PORT", 15000 + number("SLURM_JOB_ID") % 10000)
        return World(number("SLURM_PROCID"), size, number("SLURM_LOCALID"), size // nodes, f"tcp://{host}:{port}")
    return None


def launch(count: int, call: Callable[[], None] | None = None) -> World:
    """Starts this program again, `count` - 1 times; each copy joins this process when it comes to the same place.

    With a `call`, the others are processes that make it.
    """
    program = ["-c", CALL] if call else this_program(count)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
    children = []
    for rank in range(1, count):
        place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count, PARENT: os.getpid()}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = {**os.environ, **{name: str(value) for name, value in {**place, **meeting}.items()}}
        pipe = subprocess.PIPE if call else None
        child = subprocess.Popen([sys.executable, *program], env=environment, stdin=pipe)
        if child.stdin:
            with child.stdin as given:
                given.write(pickle.dumps(call))
        children.append(child)
    atexit.register(end_children, children)
    threading.Thread(target=end_with_children, args=(children,), daemon=True).start()
    return World(0, count, 0, count, f"tcp://127.0.0.1:{port}")


def this_program(count: int) -> list[str]:
    """The words after `python` that start this program again."""
    import __main__

    if not hasattr(__main__, "__file__"):
        found = f"is {count}, but only a program can be started again, not a notebook or a console"
        raise InputError("devices", f"{found}; use tcm train or a script, or give 1")
    module = __main__.__spec__
    return [*(["-m", module.name] if module else [os.path.abspath(sys.argv[0])]), *sys.argv[1:]]


def make_call() -> None:
    """Makes the call that `launch` gave to this process, and ends with its exit code."""
    if hasattr(signal, "SIGUSR2"):  # Slurm sends it to all processes of a job, and the first one handles it
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        pickle.load(sys.stdin.buffer)()
    except InputError as error:
        sys.exit(2 if error.everywhere else f"error: {printable(error)}")
    except Interrupted as stopped:
        sys.exit(128 + stopped.signal_number)


def end_children(children: list[subprocess.Popen[bytes]]) -> None:
    """Waits for the other processes, which end when this one does."""
    deadline = time.monotonic() + GRACE
    for child in children:
        try:
            child.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            child.kill()


def end_with_children(children: list[subprocess.Popen[bytes]]) -> None:
    """Ends this process if another one has failed and it still waits for it."""
    while all(child.poll() in (None, 0) for child in children):
        if all(child.poll() == 0 for child in children):
            return
        time.sleep(0.5)
    time.sleep(GRACE)
    os.write(2, b"error: another process of this run has ended; repeat the command to continue\n")
    for child in children:
        child.kill()
    os._exit(2)


def end_with(parent: int) -> None:
    """Ends this process some time after the one that started it, if it still waits for it."""
    while os.getppid() == parent:
        time.sleep(0.5)
    time.sleep(GRACE)
    os._exit(1)
