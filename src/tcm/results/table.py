"""Rows of results -> the table of a benchmark: a line a method, a column a task, the paper's figures beside ours."""

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal, NamedTuple

from tcm.config import leaves
from tcm.data.domains import plain_name
from tcm.errors import InputError, printable
from tcm.results.paper_tables import AVERAGE, QUOTED, Quoted
from tcm.results.store import TASKS
from tcm.training.run_folder import IGNORED_KEYS

Kind = Literal["quoted", "measured", "oracle"]
ResultRow = Mapping[str, str]

KINDS: tuple[Kind, ...] = ("quoted", "measured", "oracle")  # in the order of a table's lines

ORACLE = "oracle"  # the selection rule that looks at the target's labels
METRICS = {"accuracy": "accuracy", "mean_class_accuracy": "mean per class"}  # column of the store: what tables call it
# Mixing the two up is the field's classic error on VisDA-2017, so its table has both.
BOTH_METRICS = ("VisDA-2017",)
QUOTED_NOTE = (
    "quoted: as printed in the paper ({}), not measured here. The authors' code keeps the model that scores best "
    "on the target's labels, as much of the field's code does; how the other methods' figures were selected, the paper "
    "does not say."
)
METRIC_NOTE = "The paper calls its figures accuracy; whether over images or over classes, it does not say."
ORACLE_NOTE = "oracle: selected by accuracy on the target's labels, which nobody has who needs the method."
# What runs of one line may differ in, beside the settings that change nothing: seed, task and where things lie.
PLACES = ("benchmark", "root", "source", "target", "source_dir", "target_dir", "source_list", "target_list")
VARYING = frozenset({"seed", "preset", "mechanisms.name", *(f"data.{name}" for name in PLACES), *IGNORED_KEYS})
# What is told wherever any two lines differ in it: a method may only have been trained longer than another, or on other
# crops.
TOLD = ("steps", "data.area")
STAGE_1_STEPS = "mechanisms.steps"


class Column(NamedTuple):
    """A task, or the average over all tasks, by one of the two accuracies."""

    task: str
    metric: str


class Cell(NamedTuple):
    """An accuracy in %: mean and sample standard deviation over seeds; as printed where it is quoted."""

    mean: float
    deviation: float | None
    seeds: int | None  # None where it is quoted, or where the tasks of an average do not have the same seeds


class TableRow(NamedTuple):
    """A method with its cells, None where there is no figure."""

    name: str
    kind: Kind
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class ResultTable:
    """The results on one benchmark by one selection rule."""

    benchmark: str
    selection: str
    columns: tuple[Column, ...]
    lines: tuple[TableRow, ...]
    steps: int | None = None  # of all runs alike; None where lines differ in them, and name theirs

    @property
    def seeds(self) -> int:
        """The number of seeds of most cells: only the others have to name theirs."""
        found = [cell.seeds for line in self.lines for cell in line.cells if cell and cell.seeds]
        return Counter(found).most_common(1)[0][0]

    def is_best(self, line: TableRow, column: int) -> bool:
        """Whether the cell is the highest measured one of its column, to the digit shown, among two or more."""
        rivals = [rival.cells[column] for rival in self.lines if rival.kind == "measured"]
        means = [round(cell.mean, 1) for cell in rivals if cell]
        cell = line.cells[column]
        return line.kind == "measured" and cell is not None and len(means) > 1 and round(cell.mean, 1) == max(means)

    @property
    def caption(self) -> str:
        """What the figures are, and how the models were selected."""
        metrics = " and ".join(dict.fromkeys(METRICS[column.metric] for column in self.columns))
        many = f"mean ± sample standard deviation over {self.seeds} seeds" if self.seeds > 1 else "one seed"
        length = f", {self.steps:,} steps" if self.steps else ""
        rule = {"last": "last (the last iterate)"}.get(self.selection, self.selection)
        return f"{self.benchmark}: {metrics} on the target in %, {many}{length}. Selection: {rule}."

    @property
    def notes(self) -> list[str]:
        """What a reader must know of lines that are not measured by that rule."""
        kinds, notes = {line.kind for line in self.lines}, []
        if "quoted" in kinds:
            tables = dict.fromkeys(str(row.table) for row in quoted_rows(self.benchmark))
            many = "Tables" if len(tables) > 1 else "Table"
            notes.append(QUOTED_NOTE.format(f"{many} {' and '.join(tables)}"))
            notes += [METRIC_NOTE] if self.benchmark in BOTH_METRICS else []
        if "oracle" in kinds:
            notes.append(ORACLE_NOTE)
        return notes


