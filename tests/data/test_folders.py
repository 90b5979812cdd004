import os
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tcm.data.folders import (
    domain_folders,
    images_below,
    read_benchmark_folders,
    read_domain,
    read_plain_folders,
)
from tcm.errors import InputError

MakeImages = Callable[..., Path]


def refusal(read: Callable[..., object], *arguments: object) -> str:
    """The one line with which `read` refuses the arguments."""
    with pytest.raises(InputError) as caught:
        read(*arguments)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.fixture
def source(tmp_path: Path, make_images: MakeImages) -> Path:
    return make_images(tmp_path / "source", "Alarm_Clock/1.png", "Alarm_Clock/deep/er/2.jpg", "Mug/1.png", "TV/x y.PNG")


def test_images_below_are_sorted_and_recursive_and_ignore_the_rest(tmp_path: Path, make_images: MakeImages):
    names = ["b.png", "a/c.JPG", "a/z/ü x.webp", "new\nline.png"]
    folder = make_images(tmp_path / "x", *names, ".hidden.png", "a/._c.jpg", ".git/x.png")
    (folder / "notes.txt").write_text("x")
    assert images_below(folder) == sorted(names)


def test_loops_of_links_end_and_bring_no_foreign_class(source: Path):
    (source / "Mug" / "up").symlink_to(source)
    (source / "again").symlink_to(source)
    (source / "Mug" / "self").symlink_to(".")
    (source / "dangling").symlink_to("nowhere")
    assert images_below(source) == ["Alarm_Clock/1.png", "Alarm_Clock/deep/er/2.jpg", "Mug/1.png", "TV/x y.PNG"]


def test_links_to_folders_elsewhere_are_followed(tmp_path: Path, make_images: MakeImages):
    elsewhere = make_images(tmp_path / "elsewhere", "1.png")
    folder = make_images(tmp_path / "x", "a/1.png")
    (folder / "b").symlink_to(elsewhere)
    assert images_below(folder) == ["a/1.png", "b/1.png"]


def test_plain_folders_with_labels(tmp_path: Path, source: Path, make_images: MakeImages):
    target = make_images(tmp_path / "target", "alarm clock/9.png", "MUG/9.png", "tv/9.png")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message="the source .* has only one image for 2 of its 3 classes: Mug, TV")
        one, other = read_plain_folders(source, target, "auto")
    assert one.name == "source"
    assert one.root == source
    assert one.classes == other.classes == ("Alarm_Clock", "Mug", "TV")
    assert one.paths == ("Alarm_Clock/1.png", "Alarm_Clock/deep/er/2.jpg", "Mug/1.png", "TV/x y.PNG")
    assert one.labels == (0, 0, 1, 2)
    assert dict(zip(other.paths, other.labels, strict=True)) == {"alarm clock/9.png": 0, "MUG/9.png": 1, "tv/9.png": 2}
    assert other.class_names == ["Mug", "Alarm_Clock", "TV"]


def test_an_exact_class_name_goes_before_a_similar_one(tmp_path: Path, make_images: MakeImages):
    source = make_images(tmp_path / "s", "mug/1.png", "Mug/1.png")
    _, target = read_plain_folders(source, make_images(tmp_path / "t", "mug/1.png", "Mug/1.png"))
    assert target.class_names == ["Mug", "mug"]
    assert "MUG" in refusal(read_plain_folders, source, make_images(tmp_path / "u", "MUG/1.png"))


def test_number_classes_are_in_order_of_value(tmp_path: Path, make_images: MakeImages):
    folder = make_images(tmp_path / "s", *(f"{digit}/1.png" for digit in (10, 9, 2, 0)))
    assert read_domain(folder).classes == ("0", "2", "9", "10")


def test_a_flat_target_has_no_labels(tmp_path: Path, source: Path, make_images: MakeImages):
    images = make_images(tmp_path / "t", "2.png", "1.png")
    with pytest.warns(
        UserWarning, match="the target .*/t has 2 images, fewer than the 3 source classes; .* needs more"
    ):
        _, target = read_plain_folders(source, images)
    assert target.paths == ("1.png", "2.png")
    assert target.labels == (-1, -1)
    assert target.classes == ("Alarm_Clock", "Mug", "TV")


def test_ignored_target_labels(tmp_path: Path, source: Path, make_images: MakeImages):
    target_dir = make_images(tmp_path / "t", "2020/1.png", "2021/may/1.png", "loose.png")
    _, target = read_plain_folders(source, target_dir, "ignore")
    assert target.paths == ("2020/1.png", "2021/may/1.png", "loose.png")
    assert target.labels == (-1, -1, -1)


def test_unknown_target_classes_are_named_with_the_remedy(tmp_path: Path, source: Path, make_images: MakeImages):
    target = make_images(tmp_path / "t", "Mug/1.png", *(f"Odd{number:02}/1.png" for number in range(30)))
    text = refusal(read_plain_folders, source, target)
    for part in ("Odd00", "and 22 more", "Alarm_Clock", "TV", "`data.target_labels=ignore`", str(target)):
        assert part in text
    assert "Odd29" not in text


