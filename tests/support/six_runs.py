"""A suite of six runs with dependencies, which every launcher must end with the same rows and models."""

import csv
import re
from pathlib import Path

from support.clusters import until
from support.tiny_suite import said_by
from tcm.bench.launchers.worker import STARTED

OPTIONS = ["bench", "digits", "--methods", "erm,dann,dan,baseline,tcm-release", "--k", "1", "--seeds", "1"]
OPTIONS += ["--steps", "6", "--mechanisms.steps", "2", "--batch", "8", "--save-every", "1", "--device", "cpu"]
RUNS = 6  # five of stage 2, two of which need the one of stage 1


class SixRuns:
    """The suite in a folder."""

    def __init__(self, out: Path):
        self.out = out

    def run(self, *more: str) -> tuple[int, str, str]:
        """Exit code and output of the command, in this process."""
        return said_by([*OPTIONS, "--no-report", "-q", "--out", str(self.out), *more])

    def rows(self) -> list[dict[str, str]]:
        """The rows without their times, which differ, in one order."""
        with (self.out / "results.csv").open() as file:
            found = [{**row, "seconds": ""} for row in csv.DictReader(file)]
        return sorted(found, key=lambda row: (row["method"], row["selection"]))

    def models(self) -> dict[str, bytes]:
        """The models of both stages and the counterfactuals, bit for bit."""
        files = [*self.out.rglob("model.safetensors"), *self.out.rglob("transported/*/*.npy")]
        return {str(file.relative_to(self.out)): file.read_bytes() for file in files}

    def process_in_the_middle(self, *others: int) -> tuple[str, int]:
        """The name and the process of a run that has saved and is not finished; not one of `others`."""

        def found() -> tuple[str, int] | None:
            for state in self.out.glob("runs/digits/*/state.pt"):
                log = self.out / "logs" / f"runs-digits-{state.parent.name}.log"
                started = re.findall(rf"{STARTED}.*, process (\d+),", log.read_text())
                if not (state.parent / "model.safetensors").exists() and int(started[-1]) not in others:
                    return state.parent.name, int(started[-1])
            return None

        return until("a run in the middle", found, every=0.02)
