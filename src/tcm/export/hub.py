"""A folder for the Hugging Face Hub: model.safetensors, config.json and the model card, README.md."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import safetensors.torch

from tcm import __version__
from tcm.classifier.trained import Trained
from tcm.config import to_json
from tcm.data.task import FORMS
from tcm.errors import InputError, printable
from tcm.export.card import Card, card_text
from tcm.export.graph import needed_tensors
from tcm.training.files import make_folder, write_atomically
from tcm.training.run_folder import WRITTEN_BY, Run, read_json


def write_folder(run: Path, trained: Trained, out: Path, licence: str | None) -> None:
    """Writes the three files. `tcm.load` reads the folder as it reads a run."""
    card = card_text(read_card(run, trained, licence))
    make_folder(out)
    write_atomically(out / "model.safetensors", published_model(run, trained))
    write_atomically(out / "config.json", json.dumps(published_config(trained), indent=2).encode())
    write_atomically(out / "README.md", card.encode())


def published_model(run: Path, trained: Trained) -> bytes:
    """The run's model.safetensors without the tensors that only training needs and without paths of this machine."""
    tensors, about = Run(run).load_model()
    needed = needed_tensors(trained.method, trained.config.data.sides[1])
    about["config"] = to_json(without_paths(trained.config))
    about["left_out"] = sorted(name for name in tensors if name not in needed)
    kept = {name: tensor for name, tensor in tensors.items() if name in needed}
    return safetensors.torch.save(kept, {"format": "pt", "tcm": json.dumps({"written_by": WRITTEN_BY, **about})})


def without_paths(config: Any) -> Any:
    """The config of a run without the places of its data and weights. Size and crop are filled in already."""
    nothing = dict.fromkeys(("benchmark", "cache", *(name for form in FORMS for name in form)))
    data = dataclasses.replace(config.data, **nothing)
    backbone = dataclasses.replace(config.backbone, weights=None)
    return dataclasses.replace(config, data=data, backbone=backbone, mechanisms=None)


def published_config(trained: Trained) -> dict[str, Any]:
    """config.json: what a reader of the Hub, human or program, wants to know of the network."""
    size, crop = trained.config.data.sides
    backbone = trained.method.backbone
    return {
        "library_name": "tcm",
        "tcm_version": __version__,
        "task": "image-classification",
        "method": trained.name,
        "backbone": trained.config.backbone.name,
        "num_classes": len(trained.classes),
        "id2label": {str(index): name for index, name in enumerate(trained.classes)},
        "label2id": {name: index for index, name in enumerate(trained.classes)},
        "size": size,
        "crop": crop,
        "mean": [round(value, 6) for value in backbone.mean.flatten().tolist()],
        "std": [round(value, 6) for value in backbone.sd.flatten().tolist()],
    }


def read_card(run: Path, trained: Trained, licence: str | None) -> Card:
    """What the model card says, from the files of the run that are there."""
    found = {name: run / f"{name}.json" for name in ("evaluation", "estimate")}
    contents = {name: read_json(file) if file.exists() else None for name, file in found.items()}
    estimate = contents["estimate"]
    if estimate is not None and not {"accuracy", "low", "high", "error", "cases"} <= {*estimate}:
        raise InputError(f"{printable(found['estimate'])} is damaged; repeat tcm estimate, or delete it")
    return Card(trained, contents["evaluation"], estimate, licence)


def push(folder: Path, repository: str) -> str:
    """Uploads the folder to the Hub as `repository`, "name/model", which is made if it is not there. Returns its
    address. The token is the one of `hf auth login`."""
    from huggingface_hub import HfApi

    try:
        address = HfApi().create_repo(repository, exist_ok=True)
        HfApi().upload_folder(repo_id=repository, folder_path=folder, commit_message=f"tcm {__version__}")
    except Exception as error:  # no network, no token, no such user: the library has many errors; for the user one
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        found = f"{printable(repository)} could not be uploaded ({printable(reason)})"
        remedy = f"the folder {printable(folder)} is complete: log in with hf auth login, or upload it yourself"
        raise InputError("push", f"{found}; {remedy}") from error
    return str(address)
