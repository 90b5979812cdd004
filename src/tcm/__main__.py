"""The program `tcm`, and `python -m tcm`. Ctrl-C ends it with one line, also while it loads."""

import signal
import sys

from tcm.cli.interrupts import end_at_once


def main() -> int:
    """Loads the program and runs it with the words after `tcm`; returns its exit code."""
    signal.signal(signal.SIGINT, end_at_once)
    from tcm.cli.app import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
