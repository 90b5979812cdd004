"""What is done with finished runs: tcm evaluate, tcm predict, tcm report; and tcm cost."""

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tcm.analysis.cost import costs_notes, costs_table, count_costs
from tcm.classifier.predict import predict_folder
from tcm.classifier.train import evaluate_run
from tcm.cli.show import require_writable, scores_table
from tcm.errors import printable
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device
from tcm.training.files import write_atomically


def evaluate(run: Path, device: Device = "auto", quiet: bool = False) -> int:
    """Score a finished run on its target domain.

    Args:
        run: The run's folder.
        device: Where to compute.
        quiet: No progress, only the result.
    """
    Console().print(scores_table([evaluate_run(run, device, quiet)]))
    return 0


def predict(
    run: Path,
    folder: Path,
    csv: Path | None = None,
    fast: bool = False,
    device: Device = "auto",
    quiet: bool = False,
) -> int:
    """Classify every image below a folder with a finished run.

    Args:
        run: The run's folder.
        folder: Folder of images; subfolders are read too.
        csv: File for the result; without it, it is printed.
        fast: Gives up each image's own counterfactuals; saves making all k of them and a pass of the backbone each.
            The run's report tells what that does to its accuracy. Most methods use none: for them nothing changes.
        device: Where to compute.
        quiet: No progress, only the result.
    """
    if csv is not None:
        require_writable(csv, "csv")
    rows, bad = predict_folder(run, folder, device, quiet, fast)
    if csv is None:
        write_rows(sys.stdout, rows)
    else:
        text = io.StringIO(newline="")
        write_rows(text, rows)
        write_atomically(csv, text.getvalue().encode("utf-8", "surrogateescape"))
        print(f"{len(rows)} images classified in {csv}")
    for path, reason in bad:
        print(f"not classified: {printable(path)}: {reason}", file=sys.stderr)
    return 0


def write_rows(file: Any, rows: Sequence[tuple[str, str, float]]) -> None:
    """path, class, confidence as CSV."""
    writer = csv.writer(file)
    writer.writerow(["path", "class", "confidence"])
    writer.writerows([path, name, f"{confidence:.4f}"] for path, name, confidence in rows)


def report(runs: tuple[Path, ...], out: Path | None = None, quiet: bool = False) -> int:
    """Write one self-contained HTML page about one or more runs.

    Args:
        runs: Run folders.
        out: Folder for index.html. Default: report inside the run; for several runs, ./report.
        quiet: Print nothing.
    """
    # Imported here, because only this command and the demo need the plotting library.
    from tcm.report import write_report

    page = write_report(runs, out or (runs[0] / "report" if len(runs) == 1 else Path("report")))
    if not quiet:
        print(page)
    return 0


def cost(backbone: BackboneConfig = BackboneConfig(), classes: int = 65, k: int = 4, quiet: bool = False) -> int:
    """Count what each method costs beside its backbone, next to the paper's figures (its appendix).

    Args:
        backbone: The feature extractor; no weights are fetched.
        classes: Number of classes. 65: Office-Home.
        k: Mechanisms of the methods that use counterfactuals; the Baseline has one.
        quiet: No notes, only the table.
    """
    found = count_costs(backbone, classes, k)
    Console().print(costs_table(found))
    for note in [] if quiet else costs_notes(found):
        print(note)
    return 0
