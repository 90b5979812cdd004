"""Writes the k counterfactuals of every image of both domains to disk, for stage 2 (TCM Section 3.1)."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tcm.data.augment import as_input, as_stored
from tcm.data.store import ImageStore
from tcm.data.task import Task, load_task
from tcm.errors import InputError, Interrupted, explain_out_of_memory, printable
from tcm.mechanisms.bank import MechanismBank
from tcm.mechanisms.competition import winners
from tcm.mechanisms.counterfactual_store import CounterfactualIndex, CounterfactualWriter, read_index
from tcm.mechanisms.distance import transport_batch_size
from tcm.mechanisms.load import TrainedMechanisms, load_mechanisms, weights_hash
from tcm.mechanisms.pair import SIDES, Side
from tcm.mechanisms.train import MechanismsConfig
from tcm.progress import ProgressDisplay
from tcm.training.device import Compute, inference_on
from tcm.training.fence import Fence
from tcm.training.files import lock, make_folder
from tcm.training.launch import start_processes
from tcm.training.run_folder import Run
from tcm.training.stop_requests import StopRequest, stop_requests

SAVE_EVERY = 2.0  # seconds of work that a killed process may lose
IN_FLIGHT = 3  # batches on their way from the device to the disk
WORTH_COMPILING = 100_000  # images through a generator from which on compiling saves time on a GPU


class TransportedBatch(NamedTuple):
    """The counterfactuals of a batch: M_i(x_s) of source images, M_i^-1(x_t) of target images."""

    images: Tensor  # uint8 [batch, k, side, side, 3]
    winner: Tensor  # int64 [batch]
    losses: Tensor  # float32 [batch, k]


class TransportSetup(NamedTuple):
    """A finished run of stage 1, with its networks on the device, and its images."""

    fabric: Compute
    config: MechanismsConfig
    bank: MechanismBank
    task: Task


def transport(
    folder: Path,
    out: Path | None = None,
    *,
    batch: int | None = None,
    device: str = "auto",
    devices: int = 1,
    quiet: bool = False,
    task: Task | None = None,
    trained: TrainedMechanisms | None = None,
) -> bool:
    """Transports both domains of a finished run into `out`/source and `out`/target, or resumes an earlier call.

    False if they were finished already. `out` is by default the folder "transported" inside the run. `devices`
    processes divide the images. `task` and `trained` are the images and the mechanisms of the run, if they are loaded
    already.
    """
    if batch is not None and batch < 1:
        raise InputError("batch", f"is {batch}; give 1 or more")
    processes = start_processes(devices, device)
    quiet = quiet or not processes.first
    fabric, config, bank, task = processes.first_then_others(
        lambda: open_for_transport(folder, device, quiet, task, trained, processes.local_rank)
    )
    out = out or folder / "transported"
    with ExitStack() as files:

        def writer(side: Side, store: ImageStore, other: ImageStore, fence: Fence | None) -> CounterfactualWriter:
            fitting = transport_batch_size(config.bank.generator, store.size, fabric.device)
            index = _index(folder, out / side, store, other.name, bank.k, batch, fitting)
            return files.enter_context(closing(CounterfactualWriter(out / side, index, fence, processes)))

        def opened() -> dict[Side, CounterfactualWriter]:
            fence = None
            if processes.first:
                make_folder(out)
                files.enter_context(lock(out))
                fence = Fence(out)
            return {
                side: writer(side, store, other, fence)
                for side, store, other in zip(SIDES, task, reversed(task), strict=True)
            }

        writers = processes.first_then_others(opened)
        if all(writer.finished for writer in writers.values()):
            return False
        if fabric.device.type == "cuda" and generator_passes(bank, sum(map(len, task))) >= WORTH_COMPILING:
            bank.accelerate()
        _transport_all(fabric, bank, task, writers, out, quiet)
    return True


def _index(
    run: Path, folder: Path, store: ImageStore, other: str, k: int, batch: int | None, fitting: int
) -> CounterfactualIndex:
    """The index of one domain. Without `batch`, a started folder keeps its own; a new one has the `fitting` one."""
    started, _ = read_index(folder)
    return CounterfactualIndex(
        run=str(run.absolute()),
        mechanisms=weights_hash(run),
        domain=store.name,
        other=other,
        originals=store.fingerprint,
        images=len(store),
        k=k,
        size=store.size,
        batch=batch or (started.batch if started else fitting),
    )


def open_for_transport(
    folder: Path,
    device: str = "auto",
    quiet: bool = False,
    task: Task | None = None,
    trained: TrainedMechanisms | None = None,
    gpu: int = 0,
) -> TransportSetup:
    """A finished run, ready to transport its images; an error if it cannot. `gpu` is the number of the GPU."""
    config, bank = trained or load_mechanisms(folder)
    fabric = inference_on(device, config.precision, gpu)
    task = task or load_task(config.data, quiet)
    require_transportable(folder, config, task)
    fabric.to_device(bank)
    if fabric.device.type == "cuda":
        bank.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return TransportSetup(fabric, config, bank, task)


def require_transportable(folder: Path, config: MechanismsConfig, task: Task) -> None:
    """An error unless the run was trained on this task, and its generators return images of the stored size."""
    classes = Run(folder).about_model()["classes"]
    if tuple(classes) != task.source.classes:
        now, then = (printable(", ".join(names)) for names in (task.source.classes, classes))
        found = f"the classes of {printable(task.source.name)} are {now}, but {folder} was trained on {then}"
        raise InputError(f"{found}; restore the data or train again in a new `out`")
    trained = Run(folder).images()
    if trained is not None and trained != [store.fingerprint for store in task]:
        found = f"{printable(folder)} was trained on other images than its data has now"
        raise InputError(f"{found}; restore them or train again in a new `out`")
    for store in task:
        try:
            config.bank.generator.require_side(store.size)
        except InputError as error:
            generator = config.bank.generator
            needed = f"a multiple of {2**generator.halvings}, {generator.smallest_image} or more"
            raise InputError(
                f"the images of {printable(store.name)} are stored with side {store.size}, but the generators of "
                f"{folder} need {needed}; train mechanisms with such a `data.size`"
            ) from error


def generator_passes(bank: MechanismBank, images: int) -> int:
    """Images that pass through a generator to transport so many; the total loss also transports them back."""
    return images * bank.k * (3 if bank.config.score == "total" else 1)


@torch.inference_mode()
def counterfactuals(fabric: Compute, bank: MechanismBank, origin: Side, pixels: Tensor) -> TransportedBatch:
    """The counterfactuals of stored images [batch, side, side, 3] on the device, and the winners (TCM Eq. (2))."""
    with fabric.autocast():
        losses, made = bank.scored(2 * as_input(pixels) - 1, origin)
    losses = losses.float()
    stored = as_stored((made.float() + 1) / 2)  # [k, batch, side, side, 3]
    return TransportedBatch(stored.transpose(0, 1).contiguous(), winners(losses), losses.T.contiguous())


def win_shares(out: Path) -> dict[Side, list[float]]:
    """The share of images of each domain that each mechanism won, from a finished folder."""
    found: dict[Side, list[float]] = {}
    for side in SIDES:
        index, _ = read_index(out / side)
        assert index is not None
        winner = np.load(out / side / "winner.npy")
        found[side] = (np.bincount(winner, minlength=index.k) / len(winner)).tolist()
    return found


def _transport_all(
    fabric: Compute, bank: MechanismBank, task: Task, writers: dict[Side, CounterfactualWriter], out: Path, quiet: bool
) -> None:
    def done() -> int:
        return sum(writer.done for writer in writers.values())

    total, title = sum(map(len, task)), f"transporting {task.source.name} ↔ {task.target.name}"
    with stop_requests() as stop, ProgressDisplay(title, total, unit="image", done=done(), quiet=quiet) as display:
        for store, (origin, writer) in zip(task, writers.items(), strict=True):
            if not writer.finished:
                make = partial(counterfactuals, fabric, bank, origin)
                transport_domain = _transport_domain if writer.processes.size == 1 else _transport_divided
                transport_domain(writer, store.images, fabric.device, make, stop, lambda: display.update(done()))
                if writer.done == len(store):
                    writer.finish()
                else:
                    writer.save()
            stopping = writer.processes.largest(stop.number)
            if stopping and done() < total:
                found = f"stopped at image {done()} of {total}, saved in {out}"
                raise Interrupted(f"{found}; repeat the command to continue", stopping)


def _transport_divided(
    writer: CounterfactualWriter,
    images: Tensor,
    device: torch.device,
    make: Callable[[Tensor], TransportedBatch],
    stop: StopRequest,
    show: Callable[[], None],
) -> None:
    """Transports one domain together with other processes, each of which has one batch of every round."""
    processes, batch, saved = writer.processes, writer.index.batch, time.monotonic()
    starts = range(writer.done, len(images), batch)
    for first in range(0, len(starts), processes.size):
        turn = starts[first : first + processes.size]
        with processes.together(), explain_out_of_memory(f"`batch` {batch}", "repeat the command with a smaller one"):
            for start in turn[processes.rank : processes.rank + 1]:
                pixels = images[start : start + batch].to(device)
                made = make(padded_batch(pixels, batch)) if pixels.is_cuda else make(pixels)
                writer.write(start, *(part[: len(pixels)].cpu().numpy() for part in made))
        writer.done = min(turn[-1] + batch, len(images))
        show()
        if processes.largest(int(time.monotonic() - saved > SAVE_EVERY)):
            writer.save()
            saved = time.monotonic()
        if processes.largest(stop.number):
            break


def _transport_domain(
    writer: CounterfactualWriter,
    images: Tensor,
    device: torch.device,
    make: Callable[[Tensor], TransportedBatch],
    stop: StopRequest,
    show: Callable[[], None],
) -> None:
    """Transports one domain. Two threads read the next batch and write the previous ones, so the device never waits."""
    batch, waiting, saved = writer.index.batch, deque[Future[None]](), 0.0
    starts = range(writer.done, len(images), batch)

    def write(start: int, copy: _HostCopy) -> None:
        nonlocal saved
        writer.append(start, *copy.arrays())
        if time.monotonic() - saved > SAVE_EVERY:
            writer.save()
            saved = time.monotonic()

    with ThreadPoolExecutor(1, "write") as writing:
        for start, pixels in zip(starts, _read_ahead(images, starts, batch, device), strict=True):
            with explain_out_of_memory(f"`batch` {batch}", "repeat the command with a smaller one"):
                made = make(padded_batch(pixels, batch)) if pixels.is_cuda else make(pixels)
                made = TransportedBatch(*(part[: len(pixels)] for part in made))
                waiting.append(writing.submit(write, start, _HostCopy(made)))
            if len(waiting) > IN_FLIGHT:
                waiting.popleft().result()
                show()
            if stop.requested:
                break
        for written in waiting:
            written.result()
            show()


def padded_batch(pixels: Tensor, batch: int) -> Tensor:
    """The batch, filled up with copies of its first image: compiled kernels need batches of one size."""
    return torch.cat([pixels, pixels[:1].expand(batch - len(pixels), -1, -1, -1)])


def _read_ahead(images: Tensor, starts: Sequence[int], batch: int, device: torch.device) -> Iterator[Tensor]:
    """The batches that begin at `starts`, on the device. A thread reads the next one meanwhile."""

    def read(start: int) -> Tensor:
        pixels = images[start : start + batch]
        return pixels.pin_memory() if device.type == "cuda" else pixels.clone()

    with ThreadPoolExecutor(1, "read") as ahead:
        coming = deque(ahead.submit(read, start) for start in starts[:1])
        for following in [*starts[1:], None]:
            if following is not None:
                coming.append(ahead.submit(read, following))
            if coming:
                yield coming.popleft().result().to(device, non_blocking=True)


class _HostCopy:
    """Counterfactuals that are copied to host memory while the device continues."""

    def __init__(self, made: TransportedBatch):
        self._tensors, self._copied = list(made), None
        if made.images.is_cuda:
            pinned = [torch.empty(part.shape, dtype=part.dtype, pin_memory=True) for part in made]
            self._tensors = [host.copy_(part, non_blocking=True) for host, part in zip(pinned, made, strict=True)]
            self._copied = torch.cuda.Event()
            self._copied.record()

    def arrays(self) -> list[np.ndarray]:
        """Images, winners and losses, when the copy is complete."""
        if self._copied:
            self._copied.synchronize()
        return [tensor.numpy() for tensor in self._tensors]
