"""Messages as the command line shows them: on one line, and with options in place of fields."""

import os
import sys
from collections.abc import Callable
from typing import Any

from tcm.errors import FIELD, InputError, printable


def with_options(message: object) -> str:
    """The message on one line; fields that it mentions become options.

    `data.on_bad_image=skip` becomes --data.on-bad-image skip, `backbone.pretrained=False` --backbone.no-pretrained.
    """
    return FIELD.sub(lambda found: option(found[1], found[2]), printable(message))


def option(field: str, value: str | None = None) -> str:
    """The option of a field, with its value if there is one."""
    name = field.replace("_", "-")
    if value in ("True", "False"):
        group, dot, last = name.rpartition(".")
        return f"--{name}" if value == "True" else f"--{group}{dot}no-{last}"
    return f"--{name} {value}" if value else f"--{name}"


def is_first_process() -> bool:
    """Whether this process talks to the user: if torchrun, srun or `devices` started several, only the first does."""
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "SLURM_PROCID"))


def reports(error: InputError) -> bool:
    """Whether this process shows the error: the first shows those of all processes, the others their own."""
    running = getattr(sys.modules.get("tcm.training.processes"), "current_processes", None)
    return is_first_process() or (running is not None and running().size > 1 and not error.everywhere)


def warning_printer() -> Callable[..., None]:
    """A function that prints each warning as one line, and the same line only once: tasks of a suite share domains."""
    printed: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if (line := with_options(message)) not in printed and is_first_process():
            printed.add(line)
            print(f"warning: {line}", file=sys.stderr)

    return show