class Setting(NamedTuple):
    """What the runs of one line have in common."""

    method: str
    preset: str
    k: str
    rest: tuple[tuple[str, str], ...]  # the other leaves of the configuration: key, JSON

    @staticmethod
    def of(row: ResultRow, varying: Set[str] = VARYING) -> "Setting":
        """The setting of a run, but for what may vary."""
        found = leaves(json.loads(row["config"]))
        rest = {key: json.dumps(value) for key, value in found.items() if key not in varying and value is not None}
        return Setting(row["method"], row["preset"], row["k"], tuple(sorted(rest.items())))

    def name(self, rivals: Iterable["Setting"]) -> str:
        """The method, with as much of the setting as tells it from the rivals. A preset that is not the default is
        always told: the bare name means the default."""
        rivals = list(rivals)
        same = [rival for rival in rivals if rival.method == self.method]
        parts = [self.method]
        if self.preset not in ("", "default") or len({rival.preset for rival in same}) > 1:
            parts.append(self.preset)
        if len({rival.k for rival in same}) > 1 and self.k:
            parts.append(f"k = {self.k}")
        alike = [dict(rival.rest) for rival in same if rival[:3] == self[:3]]
        keys = dict.fromkeys(key for rival in alike for key in rival)
        everyone = [dict(rival.rest) for rival in rivals]
        among = {key: everyone if key in TOLD else alike for key in keys}
        differing = [key for key, them in among.items() if len({rival.get(key) for rival in them}) > 1]
        if "mechanisms.preset" in differing:  # it stands for the whole bank
            differing = [key for key in differing if not key.startswith("mechanisms.bank.")]
        own = {key: json.loads(value) for key, value in self.rest}
        return ", ".join(parts + [f"{key.replace('_', '-')} {own.get(key, 'none')}" for key in differing])


def settings_of(rows: Sequence[ResultRow]) -> list[Setting]:
    """The setting of every row. Stage 1's steps are no part of it where they follow from the task: an epoch of a larger
    domain has more of them."""
    varying = VARYING | {STAGE_1_STEPS}
    lengths: dict[tuple[Setting, str], set[str]] = {}
    for row in rows:
        steps = json.dumps(leaves(json.loads(row["config"])).get(STAGE_1_STEPS))
        lengths.setdefault((Setting.of(row, varying), row["task"]), set()).add(steps)
    follow = all(len(found) == 1 for found in lengths.values())
    return [Setting.of(row, varying if follow else VARYING) for row in rows]


def result_tables(
    rows: Sequence[ResultRow], selection: str = "last", benchmark: str | None = None, quoted: bool = True
) -> list[ResultTable]:
    """A table a benchmark, or that of the one asked for: of the rows selected by that rule, and of the oracle's."""
    there = list(dict.fromkeys(row["benchmark"] for row in rows))
    wanted = [name for name in there if benchmark is None or plain_name(name) == plain_name(benchmark)]
    if not wanted:
        if not there:
            raise InputError("there are no results in what is named; name a CSV that has some")
        found = ", ".join(map(printable, there))
        raise InputError(f"there are no results on {printable(benchmark)}; there are those on {found}")
    scored = [row for row in rows if row["benchmark"] in wanted and row["accuracy"]]
    rules = list(dict.fromkeys(row["selection"] for row in scored))
    if selection not in rules:
        found = ", ".join(map(printable, rules)) or "no accuracies, as the targets have no labels"
        raise InputError(f"there are no results with --selection {printable(selection)}; there are: {found}")
    names = [
        name for name in wanted if any((row["benchmark"], row["selection"]) == (name, selection) for row in scored)
    ]
    return [_table(name, [row for row in scored if row["benchmark"] == name], selection, quoted) for name in names]


