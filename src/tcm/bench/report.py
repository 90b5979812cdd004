"""One page about a suite: results, selection rules, figures, costs and settings. Its template is suite.html.jinja."""

import base64
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup
from PIL import Image

from tcm.analysis.cost import BATCH, Costs, costs_notes, count_costs
from tcm.bench.config import SuiteConfig
from tcm.bench.figures import SuiteFigure, suite_figures
from tcm.bench.finished import SuiteRun, finished_runs, usual_k
from tcm.classifier.selection import RULES
from tcm.config import from_json
from tcm.errors import InputError
from tcm.methods import METHODS, MethodConfig
from tcm.nn.backbone import BackboneConfig
from tcm.report.page import template, write_page
from tcm.report.selection import EXPLAINED
from tcm.results.formats import html_table
from tcm.results.identity import grouped
from tcm.results.store import KEY, ResultRow
from tcm.results.table import ORACLE, ResultTable, row_identities, row_labels
from tcm.training.run_folder import Run, read_json

LAST = "last"  # the selection rule of all reported results


class RuleRow(NamedTuple):
    """The mean accuracy of the models that a selection rule chooses, in %."""

    rule: str
    explanation: str
    runs: int
    accuracy: float
    regret: float  # points below the oracle on the same runs

    @property
    def is_oracle(self) -> bool:
        """Whether the rule uses target labels."""
        return self.rule == ORACLE


class SettingsRow(NamedTuple):
    """How the runs of one row of the results were trained."""

    name: str
    runs: int
    steps: int
    batch: int
    k: str
    mechanism_steps: str  # steps of stage 1: one number, or a range if pairs of domains differ


@dataclass(frozen=True)
class CostsView:
    """The costs, or the reason why they are missing."""

    found: Costs | None
    notes: Sequence[str] = ()
    missing: str = ""


@dataclass(frozen=True)
class Facts:
    """What was run: the different values in all rows, in their order."""

    benchmark: str
    tasks: list[str]
    methods: list[str]
    seeds: list[str]
    runs: int
    commits: list[str]
    devices: list[str]
    versions: list[str]  # of PyTorch


def write_suite_report(
    benchmark: str,
    config: SuiteConfig,
    store: Path,
    rows: Sequence[ResultRow],
    tables: Sequence[ResultTable],
    failed: Mapping[str, str],
    quiet: bool = False,
) -> Path:
    """Draws the figures of the suite around the `store` and writes report/index.html beside it; returns its path.

    `rows` are the store's, `tables` its tables; `failed` says of each failed run what it said last.
    """
    out, k = store.parent, usual_k(benchmark, config)
    runs = finished_runs(benchmark, out)
    figures = suite_figures(out, runs, k, config.device, quiet)
    page = template("suite.html.jinja").render(
        facts=suite_facts(rows),
        tables=[(table, Markup(html_table(table))) for table in tables],
        failed=failed,
        rules=rule_rows(rows),
        held_out=config.held_out,
        figures=[(figure, _picture(figure)) for figure in figures],
        first_task=runs[0].task if len({run.task for run in runs}) > 1 else "",
        costs=costs_view(runs, k),
        k=k,
        batch=BATCH,
        settings=settings_rows(rows),
        commands=_commands(runs),
        folder=out.name,
    )
    return write_page(page, out / "report")


def suite_facts(rows: Sequence[ResultRow]) -> Facts:
    """The facts of all reported rows."""
    reported = [row for row in rows if row["selection"] == LAST]

    def each(name: str) -> list[str]:
        return list(dict.fromkeys(row[name] for row in reported if row[name]))

    return Facts(
        benchmark=" and ".join(each("benchmark")),
        tasks=list(dict.fromkeys(f"{row['source']} → {row['target']}" for row in reported)),
        methods=each("method"),
        seeds=sorted(each("seed"), key=int),
        runs=len(reported),
        commits=each("commit"),
        devices=each("device"),
        versions=each("torch"),
    )


def rule_rows(rows: Sequence[ResultRow]) -> list[RuleRow]:
    """The mean accuracy of each rule, compared with the oracle on the same runs. Empty without target labels."""
    same = [name for name in KEY if name != "selection"]
    chosen: dict[str, dict[tuple[str, ...], float]] = {rule: {} for rule in RULES}
    for row in rows:
        if row["accuracy"] and row["selection"] in chosen:
            chosen[row["selection"]][tuple(row[name] for name in same)] = float(row["accuracy"])
    best, found = chosen[ORACLE], []
    for rule, accuracies in chosen.items():
        compared = [run for run in accuracies if run in best]
        if compared:
            mean = statistics.mean(accuracies[run] for run in compared)
            regret = statistics.mean(best[run] for run in compared) - mean
            found.append(RuleRow(rule, EXPLAINED[rule], len(compared), mean, regret))
    return found


def settings_rows(rows: Sequence[ResultRow]) -> list[SettingsRow]:
    """One row for each row of the results that was measured here, under the same name."""
    reported = [row for row in rows if row["selection"] == LAST]
    lines = grouped(reported, row_identities(reported))
    found = []
    for (identity, members), name in zip(lines.items(), row_labels(list(lines)), strict=True):
        configs: list[dict[str, Any]] = [json.loads(member["config"]) for member in members]
        stage_1 = sorted({(config.get("mechanisms") or {}).get("steps") or 0 for config in configs} - {0})
        steps, batch = (configs[0][key] for key in ("steps", "batch"))
        ends = " to ".join(f"{number:,}" for number in dict.fromkeys([*stage_1[:1], *stage_1[-1:]]))
        found.append(SettingsRow(name, len(members), steps, batch, identity.k, ends))
    return found


def costs_view(runs: Sequence[SuiteRun], k: int) -> CostsView:
    """The costs of the methods of these runs, on their backbone."""
    try:
        first = runs[0].folder
        backbone = from_json(BackboneConfig, Run(first).config()["backbone"])
        classes = len(read_json(first / "evaluation.json")["classes"])
        # Without the weights file: it may be gone, and the costs do not depend on it.
        found = count_costs(replace(backbone, weights=None), classes, k, methods_of(runs))
    except InputError as error:
        return CostsView(None, missing=f"The costs could not be counted: {error}.")
    return CostsView(found, costs_notes(found))


def methods_of(runs: Sequence[SuiteRun]) -> dict[str, MethodConfig]:
    """The methods of the runs, with the settings of the first run of each."""
    first = {run.method: run.folder for run in reversed(runs)}
    return {
        name: from_json(config, Run(first[name]).config()["method"], str(first[name]))
        for name, config in METHODS.items()
        if name in first
    }


def _commands(runs: Sequence[SuiteRun]) -> list[str]:
    """The commands that made the runs, each once."""
    files = [Run(run.folder).environment_file for run in runs]
    return list(dict.fromkeys(str(read_json(file).get("command", "")) for file in files if file.exists()))


def _picture(figure: SuiteFigure) -> Markup | str:
    """A line plot as SVG; a picture as a data URL of an image with 256 colours, which needs a third of the bytes."""
    if figure.png is None:
        return Markup(figure.svg)
    buffer = io.BytesIO()
    with Image.open(figure.png) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
