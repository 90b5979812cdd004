"""Rows of results to the table of a benchmark: one row per method, one column per task, beside the paper's numbers."""

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tcm.data.domains import plain_name
from tcm.errors import InputError, printable
from tcm.results.identity import RunFacts, RunIdentity, Spread, grouped, identities, labels, spread
from tcm.results.paper_tables import AVERAGE, PAPER_ROWS, PaperRow
from tcm.results.store import TASKS, ResultRow

if TYPE_CHECKING:
    from pandas import DataFrame

Cells = Mapping[tuple[str, str], Spread]  # by task and metric

ORACLE = "oracle"  # the selection rule that looks at the target's labels
METRICS = {"accuracy": "accuracy", "mean_class_accuracy": "mean per class"}  # column of the store: name in tables
# Confusing the two is a common error on VisDA-2017, so its table has both.
BOTH_METRICS = ("VisDA-2017",)
# Named wherever any two methods differ in them: one may only have been trained longer, or on other crops.
NAMED_EVERYWHERE = ("steps", "data.area")
QUOTED_NOTE = (
    "quoted: as printed in the paper ({}), not measured here. The authors' code keeps the model that scores best on "
    "the target's labels, as is common; the paper does not say how the models of the other methods were selected."
)
METRIC_NOTE = "The paper calls its numbers accuracy; it does not say whether over images or over classes."
ORACLE_NOTE = "oracle: selected by accuracy on the target's labels, which are not available in practice."


@dataclass(frozen=True)
class ResultTable:
    """The results on one benchmark for one selection rule.

    `frame` has one row per (kind, method); the kinds are "quoted", "measured" and "oracle". It has three columns per
    task and metric, (task, metric, "mean"), "deviation" and "seeds", in % and NaN where there is no number.
    """

    benchmark: str
    selection: str
    frame: "DataFrame"
    steps: int | None = None  # of all runs; None where they differ

    def statistic(self, name: str) -> "DataFrame":
        """The means, deviations or seeds: one column per (task, metric)."""
        return self.frame.xs(name, axis=1, level="statistic")

    @property
    def best(self) -> "DataFrame":
        """True for the highest measured mean of its column, to the digit shown, if there are at least two."""
        shown = self.statistic("mean").map(lambda mean: round(mean, 1))
        shown.loc[shown.index.get_level_values("kind") != "measured"] = float("nan")
        return shown.eq(shown.max()) & (shown.count() > 1)

    @property
    def seeds(self) -> int:
        """The number of seeds of most cells: only the other cells show theirs."""
        known = [seeds for seeds in self.statistic("seeds").to_numpy().ravel() if seeds > 0]  # not NaN
        return int(Counter(known).most_common(1)[0][0])

    @property
    def caption(self) -> str:
        """What the numbers are, and how the models were selected."""
        metrics = " and ".join(METRICS[metric] for metric in self.frame.columns.unique("metric"))
        many = f"mean ± sample standard deviation over {self.seeds} seeds" if self.seeds > 1 else "one seed"
        length = f", {self.steps:,} steps" if self.steps else ""
        rule = {"last": "last (the last iterate)"}.get(self.selection, self.selection)
        return f"{self.benchmark}: {metrics} on the target in %, {many}{length}. Selection: {rule}."

    @property
    def notes(self) -> list[str]:
        """What a reader must know about rows that were not measured by that rule."""
        kinds, notes = set(self.frame.index.unique("kind")), []
        if "quoted" in kinds:
            tables = dict.fromkeys(str(row.table) for row in paper_rows(self.benchmark))
            many = "Tables" if len(tables) > 1 else "Table"
            notes.append(QUOTED_NOTE.format(f"{many} {' and '.join(tables)}"))
            notes += [METRIC_NOTE] if self.benchmark in BOTH_METRICS else []
        return [*notes, ORACLE_NOTE] if "oracle" in kinds else notes


def result_tables(
    rows: Sequence[ResultRow], selection: str = "last", benchmark: str | None = None, quoted: bool = True
) -> list[ResultTable]:
    """One table per benchmark, or only for `benchmark`: the rows of that selection rule, and those of the oracle."""
    there = list(dict.fromkeys(row["benchmark"] for row in rows))
    if not there:
        raise InputError("the stores have no results; name a CSV that has some")
    wanted = [name for name in there if benchmark is None or plain_name(name) == plain_name(benchmark)]
    if not wanted:
        found = ", ".join(map(printable, there))
        raise InputError("benchmark", f"is {printable(benchmark)}, but the results are on {found}; choose one of them")
    scored = [row for row in rows if row["benchmark"] in wanted and row["accuracy"]]
    rules = list(dict.fromkeys(row["selection"] for row in scored))
    if not rules:
        raise InputError("the results have no accuracies, as the targets have no labels; name results that have some")
    if selection not in rules:
        found = ", ".join(map(printable, rules))
        raise InputError(
            "selection", f"is {printable(selection)}, but the results were selected by {found}; choose one"
        )
    members = grouped(scored, (row["benchmark"] for row in scored))
    return [
        _table(name, members[name], selection, quoted)
        for name in wanted
        if any(row["selection"] == selection for row in members.get(name, ()))
    ]


