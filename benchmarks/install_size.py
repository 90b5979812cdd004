"""The size of the installed packages of tcm, and what each extra adds to it, as a Markdown table.

It reads the metadata of the environment that it runs in: install the extras first, such as '.[export,track,docs,dev]'.

    python benchmarks/install_size.py
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
CUDA = re.compile(r"^(nvidia|cuda|triton)")


def main() -> None:
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras: dict[str, list[str]] = project["optional-dependencies"]
    base = closure(project["dependencies"])
    cuda = {name for name in base if CUDA.match(name)}
    print("| installed | packages | MB | the largest |")
    print("|---|---|---|---|")
    print(row("`tcm`", base - cuda))
    if cuda:
        print(row("CUDA, with PyTorch's usual wheels for Linux", cuda))
    for extra, requirements in extras.items():
        own = [*requirements, *(line for name in others(requirements) for line in extras[name])]
        try:
            print(row(f"`tcm[{extra}]` adds", closure(own) - base))
        except PackageNotFoundError as missing:
            print(f"{extra} is left out: {missing.name} is not installed", file=sys.stderr)


def others(requirements: Iterable[str]) -> Iterator[str]:
    """The extras of tcm itself that an extra contains."""
    for requirement in map(Requirement, requirements):
        if requirement.name == "tcm":
            yield from sorted(requirement.extras)


def closure(requirements: Iterable[str]) -> set[str]:
    """The names of all packages that these need, with what those need."""
    waiting = [Requirement(text) for text in requirements]
    seen: set[str] = set()
    found: set[str] = set()
    while waiting:
        requirement = waiting.pop()
        # An extra of a package may add to what the package itself needs.
        if str(requirement) in seen or requirement.name == "tcm":
            continue
        seen.add(str(requirement))
        found.add(plain(requirement.name))
        waiting += needed(requirement)
    return found


def needed(requirement: Requirement) -> Iterator[Requirement]:
    """What a package needs in this environment."""
    extras = {"", *requirement.extras}
    for line in distribution(requirement.name).requires or ():
        inner = Requirement(line)
        if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
            yield inner


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def megabytes(name: str) -> float:
    """The size of a package's files without compiled Python code, which is made again when it is missing."""
    files = [file.locate() for file in distribution(name).files or () if "__pycache__" not in file.parts]
    return sum(Path(str(file)).stat().st_size for file in files if Path(str(file)).is_file()) / 1e6


def row(title: str, names: set[str]) -> str:
    sizes = {name: megabytes(name) for name in names}
    largest = sorted(sizes, key=sizes.__getitem__, reverse=True)[:3]
    listed = ", ".join(f"{name} {sizes[name]:.0f}" for name in largest if sizes[name] >= 0.5)
    return f"| {title} | {len(names)} | {sum(sizes.values()):.0f} | {listed} |"


if __name__ == "__main__":
    main()
