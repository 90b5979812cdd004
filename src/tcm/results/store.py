"""Finished runs as rows of a CSV: a store of results, one row a run, that several processes may add to."""

import csv
import fcntl
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tcm.data.benchmarks import BENCHMARKS, find_benchmark, recognise_benchmark
from tcm.errors import InputError, printable
from tcm.training.run_folder import Run, read_json, write_atomically

VERSION = "1"  # of the store's columns
ORIGIN = ("device", "torch", "commit", "config_hash", "config")  # how a row came about
COLUMNS = (
    *("version", "benchmark", "task", "source", "target", "method", "preset", "k", "seed"),
    *("accuracy", "mean_class_accuracy", "source_accuracy"),
    *("selection", "selected_step", "steps", "seconds"),
    *ORIGIN,
)
KEY = ("benchmark", "task", "method", "preset", "k", "seed", "selection", "config_hash")

# The tasks of every benchmark, in the order of the paper's tables.
TASKS: dict[str, tuple[str, ...]] = {
    **{benchmark.name: tuple(task.code for task in benchmark.tasks) for benchmark in BENCHMARKS},
    "digits": ("source>target",),
    "digits-ceiling": ("source>target",),
}


def row(
    folder: Path, selection: str = "last", selected_step: int | None = None, benchmark: str | None = None
) -> dict[str, str]:
    """The row of a finished run of stage 2, accuracies in %: of the model that its evaluation.json scores.

    With the step that a selection rule chose, of the model at that step, as its metrics.jsonl scored it. `benchmark` is
    the one that was asked for; without it, it is the one that the data looks like.
    """
    config = read_config(folder)
    method = config.pop("method_name", None)
    if method is None:
        raise InputError(f"{printable(folder)} holds no classifier; name the --out of a tcm train run")
    if not (folder / "evaluation.json").exists():
        raise InputError(f"{printable(folder)} is not finished; repeat its train command to go on")
    found = read_json(folder / "evaluation.json")
    assert selected_step is not None or selection == found["selection"]
    scores = _final_scores(found) if selected_step is None else _scores_at(folder, selected_step)
    source, target = found["source"]["name"], found["target"]["name"]
    data = {"benchmark": benchmark} if benchmark else config["data"]
    benchmark = benchmark_of(data, (source, target), len(found["classes"]))
    return {
        "version": VERSION,
        "benchmark": benchmark,
        "task": task_of(benchmark, source, target),
        "source": source,
        "target": target,
        "method": method,
        "preset": config.get("preset", "default"),
        "k": _k(folder, config),
        "seed": str(config["seed"]),
        **{name: "" if share is None else f"{100 * share:.2f}" for name, share in scores.items()},
        "selection": selection,
        "selected_step": str(found["step"] if selected_step is None else selected_step),
        "steps": str(config["steps"]),
        "seconds": f"{found['seconds']:.0f}",
        **origin(folder, config),
    }


def _final_scores(found: dict[str, Any]) -> dict[str, float | None]:
    return {
        "accuracy": found["target"]["accuracy"],
        "mean_class_accuracy": found["target"]["mean_class_accuracy"],
        "source_accuracy": found["source"]["accuracy"],
    }


def _scores_at(folder: Path, step: int) -> dict[str, float | None]:
    evaluated = {int(row["step"]): row for row in Run(folder).metrics() if "source/accuracy" in row}
    if step not in evaluated:
        steps = ", ".join(map(str, evaluated)) or "none"
        raise InputError(f"{printable(folder)} was not evaluated at step {step}; choose one of {steps}")
    scores = evaluated[step]
    return {
        "accuracy": scores.get("target/accuracy"),
        "mean_class_accuracy": scores.get("target/mean_class_accuracy"),
        "source_accuracy": scores["source/accuracy"],
    }


def read_config(folder: Path) -> dict[str, Any]:
    """The run's configuration. Machine-specific paths stay out of it; mechanisms are told by what they are."""
    config = read_json(folder / "config.json")
    config["data"] = {
        key: Path(str(value)).name if "/" in str(value) else value for key, value in config["data"].items()
    }
    if config.get("backbone", {}).get("weights"):
        config["backbone"]["weights"] = Path(config["backbone"]["weights"]).name
    if config.get("mechanisms"):
        where = Path(config["mechanisms"])
        config["mechanisms"] = {"name": where.name}
        if Run(where).exists:
            learned = read_json(where / "config.json")
            config["mechanisms"] |= {key: learned[key] for key in ("preset", "k", "steps", "bank")}
    return config