def test_missing_target_classes_are_a_warning(tmp_path: Path, source: Path, make_images: MakeImages):
    target_dir = make_images(tmp_path / "t", "Mug/1.png")
    with pytest.warns(UserWarning, match=r"2 of the 3 source classes: Alarm_Clock, TV"):
        _, target = read_plain_folders(source, target_dir)
    assert target.labels == (1,)


def test_images_beside_class_folders_are_refused(tmp_path: Path, source: Path, make_images: MakeImages):
    target = make_images(tmp_path / "t", "Mug/1.png", "loose.png")
    text = refusal(read_plain_folders, source, target)
    assert "loose.png" in text
    assert "`data.target_labels=ignore`" in text
    assert "loose.png" in refusal(read_plain_folders, target, source)


def test_sources_without_classes(tmp_path: Path, source: Path, make_images: MakeImages):
    flat = make_images(tmp_path / "flat", "1.png")
    assert "<folder>/<class>/<image>" in refusal(read_plain_folders, flat, source)
    single = make_images(tmp_path / "single", "Mug/1.png")
    assert "only one class, Mug" in refusal(read_plain_folders, single, single)


def test_folders_that_cannot_be_used(tmp_path: Path, source: Path):
    assert f"{tmp_path / 'gone'}: No such file" in refusal(read_plain_folders, source, tmp_path / "gone")
    file = tmp_path / "file"
    file.write_text("x")
    assert "is a file" in refusal(read_plain_folders, file, source)
    empty = tmp_path / "empty"
    (empty / "class").mkdir(parents=True)
    assert "is empty" in refusal(read_plain_folders, empty, source)
    (empty / "readme.txt").write_text("x")
    assert "no images" in refusal(read_plain_folders, source, empty)
    odd = tmp_path / "two\nlines"
    assert r"two\nlines" in refusal(images_below, odd)


def test_an_unreadable_subfolder(source: Path, monkeypatch: pytest.MonkeyPatch):
    scandir = os.scandir

    def refusing(path: str) -> object:
        if str(path).endswith("Mug"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    # The tests may run as a user who may read everything.
    monkeypatch.setattr(os, "scandir", refusing)
    text = refusal(images_below, source)
    assert "Permission denied" in text
    assert str(source / "Mug") in text


@pytest.fixture
def benchmark(tmp_path: Path, make_images: MakeImages) -> Path:
    domains = ("Art", "Real World", "Clipart")
    root = make_images(tmp_path / "office", *(f"{domain}/{name}/1.png" for domain in domains for name in ("a", "b")))
    (root / "lists").mkdir()
    (root / "lists" / "art.txt").write_text("x")
    return root


@pytest.mark.parametrize("spelling", ["Real World", "real_world", "RealWorld", "REAL-WORLD"])
def test_benchmark_folders_by_any_spelling(benchmark: Path, spelling: str):
    source, target = read_benchmark_folders(benchmark, "art", spelling)
    assert (source.name, target.name) == ("Art", "Real World")
    assert target.root == benchmark / "Real World"
    assert target.paths == ("a/1.png", "b/1.png")


def test_an_unknown_domain_lists_what_there_is_nearest_first(benchmark: Path):
    text = refusal(read_benchmark_folders, benchmark, "Art", "worldreal")
    assert text.endswith('has no domain "worldreal"; it has Real World, Art, Clipart')
    assert [folder.name for folder in domain_folders(benchmark)] == ["Art", "Clipart", "Real World"]


def test_the_exact_name_decides_between_domains_of_one_spelling(benchmark: Path, make_images: MakeImages):
    make_images(benchmark / "real_world", "a/1.png", "b/1.png")
    assert "matches several" in refusal(read_benchmark_folders, benchmark, "Art", "realworld")
    assert read_benchmark_folders(benchmark, "Art", "real_world")[1].name == "real_world"


def test_a_root_without_domains(tmp_path: Path, make_images: MakeImages):
    assert "<root>/<domain>" in refusal(read_benchmark_folders, make_images(tmp_path / "flat", "1.png"), "a", "b")
    assert "No such file" in refusal(read_benchmark_folders, tmp_path / "gone", "a", "b")


def test_office_31_has_a_folder_between_domain_and_class(tmp_path: Path, make_images: MakeImages):
    folder = make_images(tmp_path / "amazon", "images/bike/1.png", "images/mug/1.png")
    domain = read_domain(folder)
    assert domain.classes == ("bike", "mug")
    assert domain.paths == ("images/bike/1.png", "images/mug/1.png")


def test_office_home_beside_the_checkout():
    root = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "office-home"
    if not root.is_dir():
        pytest.skip("Office-Home does not lie beside the checkout")
    source, target = read_benchmark_folders(root, "art", "real world")
    assert (len(source.paths), len(target.paths)) == (2427, 4357)
    assert len(source.classes) == 65
