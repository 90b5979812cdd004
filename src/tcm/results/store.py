"""A store of results: a CSV with one row per finished run and selection rule. Several processes may add rows to it."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from tcm.data.benchmarks import BENCHMARKS, find_benchmark, recognise_benchmark
from tcm.errors import InputError, printable
from tcm.training.files import write_atomically
from tcm.training.run_folder import Run, read_json

# pandas and filelock are imported in functions: most commands need neither, and pandas takes half a second.

ResultRow = Mapping[str, str]

VERSION = "2"  # of the columns
ORIGIN = ("device", "torch", "commit", "config_hash", "config")  # how a row was measured
ACCURACIES = ("accuracy", "mean_class_accuracy", "source_accuracy")
COLUMNS = (
    *("version", "benchmark", "task", "source", "target", "method", "k", "seed"),
    *ACCURACIES,
    *("selection", "selected_step", "steps", "seconds", "memory"),
    *ORIGIN,
)
LATER = ("memory",)  # columns that older files do not have; their rows have no value there
_REPAIR = "correct or remove it"
KEY = ("benchmark", "task", "method", "k", "seed", "selection", "config_hash")

# The tasks of every benchmark, in the order of the paper's tables.
TASKS: dict[str, tuple[str, ...]] = {
    **{benchmark.name: tuple(task.code for task in benchmark.tasks) for benchmark in BENCHMARKS},
    "digits": ("source>target",),
    "digits-ceiling": ("source>target",),
}


def row(
    folder: Path, selection: str = "last", selected_step: int | None = None, benchmark: str | None = None
) -> dict[str, str]:
    """The row of a finished stage-2 run, with accuracies in %, for the model that its evaluation.json scores.

    `selected_step` is the step that the rule `selection` chose: the row then has the scores of metrics.jsonl at that
    step. Without `benchmark` it is recognised from the data.
    """
    config = read_config(folder)
    method = config.pop("method_name", None)
    if method is None:
        raise InputError(f"{printable(folder)} holds no classifier; name the folder of a tcm train run")
    if not (folder / "evaluation.json").exists():
        raise InputError(f"{printable(folder)} is not finished; repeat its train command to continue it")
    found = read_json(folder / "evaluation.json")
    assert selected_step is not None or selection == found["selection"]
    scores = zip(ACCURACIES, _scores(folder, found, selected_step), strict=True)
    source, target = found["source"]["name"], found["target"]["name"]
    data = {"benchmark": benchmark} if benchmark else config["data"]
    sources = [domain["name"] for domain in found["source"].get("domains", [])] or [source]
    benchmark = benchmark_of(data, (*sources, target), len(found["classes"]))
    return {
        "version": VERSION,
        "benchmark": benchmark,
        "task": task_of(benchmark, *sources, target),
        "source": source,
        "target": target,
        "method": method,
        "k": number_of_mechanisms(folder, config),
        "seed": str(config["seed"]),
        **{name: "" if share is None else f"{100 * share:.2f}" for name, share in scores},
        "selection": selection,
        "selected_step": str(found["step"] if selected_step is None else selected_step),
        "steps": str(config["steps"]),
        "seconds": f"{found['seconds']:.0f}",
        "memory": f"{found['memory']:.2f}" if found.get("memory") else "",
        **origin(folder, config),
    }


def _scores(folder: Path, found: dict[str, Any], step: int | None) -> tuple[float | None, ...]:
    """Target accuracy, mean per class and source accuracy: of evaluation.json, or of metrics.jsonl at that step."""
    if step is None:
        return found["target"]["accuracy"], found["target"]["mean_class_accuracy"], found["source"]["accuracy"]
    evaluated = {int(row["step"]): row for row in Run(folder).metrics() if "source/accuracy" in row}
    if step not in evaluated:
        steps = ", ".join(map(str, evaluated)) or "none"
        raise InputError(f"{printable(folder)} was not evaluated at step {step}; choose one of {steps}")
    return tuple(map(evaluated[step].get, ("target/accuracy", "target/mean_class_accuracy", "source/accuracy")))


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration in a run folder, as `portable_config` has it."""
    return portable_config(Run(folder).config())


def portable_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without paths of this machine; mechanisms are described by the settings of their own run."""
    found = dict(config)
    found["data"] = {key: _without_folders(value) for key, value in found["data"].items()}
    if found.get("backbone", {}).get("weights"):
        found["backbone"] = {**found["backbone"], "weights": Path(found["backbone"]["weights"]).name}
    if found.get("mechanisms"):
        where = Path(found["mechanisms"])
        learned = Run(where).config() if Run(where).exists else {}
        described = {key: learned[key] for key in ("form", "k", "steps", "bank") if key in learned}
        found["mechanisms"] = {"name": where.name, **described}
    return found


def _without_folders(value: Any) -> Any:
    """The last part of a path, and of each path in a list; another value as it is."""
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    return Path(str(value)).name if "/" in str(value) else value


def number_of_mechanisms(folder: Path, config: Mapping[str, Any]) -> str:
    """How many mechanisms the run's model has or, before it is finished, was asked to have; "" without any."""
    if not config.get("mechanisms"):
        return ""
    asked = config["mechanisms"].get("k", "")
    return str(Run(folder).about_model().get("k", "") if Run(folder).finished else asked)