def _k(folder: Path, config: dict[str, Any]) -> str:
    """The number of mechanisms: as asked for or, where that was auto or their run is gone, as the model has them; ""
    without any."""
    if not config.get("mechanisms"):
        return ""
    asked = config["mechanisms"].get("k", "auto")
    return str(Run(folder).about_model()["inverse"]["k"] if asked == "auto" else asked)


def benchmark_of(data: dict[str, Any], domains: Sequence[str], classes: int) -> str:
    """The name of the benchmark that the data is of; of no known one the root's, else "own folders"."""
    if data.get("benchmark"):
        named = find_benchmark(data["benchmark"])
        return named.name if named else data["benchmark"]
    root = data.get("root") or ""
    found = recognise_benchmark(root, domains, classes)
    return found.name if found else root or "own folders"


def task_of(benchmark: str, source: str, target: str) -> str:
    """The task as the columns of tables call it."""
    if published := find_benchmark(benchmark):
        ends = [domain.short if (domain := published.domain(name)) else name for name in (source, target)]
        return ">".join(ends)
    tasks = TASKS.get(benchmark, ())
    return tasks[0] if len(tasks) == 1 else f"{source}>{target}"


def origin(folder: Path, config: dict[str, Any]) -> dict[str, str]:
    """How a run of either stage came about: the columns of ORIGIN."""
    environment = read_json(folder / "environment.json")
    text = json.dumps(config, sort_keys=True)
    return {
        "device": environment["device_name"],
        "torch": environment["torch"],
        "commit": environment["commit"] or "",
        "config_hash": hashlib.blake2b(text.encode(), digest_size=6).hexdigest(),
        "config": text,
    }


def add_rows(
    file: Path, rows: Iterable[Mapping[str, str]], columns: Sequence[str] = COLUMNS, key: Sequence[str] = KEY
) -> None:
    """Adds the rows to the CSV; a row that agrees with one there in the columns `key` takes its place.

    Other processes that add to it wait, and the file is replaced whole: no row is lost.
    """
    rows = list(rows)
    with _locked(file):
        there = read_table(file, columns) if file.exists() else []
        kept = {tuple(row[name] for name in key): row for row in [*there, *rows]}
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, columns)
        writer.writeheader()
        writer.writerows(kept.values())
        write_atomically(file, text.getvalue().encode())


def read_rows(files: Iterable[Path]) -> list[dict[str, str]]:
    """The rows of one or more stores; a row that is in several is taken from the last."""
    rows = []
    for file in files:
        for number, found in enumerate(read_table(file, COLUMNS), start=1):
            try:
                if not isinstance(json.loads(found["config"]), dict):
                    raise ValueError("its config is no JSON object")
                [int(found[name] or 0) for name in ("k", "seed")]
                if not all(0 <= float(found[name] or 0) <= 100 for name in ("accuracy", "mean_class_accuracy")):
                    raise ValueError("an accuracy is not between 0 and 100")
            except ValueError as error:
                raise InputError(f"{printable(file)}: row {number} is damaged ({error}); mend or remove it") from error
            rows.append(found)
    return list({tuple(row[name] for name in KEY): row for row in rows}.values())


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        held = file.with_name(f".{file.name}.lock").open("w")
    except OSError as error:
        raise InputError(f"{printable(file)} cannot be written ({error.strerror}); choose another file") from error
    with held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def read_table(file: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV that has these columns; an error if it has others."""
    try:
        with file.open(newline="", encoding="utf-8") as handle:
            reader = csv.DictReader(handle)
            found, rows = list(reader.fieldnames or ()), list(reader)
    except OSError as error:
        remedy = "name a CSV of results"
        raise InputError(f"{printable(file)} cannot be read ({error.strerror}); {remedy}") from error
    except (ValueError, csv.Error) as error:
        raise InputError(f"{printable(file)} is no CSV of results ({error}); name one") from error
    other = {row["version"] for row in rows if row.get("version")} - {VERSION}
    if "version" in columns and other:
        versions = f"version {', '.join(sorted(other))}, and this is version {VERSION}"
        raise InputError(f"{printable(file)} is a store of {versions}; use the tcm that wrote it, or another file")
    if found and found != list(columns):
        which = ", ".join(sorted({*found} ^ {*columns})) or "their order"
        raise InputError(
            f"{printable(file)} is no such table of results (the columns differ: {which}); name another file"
        )
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise InputError(f"{printable(file)}: row {number} is cut off or damaged; mend or remove it")
    return rows
