"""What a user may see in place of a result: a mistake or a stop, each one line."""

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """What the user gave cannot be used. Its text is one line: what was found, where, and what to do."""


class Interrupted(Exception):
    """Training stopped on a signal, after saving. Its text says where it stands."""

    def __init__(self, text: str, signal_number: int):
        super().__init__(text)
        self.signal_number = signal_number


def shown(text: object) -> str:
    """The text for a message, on one line: what does not print, such as a newline in a file's name, is escaped."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in str(text))


@contextmanager
def memory_told(what: str, remedy: str) -> Iterator[None]:
    """Makes a mistake of the errors that are raised when memory runs out, on a GPU or not. Also a decorator."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        # The GPU's is of a class of torch, which takes seconds to load; torch has none for the machine's.
        of_device = type(error).__name__ == "OutOfMemoryError"
        if not (isinstance(error, MemoryError) or of_device or "can't allocate memory" in str(error)):
            raise
        raise InputError(f"{what} needs more memory than is free; {remedy}") from error
