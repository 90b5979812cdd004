"""Trains heads on fixed ResNet-50 features of photographs: known cases for benchmarks/estimates.py, on a CPU.

python benchmarks/estimate_photographs.py --root office-home --weights resnet50.safetensors --out runs/photographs
python benchmarks/estimates.py runs/photographs/*/*

The features of 1,500 images of each domain are computed once (about 10 minutes on one core). The heads are a bottleneck
and a classifier, trained by five methods, and label propagation. A fifth of the source is held out. The folders have
what an estimate needs of a run, and no model. Repeat the command to continue.
"""

import argparse
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from tcm.classifier.evaluate import Predictions, TaskPredictions
from tcm.classifier.neighbours import neighbour_agreements
from tcm.classifier.selection import scores
from tcm.nn.backbone import BackboneConfig
from tcm.nn.heads import bottleneck, discriminator, reverse_gradient
from tcm.nn.label_propagation import PropagationConfig, propagated_labels
from tcm.nn.losses import class_confusion, information_maximisation
from tcm.training.files import write_atomically
from tcm.training.run_folder import Run

DOMAINS = ("Art", "Clipart", "Real_World")
IMAGES, BATCH = 1500, 64
METHODS = ("erm", "short", "mcc", "dann", "im", "a2lp")
# Number of classes, and how many times as frequent as the rarest the most frequent class of the target is.
SUBSETS = {"all": (65, 1.0), "few": (12, 1.0), "unequal": (30, 6.0)}


class Images(NamedTuple):
    """Features of one domain."""

    features: Tensor  # [n, 2048]
    labels: Tensor  # [n]

    def some(self, chosen: Tensor) -> "Images":
        return Images(self.features[chosen], self.labels[chosen])


def read_features(root: Path, weights: Path, out: Path, name: str) -> Images:
    """The features of some images of a domain, computed once."""
    file = out / "features" / f"{name}.npz"
    if not file.exists():
        classes = sorted(folder.name for folder in (root / name).iterdir())
        files = [(path, label) for label, c in enumerate(classes) for path in sorted((root / name / c).glob("*.jpg"))]
        chosen = np.sort(np.random.default_rng(0).permutation(len(files))[:IMAGES])
        found = torch.cat(list(features_of([files[i][0] for i in chosen], weights)))
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, features=found.numpy(), labels=np.array([files[i][1] for i in chosen]))
    with np.load(file) as stored:
        return Images(torch.from_numpy(stored["features"]).float(), torch.from_numpy(stored["labels"]).long())


@torch.inference_mode()
def features_of(files: list[Path], weights: Path) -> Iterator[Tensor]:
    """ResNet-50 features of images of 256 x 256 pixels, centre-cropped, in batches."""
    network = BackboneConfig("resnet50.tv_in1k", weights).build().eval()
    for start in range(0, len(files), 32):
        pixels = [np.asarray(Image.open(file).convert("RGB"))[16:240, 16:240] for file in files[start : start + 32]]
        with torch.autocast("cpu", torch.bfloat16):
            yield network(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2) / 255).float()
        print(f"{start + len(pixels)} of {len(files)} images", end="\r", flush=True)


def subset(images: Images, classes: int, frequent: float, seed: int) -> Images:
    """Images of some classes; with `frequent` above 1, the first class is rarer than the last."""
    rng = np.random.default_rng(seed)
    kept = torch.from_numpy(np.random.default_rng(classes).permutation(65)[:classes])
    place = torch.full((65,), -1)
    place[kept] = torch.arange(classes)
    labels = place[images.labels]
    share = np.append(np.linspace(1, frequent, classes) / frequent, 0.0)[labels.numpy()]
    return Images(images.features, labels).some(torch.from_numpy(rng.random(len(labels)) < share))


