"""Benchmarks as they lie on disk, with their true layouts and numbers of images. The images are links to a tiny one."""

import os
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from tcm.data.benchmarks import BENCHMARKS, Benchmark
from tcm.data.check import check_root
from tcm.data.layouts import benchmark_data
from tcm.data.task import DataConfig, load_task, read_domains
from tcm.errors import InputError

OFFICE_HOME, IMAGE_CLEF, VISDA, OFFICE_31 = BENCHMARKS
VISDA_CLASSES = ["aeroplane", "bicycle", "bus", "car", "horse", "knife"]
VISDA_CLASSES += ["motorcycle", "person", "plant", "skateboard", "train", "truck"]


def fill(folder: Path, count: int, pattern: str = "{:05}.jpg") -> None:
    """That many images, numbered from 1: one tiny image and hard links to it."""
    folder.mkdir(parents=True, exist_ok=True)
    first = folder / pattern.format(1)
    Image.new("RGB", (8, 8), (90, 120, 30)).save(first, format="JPEG")
    for number in range(2, count + 1):
        os.link(first, f"{folder}/{pattern.format(number)}")


def shares(total: int, parts: int) -> list[int]:
    return [total // parts + (number < total % parts) for number in range(parts)]


def make_folders(root: Path, benchmark: Benchmark, classes: list[str], below: str = "", pattern: str = "{:05}.jpg"):
    """root/<domain>/<below>/<class>/<image> with the published number of images."""
    for domain in benchmark.domains:
        for name, count in zip(classes, shares(domain.images, len(classes)), strict=True):
            fill(root / domain.name / below / name, count, pattern)


def write_list(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{line}\n" for line in lines))


def complete(benchmark: str, root: Path, task: str) -> DataConfig:
    """The data of a task without a single warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return benchmark_data(benchmark, root, task)


def warned(benchmark: str, root: Path, task: str) -> tuple[DataConfig, list[str]]:
    """The data of a task, and the warnings that came with it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        config = benchmark_data(benchmark, root, task)
    return config, [str(warning.message) for warning in caught]


def refusal(benchmark: str, root: Path, task: str) -> str:
    with pytest.raises(InputError) as caught:
        benchmark_data(benchmark, root, task)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def office_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("office-home")
    make_folders(root, OFFICE_HOME, [f"Class_{number:02}" for number in range(65)])
    write_list(root / "ImageInfo.csv", "as in the archive")
    return root


@pytest.fixture(scope="module")
def visda(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    root = tmp_path_factory.mktemp("visda")
    make_folders(root, VISDA, VISDA_CLASSES, pattern="src_{}.png")
    for domain in ("train", "validation"):
        write_list(root / domain / "image_list.txt", "aeroplane/src_1.png 0")
    yield root
    shutil.rmtree(root)  # 200,000 files need not wait for pytest to clear old folders


@pytest.fixture
def image_clef(tmp_path: Path) -> Path:
    """As it ships: c in Caltech-256's folders, i and p flat, the classes in lists; some images of p have two labels."""
    root = tmp_path / "image_CLEF"
    caltech = ["251.airplanes-101", "224.touring-bike", "146.mountain-bike", *(f"{n}.other" for n in range(11))]
    labels = [0, 1, 1, *range(2, 12), 11]
    counts = [50, 30, 20, *[50] * 9, 25, 25]
    lines = []
    for name, label, count in zip(caltech, labels, counts, strict=True):
        fill(root / "c" / name, count, "{:04}.jpg")
        lines += [f"c/{name}/{number:04}.jpg {label}" for number in range(1, count + 1)]
    write_list(root / "list" / "cList.txt", *lines)
    fill(root / "i", 600, "n02691156_{}.JPEG")
    write_list(root / "list" / "iList.txt", *(f"i/n02691156_{n}.JPEG {(n - 1) // 50}" for n in range(1, 601)))
    fill(root / "p", 597, "2008_{:06}.jpg")
    again = ["p/2008_000001.jpg 11", "p/2008_000002.jpg 11", "p/2008_000003.jpg 11"]
    write_list(root / "list" / "pList.txt", *(f"p/2008_{n:06}.jpg {(n - 1) // 50}" for n in range(1, 598)), *again)
    fill(root / "b", 3)
    return root


def test_office_home_in_folders(office_home: Path):
    for task in OFFICE_HOME.tasks:
        config = complete("office_home", office_home, task.code)
        assert config == DataConfig(root=office_home, source=task.source.name, target=task.target.name)
    source, target = read_domains(complete("Office-Home", office_home, "Pr -> Rw"))
    assert (source.name, len(source.paths), target.name, len(target.paths)) == ("Product", 4439, "Real World", 4357)
    assert source.classes == target.classes == tuple(f"Class_{number:02}" for number in range(65))


@pytest.mark.parametrize("names", [("Ar", "Rw"), ("art", "Real_World"), ("A", "RealWorld")])
def test_spellings_of_folders(office_home: Path, tmp_path: Path, names: tuple[str, str]):
    for name, domain in zip(names, ("Art", "Real World"), strict=True):
        (tmp_path / name).symlink_to(office_home / domain)
    assert complete("office-home", tmp_path, "R2A") == DataConfig(root=tmp_path, source=names[1], target=names[0])


def test_office_home_beside_the_checkout(shared_data: Path):
    root = shared_data / "office-home"
    for task in ("A>C", "A>R", "C>A", "C>R", "R>A", "R>C"):
        complete("office-home", root, task)
    source, target = read_domains(complete("office-home", root, "Rw2Cl"))
    assert (source.name, len(source.paths), len(target.paths)) == ("Real_World", 4357, 4365)
    assert source.classes == target.classes
    assert "looked for a folder Product or a list image_list/Product.txt, found Art" in refusal(
        "office-home", root, "A2P"
    )


def test_office_31_has_a_folder_between(tmp_path: Path):
    make_folders(tmp_path, OFFICE_31, [f"class {number:02}" for number in range(31)], below="images")
    config = complete("office31", tmp_path, "A2W")
    assert config == DataConfig(root=tmp_path, source="amazon", target="webcam")
    source, target = read_domains(config)
    assert (len(source.paths), len(target.paths), len(source.classes)) == (2817, 795, 31)
    assert source.classes[0] == target.classes[0] == "class 00"


def test_all_of_visda(visda: Path):
    config = complete("VisDA-2017", visda, "synthetic2real")
    assert config == DataConfig(root=visda, source="train", target="validation")
    source, target = read_domains(config)
    assert (len(source.paths), len(target.paths)) == (152397, 55388)
    assert source.classes == target.classes == tuple(VISDA_CLASSES)
    assert Counter(source.labels) == dict(enumerate(shares(152397, 12)))


def test_visda_by_its_lists(tmp_path: Path):
    for domain, extra in (("train", 0), ("validation", 5)):
        fill(tmp_path / domain / "all", 24 + extra, "{}.png")
        lines = [f"all/{number + 1}.png {number % 12}" for number in range(24 + extra)]
        write_list(tmp_path / domain / "image_list.txt", *lines)
        fill(tmp_path / domain, 1)  # an image outside class folders, so that folders do not give the classes
    config, found = warned("visda-2017", tmp_path, "train>validation")
    assert found == [
        f"{tmp_path}: train has 24 images, VisDA-2017 train has 152397; class 0 has 2 of 14309, class 1 has 2 of 7365, "
        "class 2 has 2 of 16640 and 9 more",
        f"{tmp_path}: validation has 29 images, VisDA-2017 validation has 55388; class 0 has 3 of 3646, class 1 has "
        "3 of 3475, class 2 has 3 of 4690 and 9 more",
    ]
    lists = [tmp_path / domain / "image_list.txt" for domain in ("train", "validation")]
    assert config == DataConfig(source_list=lists[0], target_list=lists[1])
    source, target = read_domains(config)
    assert (source.name, target.name) == ("train", "validation")
    assert source.classes == target.classes == tuple(map(str, range(12)))
    assert Counter(target.labels) == {label: 3 if label < 5 else 2 for label in range(12)}


def test_image_clef_is_read_from_its_lists(image_clef: Path):
    lists = {name: image_clef / "list" / f"{name}List.txt" for name in "cip"}
    for task in IMAGE_CLEF.tasks:
        config = complete("image-clef-da", image_clef, task.code)
        expected = (image_clef, lists[task.source.name], lists[task.target.name])
        assert (config.root, config.source_list, config.target_list) == expected
        source, target = read_domains(config)
        assert source.classes == target.classes == tuple(map(str, range(12)))
        assert len(source.paths) == len(target.paths) == 600
        assert Counter(source.labels)[1] == 50
    assert complete("ImageCLEF-DA", image_clef, "Caltech-256 -> Pascal").target_list == lists["p"]


def test_a_check_of_image_clef_reads_its_lists(image_clef: Path):
    root = image_clef.rename(image_clef.with_name("ImageCLEF-DA"))
    found = check_root(root, quiet=True)
    assert [(domain.name, domain.images, len(domain.class_counts)) for domain in found.domains] == [
        ("c", 600, 12),
        ("i", 600, 12),
        ("p", 600, 12),
    ]
    assert not found.problems
    (root / "list" / "pList.txt").unlink()
    assert {domain.name for domain in check_root(root, quiet=True).domains} == {"b", "c", "i", "p"}


def test_an_image_with_two_labels_is_packed_twice(image_clef: Path):
    config = replace(complete("ImageCLEF-DA", image_clef, "I>P"), size=8, crop=8)
    _, target = load_task(config.resolved(), quiet=True)
    found = [label for path, label in zip(target.paths, target.labels.tolist(), strict=True) if "000002" in path]
    assert sorted(found) == [0, 11]
    assert len(target) == 600


def test_image_clef_in_folders(tmp_path: Path, image_clef: Path):
    make_folders(tmp_path / "x", IMAGE_CLEF, [f"class {number:02}" for number in range(12)])
    shutil.copytree(image_clef / "list", tmp_path / "x" / "list")
    assert complete("ImageCLEF-DA", tmp_path / "x", "C>P") == DataConfig(root=tmp_path / "x", source="c", target="p")


@pytest.mark.parametrize("place", ["{}.txt", "image_list/{}.txt", "{}_list.txt"])
def test_lists_whose_paths_hold_spaces(tmp_path: Path, place: str):
    for domain, name in (("Art", "Art"), ("Real World", "Real_World")):
        fill(tmp_path / "all images" / domain / "a b", 2)
        fill(tmp_path / "all images" / domain / "c", 1)
        start = f"all images/{domain}"
        lines = [f"{start}/a b/00001.jpg 0", f"{start}/a b/00002.jpg 0", f"{start}/c/00001.jpg 1"]
        write_list(tmp_path / place.format(name), *lines)
    config, found = warned("office-home", tmp_path, "A2R")
    assert found[-1] == f"{tmp_path}: Real World has 2 classes, Office-Home has 65"
    art, real = (tmp_path / place.format(name) for name in ("Art", "Real_World"))
    assert config == DataConfig(root=tmp_path, source_list=art, target_list=real)
    _, target = read_domains(config)
    assert target.paths[0] == "all images/Real World/a b/00001.jpg"
    assert target.labels == (0, 0, 1)


def test_lists_of_another_machine(tmp_path: Path):
    fill(tmp_path / "c", 2)
    fill(tmp_path / "p", 2)
    write_list(tmp_path / "c_list.txt", "/data/image-clef/c/00001.jpg 0", "/data/image-clef/c/00002.jpg 1")
    write_list(tmp_path / "p_list.txt", "/data/image-clef/p/00001.jpg 0", "/data/image-clef/p/00002.jpg 1")
    text = refusal("imageclef-da", tmp_path, "c2p")
    for part in (str(tmp_path / "c_list.txt"), "/data/image-clef/p/00001.jpg", "relative to that folder"):
        assert part in text


@pytest.fixture
def part(office_home: Path, tmp_path: Path) -> Path:
    """Art and Clipart, linked file by file so that some can be removed."""
    for domain in ("Art", "Clipart"):
        shutil.copytree(office_home / domain, tmp_path / "part" / domain, copy_function=os.link)
    return tmp_path / "part"


def test_a_missing_image_is_a_warning(part: Path):
    (part / "Clipart" / "Class_03" / "00002.jpg").unlink()
    assert warned("office-home", part, "A2C")[1] == [f"{part}: Clipart has 4364 images, Office-Home Clipart has 4365"]


def test_a_missing_and_an_empty_class_are_named(part: Path):
    shutil.rmtree(part / "Art" / "Class_07")
    for domain in ("Art", "Clipart"):
        shutil.rmtree(part / domain / "Class_64")
    (part / "Art" / "Class_64").mkdir()
    assert warned("office-home", part, "C2A")[1] == [
        f"{part}: Clipart has 4298 images, Office-Home Clipart has 4365",
        f"{part}: Clipart has 64 classes, Office-Home has 65; it has no images of Class_64",
        f"{part}: Art has 2352 images, Office-Home Art has 2427",
        f"{part}: Art has 63 classes, Office-Home has 65; it has no images of Class_07, Class_64",
    ]


def test_wrong_roots(office_home: Path, tmp_path: Path):
    assert f"{tmp_path / 'gone'}: No such file" in refusal("office-home", tmp_path / "gone", "A2C")
    text = refusal("office-home", tmp_path, "A2R")
    looked = "a folder Art or a list image_list/Art.txt and a folder Real World or a list image_list/Real_World.txt"
    assert f"{tmp_path} lacks domains of Office-Home: looked for {looked}, found nothing; put them there" in text
    assert f"; {office_home} has them, give that" in refusal("office-home", office_home / "Art", "A2R")
    (tmp_path / "OfficeHomeDataset_10072016").symlink_to(office_home)
    for name in "AR":
        (tmp_path / "Another" / name).mkdir(parents=True)
    text = refusal("office-home", tmp_path, "A2R")
    assert (
        f"found Another, OfficeHomeDataset_10072016; {tmp_path / 'OfficeHomeDataset_10072016'} has them, give that"
        in text
    )
    assert "looked for a folder amazon or a list image_list/amazon.txt" in refusal("office-31", office_home, "A2D")


def test_images_without_classes_are_refused(tmp_path: Path, image_clef: Path):
    shutil.rmtree(image_clef / "list")
    text = refusal("imageclef-da", image_clef, "C2P")
    assert f"the folders c and p of {image_clef} do not have the same classes (p/2008_000001.jpg is in no class" in text
    assert "list/cList.txt and list/pList.txt" in text


def test_a_class_that_each_domain_has_alone_is_named(part: Path):
    (part / "Clipart" / "Class_07").rename(part / "Clipart" / "Class_7")
    text = refusal("office-home", part, "A2C")
    assert "do not have the same classes (only Art has Class_07 and only Clipart has Class_7), and" in text


def test_two_folders_of_one_domain(part: Path):
    (part / "Ar").mkdir()
    assert "several folders for Art: Ar, Art; move all but one" in refusal("office-home", part, "A2C")


def test_unknown_names(office_home: Path):
    assert 'no benchmark "office"' in refusal("office", office_home, "A2C")
    assert "the nearest is A>C" in refusal("office-home", office_home, "Art2Clip")