def quoted_rows(benchmark: str) -> list[Quoted]:
    """The paper's rows on that benchmark."""
    return [row for row in QUOTED if row.benchmark == benchmark]


def _table(benchmark: str, rows: Sequence[ResultRow], selection: str, quoted: bool) -> ResultTable:
    rows = [row for row in rows if row["selection"] in (selection, ORACLE)]
    tasks = TASKS.get(benchmark, ())  # of other data nobody can say that all tasks are there: it has no average
    others = dict.fromkeys(row["task"] for row in rows if row["task"] not in tasks)
    metrics = tuple(METRICS) if benchmark in BOTH_METRICS else ("accuracy",)
    shown_tasks = (*tasks, *[AVERAGE] * (len(tasks) > 1), *others)
    columns = tuple(Column(task, metric) for task in shown_tasks for metric in metrics)
    lines = [_quoted_line(row, columns) for row in quoted_rows(benchmark)] if quoted else []
    placed = list(zip(rows, settings_of(rows), strict=True))
    settings = dict.fromkeys(setting for _, setting in placed)
    for rule in dict.fromkeys((selection, ORACLE)):
        for setting in settings:
            members = [row for row, its in placed if row["selection"] == rule and its == setting]
            if members:
                name, kind = setting.name(settings), "oracle" if rule == ORACLE else "measured"
                cells = (_cell(members, column, tasks) for column in columns)
                lines.append(TableRow(name, kind, tuple(cells)))
    lengths = {dict(setting.rest).get("steps") for setting in settings}
    steps = json.loads(lengths.pop() or "null") if len(lengths) == 1 else None
    return ResultTable(benchmark, selection, columns, tuple(lines), steps)


def _quoted_line(row: Quoted, columns: Sequence[Column]) -> TableRow:
    figures = {Column(task, "accuracy"): Cell(*figure, seeds=None) for task, figure in row.figures.items()}
    return TableRow(row.method, "quoted", tuple(map(figures.get, columns)))


def _cell(rows: Sequence[ResultRow], column: Column, tasks: Sequence[str]) -> Cell | None:
    if column.task != AVERAGE:
        return _spread(_by_seed(rows, column))
    parts = [_by_seed(rows, Column(task, column.metric)) for task in tasks]
    if not all(parts):
        return None
    if len({frozenset(part) for part in parts}) > 1:
        return Cell(statistics.mean(statistics.mean(part.values()) for part in parts), None, None)
    return _spread({seed: statistics.mean(part[seed] for part in parts) for seed in parts[0]})


def _by_seed(rows: Sequence[ResultRow], column: Column) -> dict[str, float]:
    found: dict[str, ResultRow] = {}
    for row in rows:
        if row["task"] == column.task and found.setdefault(row["seed"], row) is not row:
            hashes = f"{found[row['seed']]['config_hash']} and {row['config_hash']}"
            place = f"{row['method']} on {printable(row['task'])} with seed {row['seed']} stands twice"
            raise InputError(f"{place} (config_hash {hashes}), and only one can count; remove the other row")
    return {seed: float(row[column.metric]) for seed, row in found.items() if row[column.metric]}


def _spread(values: Mapping[str, float]) -> Cell | None:
    if not values:
        return None
    deviation = statistics.stdev(values.values()) if len(values) > 1 else None
    return Cell(statistics.mean(values.values()), deviation, len(values))
