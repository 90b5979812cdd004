"""A training run in its own process that is killed in the middle, as by `kill -9` or a power cut."""

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

from tcm.classifier.train import train_classifier
from tcm.classifier.train_config import TrainConfig
from tcm.data.batch import Batch
from tcm.data.stream import Stream


def train_and_be_killed(name: str, config: TrainConfig[Any], folder: Path, at: int) -> None:
    """Trains in a process that ends without notice before its step `at`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tcm.classifier.train"])  # what takes seconds to import
    process = context.Process(target=_train, args=(name, config, folder, at))
    process.start()
    process.join(300)
    assert process.exitcode == -signal.SIGKILL


def _train(name: str, config: TrainConfig[Any], folder: Path, at: int) -> None:
    usual = Stream.batch

    def batch(self: Stream, step: int) -> Batch:
        if step == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return usual(self, step)

    Stream.batch = batch
    train_classifier(name, config, folder, quiet=True)
