"""The arithmetic of the page "At scale": rates from rows, hours and disk from rates."""

import json
import re
from collections import defaultdict

import pytest
from support.documents import DOCS, ROOT

from tcm.bench.config import PROTOCOLS
from tcm.bench.rates import comparable
from tcm.data.benchmarks import benchmark_named
from tcm.results.store import read_rows

PAGE = (DOCS / "at-scale.md").read_text()
FILES = ("office-home", "office-home-default", "office-home-1000", "office-home-4000", "office-home-10000")
STAGE_1, MADE, IMAGE = 16 / 230, 2756, 3 * 256**2  # seconds per step, counterfactuals per second, bytes
DOMAINNET, PAIRS, LARGEST = 596_006, 15, 347_827


def rates() -> dict[str, tuple[float, int]]:
    """Seconds per step and steps of each method, from all rows of Office-Home."""
    found: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for row in read_rows(ROOT / "benchmarks" / "results" / f"{name}.csv" for name in FILES):
        method, *settings = json.loads(comparable(row["method"], json.loads(row["config"])))
        if row["selection"] == "last" and settings == ["resnet50", 224, 32]:
            found[method].append((float(row["seconds"]), int(row["steps"])))
    steps = {method: sum(steps for _, steps in pairs) for method, pairs in found.items()}
    return {method: (sum(s for s, _ in pairs) / steps[method], steps[method]) for method, pairs in found.items()}


def cells(start: str) -> list[str]:
    """The cells of the table row that starts with this text."""
    (line,) = (line for line in PAGE.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


def test_the_rates_are_those_of_the_rows():
    assert pytest.approx(float(cells("stage 1, `paper`")[-1]), abs=5e-5) == STAGE_1
    for method in ("erm", "cdan-e", "baseline", "tcm-paper"):
        seconds, steps = rates()[method]
        _, where, shown = cells(f"`{method}`, 32")
        assert shown == f"{seconds:.4f}"
        assert f"{steps:,} steps" in where


def hours_of_methods(runs: dict[str, int]) -> dict[str, float]:
    return {name: count * 10_000 * rates()[name][0] / 3600 for name, count in runs.items()}


def check(title: str, stage_1: float, methods: dict[str, float], longest: float, images: int, made: int) -> None:
    total = stage_1 + sum(methods.values())
    on = [max(total / devices, longest) for devices in (1, 8, 64)]
    shown = cells(title)
    assert shown[1:4] == [f"{hours:.1f} h" for hours in on]
    assert float(shown[4].split()[0]) == pytest.approx(images * IMAGE / 1e9, rel=5e-3)
    assert float(shown[5].split()[0].replace(",", "")) == pytest.approx(made * IMAGE / 1e9, rel=5e-3)


def test_visda():
    published, protocol = benchmark_named("VisDA-2017"), PROTOCOLS["VisDA-2017"]
    counts = [domain.images for domain in published.domains]
    steps = protocol.epochs * max(counts) // protocol.batch
    assert f"{steps:,} steps" in PAGE
    one, four = ((steps * STAGE_1 + sum(counts) * k / MADE) / 3600 for k in (1, protocol.k))
    methods = hours_of_methods({"erm": 3, "baseline": 3, "tcm-paper": 3})
    assert [cells(f"stage 1, k = {k}")[-1] for k in (4, 1)] == [f"{four:.1f}", f"{one:.1f}"]
    assert [cells(f"`{name}`, 3 seeds")[-1] for name in methods] == [f"{hours:.1f}" for hours in methods.values()]
    check("VisDA", one + four, methods, four + methods["tcm-paper"] / 3, sum(counts), 5 * sum(counts))


def test_domainnet():
    made = 5 * DOMAINNET * 4  # each domain is in five pairs
    stage_1 = (PAIRS * 50_000 * STAGE_1 + made / MADE) / 3600
    methods = hours_of_methods({"erm": 90, "cdan-e": 90, "tcm-paper": 90})
    assert cells("stage 1, 15 pairs")[-1] == f"{stage_1:.1f}"
    assert [cells(f"`{name}`, 90 runs")[-1] for name in methods] == [f"{hours:.1f}" for hours in methods.values()]
    longest = (50_000 * STAGE_1 + LARGEST * 4 / MADE) / 3600 + methods["tcm-paper"] / 90
    check("DomainNet", stage_1, methods, longest, DOMAINNET, made)


def test_all_that_was_not_run_is_called_extrapolated():
    hours = [line for line in PAGE.splitlines() if re.match(r"\|.*(hours|GPUs)", line)]
    assert len(hours) == 3
    assert all("extrapolated" in line for line in hours)