def row_identities(rows: Sequence[ResultRow]) -> list[RunIdentity]:
    """The identity of every row's run: the rows of a table's row have the same."""
    return identities([RunFacts(row["method"], row["k"], row["task"], json.loads(row["config"])) for row in rows])


def row_labels(found: Sequence[RunIdentity]) -> list[str]:
    """The titles of the table's rows."""
    return labels(found, NAMED_EVERYWHERE)


def paper_rows(benchmark: str) -> list[PaperRow]:
    """The paper's rows on that benchmark."""
    return [row for row in PAPER_ROWS if row.benchmark == benchmark]


def _table(benchmark: str, rows: Sequence[ResultRow], selection: str, quoted: bool) -> ResultTable:
    rows = [row for row in rows if row["selection"] in (selection, ORACLE)]
    tasks = TASKS.get(benchmark, ())  # of other data nobody knows all tasks, so there is no average
    others = dict.fromkeys(row["task"] for row in rows if row["task"] not in tasks)
    metrics = list(METRICS) if benchmark in BOTH_METRICS else ["accuracy"]
    shown = (*tasks, *[AVERAGE] * (len(tasks) > 1), *others)
    lines: list[tuple[tuple[str, str], Cells]] = []
    for row in paper_rows(benchmark) if quoted else ():
        lines.append((("quoted", row.method), {(task, "accuracy"): cell for task, cell in row.accuracies.items()}))
    found = row_identities(rows)
    titles = dict(zip(found, row_labels(found), strict=True))
    members = grouped(rows, ((row["selection"], identity) for row, identity in zip(rows, found, strict=True)))
    for rule in dict.fromkeys((selection, ORACLE)):
        kind = "oracle" if rule == ORACLE else "measured"
        lines += [
            ((kind, title), _cells(members[rule, identity], tasks, metrics))
            for identity, title in titles.items()
            if (rule, identity) in members
        ]
    lengths = {dict(identity.settings).get("steps") for identity in titles}
    steps = json.loads(lengths.pop() or "null") if len(lengths) == 1 else None
    frame = cell_frame(lines, [(task, metric) for task in shown for metric in metrics])
    return ResultTable(benchmark, selection, frame, steps)


def cell_frame(lines: Sequence[tuple[tuple[str, str], Cells]], columns: Sequence[tuple[str, str]]) -> "DataFrame":
    """The `frame` of a table, of the cells of each row."""
    import pandas as pd

    nothing = Spread(float("nan"), None, None)
    return pd.DataFrame(
        [[number for column in columns for number in cells.get(column, nothing)] for _, cells in lines],
        index=pd.MultiIndex.from_tuples([line for line, _ in lines], names=["kind", "method"]),
        columns=pd.MultiIndex.from_tuples(
            [(*column, name) for column in columns for name in Spread._fields], names=["task", "metric", "statistic"]
        ),
        dtype=float,
    )


def _cells(rows: Sequence[ResultRow], tasks: Sequence[str], metrics: Sequence[str]) -> Cells:
    """The cells of one row of the table, from the rows of the store that belong to it."""
    for (task, seed), same in grouped(rows, ((row["task"], row["seed"]) for row in rows)).items():
        if len(same) > 1:
            hashes = " and ".join(row["config_hash"] for row in same)
            found = f"{same[0]['method']} on {printable(task)} with seed {seed} is there twice (config_hash {hashes})"
            raise InputError(f"{found}, but only one can count; remove the other row")
    by_task = grouped(rows, (row["task"] for row in rows))
    cells: dict[tuple[str, str], Spread] = {}
    for metric in metrics:
        by_seed = {
            task: {row["seed"]: float(row[metric]) for row in members if row[metric]}
            for task, members in by_task.items()
        }
        cells |= {(task, metric): spread(found.values()) for task, found in by_seed.items() if found}
        parts = [by_seed.get(task, {}) for task in tasks]
        if len(parts) > 1 and all(parts):
            cells[AVERAGE, metric] = _average(parts)
    return cells


def _average(tasks: Sequence[Mapping[str, float]]) -> Spread:
    """The average over tasks, each a value per seed. Without a deviation if the tasks do not have the same seeds."""
    if len({frozenset(task) for task in tasks}) > 1:
        return Spread(statistics.mean(statistics.mean(task.values()) for task in tasks), None, None)
    return spread(statistics.mean(task[seed] for task in tasks) for seed in tasks[0])
