"""A store of results: its rows are those of the runs, and none is lost."""

import csv
import json
import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tcm.errors import InputError
from tcm.methods import METHODS
from tcm.results.store import COLUMNS, VERSION, add_rows, benchmark_of, read_rows, row, task_of
from tcm.training.run_folder import Run

CONFIG: dict[str, Any] = {
    "method_name": "tcm-paper",
    "data": {"benchmark": None, "root": "/data/of/mine/oh", "source": "Art", "target": "Real_World", "cache": "/c"},
    "backbone": {"name": "resnet50", "weights": "/data/w.safetensors"},
    "seed": 3,
    "steps": 200,
}
EVALUATION: dict[str, Any] = {
    "selection": "last",
    "step": 200,
    "seconds": 12.4,
    "source": {"name": "Art", "accuracy": 0.99},
    "target": {"name": "Real_World", "accuracy": 0.61234, "mean_class_accuracy": 0.6},
    "classes": [str(number) for number in range(65)],
}
ENVIRONMENT = {"device_name": "x86_64", "torch": "2.11.0", "commit": None}


def write_run(folder: Path, **changes: Any) -> Path:
    Run(folder).start({**CONFIG, **changes})
    (folder / "evaluation.json").write_text(json.dumps(EVALUATION))
    (folder / "environment.json").write_text(json.dumps(ENVIRONMENT))
    rows = [
        {"step": 100, "loss/classification": 1.0, "seconds": 6.0},
        {"step": 100, "source/accuracy": 0.9, "target/accuracy": 0.7, "target/mean_class_accuracy": 0.65},
        {"step": 200, "source/accuracy": 0.98, "target/accuracy": 0.6, "target/mean_class_accuracy": 0.59},
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def invented(**changes: str) -> dict[str, str]:
    """A row of a store."""
    return {**dict.fromkeys(COLUMNS, ""), "version": VERSION, "config": "{}", **changes}


def test_a_row_describes_the_run(tmp_path: Path):
    found = row(write_run(tmp_path / "run"))
    config = json.loads(found.pop("config"))
    assert len(found.pop("config_hash")) == 12
    assert found == {
        "version": "2",
        "benchmark": "Office-Home",
        "task": "A>R",
        "source": "Art",
        "target": "Real_World",
        "method": "tcm-paper",
        "k": "",
        "seed": "3",
        "accuracy": "61.23",
        "mean_class_accuracy": "60.00",
        "source_accuracy": "99.00",
        "selection": "last",
        "selected_step": "200",
        "steps": "200",
        "seconds": "12",
        "memory": "",
        "device": "x86_64",
        "torch": "2.11.0",
        "commit": "",
    }
    assert tuple(row(tmp_path / "run")) == COLUMNS
    # No path of this machine is in it.
    assert config["data"]["root"] == "oh"
    assert config["backbone"]["weights"] == "w.safetensors"
    assert "/" not in json.dumps(config)


def test_a_selected_step_is_scored_by_the_metrics_of_that_step(tmp_path: Path):
    found = row(write_run(tmp_path / "run"), selection="entropy", selected_step=100)
    names = ("selection", "selected_step", "steps", "accuracy", "mean_class_accuracy", "source_accuracy")
    assert [found[name] for name in names] == ["entropy", "100", "200", "70.00", "65.00", "90.00"]
    with pytest.raises(InputError, match="not evaluated at step 150; choose one of 100, 200"):
        row(tmp_path / "run", selection="entropy", selected_step=150)


def test_mechanisms_are_described_by_their_own_settings(tmp_path: Path):
    learned = tmp_path / "some" / "mechanisms-s3"
    stage1 = {"kind": "mechanisms", "form": "release", "k": 4, "steps": 50, "bank": {"cycle": 10.0}, "seed": 3}
    Run(learned).start(stage1)
    found = row(write_run(tmp_path / "run", mechanisms=str(learned)))
    assert found["k"] == "4"
    described = {"name": "mechanisms-s3", "form": "release", "k": 4, "steps": 50, "bank": {"cycle": 10.0}}
    assert json.loads(found["config"])["mechanisms"] == described
    with pytest.raises(InputError, match="holds no classifier"):
        row(write_run(tmp_path / "stage-1", method_name=None))
    begun = write_run(tmp_path / "begun")
    (begun / "evaluation.json").unlink()
    with pytest.raises(InputError, match="begun is not finished"):
        row(begun)


@pytest.mark.parametrize("gone", [False, True])
def test_mechanisms_of_k_auto_are_as_many_as_the_model_has(tmp_path: Path, gone: bool):
    learned = tmp_path / "mechanisms"
    if not gone:
        stage1 = {"kind": "mechanisms", "form": "paper", "k": "auto", "steps": 50, "bank": {}}
        Run(learned).start(stage1)
    folder = write_run(tmp_path / "run", mechanisms=str(learned))
    Run(folder).save_model({}, {"k": 3})
    add_rows(tmp_path / "results.csv", [row(folder)])
    assert [found["k"] for found in read_rows([tmp_path / "results.csv"])] == ["3"]


@pytest.mark.parametrize(
    ("data", "domains", "classes", "benchmark", "task"),
    [
        ({"benchmark": "digits"}, ("digits source", "digits target"), 10, "digits", "source>target"),
        ({"benchmark": "office-31"}, ("amazon", "webcam"), 31, "Office-31", "A>W"),
        ({"root": "image-clef"}, ("i", "p"), 12, "ImageCLEF-DA", "I>P"),
        ({"root": "visda-2017"}, ("train", "validation"), 12, "VisDA-2017", "Synthetic>Real"),
        ({"root": "visda-2017"}, ("validation", "train"), 12, "VisDA-2017", "Real>Synthetic"),
        ({"root": "x"}, ("train", "validation"), 3, "x", "train>validation"),
        ({"source_dir": "photos"}, ("photos", "cliparts"), 3, "own folders", "photos>cliparts"),
        ({"root": "office-home"}, ("Art", "Real_World", "Clipart"), 65, "Office-Home", "A+R>C"),
        ({"source_dir": ["photos", "sketches"]}, ("photos", "sketches", "x"), 3, "own folders", "photos+sketches>x"),
    ],
)
def test_benchmark_and_task(data: dict[str, Any], domains: tuple[str, ...], classes: int, benchmark: str, task: str):
    assert benchmark_of(data, domains, classes) == benchmark
    assert task_of(benchmark, *domains) == task


def test_the_same_run_replaces_its_row_in_its_place(tmp_path: Path):
    store = tmp_path / "new" / "store.csv"
    first, second = invented(seed="0", accuracy="1.00"), invented(seed="1", accuracy="2.00")
    add_rows(store, [first, second])
    add_rows(store, [{**first, "accuracy": "3.00", "commit": "later"}])
    add_rows(store, [{**second, "selection": "oracle"}, {**second, "config_hash": "other"}])
    found = read_rows([store])
    assert [row["accuracy"] for row in found] == ["3.00", "2.00", "2.00", "2.00"]
    assert [row["commit"] for row in found] == ["later", "", "", ""]
    # Of two stores with the same run the last counts.
    add_rows(tmp_path / "other.csv", [{**first, "accuracy": "9.00"}])
    assert [row["accuracy"] for row in read_rows([store, tmp_path / "other.csv"])] == ["9.00", "2.00", "2.00", "2.00"]


def add_many(store: Path, seed: int) -> None:
    for number in range(10):
        add_rows(store, [invented(seed=str(seed), task=str(number))])


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path):
    store = tmp_path / "store.csv"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=add_many, args=(store, seed)) for seed in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert {(row["seed"], row["task"]) for row in read_rows([store])} == {
        (str(seed), str(number)) for seed in range(4) for number in range(10)
    }


