"""What a user may see in place of a result: a mistake or a stop, each one line."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# A field of a config as messages mention it, with or without a value: `batch`, `data.on_bad_image=skip`.
FIELD = re.compile(r"`([a-z_]\w*(?:\.\w+)*)(?:=([^`\s]+))?`")


class InputError(ValueError):
    """What the user gave cannot be used. The text is one line: what was found, where, and what to do.

    `InputError("data.crop", "is 8; give 32 or more")` names the field of a config that is wrong;
    `InputError("photos is empty; name a folder of images")` is about something else. Fields that the text mentions
    stand in backticks: "lower `batch`", "or set `data.on_bad_image=skip`". The library speaks of fields, and the
    command line shows them as its options.
    """

    everywhere = False  # whether all processes of a run raise it, so that one of them reports it

    def __init__(self, *parts: str):
        field, reason = ("", *parts) if len(parts) == 1 else parts
        super().__init__(f"`{field}` {reason}" if field else reason)
        self.field = field

    def renamed(self, rename: Callable[[str], str]) -> "InputError":
        """The same mistake in the fields of another config, such as one that holds this one."""
        error = type(self)(FIELD.sub(lambda found: found[0].replace(found[1], rename(found[1]), 1), str(self)))
        error.field, error.everywhere = rename(self.field) if self.field else "", self.everywhere
        return error


class LostProcess(InputError):
    """Another process of the run has ended. Nothing is wrong with what the user gave: the run may be repeated."""


class Interrupted(Exception):
    """Training stopped on a signal, after saving. Its text says where it stands."""

    def __init__(self, text: str, signal_number: int):
        super().__init__(text)
        self.signal_number = signal_number


def printable(text: object) -> str:
    """The text for a message, on one line: what does not print, such as a newline in a file's name, is escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text))


@contextmanager
def explain_out_of_memory(what: str, remedy: str) -> Iterator[None]:
    """Turns the errors of memory that runs out, on a GPU or not, into an InputError. Also a decorator."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # The GPU's is of a class of torch, which takes seconds to load; torch has none for the machine's.
        of_device = type(error).__name__ == "OutOfMemoryError"
        if not (isinstance(error, MemoryError) or of_device or "can't allocate memory" in str(error)):
            raise
        raise InputError(f"{what} needs more memory than is free; {remedy}") from error
