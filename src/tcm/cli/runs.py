"""tcm evaluate, tcm predict and tcm report, which use finished runs; tcm cost."""

import csv
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from tcm.analysis.cost import costs_notes, costs_table, count_costs
from tcm.classifier.load import classifier_folder
from tcm.classifier.predict import predict_folder
from tcm.classifier.train import evaluate_run
from tcm.cli.arguments import ImageFolder, OptionalOutput, Quiet, Run, Runs
from tcm.cli.show import require_writable, scores_table
from tcm.errors import printable
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device
from tcm.training.files import write_atomically


def evaluate(run: Run, device: Device = "auto", quiet: Quiet = False) -> int:
    """Evaluate a finished run again on its own images, and print its accuracies.

    Args:
        run: Folder of a run of tcm train or tcm fit.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print only the result, no progress.
    """
    Console().print(scores_table([evaluate_run(classifier_folder(run), device, quiet)]))
    return 0


def predict(
    run: Run,
    folder: ImageFolder,
    csv: OptionalOutput = None,
    fast: bool = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> int:
    """Classify every image in a folder and its subfolders.

    Args:
        run: Folder of a finished run of tcm train or tcm fit.
        folder: Folder of images.
        csv: File to write the predictions to. Default: print them.
        fast: Predict from the image alone, without its counterfactuals: faster, and in general less accurate.
            The report of a run shows both accuracies. Methods without counterfactuals do not change.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print only the result, no progress.
    """
    if csv is not None:
        require_writable(csv, "csv")
    rows, bad = predict_folder(classifier_folder(run), folder, device, quiet, fast)
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
    """Writes path, class and confidence as CSV."""
    writer = csv.writer(file)
    writer.writerow(["path", "class", "confidence"])
    writer.writerows([path, name, f"{confidence:.4f}"] for path, name, confidence in rows)


def report(runs: Runs, out: OptionalOutput = None, quiet: Quiet = False) -> int:
    """Write one self-contained HTML page about one or more runs.

    Args:
        runs: Folders of runs of tcm train, tcm mechanisms or tcm fit.
        out: Folder for index.html. Default: report, inside the run; for several runs, ./report.
        quiet: Print nothing.
    """
    # Imported here, because only this command and the demo need the plotting library.
    from tcm.report import write_report

    folders = [run for folder in runs for run in runs_inside(folder)]
    page = write_report(folders, out or (runs[0] / "report" if len(runs) == 1 else Path("report")))
    if not quiet:
        print(page)
    return 0


def runs_inside(folder: Path) -> list[Path]:
    """The folder of a run itself, or both runs in the output folder of `tcm fit`."""
    classifier = classifier_folder(folder)
    return [folder] if classifier == folder else [classifier, folder / "mechanisms"]


def cost(backbone: BackboneConfig = BackboneConfig(), classes: int = 65, k: int = 4, quiet: Quiet = False) -> int:
    """Count the multiply-adds and parameters that each method adds to the backbone, beside the paper's numbers.

    Args:
        backbone: The network; its weights are not downloaded.
        classes: Number of classes. Office-Home has 65.
        k: Number of mechanisms of the methods that use counterfactuals; the Baseline has one.
        quiet: Print only the table, no notes.
    """
    found = count_costs(backbone, classes, k)
    Console().print(costs_table(found))
    for note in [] if quiet else costs_notes(found):
        print(note)
    return 0
