"""What a user may see in place of a result: a mistake or a stop, each one line."""


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
