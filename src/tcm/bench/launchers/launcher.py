"""The protocol of all launchers: submit jobs, look at their states, stop."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

Status = Literal["waiting", "running", "done", "failed"]


class Work(NamedTuple):
    """A job: a call in a process of its own, perhaps on another machine. All of it can be pickled."""

    name: str
    call: Callable[[], None]  # may raise InputError, or Interrupted if it was asked to stop
    log: Path  # of its output
    finished: Callable[[], bool]  # whether its result is there, in a folder that all machines share
    after: str = ""  # the job that must be done first


class JobState(NamedTuple):
    """Where a job stands."""

    status: Status
    where: str = ""  # the machine that it runs on
    reason: str = ""  # why it failed


class Launcher(Protocol):
    """Runs jobs, each after the one that it needs. The job of a failed one fails."""

    name: str

    def check(self, folder: Path) -> None:
        """An error if no job could run, or if a machine does not see the files of `folder`. Before the first job."""
        ...

    def submit(self, works: Sequence[Work]) -> None:
        """Takes jobs; a job comes after the one that it needs. Only once."""
        ...

    def states(self) -> dict[str, JobState]:
        """The state of every job, after a moment in which one of them may have changed."""
        ...

    def stop(self) -> str:
        """Asks running jobs to save, and waits for them; or leaves them to a cluster. Says what to do next."""
        ...

    def close(self) -> None:
        """Ends what is left: processes and connections."""
        ...
