"""Connects the processes of a run, and ends the connection before Python ends."""

import atexit
import importlib
import socket
import time
from typing import NamedTuple
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from tcm.errors import InputError, printable
from tcm.training.processes import ALONE, TIMEOUT, Processes, begin

TORCHRUN = "env://"  # the address of processes that torchrun connects


class World(NamedTuple):
    """The place of this process among all processes of a run."""

    rank: int
    size: int
    local_rank: int  # among those on this machine
    local_size: int
    address: str  # where they meet


def joined(world: World, on_gpu: bool) -> Processes:
    """The processes of the run, when all of them are there."""
    require_known(world.address)
    if on_gpu:
        torch.cuda.set_device(world.local_rank)
    backend = "nccl" if on_gpu else "gloo"
    # Other libraries import it. After the next lines, defaults of its functions would keep the group, and `leave` fail.
    importlib.import_module("torch.distributed.nn.functional")
    try:
        if world.address == TORCHRUN:
            dist.init_process_group(backend, world.address, TIMEOUT, rank=world.rank, world_size=world.size)
        else:
            dist.init_process_group(
                backend, store=meeting(world), timeout=TIMEOUT, rank=world.rank, world_size=world.size
            )
        group = dist.new_group(backend="gloo", timeout=TIMEOUT) if on_gpu else None
    except (RuntimeError, ValueError) as error:
        found = f"the {world.size} processes of this run could not connect at {world.address}"
        raise InputError(f"{found} ({str(error).splitlines()[0][:120]}); check that all were started") from error
    atexit.register(leave)
    return Processes(world.rank, world.size, world.local_rank, group)


def require_known(address: str) -> None:
    """An error if this machine does not know the name in the address. PyTorch would ask again for half an hour."""
    host = urlsplit(address).hostname
    try:
        socket.getaddrinfo(host, None) if host else None
    except OSError as error:
        found = f"the first machine of this run, {printable(host)}, is not known here ({error.strerror})"
        raise InputError(f"{found}; set MASTER_ADDR to its address") from error


def meeting(world: World) -> Store:
    """Where the processes meet, when all of them have come. They wait in Python, where Ctrl-C ends them at once."""
    where, names = urlsplit(world.address), [f"process {rank}" for rank in range(world.size)]
    assert where.hostname
    assert where.port
    store = TCPStore(where.hostname, where.port, world.size, world.rank == 0, TIMEOUT, wait_for_workers=False)
    store.set(names[world.rank], "here")
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while not store.check(names):
        if time.monotonic() > deadline:
            raise RuntimeError("not all of them have come")
        time.sleep(0.02)
    return store


def leave() -> None:
    """Ends the threads of the connections, before Python ends.

    They release tensors. If one did so later, the process would abort, and the others would count it as lost.
    """
    begin(ALONE)  # or the group would live on
    dist.destroy_process_group()
