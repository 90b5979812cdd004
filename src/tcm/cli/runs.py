"""tcm evaluate, tcm predict and tcm report, which use finished runs; tcm cost."""

import sys
from pathlib import Path

from rich.console import Console

from tcm.analysis.cost import costs_notes, costs_table, count_costs
from tcm.classifier.predict import predict_folder, predictions_csv
from tcm.classifier.trained import evaluate_run
from tcm.cli.arguments import Images, OptionalOutput, Quiet, Run, Runs
from tcm.cli.folders import runs_below
from tcm.cli.show import require_writable, scores_table
from tcm.errors import printable
from tcm.nn.backbone import BackboneConfig
from tcm.training.device import Device
from tcm.training.files import write_atomically
from tcm.training.run_folder import chosen_run


def evaluate(run: Run, device: Device = "auto", quiet: Quiet = False) -> int:
    """Evaluate a finished run again on its own images, and print its accuracies.

    Args:
        run: Folder of a run of tcm train or tcm fit.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print only the result, no progress.
    """
    Console(markup=False).print(scores_table([evaluate_run(chosen_run(run), device, quiet)]))
    return 0


def predict(
    run: Run,
    images: Images,
    csv: OptionalOutput = None,
    probabilities: bool = False,
    fast: bool = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> int:
    """Classify an image, or every image in a folder and its subfolders. Exits with 1 if some cannot be read.

    Args:
        run: Folder of a finished run of tcm train or tcm fit.
        images: Folder of images, or one image file.
        csv: File to write the predictions to. Default: print them.
        probabilities: Add the probabilities of all classes.
        fast: Predict from the image alone, without its counterfactuals: faster, and in general less accurate.
            The report of a run shows both accuracies. Methods without counterfactuals do not change.
        device: Device to compute on; auto: the GPU if there is one.
        quiet: Print only the result, no progress.
    """
    if csv is not None:
        require_writable(csv, "csv")
    found, bad = predict_folder(chosen_run(run), images, device, quiet, fast)
    text = predictions_csv(found, probabilities)
    if csv is None:
        sys.stdout.write(text)
    else:
        write_atomically(csv, text.encode("utf-8", "surrogateescape"))
        print(f"{len(found.paths)} images classified in {csv}")
    for path, reason in bad:
        print(f"not classified: {printable(path)}: {reason}", file=sys.stderr)
    if bad:
        print(f"{len(bad)} of {len(found.paths) + len(bad)} images could not be read", file=sys.stderr)
    return 1 if bad else 0


def report(runs: Runs, out: OptionalOutput = None, quiet: Quiet = False) -> int:
    """Write one self-contained HTML page about one or more runs.

    Args:
        runs: Folders of runs of tcm train, tcm mechanisms or tcm fit.
        out: Folder for index.html. Default: report, inside the run; for several runs, ./report.
        quiet: Print nothing.
    """
    # Imported here, because only this command and the demo need the plotting library.
    from tcm.report import write_report

    folders = [run for folder in runs for run in runs_below(folder)]
    page = write_report(folders, out or (runs[0] / "report" if len(runs) == 1 else Path("report")))
    if not quiet:
        print(page)
    return 0


def cost(backbone: BackboneConfig = BackboneConfig(), classes: int = 65, k: int = 4, quiet: Quiet = False) -> int:
    """Count the multiply-adds and parameters that each method adds to the backbone, beside the paper's numbers.

    Args:
        backbone: The network; its weights are not downloaded.
        classes: Number of classes. Office-Home has 65.
        k: Number of mechanisms of the methods that use counterfactuals; the Baseline has one.
        quiet: Print only the table, no notes.
    """
    found = count_costs(backbone, classes, k)
    Console(markup=False).print(costs_table(found))
    for note in [] if quiet else costs_notes(found):
        print(note)
    return 0
