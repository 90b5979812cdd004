"""Which numbers a table has, the titles of its rows, and what must not pass for an average."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tcm.errors import InputError
from tcm.results.identity import Spread
from tcm.results.store import TASKS
from tcm.results.table import ResultTable, result_tables


def result(
    accuracy: float,
    seed: int = 0,
    *,
    task: str = "I>P",
    method: str = "dann",
    benchmark: str = "ImageCLEF-DA",
    selection: str = "last",
    k: str = "",
    per_class: float = 50.0,
    **config: Any,
) -> dict[str, str]:
    """A row of a store, as far as a table looks at it."""
    text = json.dumps({"seed": seed, "data": {"root": task}, **config})
    row = {"benchmark": benchmark, "task": task, "method": method, "k": k, "seed": str(seed)}
    scores = {"accuracy": f"{accuracy:.2f}", "mean_class_accuracy": f"{per_class:.2f}"}
    return {**row, **scores, "selection": selection, "config": text, "config_hash": f"h{hash(text)}"}


def table_of(rows: Sequence[dict[str, str]], **options: Any) -> ResultTable:
    (table,) = result_tables(rows, **{"quoted": False, **options})
    return table


def cells(table: ResultTable, name: str, kind: str = "measured", metric: str = "accuracy") -> dict[str, Spread]:
    """The cells of a row by their task."""
    row = table.frame.loc[(kind, name)]
    numbers = row.xs(metric, level="metric").unstack("statistic").dropna(subset="mean")
    spreads = numbers[list(Spread._fields)].astype(object).where(numbers.notna(), None)
    return {task: Spread(*spread) for task, spread in zip(spreads.index, spreads.to_numpy().tolist(), strict=True)}


def kinds(table: ResultTable) -> list[str]:
    return table.frame.index.get_level_values("kind").tolist()


def names(table: ResultTable) -> list[str]:
    return table.frame.index.get_level_values("method").tolist()


def tasks(table: ResultTable) -> list[str]:
    return table.frame.columns.unique("task").tolist()


def test_a_cell_is_mean_and_sample_deviation_over_seeds():
    table = table_of([result(70, 0), result(72, 1), result(74, 2), result(60, 0, task="P>I")])
    assert cells(table, "dann") == {"I>P": Spread(72, 2, 3), "P>I": Spread(60, None, 1)}
    assert tasks(table) == ["I>P", "P>I", "I>C", "C>I", "C>P", "P>C", "Avg"]


def all_tasks(seeds: Sequence[int], first: float = 60.0) -> list[dict[str, str]]:
    """The accuracies of every task: 60, 61, ... with seed 0, and 2 more with each seed after it."""
    every = TASKS["ImageCLEF-DA"]
    return [result(first + n + 2 * seed, seed, task=task) for n, task in enumerate(every) for seed in seeds]


def test_an_average_needs_every_task():
    whole = all_tasks([0, 1])
    # Seed by seed 62.5 and 64.5.
    assert cells(table_of(whole), "dann")["Avg"] == pytest.approx((63.5, 2**0.5, 2))
    assert "Avg" not in cells(table_of(whole[:-2]), "dann")
    # If a task lacks a seed there is a mean, but none for each seed.
    mean, *others = cells(table_of(whole[:-1]), "dann")["Avg"]
    assert mean == pytest.approx(63.5 - 1 / 6)
    assert others == [None, None]


def test_rows_are_titled_by_what_tells_them_apart():
    rows = [
        result(70, method="erm", k="", steps=100),
        result(71, method="tcm-paper", k="4", lr=1.0),
        result(72, method="tcm", k="4", lr=2.0),
        result(73, method="tcm", k="1", lr=2.0),
        result(74, method="dann", steps=100, save_every=3, evaluate_every=7),
        result(75, 1, method="dann", steps=100, save_every=4, evaluate_every=7),
        result(76, method="dann", steps=200, save_every=3, evaluate_every=7),
        result(77, method="dann", steps=200, evaluate_every=9),
    ]
    assert names(table_of(rows)) == [
        "erm, steps 100",  # the only one of its method, but others were trained longer
        "tcm-paper",
        "tcm, k = 4",
        "tcm, k = 1",
        "dann, evaluate_every 7, steps 100",
        "dann, evaluate_every 7, steps 200",
        "dann, evaluate_every 9, steps 200",
    ]
    # Seeds 0 and 1 differ only in a setting that does not change the result.
    assert cells(table_of(rows), "dann, evaluate_every 7, steps 100")["I>P"].seeds == 2


def test_crops_are_named_even_if_methods_differ():
    rows = [result(70, method="mcd", data={"area": 0.08}), result(71, method="dan", data={"area": None})]
    assert names(table_of(rows)) == ["mcd, data.area 0.08", "dan"]


def test_the_caption_says_how_long_all_were_trained():
    assert "one seed, 1,000 steps." in table_of([result(70, steps=1000), result(71, method="dan", steps=1000)]).caption
    assert "steps" not in table_of([result(70, steps=1000), result(71, method="dan", steps=2000)]).caption


def test_the_form_of_mechanisms_stands_for_their_settings():
    def with_bank(accuracy: float, form: str, cycle: float, seed: int) -> dict[str, str]:
        learned = {"name": f"{form}-{seed}", "form": form, "k": 4, "bank": {"cycle": cycle}}
        return result(accuracy, seed, method="tcm", k="4", mechanisms=learned)

    rows = [with_bank(70, "paper", 10, 0), with_bank(72, "paper", 10, 1), with_bank(80, "disentangled", 1, 0)]
    assert names(table_of(rows)) == ["tcm, mechanisms.form paper", "tcm, mechanisms.form disentangled"]


def with_stage_1(task: str, steps: int) -> dict[str, str]:
    return result(
        70, task=task, method="tcm", k="4", mechanisms={"name": task, "form": "paper", "k": 4, "steps": steps}
    )


def test_stage_1_may_be_longer_for_a_task_with_more_images():
    table = table_of([with_stage_1("I>P", 100), with_stage_1("P>I", 100), with_stage_1("C>I", 140)])
    assert names(table) == ["tcm"]


def test_stage_1_of_two_lengths_on_one_task_is_two_rows():
    table = table_of([with_stage_1("I>P", 100), with_stage_1("I>P", 200), with_stage_1("C>I", 100)])
    assert names(table) == ["tcm, mechanisms.steps 100", "tcm, mechanisms.steps 200"]


@pytest.mark.parametrize(("setting", "values"), [("compile", ("on", "auto")), ("log_every", (20, 50))])
def test_what_changes_no_method_makes_no_row_of_its_own(setting: str, values: tuple[Any, Any]):
    rows = [result(70, **{setting: values[0]}), result(72, task="P>I", **{setting: values[1]})]
    assert names(table_of(rows)) == ["dann"]


def test_a_seed_cannot_count_twice():
    rows = [result(70), {**result(71), "config_hash": "b"}]
    with pytest.raises(InputError, match=r"dann on I>P with seed 0 is there twice \(config_hash .* and b\)"):
        result_tables(rows)


def test_the_best_of_ours_is_best_to_the_digit_shown():
    rows = [
        *[result(70.04, method="a"), result(70.01, method="b"), result(69.9, method="c"), result(60, method="d")],
        result(90, method="a", selection="oracle"),
        result(50, method="a", task="P>I"),
    ]
    table = table_of(rows, quoted=True)
    # Higher numbers of the paper and of the oracle do not count; one number alone is not the best.
    assert table.best.sum().tolist() == [2, *[0] * 6]
    assert table.best["I>P", "accuracy"][[("measured", "a"), ("measured", "b")]].tolist() == [True, True]
    assert table.statistic("mean").loc["quoted"]["I>P", "accuracy"].max() > 70.04


def test_the_oracle_comes_last_and_other_rules_are_left_out():
    rows = [result(80, selection="oracle"), result(70), result(75, selection="entropy")]
    table = table_of(rows, quoted=True)
    assert kinds(table) == ["quoted"] * 17 + ["measured", "oracle"]
    assert cells(table, "dann")["I>P"].mean == 70
    assert cells(table, "dann", "oracle")["I>P"].mean == 80
    assert "oracle: selected by accuracy on the target's labels" in table.notes[-1]
    assert table.caption.endswith("Selection: last (the last iterate).")
    assert table_of(rows, selection="entropy").caption.endswith("Selection: entropy.")
    assert kinds(table_of(rows, selection="oracle")) == ["oracle"]


def test_the_paper_is_quoted_beside_our_results():
    table = table_of([result(70)], quoted=True)
    assert cells(table, "TCM", "quoted")["Avg"] == Spread(90.5, None, None)
    assert cells(table, "TCM", "quoted")["I>P"] == Spread(79.9, 0.4, None)
    assert cells(table, "TCM, k = 5", "quoted")["Avg"] == Spread(90.3, None, None)
    assert "as printed in the paper (Tables 2 and 4), not measured here" in table.notes[0]
    assert "best on the target's labels" in table.notes[0]
    assert table_of([result(70)]).notes == []


def test_visda_has_both_accuracies_by_name():
    row, per_class = result(76, benchmark="VisDA-2017", task="Synthetic>Real", per_class=70), "mean_class_accuracy"
    table = table_of([row], quoted=True)
    assert list(table.statistic("mean")) == [("Synthetic>Real", metric) for metric in ("accuracy", per_class)]
    assert cells(table, "dann") == {"Synthetic>Real": Spread(76, None, 1)}
    assert cells(table, "dann", metric=per_class) == {"Synthetic>Real": Spread(70, None, 1)}
    # The paper calls its number accuracy.
    assert cells(table, "TCM", "quoted") == {"Synthetic>Real": Spread(75.8, None, None)}
    assert cells(table, "TCM", "quoted", per_class) == {}
    assert table.caption.startswith("VisDA-2017: accuracy and mean per class on the target")
    assert any("does not say whether" in note for note in table.notes)


def test_a_row_without_one_of_the_accuracies_has_the_other():
    row = result(76, benchmark="VisDA-2017", task="Synthetic>Real")
    table = table_of([{**row, "mean_class_accuracy": ""}])
    assert cells(table, "dann") == {"Synthetic>Real": Spread(76, None, 1)}
    assert cells(table, "dann", metric="mean_class_accuracy") == {}


def test_other_data_has_its_own_tasks_and_no_average():
    rows = [result(70, benchmark="pets", task="cats>dogs"), result(60, benchmark="pets", task="dogs>cats")]
    table = table_of(rows, quoted=True)
    assert tasks(table) == ["cats>dogs", "dogs>cats"]
    assert names(table) == ["dann"]


def test_a_table_for_each_benchmark_or_for_one():
    rows = [result(70), result(60, benchmark="Office-31", task="A>W"), {**result(0, benchmark="pets"), "accuracy": ""}]
    assert [table.benchmark for table in result_tables(rows)] == ["ImageCLEF-DA", "Office-31"]
    assert table_of(rows, benchmark="office_31").benchmark == "Office-31"
    for selection, benchmark, field, says in (
        ("last", "Office-Home", "benchmark", "is Office-Home, but the results are on ImageCLEF-DA, Office-31, pets"),
        ("entropy", None, "selection", "is entropy, but the results were selected by last; choose one"),
        ("last", "pets", "", "no accuracies, as the targets have no labels"),
    ):
        with pytest.raises(InputError) as refused:
            result_tables(rows, selection, benchmark)
        assert refused.value.field == field
        assert says in str(refused.value)
    with pytest.raises(InputError, match="have no results"):
        result_tables([])