HEAD = ",".join(COLUMNS)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (
            "version,preset\r\n1,x\r\n",
            "a store of version 1, but this tcm reads version 2; use the tcm that wrote it",
        ),
        ("path,class\r\na,b\r\n", "is not a table of this kind (columns that differ: accuracy, benchmark, class,"),
        (HEAD + "\r\n2,Office-Home\r\n", "row 1 is cut off; correct or remove it"),
        (HEAD + "\r\n" + "2," * len(COLUMNS) + "2\r\n", "is not a CSV of results"),
        (b"\xff\xfe\x00", "is not a CSV of results"),
    ],
)
def test_what_is_no_store_is_refused_and_stays(content: str | bytes, says: str, tmp_path: Path):
    store = tmp_path / "store.csv"
    store.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = store.read_bytes()
    for act in (lambda: read_rows([store]), lambda: add_rows(store, [invented()])):
        with pytest.raises(InputError) as refused:
            act()
        assert f"{store}" in str(refused.value)
        assert says in str(refused.value)
    assert store.read_bytes() == before


@pytest.mark.parametrize(("column", "value"), [("accuracy", "many"), ("config", "{"), ("k", "four"), ("seed", "x")])
def test_a_value_that_cannot_be_read_is_named(column: str, value: str, tmp_path: Path):
    add_rows(tmp_path / "store.csv", [invented(seed="0"), invented(**{"seed": "1", column: value})])
    with pytest.raises(InputError, match="row 2 is damaged"):
        read_rows([tmp_path / "store.csv"])


def test_a_row_of_a_gpu_has_its_memory(tmp_path: Path):
    folder = write_run(tmp_path / "run")
    (folder / "evaluation.json").write_text(json.dumps({**EVALUATION, "memory": 7.1234}))
    assert row(folder)["memory"] == "7.12"


def test_an_older_store_without_memory_is_read_and_added_to(tmp_path: Path):
    store = tmp_path / "store.csv"
    add_rows(store, [invented(seed="0", seconds="5", device="H200")])
    old = store.read_text().replace("seconds,memory,", "seconds,").replace(",5,,H200", ",5,H200")
    assert "memory" not in old
    store.write_text(old)
    (found,) = read_rows([store])
    assert (found["seconds"], found["memory"], found["device"]) == ("5", "", "H200")
    add_rows(store, [invented(seed="1", memory="7.12")])
    assert [row["memory"] for row in read_rows([store])] == ["", "7.12"]


def test_a_study_keeps_its_own_columns(tmp_path: Path):
    file = tmp_path / "study.csv"
    add_rows(file, [{"form": "a", "x": "1"}, {"form": "b", "x": "2"}], ("form", "x"), ("form",))
    add_rows(file, [{"form": "a", "x": "3"}], ("form", "x"), ("form",))
    with file.open(newline="") as handle:
        assert list(csv.DictReader(handle)) == [{"form": "a", "x": "3"}, {"form": "b", "x": "2"}]


RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"


def test_the_published_stores_can_be_read():
    stores = [file for file in sorted(RESULTS.glob("*.csv")) if file.read_text().startswith("version,")]
    assert len(stores) >= 6
    rows = read_rows(stores)
    assert {row["method"] for row in rows} == {*METHODS, "tcm-paper", "tcm-release", "tcm-control"}


def test_nothing_that_trains_imports_pandas():
    code = "import sys, tcm.cli.train, tcm.cli.mechanisms, tcm.bench.runner; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_store_that_cannot_be_written_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be written"):
        add_rows(tmp_path / "file" / "store.csv", [invented()])
