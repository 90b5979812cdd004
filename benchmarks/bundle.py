"""Runs on a machine that has PyTorch and a GPU, but no network: the program, images and weights in parts, and a queue.

    python benchmarks/bundle.py make --to runs/bundle --files office-home/Art office-home/Clipart resnet50.safetensors

writes folders `1`, `2`, ... of at most `--limit` megabytes below runs/bundle. They hold this commit of the program, the
packages that the other machine lacks, and the files: folders as tar archives. Bring each to the other machine:

    python3 bundle.py unpack runs/bundle/1 --to kit

There, `start` runs the commands of a file, one per line, several at once and in the background; `tcm` is a command.
Names of files are relative to the kit. `wait` returns when all have ended or the time is over, and collects the
finished runs without models and checkpoints. Both can be repeated: runs continue where they were.

    python3 kit/benchmarks/bundle.py start commands.txt --jobs 3
    python3 kit/benchmarks/bundle.py wait --seconds 540 --to results.tar.gz
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

PACKAGES = ("tyro", "docstring-parser", "typeguard", "pandas", "filelock", "lightning-fabric", "lightning-utilities")
MB = 1_000_000
LEFT_OUT = {"state.pt", "model.safetensors", "counterfactuals.npy"}  # too large, and made again by a repeated command
KIT = Path(__file__).resolve().parents[1]
QUEUE, LOGS = "queue", "logs"  # folders: the process that runs the commands; what each of them prints


def make(arguments: argparse.Namespace) -> None:
    """Writes the parts."""
    if subprocess.check_output(["git", "status", "--porcelain", "--untracked-files=no"]):
        sys.exit("bundle: there are changes that are not committed; commit them, because rows name the commit")
    shutil.rmtree(arguments.to, ignore_errors=True)
    whole = arguments.to / "whole"
    whole.mkdir(parents=True)
    commit = subprocess.check_output(["git", "rev-parse", "--short=12", "HEAD"], text=True).strip()
    (whole / "commit").write_text(commit)
    tracked = ["src", "benchmarks"]
    subprocess.run(["git", "archive", "HEAD", "--output", whole / "program.tar", *tracked], check=True)
    if arguments.packages:
        install_packages(whole / "packages.tgz", arguments.python, arguments.packages)
    for given in arguments.files:
        if given.is_dir():
            with tarfile.open(whole / f"{given.name}.tar", "w") as archive:
                archive.add(given, Path(arguments.root) / given.name)
        else:
            shutil.copy(given, whole)
    for number, part in enumerate(parts(sorted(whole.iterdir()), arguments.limit * MB), start=1):
        folder = arguments.to / str(number)
        folder.mkdir()
        for file in part:
            file.rename(folder / file.name)
        size = sum(file.stat().st_size for file in folder.iterdir()) / MB
        print(f"{folder}: {', '.join(file.name for file in part)} ({size:.0f} MB)")
    whole.rmdir()


def install_packages(to: Path, python: str, packages: list[str]) -> None:
    """An archive of these packages for that version of Python, without what they need and without their tests."""
    folder = to.with_suffix("")
    words = ["--quiet", "--no-deps", "--only-binary", ":all:", "--python-version", python, "--target", folder]
    subprocess.run([sys.executable, "-m", "pip", "install", *map(str, words), *packages], check=True)
    for tests in [*folder.rglob("tests"), *folder.rglob("__pycache__")]:
        shutil.rmtree(tests, ignore_errors=True)
    with tarfile.open(to, "w:gz") as archive:
        archive.add(folder, "packages")
    shutil.rmtree(folder)


def parts(files: list[Path], limit: int) -> list[list[Path]]:
    """The files in as few groups of at most `limit` bytes as taking the largest first gives."""
    found: list[tuple[int, list[Path]]] = []
    for file in sorted(files, key=lambda file: -file.stat().st_size):
        size = file.stat().st_size
        if size > limit:
            sys.exit(f"bundle: {file.name} has {size / MB:.0f} MB; give a --limit of at least that")
        for place, (used, group) in enumerate(found):
            if used + size <= limit:
                found[place] = (used + size, [*group, file])
                break
        else:
            found.append((size, [file]))
    return [group for _, group in found]


def unpack(arguments: argparse.Namespace) -> None:
    """Puts one part into the kit."""
    arguments.to.mkdir(parents=True, exist_ok=True)
    for file in sorted(arguments.part.iterdir()):
        if file.suffix in (".tar", ".tgz"):
            with tarfile.open(file) as archive:
                archive.extractall(arguments.to, filter="data")
        else:
            shutil.copy(file, arguments.to)
    program = arguments.to / "bin" / "tcm"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tcm "$@"\n')
    program.chmod(0o755)


def start(arguments: argparse.Namespace) -> None:
    """Starts the queue in the background; it goes on when this process has ended."""
    (KIT / QUEUE).mkdir(exist_ok=True)
    if arguments.jobs > 1 and shutil.which("nvidia-cuda-mps-control"):  # processes then share the GPU's time
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)
    command = [sys.executable, __file__, "run", arguments.commands.resolve(), "--jobs", arguments.jobs]
    with open(KIT / "queue.log", "a") as log:
        queue = subprocess.Popen([*map(str, command)], cwd=KIT, stdout=log, stderr=log, start_new_session=True)
    (KIT / QUEUE / "pid").write_text(str(queue.pid))
    print(f"started; what the commands print is in {KIT / LOGS}")


def run(arguments: argparse.Namespace) -> None:
    """Runs the commands, and prints how each has ended."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(KIT / "src"), str(KIT / "packages")])
    os.environ["PATH"] = os.pathsep.join([str(KIT / "bin"), os.environ["PATH"]])
    os.environ["TCM_COMMIT"] = (KIT / "commit").read_text()
    os.environ["PYTHONUNBUFFERED"] = "1"
    (KIT / LOGS).mkdir(exist_ok=True)
    commands = [line for line in arguments.commands.read_text().splitlines() if line.strip()]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for ended in as_completed([pool.submit(run_one, *numbered) for numbered in enumerate(commands)]):
            print(ended.result(), flush=True)
    (KIT / QUEUE / "pid").unlink(missing_ok=True)


