"""The losses of CDAN+E and MCC in a plain PyTorch loop, with a network and data loaders of one's own.

python examples/plain_pytorch.py
"""

import torch
import torch.nn.functional as F
import tyro
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tcm.data import digits
from tcm.nn.heads import multilinear_map, reverse_gradient
from tcm.nn.losses import class_confusion, confident_confusion


def main(steps: int = 200) -> None:
    """Train on the built-in digits.

    Args:
        steps: Training steps.
    """
    torch.manual_seed(0)
    images, labels = [], []
    for domain in (digits.domain("source"), digits.domain("target")):
        images.append(torch.from_numpy(domain.images).movedim(-1, 1) / 255)  # [899, 3, 32, 32]
        labels.append(torch.from_numpy(domain.labels))
    source = DataLoader(TensorDataset(images[0], labels[0]), 32, shuffle=True, drop_last=True)
    target = DataLoader(TensorDataset(images[1]), 32, shuffle=True, drop_last=True)  # without labels

    convolutions = [nn.InstanceNorm2d(3), nn.Conv2d(3, 32, 5, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU()]
    network = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(2304, 128), nn.BatchNorm1d(128), nn.ReLU())
    classifier = nn.Linear(128, 10)
    discriminator = nn.Sequential(nn.Linear(128 * 10, 256), nn.ReLU(), nn.Linear(256, 1))
    model = nn.ModuleList([network, classifier, discriminator])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    epochs = (pair for _ in range(steps) for pair in zip(source, target, strict=False))
    for step, ((x_s, y_s), (x_t,)) in zip(range(steps), epochs, strict=False):
        features = network(torch.cat([x_s, x_t]))
        logits = classifier(features)
        p_s, p_t = logits.detach().softmax(dim=1).chunk(2)
        joint = multilinear_map(features, torch.cat([p_s, p_t]))  # features given the predicted class
        d_s, d_t = discriminator(reverse_gradient(joint, factor=step / steps)).chunk(2)
        loss = F.cross_entropy(logits[:32], y_s)
        loss = loss + confident_confusion(d_s, d_t, p_s, p_t)  # CDAN+E (Long et al., 2018)
        loss = loss + class_confusion(logits[32:], temperature=2.5)  # MCC (Jin et al., 2020)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    with torch.inference_mode():
        predicted = classifier(network.eval()(images[1])).argmax(dim=1)
    print(f"{(predicted == labels[1]).float().mean():.1%} of the target images are right")


if __name__ == "__main__":
    tyro.cli(main)
