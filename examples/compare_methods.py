"""Train two methods on the built-in digits and compare them on the target domain.

    python examples/compare_methods.py

ERM learns from the labelled source images alone. DAN also sees the target images, without their labels, and makes the
features of both domains alike. `list(tcm.METHODS)` names the other methods.
"""

from pathlib import Path

import tyro

import tcm


def main(out: Path = Path("runs/examples"), steps: int = 200) -> None:
    """Compare ERM and DAN.

    Args:
        out: Folder for the runs. A run that is finished is not trained again.
        steps: Training steps of each method.
    """
    for name in ("erm", "dan"):
        tcm.train(name, data={"benchmark": "digits"}, out=out / name, steps=steps, evaluate_every=steps)
        target = tcm.evaluate(out / name)["target"]
        print(f"{name}: {target['accuracy']:.1%} of {target['images']} target images are right")


if __name__ == "__main__":
    tyro.cli(main)
