"""When runs are the same but for the seed, what they are called where they are not, and the spread over seeds."""

from pathlib import Path
from typing import Any

import pytest

from tcm.data.domains import folder_names
from tcm.results.identity import RunFacts, Spread, distinct, grouped, identities, labels, spread


def facts(method: str = "tcm", k: str = "4", task: str = "A>C", **config: Any) -> RunFacts:
    return RunFacts(method, k, task, {"seed": 0, **config})


def is_same(first: dict[str, Any], second: dict[str, Any]) -> bool:
    one, other = identities([facts(**first), facts(**second)])
    return one == other


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"seed": 0}, {"seed": 1}),
        ({"data": {"root": "/a", "cache": "x"}}, {"data": {"root": "/b", "cache": None}}),
        ({"compile": "on"}, {"compile": "off"}),
        ({"log_every": 1}, {"log_every": 2}),
        ({"watch": {"images": 0}}, {"watch": {"images": 9}}),
        ({"mechanisms": {"name": "s0", "k": 4}}, {"mechanisms": {"name": "s1", "k": 4}}),
        ({"preset": "default"}, {}),  # of a row of an older version
        ({"task": "A>C"}, {"task": "A>P"}),
        ({"data": {"area": None}}, {"data": {}}),
    ],
)
def test_what_may_differ_between_seeds(first: dict[str, Any], second: dict[str, Any]):
    assert is_same(first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"method": "tcm"}, {"method": "tcm-paper"}),
        ({"k": "4"}, {"k": "5"}),
        ({"steps": 1}, {"steps": 2}),
        ({"data": {"crop": 32}}, {"data": {"crop": 28}}),
        ({"mechanisms": {"form": "paper"}}, {"mechanisms": {"form": "release"}}),
    ],
)
def test_what_makes_another_run(first: dict[str, Any], second: dict[str, Any]):
    assert not is_same(first, second)


def test_a_setting_can_be_free():
    runs = [facts(k=str(k), mechanisms={"k": k}) for k in (1, 2)]
    one, other = identities(runs, free=("k", "mechanisms.k"))
    assert one == other
    assert labels([one]) == ["tcm"]


def with_stage_1(task: str, steps: int) -> RunFacts:
    return facts(task=task, mechanisms={"steps": steps})


def test_steps_of_stage_1_follow_from_the_task_unless_a_task_has_several():
    assert len(set(identities([with_stage_1("A>C", 100), with_stage_1("A>P", 140)]))) == 1
    assert len(set(identities([with_stage_1("A>C", 100), with_stage_1("A>C", 140)]))) == 2


def test_labels_name_method_then_k_then_what_differs():
    found = identities(
        [
            facts("erm", "", steps=1),
            facts("tcm", "4", steps=2, lr=0.1),
            facts("tcm", "5", steps=2, lr=0.1),
            facts("tcm", "5", steps=2, lr=0.2, seed=1),
            facts("tcm", "5", steps=2, lr=0.2),
        ]
    )
    assert labels(found) == ["erm", "tcm, k = 4", "tcm, k = 5, lr 0.1", "tcm, k = 5, lr 0.2", "tcm, k = 5, lr 0.2"]
    assert labels(found[:2], everywhere=("steps",)) == ["erm, steps 1", "tcm, steps 2"]


@pytest.mark.parametrize("name", ["form", "preset"])
def test_the_form_of_mechanisms_stands_for_their_settings_unless_it_is_not_enough(name: str):
    def with_bank(form: str, cycle: int) -> RunFacts:
        return facts(mechanisms={name: form, "bank": {"cycle": cycle}})

    two = identities([with_bank("paper", 10), with_bank("release", 1)])
    assert labels(two) == [f"tcm, mechanisms.{name} paper", f"tcm, mechanisms.{name} release"]
    three = identities([with_bank("paper", 10), with_bank("paper", 5), with_bank("release", 1)])
    assert labels(three) == [
        f"tcm, mechanisms.bank.cycle 10, mechanisms.{name} paper",
        f"tcm, mechanisms.bank.cycle 5, mechanisms.{name} paper",
        f"tcm, mechanisms.{name} release",
    ]


def test_equal_names_get_the_details_that_differ():
    assert distinct(["a", "a", "b"], ["x", "x", "x"], ["1", "2", "1"]) == ["a, 1", "a, 2", "b"]
    assert distinct(["a", "a", "a"], ["x", "", "x"], ["1", "2", "3"]) == ["a, x, 1", "a", "a, x, 3"]


def test_folders_are_named_by_as_much_of_their_paths_as_differs():
    assert folder_names([Path("/x/a"), Path("/y/b")]) == ["a", "b"]
    assert folder_names([Path("/x/a"), Path("/y/a")]) == ["x/a", "y/a"]
    assert folder_names([Path("/x/a"), Path("/x/a")]) == ["a", "a"]


def test_groups_keep_the_order_of_their_first_members():
    assert grouped([1, 2, 3], "bab") == {"b": [1, 3], "a": [2]}


def test_the_spread_over_seeds():
    assert spread([70, 72, 74]) == Spread(72, 2, 3)
    assert spread([70, 72, 74]).text() == "72.0 ± 2.0"
    assert spread([0.5]) == Spread(0.5, None, 1)
    assert spread([0.5]).text(2) == "0.50"
