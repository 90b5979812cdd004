"""Run folders of invented runs, as `tcm train` would have left them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tcm.training.run_folder import Run

DIGITS = [str(digit) for digit in range(10)]
OBJECTS = [f"Object_{index:02d}" for index in range(65)]


def write_run(
    folder: Path,
    *,
    classes: Sequence[str] = DIGITS,
    labelled: bool = True,
    finished: bool = True,
    method: str = "dann",
    seed: int = 0,
    steps: int = 400,
    images: int = 600,
    side: int = 28,
    skill: float = 2.5,
    task: tuple[str, str] = ("mnist", "usps"),
    paths: Sequence[str] | None = None,
    variants: Sequence[str] = (),
    head: dict[str, float] | None = None,
    selection: Sequence[str] = (),
    held_out: float | None = None,
) -> Path:
    """Writes the folder and returns it; `skill` is how much the true class stands out in the logits.

    Each of the `variants` is 5 points better than the one before it; `head` is logged as the last state of a causal
    head, after another. Each score of `selection` is highest at step 50 and falls from there.
    """
    config = {
        "method_name": method,
        "method": {"trade_off": 1.0},
        "data": {"root": "data", "source": task[0], "target": task[1], "benchmark": None, "size": side, "crop": side},
        "backbone": {"name": "lenet", "pretrained": False},
        "steps": steps,
        "seed": seed,
        "save_every": 100,
    }
    if held_out is not None:
        config["held_out"] = held_out
    environment = {"tcm": "0.3.0", "torch": "2.11", "commit": None, "command": f"tcm train {method} --seed {seed}"}
    Run(folder).start(config)
    (folder / "environment.json").write_text(json.dumps(environment))
    rows = history(steps if finished else steps // 2, labelled, seed)
    for row in rows:
        if "source/accuracy" in row:
            row |= {f"select/{name}": -float(row["step"]) for name in selection}
    if head:
        rows[-2] |= {f"head/{name}": 7.0 for name in head}
        rows[-1] |= {f"head/{name}": value for name, value in head.items()}
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if finished:
        arrays = predictions(classes, labelled, seed, images, side, skill, paths)
        arrays |= source_predictions(classes, seed, images, skill + 2, held_out or 0.0)
        summary = evaluation(arrays, classes, labelled, config)
        better = {name: 0.05 * place for place, name in enumerate(variants, start=1)}
        scores = {key: summary["target"][key] for key in ("accuracy", "mean_class_accuracy") if labelled}
        summary["target"]["variants"] = {
            name: {key: value + more for key, value in scores.items()} for name, more in better.items()
        }
        np.savez(folder / "evaluation.npz", allow_pickle=False, **arrays)
        (folder / "evaluation.json").write_text(json.dumps(summary))
    return folder


def history(steps: int, labelled: bool, seed: int) -> list[dict[str, Any]]:
    noise = np.random.default_rng(seed).normal(0, 0.05, (steps + 1, 3))
    rows: list[dict[str, Any]] = []
    for step in range(10, steps + 1, 10):
        losses = {
            "loss/classification": 2 / (1 + step / 60) + abs(noise[step, 0]),
            "loss/domain": 0.69 + noise[step, 1],
        }
        rows.append({"step": step, "lr": 0.01, **losses, "images_per_second": 800.0})
        if step % 50 == 0:
            accuracy = 0.85 - 0.5 / (1 + step / 50) + noise[step, 2] / 3
            target = {"target/accuracy": accuracy, "target/mean_class_accuracy": accuracy - 0.02} if labelled else {}
            rows.append({"step": step, "source/accuracy": 1 - 0.3 / (1 + step / 20), **target})
    return rows


def predictions(
    classes: Sequence[str], labelled: bool, seed: int, images: int, side: int, skill: float, paths: Sequence[str] | None
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    count = len(classes)
    true = np.arange(images) % count
    logits = random.normal(0, 1, (images, count))
    logits[np.arange(images), true] += skill * random.uniform(0.2, 1.8, count)[true]
    logits[np.arange(images), (true + 1) % count] += 0.5 * skill
    logits *= 2
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    guess, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    order = np.argsort(-confidence)
    sure = order[guess[order] != true[order]] if labelled else order
    shown = np.concatenate([order[::-1][:24], sure[:12]])
    pictures = random.integers(0, 256, (3, 24, side, side, 3), dtype=np.uint8)
    return {
        "probabilities": probabilities.astype(np.float32),
        "labels": true if labelled else np.full(images, -1),
        "paths": np.array(paths or [f"usps/{index:05d}.png" for index in range(images)]),
        "source_images": pictures[0],
        "source_labels": random.integers(0, count, 24),
        "target_images": pictures[1],
        "shown_index": shown,
        "shown_images": pictures[2][np.arange(len(shown)) % 24],
    }


def source_predictions(
    classes: Sequence[str], seed: int, images: int, skill: float, held_out: float
) -> dict[str, np.ndarray]:
    random = np.random.default_rng([seed, 1])
    true = np.arange(images) % len(classes)
    logits = random.normal(0, 1, (images, len(classes)))
    logits[np.arange(images), true] += skill
    probabilities = np.exp(2 * logits) / np.exp(2 * logits).sum(axis=1, keepdims=True)
    return {
        "on_source": probabilities.astype(np.float32),
        "source_classes": true,
        "held_out": np.arange(images) < round(held_out * images),
    }


def evaluation(
    arrays: dict[str, np.ndarray], classes: Sequence[str], labelled: bool, config: dict[str, Any]
) -> dict[str, Any]:
    right = arrays["probabilities"].argmax(axis=1) == arrays["labels"]
    images = len(right)
    present = np.unique(arrays["labels"])
    mean = np.mean([right[arrays["labels"] == label].mean() for label in present])
    return {
        "method": config["method_name"],
        "selection": "last",
        "step": config["steps"],
        "seconds": 42.0,
        "source": {"name": config["data"]["source"], "images": 2427, "classes": len(classes)},
        "target": {
            "name": config["data"]["target"],
            "images": images,
            "labelled": images if labelled else 0,
            "accuracy": float(right.mean()) if labelled else None,
            "mean_class_accuracy": float(mean) if labelled else None,
        },
        "neighbours": {"target": 0.8, "source": 0.7, "held_out": 0.9 if arrays["held_out"].any() else None},
        "classes": list(classes),
    }
