"""The field's benchmarks, as they should be when they are complete."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tcm.data.domains import plain_name, same_name


@dataclass(frozen=True)
class Benchmark:
    """A published set of domains with the number of images in each."""

    name: str
    domains: dict[str, int]
    classes: int

    def differences(self, images: Mapping[str, int], classes: Mapping[str, int]) -> list[str]:
        """A line for every given domain whose number of images or of classes is not the published one."""
        lines = []
        for domain, found in images.items():
            name = same_name(domain, self.domains)[0]
            if found != self.domains[name]:
                lines.append(f"{domain} has {found} images, {self.name} {name} has {self.domains[name]}")
            if classes[domain] != self.classes:
                lines.append(f"{domain} has {classes[domain]} classes, {self.name} has {self.classes}")
        return lines


BENCHMARKS = (
    Benchmark("Office-Home", {"Art": 2427, "Clipart": 4365, "Product": 4439, "Real World": 4357}, classes=65),
    Benchmark("ImageCLEF-DA", {"c": 600, "i": 600, "p": 600}, classes=12),
    Benchmark("VisDA-2017", {"train": 152397, "validation": 55388}, classes=12),
    Benchmark("Office-31", {"amazon": 2817, "dslr": 498, "webcam": 795}, classes=31),
)


def known(name: str) -> Benchmark | None:
    """The benchmark of that name, whatever its case, spaces, underscores and hyphens."""
    return next((benchmark for benchmark in BENCHMARKS if plain_name(benchmark.name) == plain_name(name)), None)


def recognised(root_name: str, domains: Collection[str], classes: int) -> Benchmark | None:
    """The benchmark that has all these domains and either the root's name or the number of classes."""
    # Domain names alone would not do: many a data set has a train and a validation folder.
    for benchmark in BENCHMARKS:
        if domains and all(same_name(domain, benchmark.domains) for domain in domains):
            named = known(root_name) == benchmark
            return benchmark if named or classes == benchmark.classes else None
    return None
