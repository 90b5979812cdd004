from collections import Counter

import pytest

from tcm.data.benchmarks import BENCHMARKS, Benchmark, benchmark_named, find_benchmark, recognise_benchmark
from tcm.errors import InputError

OFFICE_HOME, IMAGE_CLEF, VISDA, OFFICE_31 = BENCHMARKS


@pytest.mark.parametrize("name", ["Office-Home", "office_home", "OFFICE HOME", "officehome"])
def test_benchmarks_are_known_by_any_spelling(name: str):
    assert find_benchmark(name) == benchmark_named(name) == OFFICE_HOME


def test_an_unknown_benchmark():
    assert find_benchmark("office") is None
    with pytest.raises(
        InputError, match=r'^there is no benchmark "visda"; the nearest is VisDA-2017; there are Office-'
    ):
        benchmark_named("visda")


def test_true_counts():
    assert sum(domain.images for domain in OFFICE_HOME.domains) == 15588
    assert sum(domain.images for domain in VISDA.domains) == 207785
    assert sum(domain.images for domain in OFFICE_31.domains) == 4110
    assert [domain.images for domain in IMAGE_CLEF.domains] == [600, 600, 600]
    assert {benchmark.name: benchmark.classes for benchmark in BENCHMARKS} == {
        "Office-Home": 65,
        "ImageCLEF-DA": 12,
        "VisDA-2017": 12,
        "Office-31": 31,
    }


def test_tasks_are_in_the_order_of_the_tables():
    first = OFFICE_HOME.tasks[2]
    assert (first.source.name, first.target.name, first.code) == ("Art", "Real World", "A>R")
    assert [task.code for task in IMAGE_CLEF.tasks] == ["I>P", "P>I", "I>C", "C>I", "C>P", "P>C"]
    assert [len(benchmark.tasks) for benchmark in BENCHMARKS] == [12, 6, 1, 6]


@pytest.mark.parametrize("code", ["A2C", "a>c", "Ar2Cl", "Ar -> Cl", "art2clipart", "A → C", "Art_to_Clipart", "AR>C"])
def test_a_task_by_any_spelling(code: str):
    assert OFFICE_HOME.task(code).code == "A>C"


@pytest.mark.parametrize(
    ("benchmark", "code", "expected"),
    [
        (OFFICE_HOME, "rw2pr", "R>P"),
        (OFFICE_HOME, "Real_World -> Art", "R>A"),
        (OFFICE_HOME, "product2realworld", "P>R"),
        (IMAGE_CLEF, "Caltech-256 -> ImageNet", "C>I"),
        (IMAGE_CLEF, "caltech2562pascal", "C>P"),
        (IMAGE_CLEF, "i2p", "I>P"),
        (VISDA, "synthetic>real", "Synthetic>Real"),
        (VISDA, "train2validation", "Synthetic>Real"),
        (VISDA, "T2V", "Synthetic>Real"),
        (OFFICE_31, "amazon->webcam", "A>W"),
        (OFFICE_31, "D2W", "D>W"),
    ],
)
def test_tasks_of_every_benchmark(benchmark: Benchmark, code: str, expected: str):
    assert benchmark.task(code).code == expected


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_no_spelling_means_two_tasks(benchmark: Benchmark):
    written = Counter(spelling for task in benchmark.tasks for spelling in {*task.spellings()})
    assert [spelling for spelling, times in written.items() if times > 1] == []
    names = Counter(name.casefold() for domain in benchmark.domains for name in {n.casefold() for n in domain.names})
    assert max(names.values()) == 1


@pytest.mark.parametrize(
    ("code", "nearest"), [("Art2Clipert", "A>C"), ("product>realworlds", "P>R"), ("A2A", ""), ("", ""), ("a\nb", "")]
)
def test_an_unknown_task_gives_the_nearest(code: str, nearest: str):
    with pytest.raises(InputError) as caught:
        OFFICE_HOME.task(code)
    text = str(caught.value)
    assert f"the nearest is {nearest}" in text
    assert text.endswith("its tasks are A>C, A>P, A>R, C>A, C>P, C>R, P>A, P>C, P>R, R>A, R>C, R>P")
    assert "\n" not in text