def run_one(number: int, command: str) -> str:
    """Runs one command, and returns how it ended."""
    began = time.monotonic()
    with open(KIT / LOGS / f"{number:03}.log", "a") as log:
        code = subprocess.run(["sh", "-c", command], cwd=KIT, stdout=log, stderr=log, check=False).returncode
    return f"{number:03} exit code {code}, {time.monotonic() - began:.0f} s: {command}"


def wait(arguments: argparse.Namespace) -> None:
    """Waits, prints where the queue is, and collects what has been finished."""
    until = time.monotonic() + arguments.seconds
    pid = KIT / QUEUE / "pid"
    while pid.exists() and time.monotonic() < until:
        time.sleep(1)
    print((KIT / "queue.log").read_text() or "no command has ended yet")
    for log in sorted((KIT / LOGS).glob("*.log")):
        last = log.read_text(errors="replace").replace("\r", "\n").strip().splitlines()[-1:]
        print(f"{log.name}: {''.join(last)[-150:]}")
    print("the queue is running" if pid.exists() else "the queue has ended")
    with tarfile.open(arguments.to, "w:gz") as archive:
        for file in to_collect(KIT / "runs"):
            archive.add(file, file.relative_to(KIT))
        archive.add(KIT / LOGS, LOGS)


def to_collect(runs: Path) -> Iterator[Path]:
    """The files below a folder of runs but models and checkpoints."""
    for file in sorted(runs.rglob("*")):
        if file.is_file() and file.name not in LEFT_OUT and file.stat().st_size < MB:
            yield file


def stop(_: argparse.Namespace) -> None:
    """Asks all running commands to save and to end."""
    pid = KIT / QUEUE / "pid"
    os.killpg(int(pid.read_text()), signal.SIGTERM)
    pid.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(function, help: str) -> argparse.ArgumentParser:
        found = actions.add_parser(function.__name__, help=help)
        found.set_defaults(action=function)
        return found

    one = action(make, "write the parts")
    one.add_argument("--to", type=Path, required=True)
    one.add_argument("--files", type=Path, nargs="*", default=[], help="folders of images, files of weights")
    one.add_argument("--root", default="office-home", help="folder of the kit that gets the folders of images")
    one.add_argument("--python", default="3.12", help="Python of the other machine")
    one.add_argument("--packages", nargs="*", default=list(PACKAGES), help="what the other machine lacks")
    one.add_argument("--limit", type=int, default=50, help="megabytes of a part")
    one = action(unpack, "put a part into the kit")
    one.add_argument("part", type=Path)
    one.add_argument("--to", type=Path, required=True, help="the kit")
    for function, help in ((start, "start a queue"), (run, "the same in the foreground")):
        one = action(function, help)
        one.add_argument("commands", type=Path, help="a file with one command per line")
        one.add_argument("--jobs", type=int, default=1, help="commands at once")
    one = action(wait, "wait for the queue and collect finished runs")
    one.add_argument("--seconds", type=float, default=540)
    one.add_argument("--to", type=Path, required=True, help="the archive to write")
    action(stop, "end the queue; runs can be continued")
    arguments = parser.parse_args()
    arguments.action(arguments)


if __name__ == "__main__":
    main()
