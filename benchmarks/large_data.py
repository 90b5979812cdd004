"""Time and memory of large data sets: listing, checking, packing, and the beginning of training.

    python benchmarks/large_data.py --place scratch
    python benchmarks/large_data.py --place scratch --images 1000000 --size 32 --no-train

Writes small JPEG files (two domains, 100 classes, pieces of scikit-learn's photographs with a digit; every file has
other bytes) and runs the commands on them, each as a process. For each it prints the elapsed time and the largest
resident memory, and of that the largest anonymous part, which is the process's own, and the largest file-backed part:
the program's libraries, and pages of the packed images, which the system takes back when it needs them.

Linux only: it reads /proc.
"""

import argparse
import io
import os
import re
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES, DISTINCT, SIDE = 100, 2000, 64
LIST = """
import sys, time
from pathlib import Path
from tcm.data.task import DataConfig, read_domains
started = time.perf_counter()
domains = read_domains(DataConfig(source_dir=Path(sys.argv[1]), target_dir=Path(sys.argv[2])))
print(f"{sum(len(domain.paths) for domain in domains)} images listed in {time.perf_counter() - started:.1f} s")
"""
SECONDS = 0.02  # between two looks at the memory


def small_jpegs() -> list[bytes]:
    """JPEG files of SIDE x SIDE pixels: pieces of photographs with a digit in them."""
    from sklearn.datasets import load_digits, load_sample_images

    photographs, digits, rng = load_sample_images().images, load_digits(return_X_y=True)[0], np.random.default_rng(0)
    made = []
    for number in range(DISTINCT):
        whole, side = photographs[number % 2], int(rng.integers(70, 300))
        top, left = (int(rng.integers(length - side)) for length in whole.shape[:2])
        image = Image.fromarray(whole[top : top + side, left : left + side]).resize((SIDE, SIDE))
        digit = Image.fromarray((np.reshape(digits[number % len(digits)], (8, 8)) * 15.9).astype("uint8")).resize(
            (SIDE // 2, SIDE // 2)
        )
        image.paste(digit.convert("RGB"), (int(rng.integers(SIDE // 2)), int(rng.integers(SIDE // 2))))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=85)
        made.append(file.getvalue())
    return made


def write_images(root: Path, count: int) -> None:
    """Two domains of count / 2 files each. A comment with its number makes the bytes of each file unique."""
    made = small_jpegs()
    for number in range(count):
        side, row = divmod(number, count // 2)
        folder = root / ("source", "target")[side] / f"class {row % CLASSES:03}"
        if row < CLASSES:
            folder.mkdir(parents=True, exist_ok=True)
        comment, plain = f"number {number}".encode(), made[number % DISTINCT]
        marked = plain[:2] + b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment + plain[2:]
        (folder / f"{row:07}.jpg").write_bytes(marked)


def run(title: str, words: list[str]) -> None:
    """Runs a command and prints its time and largest memory."""
    started, largest = time.perf_counter(), dict.fromkeys(("VmRSS", "RssAnon", "RssFile"), 0)
    process = subprocess.Popen([sys.executable, *words], stderr=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            break
        for name in largest:
            found = re.search(rf"{name}:\s+(\d+) kB", status)
            largest[name] = max(largest[name], int(found[1]) if found else 0)
        time.sleep(SECONDS)
    if process.wait():
        raise SystemExit(f"{title} ended with {process.returncode}")
    total, own, mapped = (kilobytes / 1024 for kilobytes in largest.values())
    elapsed = time.perf_counter() - started
    print(
        f"== {title}: {elapsed:.1f} s, {total:.0f} MB resident ({own:.0f} anonymous, {mapped:.0f} of files)", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", type=Path, required=True, help="an empty folder for images, packed images and a run")
    parser.add_argument("--images", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=64, help="side of the stored images")
    parser.add_argument("--steps", type=int, default=50, help="training steps")
    parser.add_argument("--train", action=argparse.BooleanOptionalAction, default=True)
    options = parser.parse_args()
    root = options.place / "images"
    if not root.exists():
        write_images(root, options.images)
    folders = [str(root / "source"), str(root / "target")]
    data = ["--data.source-dir", folders[0], "--data.target-dir", folders[1], "--data.size", str(options.size)]
    cached = [*data, "--data.cache", str(options.place / "cache")]
    print(f"{options.images} images, {os.cpu_count()} cores", flush=True)
    run("python with tcm", ["-c", "import tcm.data.task"])
    run("list", ["-c", LIST, *folders])
    run("tcm data check", ["-m", "tcm", "data", "check", *data])
    run("tcm data pack", ["-m", "tcm", "data", "pack", *cached])
    run("tcm data pack, again", ["-m", "tcm", "data", "pack", *cached])
    if options.train:
        length = ["--steps", str(options.steps), "--evaluate-every", str(options.steps)]
        words = ["train", "erm", *cached, "--backbone.name", "small", *length, "--out", str(options.place / "run")]
        run(f"tcm train erm, {options.steps} steps and one evaluation", ["-m", "tcm", *words])


if __name__ == "__main__":
    main()
