"""The usual benchmarks as they were published: domains, number of images, tasks, and other spellings of their names."""

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from tcm.data.counts import IMAGE_CLEF, OFFICE_31, OFFICE_HOME, VISDA, ClassCounts, columns
from tcm.data.domains import class_order, joined_names, plain_name, same_name
from tcm.errors import InputError, printable

# Separators in the code of a task: A2C, A>C, Ar -> Cl (hyphens are ignored), A→C, A to C.
SEPARATORS = ("2", ">", "→", "to")


@dataclass(frozen=True)
class PublishedDomain:
    """A domain of a benchmark, as it was published."""

    name: str
    images: int
    short: str  # the name in task codes, which head the columns of tables
    spellings: tuple[str, ...] = ()  # other names in use
    per_class: ClassCounts = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All its names, the published one first."""
        return (self.name, self.short, *self.spellings)

    def is_called(self, name: str) -> bool:
        """Whether that is one of its names, in any spelling."""
        return bool(same_name(name, self.names))

    def wrong_classes(self, found: Mapping[str, int], numbered: bool) -> list[str]:
        """A line for each class whose number of images is not the published one.

        `numbered`: classes may also be numbers, which index the published classes.
        """
        published = {plain_name(name): count for name, count in self.per_class}
        if numbered:
            published |= {str(number): count for number, (_, count) in enumerate(self.per_class)}
        lines = []
        for name in sorted(found, key=class_order):
            count = published.get(plain_name(name), found[name])
            if found[name] != count:
                lines.append(f"class {name} has {found[name]} of {count}")
        return lines


@dataclass(frozen=True)
class Transfer:
    """A task of a benchmark: its source and target domain."""

    source: PublishedDomain
    target: PublishedDomain

    @property
    def code(self) -> str:
        """The code that heads its column, such as A>C."""
        return f"{self.source.short}>{self.target.short}"

    def spellings(self) -> Iterator[str]:
        """Every spelling of the code, as `plain_name` writes it."""
        for source, separator, target in product(self.source.names, SEPARATORS, self.target.names):
            yield plain_name(source) + separator + plain_name(target)


@dataclass(frozen=True)
class Benchmark:
    """A published set of domains with the number of images in each."""

    name: str
    domains: tuple[PublishedDomain, ...]
    classes: int
    columns: str  # the codes of its tasks, in the order of the paper's table
    numbered: bool = True  # whether list files number the classes in the order of their names

    @property
    def tasks(self) -> tuple[Transfer, ...]:
        """Its tasks, in the order of the paper's table."""
        ends = [code.split(">") for code in self.columns.split()]
        by_short = {domain.short: domain for domain in self.domains}
        return tuple(Transfer(by_short[source], by_short[target]) for source, target in ends)

    def task(self, code: str) -> Transfer:
        """The task of that code in any usual spelling: A>C, A2C, Ar -> Cl, art2clipart."""
        spelled = {spelling: transfer for transfer in self.tasks for spelling in transfer.spellings()}
        if (plain := plain_name(code)) in spelled:
            return spelled[plain]
        nearest = spelled[difflib.get_close_matches(plain, spelled, n=1, cutoff=0)[0]].code
        tasks = ", ".join(transfer.code for transfer in self.tasks)
        raise InputError(
            f'{self.name} has no task "{printable(code)}"; the nearest is {nearest}; its tasks are {tasks}'
        )

    def domain(self, name: str) -> PublishedDomain | None:
        """The domain of that name in any spelling."""
        return next((domain for domain in self.domains if domain.is_called(name)), None)

    def differences(
        self, images: Mapping[str, int], classes: Mapping[str, Mapping[str, int]], folders: Collection[str] = ()
    ) -> list[str]:
        """A line for every given domain whose number of images or classes is not the published one.

        `images` has the number of images by domain, `classes` by domain and class. A class is named as missing if
        another domain has it, or if it is one of `folders`, the names of class folders.
        """
        everywhere = {plain_name(name): name for names in (*classes.values(), folders) for name in names}
        lines = []
        for domain, found in images.items():
            published = self.domain(domain)
            assert published
            if found != published.images:
                wrong = joined_names(published.wrong_classes(classes[domain], self.numbered), limit=3)
                counts = f"{domain} has {found} images, {self.name} {published.name} has {published.images}"
                lines.append(f"{counts}; {wrong}" if wrong else counts)
            if len(classes[domain]) != self.classes:
                here = {plain_name(name) for name in classes[domain]}
                missing = sorted(name for plain, name in everywhere.items() if plain not in here)
                named = f"; it has no images of {joined_names(missing)}" if missing and here else ""
                lines.append(f"{domain} has {len(classes[domain])} classes, {self.name} has {self.classes}{named}")
        return lines


