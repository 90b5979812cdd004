"""Use the data, a backbone and a loss of the library in a training loop of your own.

    python examples/own_training_loop.py

The loop trains a classifier and a domain discriminator on the same features. The gradient of the discriminator is
reversed on its way to the features, so that they become alike in both domains (Ganin et al., 2016).
"""

import torch
import torch.nn.functional as F
import tyro
from torch import nn

from tcm.classifier.evaluate import score
from tcm.data.augment import as_input
from tcm.data.stream import Stream
from tcm.data.task import DataConfig, load_task
from tcm.nn.backbone import BackboneConfig
from tcm.nn.heads import discriminator, reverse_gradient
from tcm.nn.losses import domain_confusion
from tcm.nn.schedules import ramp_up


def main(steps: int = 200) -> None:
    """Train on the built-in digits.

    Args:
        steps: Training steps.
    """
    torch.manual_seed(0)
    data = DataConfig(benchmark="digits")
    task = load_task(data)
    classes = len(task.source.classes)
    stream = Stream(*task, batch=32, seed=0, view=data.view, device=torch.device("cpu"))

    backbone = BackboneConfig("small").build()
    classifier = nn.Linear(backbone.features, classes)
    domains = discriminator(backbone.features, hidden=256)
    model = nn.ModuleList([backbone, classifier, domains]).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    for step in range(steps):
        batch = stream.batch(step)  # images [32, 3, 32, 32] in [0, 1]; there are no target labels in it
        features = backbone(torch.cat([batch.source, batch.target]))
        label_loss = F.cross_entropy(classifier(features[: len(batch.source)]), batch.labels)
        source, target = domains(reverse_gradient(features, ramp_up(step / steps))).chunk(2)
        domain_loss = domain_confusion(source, target)
        optimizer.zero_grad()
        (label_loss + domain_loss).backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}: label loss {label_loss.item():.2f}, domain loss {domain_loss.item():.2f}")

    model.eval()
    with torch.inference_mode():
        logits = classifier(backbone(as_input(task.target.images)))
    found = score(logits.softmax(dim=1), task.target.labels, classes)
    assert found is not None, "the digits have labels"
    print(f"{found.accuracy:.1%} of the target images are right")


if __name__ == "__main__":
    tyro.cli(main)
