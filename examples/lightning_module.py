"""Any method of the library as a LightningModule, trained by Lightning's Trainer.

    pip install lightning
    python examples/lightning_module.py

The method brings its losses, its optimizer and its learning rate. Lightning brings the loop, devices, precision,
loggers and callbacks.
"""

import lightning
import torch
import tyro
from lightning.pytorch.utilities import CombinedLoader
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from tcm.data import digits
from tcm.data.batch import Batch
from tcm.methods import METHODS
from tcm.methods.method import Problem
from tcm.nn.backbone import BackboneConfig


class AdaptedClassifier(lightning.LightningModule):
    """A method that needs neither mechanisms nor strong views, and has one optimizer: for example cdan-e or mcc."""

    def __init__(self, name: str, classes: int):
        super().__init__()
        self.method = METHODS[name].for_images(small=True).build(Problem(classes, BackboneConfig("small").build()))

    @property
    def progress(self) -> float:
        """The share of the steps that are done, on which losses and learning rates depend."""
        return self.global_step / self.trainer.max_steps

    def training_step(self, batch: tuple[list[Tensor], list[Tensor]]) -> Tensor:
        """The sum of the method's losses, each of which is logged."""
        (images, labels), (target,) = batch
        losses = self.method.losses(Batch(images, labels, target), self.progress)
        self.log_dict({f"loss/{name}": loss for name, loss in losses.items()}, prog_bar=True)
        return torch.stack([*losses.values()]).sum()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The method's own optimizer and learning rate."""
        (optimizer,) = self.method.build_optimizers().values()
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: self.method.lr_factor(self.progress))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def test_step(self, batch: tuple[Tensor, Tensor]) -> None:
        """The accuracy on the target, whose labels training never sees."""
        images, labels = batch
        self.log("target/accuracy", (self.method(images).argmax(dim=1) == labels).float().mean())


def main(steps: int = 200, method: str = "cdan-e") -> None:
    """Train on the built-in digits.

    Args:
        steps: Training steps.
        method: Name of the method.
    """
    torch.manual_seed(0)
    data = []
    for domain in (digits.domain("source"), digits.domain("target")):
        images = torch.from_numpy(domain.images).movedim(-1, 1) / 255
        data.append(TensorDataset(images, torch.from_numpy(domain.labels)))
    source, target = data
    unlabelled = TensorDataset(target.tensors[0])
    loaders = CombinedLoader([DataLoader(part, 32, shuffle=True, drop_last=True) for part in (source, unlabelled)])
    trainer = lightning.Trainer(
        max_steps=steps,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = AdaptedClassifier(method, len(digits.CLASSES))
    trainer.fit(module, loaders)
    (found,) = trainer.test(module, DataLoader(target, 256), verbose=False)
    print(f"{method}: {found['target/accuracy']:.1%} of the target images are right")


if __name__ == "__main__":
    tyro.cli(main)
