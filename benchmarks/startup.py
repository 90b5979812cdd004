"""How long commands take to start: this checkout against another one, run alternately.

    python benchmarks/startup.py --before ../older --run runs/erm --images new-images

Every command runs once to fill the caches and then `--times` times in each checkout, in turn, so that other work on the
machine slows both alike. Printed are the medians of the processor time (user and system), of the elapsed time and of
the largest memory, and their ratios. The first row is PyTorch alone, below which no command that needs it can come.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parents[1]


class Cost(NamedTuple):
    """What one process took."""

    processor: float  # seconds
    elapsed: float  # seconds
    memory: float  # MB


def cost_of(checkout: Path, words: list[str]) -> Cost:
    """Runs `tcm` of a checkout with these words; PyTorch alone is loaded by the word torch."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    started = time.perf_counter()
    command = [sys.executable, *(["-c", "import torch"] if words == ["torch"] else ["-m", "tcm", *words])]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"tcm {' '.join(words)} ended with {process.returncode} in {checkout}")
    return Cost(used.ru_utime + used.ru_stime, time.perf_counter() - started, used.ru_maxrss / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, required=True, help="another checkout")
    parser.add_argument("--run", type=Path, required=True, help="a finished run that both can read")
    parser.add_argument("--images", type=Path, required=True, help="a folder of images")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    run, images = str(options.run), str(options.images)
    commands = [["torch"], ["--help"], ["train", "dann", "--help"], ["predict", run, images]]
    print("command                  before: processor, elapsed, memory   after                    ratios")
    for words in commands:
        costs: dict[Path, list[Cost]] = {options.before: [], HERE: []}
        for turn in range(options.times + 1):
            for checkout, found in costs.items():
                one = cost_of(checkout, words)
                found.extend([one] if turn else [])
        before, after = (Cost(*map(statistics.median, zip(*found, strict=True))) for found in costs.values())
        cells = [f"{one.processor:6.2f} s {one.elapsed:6.2f} s {one.memory:5.0f} MB" for one in (before, after)]
        ratios = " ".join(f"{new / old:.2f}" for old, new in zip(before, after, strict=True))
        print(f"{' '.join(words[:2])[:22]:24} {'   '.join(cells)}   {ratios}", flush=True)


if __name__ == "__main__":
    main()
