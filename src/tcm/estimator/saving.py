"""A fitted estimator on disk: weights as safetensors, the rest as JSON."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcm import __version__
from tcm.classifier.load import load_classifier
from tcm.config import to_json
from tcm.errors import InputError, printable
from tcm.estimator.vectors import VectorNetwork, restored
from tcm.training.files import holds_files, make_folder, write_atomically
from tcm.training.run_folder import Run, read_json

if TYPE_CHECKING:
    from tcm.estimator.estimator import TCMClassifier

FILE = "estimator.json"


def save_estimator(estimator: "TCMClassifier", folder: Path) -> None:
    """Writes model.safetensors and estimator.json; an error if the folder holds something else."""
    make_folder(folder)
    if holds_files(folder) and not (folder / FILE).exists():
        raise InputError(f"{printable(folder)} is not empty and holds no saved estimator; choose a new or empty folder")
    about = {
        "tcm": __version__,
        "params": {**to_json(plain(estimator.get_params(deep=False))), "random_state": estimator.seed_},
        "classes": estimator.classes_.tolist(),
        "dtype": estimator.classes_.dtype.str,
    }
    for name in ("n_features_in_", "feature_names_in_"):
        if hasattr(estimator, name):
            about[name] = plain(getattr(estimator, name))
    Run(folder).save_model(estimator.method_.state_dict(), estimator.about_)
    write_atomically(folder / FILE, json.dumps(about, indent=2).encode())


def load_estimator(estimator: "TCMClassifier", folder: Path, device: str) -> None:
    """Fills an estimator with what `save_estimator` wrote."""
    if not (folder / FILE).exists():
        raise InputError(f"{printable(folder)} holds no saved estimator; name a folder that TCMClassifier.save wrote")
    about = read_json(folder / FILE)
    try:
        estimator.set_params(**about["params"])
        estimator.set_params(hidden_layer_sizes=tuple(estimator.hidden_layer_sizes))  # JSON has only lists
        estimator.classes_ = np.array(about["classes"], dtype=np.dtype(about["dtype"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{printable(folder / FILE)} is damaged ({printable(error)}); save it again") from error
    estimator.seed_ = about["params"]["random_state"]
    if "n_features_in_" in about:
        estimator.n_features_in_ = about["n_features_in_"]
    if "feature_names_in_" in about:
        estimator.feature_names_in_ = np.array(about["feature_names_in_"], dtype=object)
    tensors, estimator.about_ = Run(folder).load_model()
    if "vectors" in estimator.about_:
        network = VectorNetwork.read(estimator.about_["vectors"], str(folder))
        estimator.classifier_, estimator.method_ = None, restored(network, tensors)
    else:
        estimator.classifier_ = load_classifier(folder, device)
        estimator.method_ = estimator.classifier_.method


def plain(value: Any) -> Any:
    """numpy's arrays and numbers as Python's; inside of mappings and sequences too."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value
