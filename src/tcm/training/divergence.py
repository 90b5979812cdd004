"""Ends a run whose losses or weights are not finite, before they reach the disk."""

from collections.abc import Iterator
from contextlib import contextmanager

from tcm.errors import InputError
from tcm.training.learner import Learner
from tcm.training.run_folder import Run


def diverged(run: Run, learner: Learner, found: str) -> InputError:
    """The error that ends a run with numbers that are not finite."""
    state = f"{run.state_file} holds the last good state" if run.state_file.exists() else "nothing was saved yet"
    rates = " or ".join(f"`{field}`" for field in learner.lr_fields)
    error = InputError(f"{found}; {state}; lower {rates} in a new `out`, or find broken images with tcm data check")
    error.everywhere = True  # losses and weights are the same in all processes
    return error


def require_finite_weights(run: Run, step: int, learner: Learner) -> None:
    """An error if a weight is not finite: such a model can be neither evaluated nor trained further."""
    if not all(bool(value.isfinite().all()) for value in learner.state_dict().values()):
        raise diverged(run, learner, f"the weights are not finite after step {step}")


@contextmanager
def explain_overflow(run: Run, step: int, learner: Learner) -> Iterator[None]:
    """Ends the run if an optimizer needs a factor that float32 cannot hold, for which torch has only a RuntimeError.

    The learning rate itself may fit into float32: Adam's first step divides it by 1 - beta1.
    """
    try:
        yield
    except RuntimeError as error:
        if "without overflow" not in str(error):
            raise
        found = f"step {step + 1} would change the weights by more than float32 can hold"
        raise diverged(run, learner, found) from error
