"""tcm: unsupervised domain adaptation of image classifiers by Transporting Causal Mechanisms.

    import tcm

    classifier = tcm.fit("photos", "cliparts", out="runs/fit")  # labelled photos, cliparts without labels
    classifier.predict("new-cliparts")  # class names; also of PIL images, numpy arrays and torch tensors

`fit` goes from two folders to a classifier, `train` trains one method of `METHODS`, and `load` gives the `Classifier`
of a finished run. `TCMClassifier` is a scikit-learn estimator, and `TargetScorer` a scorer that needs no target labels.

Settings that belong together are given as a mapping: what a message calls `data.crop` is `data={"crop": 224}` in a
call. What cannot be used raises an `InputError`, which says what was found and what to do.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcm.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tcm.classifier.inputs import Images
    from tcm.classifier.load import Classifier
    from tcm.data.task import DataConfig
    from tcm.estimator.estimator import TCMClassifier
    from tcm.estimator.scorers import TargetScorer
    from tcm.methods import METHODS
    from tcm.methods.method import MethodConfig
    from tcm.methods.tcm.tcm import TCMConfig
    from tcm.nn.backbone import BackboneConfig
    from tcm.pipeline.config import StageOne
    from tcm.training.device import Device
    from tcm.training.tracking import TrackerName

    PathLike = str | os.PathLike[str]

__version__ = "0.3.0"
__all__ = [
    "METHODS",
    "Classifier",
    "InputError",
    "TCMClassifier",
    "TargetScorer",
    "evaluate",
    "fit",
    "load",
    "predict",
    "train",
]

# PyTorch takes seconds to load, so what needs it is imported when it is first used.
_IMPORTED_LATER = {
    "METHODS": "tcm.methods",
    "Classifier": "tcm.classifier.load",
    "TCMClassifier": "tcm.estimator.estimator",
    "TargetScorer": "tcm.estimator.scorers",
}


def fit(
    source: PathLike | Sequence[PathLike] | None = None,
    target: PathLike | None = None,
    *,
    out: PathLike | None = None,
    steps: int | None = None,
    k: int | str | None = None,
    frozen: bool | None = None,
    compare: bool = False,
    data: DataConfig | Mapping[str, Any] | None = None,
    backbone: BackboneConfig | Mapping[str, Any] | None = None,
    method: TCMConfig | Mapping[str, Any] | None = None,
    mechanisms: StageOne | Mapping[str, Any] | None = None,
    seed: int = 0,
    device: Device = "auto",
    report: bool = True,
    log: TrackerName | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Classifier:
    """From two folders to a classifier: trains source only and TCM, chooses without target labels, returns the choice.

    Small images have both stages of TCM (TCM Algorithm 1). Photographs have no mechanisms by default, because
    counterfactuals have not helped there so far; `k=4` asks for them. Photographs without a GPU get a linear classifier
    and self-training on pretrained features. Calling it again with the same settings continues what was
    interrupted; a finished folder is only loaded.

    Args:
        source: Folder of labelled images, one subfolder per class. Several folders are pooled.
        target: Folder of images to adapt to. Labels are not needed; class subfolders are used for evaluation only.
        out: Folder for the result: a run for each method, predictions.csv, model.safetensors and the report. Default:
            runs/SOURCE-to-TARGET.
        steps: Training steps of each method. Default: from the number of images.
        k: Number of mechanisms of stage 1; 0: no stage 1. Default: 4 for small images, 0 for photographs.
        frozen: Do not train the backbone. Default: for photographs if there is no GPU.
        compare: Also train three rivals: cdan-e, mcc and fixmatch.
        data: Settings of `DataConfig`, such as {"size": 64}. Other forms of data take the place of `source` and
            `target`: {"benchmark": "digits"}, or list files.
        backbone: Settings of `BackboneConfig`, such as {"name": "resnet18"}.
        method: Settings of TCM, such as {"rounds": 1}.
        mechanisms: Settings of stage 1, such as {"steps": 2000}.
        seed: Seed of all random choices.
        device: "auto" is the GPU if there is one.
        report: Write report/index.html.
        log: "csv", "tensorboard", "wandb" or "trackio" also get the metrics.
        quiet: Show no progress.
        **settings: The other fields of `tcm.pipeline.config.FitConfig`, such as `batch`.
    """
    from tcm.classifier.load import load_classifier
    from tcm.config import with_settings
    from tcm.pipeline.config import FitConfig
    from tcm.pipeline.fit import fit_pipeline
    from tcm.pipeline.folder import default_out
    from tcm.pipeline.plan import data_for_fit
    from tcm.training.processes import current_processes

    data = data_for_fit(_data_config(source, target, data))
    nested = {"backbone": backbone, "method": method, "mechanisms": mechanisms}
    given = {name: value for name, value in nested.items() if value is not None}
    given |= {"data": data, "steps": steps, "k": k, "frozen": frozen, "compare": compare, "seed": seed}
    config = with_settings(FitConfig.for_images(data.is_small), given | {"device": device} | settings)
    folder = default_out(data) if out is None else _folder("out", out)

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr)

    fitted = fit_pipeline(config, folder, quiet, say=say, log=log)
    if report and fitted.task is not None and current_processes().first:
        from tcm.report import write_report
        from tcm.report.mechanisms import Loaded

        write_report(fitted.runs, folder / "report", Loaded(fitted.task, fitted.trained))
    return load_classifier(fitted.model, device)


def train(
    name: str,
    /,
    source: PathLike | Sequence[PathLike] | None = None,
    target: PathLike | None = None,
    *,
    out: PathLike,
    mechanisms: PathLike | None = None,
    method: MethodConfig | Mapping[str, Any] | None = None,
    data: DataConfig | Mapping[str, Any] | None = None,
    backbone: BackboneConfig | Mapping[str, Any] | None = None,
    steps: int | None = None,
    batch: int = 32,
    seed: int = 0,
    device: Device = "auto",
    log: TrackerName | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Classifier:
    """Trains one method and returns the trained classifier.

    Calling it again with the same settings continues what was interrupted; a finished folder is only loaded.

    Args:
        name: A method of `tcm.METHODS`, such as "dann".
        source: Folder of labelled images, one subfolder per class. Several folders are pooled.
        target: Folder of images to adapt to. Labels are not needed; class subfolders are used for evaluation only.
        out: Folder of the run.
        mechanisms: Folder of finished mechanisms, such as the `mechanisms` below the `out` of a fit. Only methods that
            use counterfactuals take it.
        method: Settings of the method, such as {"trade_off": 0.5, "recipe": {"lr": 0.02}}.
        data: Settings of `DataConfig`, such as {"size": 64}. Other forms of data take the place of `source` and
            `target`: {"benchmark": "digits"}, or list files.
        backbone: Settings of `BackboneConfig`, such as {"name": "resnet18"}.
        steps: Training steps. Default: 10000, tcm and tcm-control 4000, tcm-release 15000, digits 600; 1 if nothing is
            trained.
        batch: Images of each domain in a step.
        seed: Seed of all random choices.
        device: "auto" is the GPU if there is one.
        log: "csv", "tensorboard", "wandb" or "trackio" also get the metrics.
        quiet: Show no progress.
        **settings: The other fields of `tcm.classifier.train_config.TrainConfig`, such as `evaluate_every`.
    """
    from tcm.classifier.load import load_classifier
    from tcm.classifier.train import train_classifier
    from tcm.classifier.train_config import TrainConfig
    from tcm.config import with_settings
    from tcm.methods import METHODS

    if name not in METHODS:
        raise InputError(f'there is no method "{name}"; give one of {", ".join(METHODS)}')
    data = _data_config(source, target, data)
    nested = {"method": method, "backbone": backbone}
    given = {key: value for key, value in nested.items() if value is not None}
    given |= {"data": data, "steps": steps, "batch": batch, "seed": seed, "device": device}
    given |= {"mechanisms": None if mechanisms is None else _folder("mechanisms", mechanisms)}
    start = TrainConfig(method=METHODS[name].for_images(data.is_small))
    folder = _folder("out", out)
    train_classifier(name, with_settings(start, given | settings), folder, quiet, log=log)
    return load_classifier(folder, device)


def load(run: PathLike, *, device: Device = "auto") -> Classifier:
    """The classifier of a finished run: the `out` of `train` or of `fit`, or a model.safetensors by itself."""
    from tcm.classifier.load import load_classifier
    from tcm.training.run_folder import chosen_run

    return load_classifier(chosen_run(_folder("run", run)), device)


def predict(run: PathLike, images: Images, *, fast: bool = False, device: Device = "auto") -> NDArray[np.str_]:
    """The class name of every image, by a finished run: `load(run).predict(images)`, for a single use."""
    return load(run, device=device).predict(images, fast=fast)


def evaluate(run: PathLike, *, device: Device = "auto", quiet: bool = False) -> dict[str, Any]:
    """Evaluates a finished run on its own data again and returns the scores, which its evaluation.json holds too.

    `scores["target"]["accuracy"]` is None if the target has no labels.
    """
    from tcm.classifier.trained import evaluate_run
    from tcm.training.run_folder import chosen_run

    return evaluate_run(chosen_run(_folder("run", run)), device, quiet)


def _folder(name: str, path: PathLike) -> Path:
    if str(path) == "":  # which would be the folder that one stands in
        raise InputError(name, "is empty; name a folder")
    return Path(path).expanduser()


def _data_config(
    source: PathLike | Sequence[PathLike] | None,
    target: PathLike | None,
    data: DataConfig | Mapping[str, Any] | None,
) -> DataConfig:
    """`data` with the two folders filled in."""
    from tcm.config import with_settings
    from tcm.training.run_config import RunConfig

    config = with_settings(RunConfig(), {"data": data or {}}).data
    if source is None and target is None:
        return config
    for name, path in (("source", source), ("target", target)):
        if path is None:
            raise InputError(name, "is missing; give the folders `source` and `target`, or describe both in `data`")
        if getattr(config, f"{name}_dir") is not None:
            raise InputError(name, f"is given and so is `data.{name}_dir`; leave one out")
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        folders = tuple(_folder(name, one) for one in paths)
        config = with_settings(config, {f"{name}_dir": folders if len(folders) != 1 else folders[0]}, "data")
    return config


def __getattr__(name: str) -> Any:
    if name in _IMPORTED_LATER:
        return getattr(import_module(_IMPORTED_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
