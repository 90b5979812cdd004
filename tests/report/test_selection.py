"""What the page says of selection rules."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.pages import page_of

MakeRun = Callable[..., Path]
TITLE = "Which evaluation a rule would have chosen"


def evaluations(run: Path) -> list[dict[str, Any]]:
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [row for row in rows if "target/accuracy" in row]


def test_each_rule_has_its_step_and_accuracy(make_run: MakeRun):
    run = make_run("run", selection=("snd", "source"))
    page, rows = page_of(run), evaluations(run)
    best = max(rows, key=lambda row: row["target/accuracy"])
    start = page.rows.index(["Rule", "Step", "Accuracy"])
    found = page.rows[start + 1 : start + 5]
    chosen = {"last": rows[-1], "snd": rows[0], "source": rows[0], "oracle": best}
    for cells, (rule, row) in zip(found, chosen.items(), strict=True):
        assert cells[0].startswith(rule)
        assert cells[1:] == [str(row["step"]), f"{row['target/accuracy']:.1%}"]
    assert rows[0]["step"] == 50
    assert page.attributes("tr", "class").count("oracle") == 1
    assert "Model reported: the last iterate, step 400." in page.text


@pytest.mark.parametrize(
    ("held_out", "says"),
    [(0.0, "too optimistic"), (None, "too optimistic"), (0.125, "on the 12.5% of the source images")],
)
def test_the_page_says_which_images_validate(make_run: MakeRun, held_out: float | None, says: str):
    assert says in page_of(make_run("run", selection=("dev",), held_out=held_out)).text


@pytest.mark.parametrize(
    "settings",
    [{}, {"labelled": False, "selection": ("snd",)}, {"finished": False, "selection": ("snd",)}],
    ids=["no scores", "no labels", "half"],
)
def test_without_scores_or_labels_there_is_no_table(make_run: MakeRun, settings: dict[str, Any]):
    assert TITLE not in page_of(make_run("run", **settings)).text


def test_a_collapse_is_named_in_plain_words(make_run: MakeRun):
    run = make_run("run", selection=("entropy", "information"))
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    classes = json.loads((run / "evaluation.json").read_text())["classes"]
    for used, named in ((len(classes), False), (1, True)):
        rows[-1] |= {"select/entropy": -0.1, "select/information": math.log(used) - 0.1}
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        said = f"The predictions on the target use about 1 of the {len(classes)} classes: unless the target has so few"
        assert (said in page_of(run).text) == named