ART, CLIPART, PRODUCT, REAL_WORLD = columns(OFFICE_HOME)
(FIFTY_EACH,) = columns(IMAGE_CLEF)
TRAIN, VALIDATION = columns(VISDA)
AMAZON, DSLR, WEBCAM = columns(OFFICE_31)

BENCHMARKS = (
    Benchmark(
        "Office-Home",
        (
            PublishedDomain("Art", 2427, "A", ("Ar",), ART),
            PublishedDomain("Clipart", 4365, "C", ("Cl",), CLIPART),
            PublishedDomain("Product", 4439, "P", ("Pr",), PRODUCT),
            PublishedDomain("Real World", 4357, "R", ("Rw", "Re", "Real"), REAL_WORLD),
        ),
        classes=65,
        columns="A>C A>P A>R C>A C>P C>R P>A P>C P>R R>A R>C R>P",
        numbered=False,
    ),
    Benchmark(
        "ImageCLEF-DA",
        (
            PublishedDomain("c", 600, "C", ("Caltech", "Caltech-256"), FIFTY_EACH),
            PublishedDomain("i", 600, "I", ("ImageNet", "ILSVRC 2012", "ImageNet ILSVRC 2012"), FIFTY_EACH),
            PublishedDomain("p", 600, "P", ("Pascal", "Pascal VOC", "Pascal VOC 2012"), FIFTY_EACH),
        ),
        classes=12,
        columns="I>P P>I I>C C>I C>P P>C",
    ),
    Benchmark(
        "VisDA-2017",
        (
            PublishedDomain("train", 152397, "Synthetic", ("T", "S"), TRAIN),
            PublishedDomain("validation", 55388, "Real", ("V", "R"), VALIDATION),
        ),
        classes=12,
        columns="Synthetic>Real",
    ),
    Benchmark(
        "Office-31",
        (
            PublishedDomain("amazon", 2817, "A", per_class=AMAZON),
            PublishedDomain("dslr", 498, "D", per_class=DSLR),
            PublishedDomain("webcam", 795, "W", per_class=WEBCAM),
        ),
        classes=31,
        columns="A>W D>W W>D A>D D>A W>A",
    ),
)


def find_benchmark(name: str) -> Benchmark | None:
    """The benchmark of that name in any spelling, None if there is none."""
    return next((benchmark for benchmark in BENCHMARKS if plain_name(benchmark.name) == plain_name(name)), None)


def benchmark_named(name: str) -> Benchmark:
    """The benchmark of that name in any spelling; an error that names the nearest if there is none."""
    if found := find_benchmark(name):
        return found
    names = {plain_name(benchmark.name): benchmark.name for benchmark in BENCHMARKS}
    nearest = names[difflib.get_close_matches(plain_name(name), names, n=1, cutoff=0)[0]]
    raise InputError(
        f'there is no benchmark "{printable(name)}"; the nearest is {nearest}; there are {", ".join(names.values())}'
    )


def recognise_benchmark(root_name: str, domains: Collection[str], classes: int) -> Benchmark | None:
    """The benchmark that has all these domains and either the name of the root or the number of classes."""
    # Domain names are not enough: many data sets have a train and a validation folder.
    for benchmark in BENCHMARKS:
        if domains and all(map(benchmark.domain, domains)):
            named = find_benchmark(root_name) == benchmark
            if named or classes == benchmark.classes:
                return benchmark
    return None
