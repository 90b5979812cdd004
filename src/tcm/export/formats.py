"""The files: written from a traced network, and run by the program that they are for."""

import importlib
import io
import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.export import ExportedProgram

from tcm.errors import InputError, printable
from tcm.export.graph import BATCH_DIM

FileFormat = Literal["onnx", "pt2"]
ABOUT = "about.json"  # the description inside a .pt2 file
INPUT = "images"
EXTRA = "pip install 'tcm[export]'"


def require_packages(format: str) -> None:
    """An error if what writes and checks this format is not installed."""
    for name in ("onnx", "onnxscript", "onnxruntime") if format == "onnx" else ():
        try:
            importlib.import_module(name)
        except ImportError as error:
            found = f"is {format}, which needs the package {name} ({printable(error)})"
            raise InputError("format", f"{found}; install it with {EXTRA}") from error


def onnx_bytes(program: ExportedProgram, about: dict[str, Any], output: str) -> bytes:
    """The program as an ONNX model. The description is its metadata: each value as text, or as JSON if it is a list."""
    import onnx

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        names: dict[str, Any] = {"input_names": [INPUT], "output_names": [output]}
        made = torch.onnx.export(program, dynamo=True, verbose=False, **names)
    assert made is not None
    model = made.model_proto
    name_batch(model)
    without_sources(model)
    values = {key: value if isinstance(value, str) else json.dumps(value) for key, value in about.items()}
    onnx.helper.set_model_props(model, values)
    try:
        return model.SerializeToString()
    except ValueError as error:
        raise InputError("format", "is onnx, whose files have less than 2 GB; give `format=pt2`") from error


def name_batch(model: Any) -> None:
    """Gives the number of images the name "batch" in place of torch's symbol."""
    symbol = re.compile(rf"\b{re.escape(model.graph.input[0].type.tensor_type.shape.dim[0].dim_param)}\b")
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for side in value.type.tensor_type.shape.dim:
            if side.dim_param:
                side.dim_param = symbol.sub(BATCH_DIM, side.dim_param)


def without_sources(model: Any) -> None:
    """Removes the exporter's notes, which contain paths of source files."""
    graph = model.graph
    for part in (graph, *graph.input, *graph.output, *graph.value_info, *graph.initializer, *graph.node):
        del part.metadata_props[:]


def pt2_bytes(program: ExportedProgram, about: dict[str, Any]) -> bytes:
    """The program as a .pt2 file, which torch.export.load reads, with the description in the extra file about.json."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, buffer, extra_files={ABOUT: json.dumps(about)})
    return buffer.getvalue()


def loaded(file: Path, format: FileFormat) -> Callable[[Tensor], Tensor]:
    """A function that runs the file on a batch of its inputs, without this library."""
    return run_onnx(file) if format == "onnx" else run_pt2(file)


def run_onnx(file: Path) -> Callable[[Tensor], Tensor]:
    """The file in onnxruntime, on the CPU."""
    import onnxruntime

    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])

    def run(images: Tensor) -> Tensor:
        (found,) = session.run(None, {INPUT: images.numpy()})
        return torch.from_numpy(found)

    return run


def run_pt2(file: Path) -> Callable[[Tensor], Tensor]:
    """The file in PyTorch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.no_grad()(torch.export.load(file).module())