def test_visda_has_no_task_back():
    with pytest.raises(InputError, match="the nearest is Synthetic>Real"):
        VISDA.task("validation>train")


def test_a_benchmark_is_recognised_by_domains_and_classes_or_name():
    assert recognise_benchmark("x", ["Art", "Real_World"], 65) == OFFICE_HOME
    assert recognise_benchmark("x", ["Ar", "Rw"], 65) == OFFICE_HOME
    assert recognise_benchmark("office-home", ["Art", "Real_World"], 64) == OFFICE_HOME
    assert recognise_benchmark("x", ["Art", "Real_World"], 64) is None
    assert recognise_benchmark("office-home", ["Art", "Extra"], 65) is None
    assert recognise_benchmark("x", ["train", "validation"], 10) is None
    assert recognise_benchmark("x", ["C", "P"], 12) == IMAGE_CLEF
    assert recognise_benchmark("x", [], 65) is None


def test_differences():
    classes = {f"class {number}": 1 for number in range(65)}
    whole = {"Art": classes, "real_world": classes}
    assert OFFICE_HOME.differences({"Art": 2427, "real_world": 4357}, whole) == []
    assert OFFICE_HOME.differences({"art": 2426}, {"art": dict(list(classes.items())[:64])}) == [
        "art has 2426 images, Office-Home Art has 2427",
        "art has 64 classes, Office-Home has 65",
    ]


def test_a_missing_class_is_named():
    classes = [f"class {number}" for number in range(65)]
    part = {"Art": dict.fromkeys(["Class_1", *classes[2:]], 1), "Rw": dict.fromkeys(classes, 1)}
    expected = ["Art has 64 classes, Office-Home has 65; it has no images of class 0"]
    assert OFFICE_HOME.differences({"Art": 2427, "Rw": 4357}, part) == expected
    assert OFFICE_HOME.differences({"Art": 2427}, {"Art": dict.fromkeys(classes[1:], 1)}, folders=["class_0"]) == [
        "Art has 64 classes, Office-Home has 65; it has no images of class_0"
    ]


def test_a_class_with_a_wrong_number_of_images_is_named():
    numbers = {str(number): 50 for number in reversed(range(12))}
    assert IMAGE_CLEF.differences({"p": 600}, {"p": numbers}) == []
    assert IMAGE_CLEF.differences({"p": 597}, {"p": {**numbers, "2": 48, "10": 49}}) == [
        "p has 597 images, ImageCLEF-DA p has 600; class 2 has 48 of 50, class 10 has 49 of 50"
    ]
    own = dict(OFFICE_HOME.domains[0].per_class) | {"TV": 39}
    spelled = {name.replace("_", " ").lower(): count for name, count in own.items() if name != "Bed"}
    assert OFFICE_HOME.differences({"Art": 2386}, {"Art": spelled}) == [
        "Art has 2386 images, Office-Home Art has 2427; class tv has 39 of 40",
        "Art has 64 classes, Office-Home has 65",
    ]
    # The numbers of its lists do not follow the names.
    assert "class" not in OFFICE_HOME.differences({"Art": 65}, {"Art": {str(number): 1 for number in range(65)}})[0]


@pytest.mark.parametrize("benchmark", BENCHMARKS, ids=lambda benchmark: benchmark.name)
def test_the_classes_add_up(benchmark: Benchmark):
    for domain in benchmark.domains:
        assert len(domain.per_class) == benchmark.classes
        assert sum(count for _, count in domain.per_class) == domain.images
        assert [name for name, _ in domain.per_class] == sorted(name for name, _ in domain.per_class)
