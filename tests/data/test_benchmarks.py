import pytest

from tcm.data.benchmarks import BENCHMARKS, known, recognised

OFFICE_HOME = BENCHMARKS[0]


@pytest.mark.parametrize("name", ["Office-Home", "office_home", "OFFICE HOME", "officehome"])
def test_benchmarks_are_known_by_any_spelling(name: str):
    assert known(name) == OFFICE_HOME


def test_what_is_not_known():
    assert known("office") is None


def test_true_counts():
    assert sum(OFFICE_HOME.domains.values()) == 15588
    assert {benchmark.name: benchmark.classes for benchmark in BENCHMARKS} == {
        "Office-Home": 65,
        "ImageCLEF-DA": 12,
        "VisDA-2017": 12,
        "Office-31": 31,
    }


def test_a_benchmark_is_recognised_by_domains_and_classes_or_name():
    assert recognised("x", ["Art", "Real_World"], 65) == OFFICE_HOME
    assert recognised("office-home", ["Art", "Real_World"], 64) == OFFICE_HOME
    assert recognised("x", ["Art", "Real_World"], 64) is None
    assert recognised("office-home", ["Art", "Extra"], 65) is None
    assert recognised("x", ["train", "validation"], 10) is None
    assert recognised("x", [], 65) is None


def test_differences():
    assert OFFICE_HOME.differences({"Art": 2427, "real_world": 4357}, {"Art": 65, "real_world": 65}) == []
    assert OFFICE_HOME.differences({"art": 2426}, {"art": 64}) == [
        "art has 2426 images, Office-Home Art has 2427",
        "art has 64 classes, Office-Home has 65",
    ]