def train(method: str, source: Images, target: Images, classes: int, seed: int) -> nn.Sequential:
    """A head trained on source features by `method`; target labels are not used."""
    torch.manual_seed(seed)
    head = nn.Sequential(bottleneck(source.features.shape[1], 256), nn.Linear(256, classes))
    critic = discriminator(256)
    steps = 12 if method == "short" else 200
    parameters = [*head.parameters(), *critic.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=1e-3, nesterov=True)
    for step in range(steps):
        ours, theirs = (torch.randint(len(domain.labels), (BATCH,)) for domain in (source, target))
        features = head[0](torch.cat([source.features[ours], target.features[theirs]]))
        logits, on_target = head[1](features).split(BATCH)
        loss = F.cross_entropy(logits, source.labels[ours])
        if method == "mcc":
            loss = loss + class_confusion(on_target, 2.5)
        elif method == "im":
            loss = loss + information_maximisation(on_target)
        elif method == "dann":
            domain = critic(reverse_gradient(features, 2 / (1 + np.exp(-10 * step / steps)) - 1))
            truth = torch.arange(2 * BATCH).lt(BATCH).float().view_as(domain)
            loss = loss + F.binary_cross_entropy_with_logits(domain, truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return head.eval()


@torch.inference_mode()
def predict(method: str, trained: Images, source: Images, target: Images, classes: int, seed: int) -> TaskPredictions:
    """Predictions for all images of both domains by a method that sees the labels of `trained` alone."""
    if method == "a2lp":
        # Another draw of a tenth of the labels takes the part of a seed.
        order = torch.randperm(len(trained.labels), generator=torch.Generator().manual_seed(seed))
        known = trained.some(order[len(order) // 10 :])
        both = torch.cat([source.features, target.features])
        found = propagated_labels(known.features, known.labels, both, classes, PropagationConfig())
        parts, features = found.split([len(source.labels), len(target.labels)]), (source.features, target.features)
    else:
        with torch.inference_mode(False), torch.enable_grad():
            head = train(method, trained, target, classes, seed)
        features = [head[0](domain.features) for domain in (source, target)]
        parts = [head[1](part).softmax(dim=1) for part in features]
    return TaskPredictions(*(Predictions(part, feature) for part, feature in zip(parts, features, strict=True)))


def write_case(out: Path, method: str, seed: int, kind: str, names: tuple[str, str], domains: list[Images]) -> None:
    """Trains and writes one case, unless it is there."""
    folder = out / f"{names[0]}-{names[1]}-{kind}" / f"{method}-s{seed}"
    if (folder / "evaluation.json").exists():
        return
    classes = SUBSETS[kind][0]
    source, target = domains
    held_out = torch.rand(len(source.labels), generator=torch.Generator().manual_seed(seed)) < 0.2
    found = predict(method, source.some(~held_out), source, target, classes, seed)
    accuracy = float((found.target.probabilities.argmax(dim=1) == target.labels).double().mean())
    summary = {
        "method": method,
        "source": {"name": names[0], "images": len(source.labels), "classes": classes},
        "target": {"name": f"{names[1]} ({kind})", "images": len(target.labels), "accuracy": accuracy},
        "neighbours": neighbour_agreements(found, source.labels, held_out),
        "classes": [str(number) for number in range(classes)],
    }
    run = Run(folder)
    run.start({"method_name": method, "seed": seed, "steps": 1, "data": {"source": names[0], "target": names[1]}})
    run.append_metrics({"step": 1, **scores(found.source, source.labels, found.target, held_out, torch.device("cpu"))})
    arrays = io.BytesIO()
    np.savez_compressed(
        arrays,
        probabilities=found.target.probabilities.numpy(),
        labels=target.labels.numpy(),
        paths=np.array([f"{number:05d}" for number in range(len(target.labels))]),
        on_source=found.source.probabilities.numpy(),
        source_classes=source.labels.numpy(),
        held_out=held_out.numpy(),
    )
    write_atomically(folder / "evaluation.npz", arrays.getvalue())
    write_atomically(folder / "evaluation.json", json.dumps(summary, indent=2).encode())
    print(folder, f"{100 * accuracy:.1f}", flush=True)


def main() -> None:
    """Writes a case for every task, subset, method and seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, text in (("root", "Office-Home"), ("weights", "ResNet-50 weights"), ("out", "folder for the cases")):
        parser.add_argument(f"--{name}", type=Path, required=True, help=text)
    given = parser.parse_args()
    domains = {name: read_features(given.root, given.weights, given.out, name) for name in DOMAINS}
    for seed, kind, method in itertools.product((0, 1), SUBSETS, METHODS):
        for names in itertools.permutations(DOMAINS, 2):
            classes, frequent = SUBSETS[kind]
            source, target = (subset(domains[name], classes, 1.0, 0) for name in names)
            target = subset(domains[names[1]], classes, frequent, 1) if frequent > 1 else target
            write_case(given.out, method, seed, kind, names, [source, target])


if __name__ == "__main__":
    main()
