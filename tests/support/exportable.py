"""Runs that were never trained, but whose predictions differ from image to image: for tests of exported files."""

from pathlib import Path

import torch
from torch import Tensor

from support.mistakes import draw_domain
from tcm.classifier.train_config import TrainConfig
from tcm.config import to_json
from tcm.data.task import DataConfig
from tcm.methods import METHODS
from tcm.methods.method import Method, Problem
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.training.run_folder import Run

CLASSES = ("cup", "hat", "key")
K = 2
GENERATOR = GeneratorConfig(4, 1, 1, kernel=3)


def draw_task(folder: Path, size: int, crop: int) -> DataConfig:
    """Two domains of noise on disk."""
    if not folder.exists():
        draw_domain(folder / "Art", CLASSES, each=2)
        draw_domain(folder / "Clipart", CLASSES, each=3, first_seed=50)
    return DataConfig(source_dir=folder / "Art", target_dir=folder / "Clipart", size=size, crop=crop)


def spread(method: Method, images: Tensor) -> None:
    """Enlarges the weights behind the backbone until the predictions of these images differ."""
    start = {name: tensor.clone() for name, tensor in method.state_dict().items()}
    own = [name for name, x in start.items() if x.ndim == 2 and not name.startswith(("inverse.", "backbone."))]
    for factor in (1, 2, 4, 8, 16, 32, 64):
        method.load_state_dict({**start, **{name: factor * start[name] for name in own}})
        if float(method.eval().predict(images).softmax(dim=1).std(dim=0).max()) > 0.05:
            return
    raise AssertionError("all predictions are alike")


@torch.no_grad()
def write_run(folder: Path, name: str, backbone: str, data: DataConfig) -> Path:
    """A finished run of the method with random weights so large that no prediction is like another."""
    torch.manual_seed(1)
    settings = BackboneConfig(backbone, pretrained=False)
    config = TrainConfig(method=METHODS[name].for_images(small=True), data=data, backbone=settings, device="cpu")
    config = config.resolved()
    inverse = FrozenGenerators(GENERATOR.build() for _ in range(K)) if config.method.runs_inverse else None
    method = config.method.build(Problem(len(CLASSES), config.backbone.build(), inverse))
    colours, noise = torch.rand(8, 3, 1, 1), torch.rand(8, 3, *2 * data.sides[1:])
    for _ in range(20):  # statistics for batch normalisation
        method.train().answer((colours + noise) / 2)
    if "centroids.scale" in method.state_dict():
        method.get_buffer("centroids.centroids").normal_()
        method.get_buffer("centroids.scale").fill_(10.0)
    spread(method, (colours + noise) / 2)
    about = {"method_name": name, "config": to_json(config), "classes": CLASSES}
    if inverse:
        about |= {"k": K, "generator": to_json(GENERATOR)}
    run = Run(folder)
    run.start({"method_name": name, **to_json(config)})
    run.release()
    needed = {key: tensor for key, tensor in method.state_dict().items() if key not in method.training_only}
    run.save_model(needed, about)
    return folder