def benchmark_of(data: dict[str, Any], domains: Sequence[str], classes: int) -> str:
    """The name of the data's benchmark; the name of the root if it is not a known one, else "own folders"."""
    if data.get("benchmark"):
        named = find_benchmark(data["benchmark"])
        return named.name if named else data["benchmark"]
    root = data.get("root") or ""
    found = recognise_benchmark(root, domains, classes)
    return found.name if found else root or "own folders"


def task_of(benchmark: str, *domains: str) -> str:
    """The task as the columns of tables call it: A>C, or A+P>C. The last domain is the target."""
    published, tasks = find_benchmark(benchmark), TASKS.get(benchmark, ())
    if published is None and len(tasks) == 1:  # the built-in digits
        return tasks[0]
    *first, last = (domain.short if published and (domain := published.domain(name)) else name for name in domains)
    return f"{'+'.join(first)}>{last}"


def origin(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """The columns of ORIGIN for a run of either stage."""
    environment = read_json(folder / "environment.json")
    text = json.dumps(config, sort_keys=True)
    return {
        "device": environment["device_name"],
        "torch": environment["torch"],
        "commit": environment["commit"] or "",
        "config_hash": hashlib.blake2b(text.encode(), digest_size=6).hexdigest(),
        "config": text,
    }


def add_rows(file: Path, rows: Iterable[ResultRow], columns: Sequence[str] = COLUMNS, key: Sequence[str] = KEY) -> None:
    """Adds the rows to the CSV; a row that equals an earlier one in the columns `key` takes its place.

    Other processes that add rows wait, and the file is replaced whole: no row is lost.
    """
    import pandas as pd

    rows = list(rows)
    with _locked(file):
        there = read_table(file, columns) if file.exists() else []
        kept = {tuple(row[name] for name in key): row for row in [*there, *rows]}
        frame = pd.DataFrame(list(kept.values()), columns=list(columns))
        write_atomically(file, frame.to_csv(index=False, lineterminator="\r\n").encode())


@contextmanager
def _locked(file: Path) -> Iterator[None]:

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        held = FileLock(file.with_name(f".{file.name}.lock")).acquire()
    except OSError as error:
        raise InputError(f"{printable(file)} cannot be written ({error.strerror}); choose another file") from error
    with held:
        yield


def read_rows(files: Iterable[Path]) -> list[dict[str, str]]:
    """The rows of one or more stores; of a row that is in several, the one in the last store."""
    rows = []
    for file in files:
        found = read_table(file, COLUMNS)
        for number, row in enumerate(found, start=1):
            try:
                _require_values(row)
            except ValueError as error:
                raise InputError(f"{printable(file)}: row {number} is damaged ({error}); {_REPAIR}") from error
        rows += found
    return list({tuple(row[name] for name in KEY): row for row in rows}.values())


def _require_values(row: ResultRow) -> None:
    if not isinstance(json.loads(row["config"]), dict):
        raise ValueError("its config is not a JSON object")
    for name in ("k", "seed"):
        int(row[name] or 0)
    if not all(0 <= float(row[name] or 0) <= 100 for name in ACCURACIES):
        raise ValueError("an accuracy is not between 0 and 100")


def read_table(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV with these columns; an error if it has others."""
    import pandas as pd

    try:
        # Only this engine detects rows that are too short or too long, if it reads the header as a row.
        whole = pd.read_csv(file, header=None, dtype=str, keep_default_na=False, engine="python", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{printable(file)} cannot be read ({error.strerror}); name a CSV of results") from error
    except pd.errors.EmptyDataError:
        return []
    except ValueError as error:
        raise InputError(f"{printable(file)} is not a CSV of results ({error}); name another file") from error
    rows = whole.iloc[1:].set_axis(whole.iloc[0].tolist(), axis=1)
    if "version" in columns and (others := {*rows.get("version", ())} - {VERSION}):
        found = f"{printable(file)} is a store of version {', '.join(sorted(others))}"
        raise InputError(f"{found}, but this tcm reads version {VERSION}; use the tcm that wrote it or another file")
    for name in LATER:
        if name in columns and name not in rows:
            rows.insert(min(columns.index(name), len(rows.columns)), name, "")
    if list(rows) != list(columns):
        which = ", ".join(sorted({*map(str, rows)} ^ {*columns})) or "their order"
        raise InputError(
            f"{printable(file)} is not a table of this kind (columns that differ: {which}); name another file"
        )
    for number in rows.index[rows.isna().any(axis=1)]:
        raise InputError(f"{printable(file)}: row {number} is cut off; {_REPAIR}")
    return rows.to_dict("records")
