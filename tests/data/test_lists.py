from collections.abc import Callable
from pathlib import Path

import pytest

from tcm.data.lists import first_path, read_list, read_lists
from tcm.errors import InputError

MakeImages = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path, make_images: MakeImages) -> Path:
    return make_images(tmp_path / "data", "a b/1.png", "a b/2.png", "c/3.png", "c/4.png")


def listing(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def refusal(*arguments: Path | None) -> str:
    with pytest.raises(InputError) as caught:
        read_lists(*arguments)  # pyright: ignore[reportArgumentType]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_integer_labels_comments_blanks_and_spaces(root: Path):
    lines = ("# paths and labels", "", "c/3.png 1", "a b/1.png\t0", "  ./a b/2.png   00  ", "c/4.png 1\r")
    source_list = listing(root / "source.txt", *lines)
    target_list = listing(root / "target.txt", "c/4.png 0", "a b/1.png 1")
    source, target = read_lists(source_list, target_list)
    assert source.name == "source"
    assert source.root == root
    assert source.paths == ("a b/1.png", "a b/2.png", "c/3.png", "c/4.png")
    assert source.labels == (0, 0, 1, 1)
    assert source.classes == target.classes == ("0", "1")
    assert target.labels == (1, 0)


def test_paths_are_relative_to_a_given_root(root: Path, tmp_path: Path):
    source_list = listing(tmp_path / "s.txt", "a b/1.png x", "c/3.png y")
    source, target = read_lists(source_list, listing(tmp_path / "t.txt", "c/4.png Y", "a b/2.png x"), root)
    assert source.root == target.root == root
    assert source.classes == ("x", "y")
    assert target.class_names == ["x", "y"]


def test_a_target_of_bare_paths_has_no_labels(root: Path):
    source_list = listing(root / "s.txt", "a b/1.png 0", "c/3.png 1")
    _, target = read_lists(source_list, listing(root / "t.txt", "a b/2.png", "", "c/4.png"))
    assert target.paths == ("a b/2.png", "c/4.png")
    assert target.labels == (-1, -1)


def test_ignored_target_labels(root: Path):
    source_list = listing(root / "s.txt", "a b/1.png 0", "c/3.png 1")
    target_list = listing(root / "t.txt", "a b/2.png zebra", "c/4.png 1")
    assert "zebra" in refusal(source_list, target_list)
    for lines in (("a b/2.png zebra", "c/4.png 1"), ("a b/2.png 7", "c/4.png -1")):
        target_list = listing(root / "t.txt", *lines)
        assert read_lists(source_list, target_list, target_labels="ignore")[1].labels == (-1, -1)


def test_a_missing_file_is_named_with_list_line_and_path(root: Path):
    good = listing(root / "s.txt", "a b/1.png 0", "c/3.png 1")
    for lines in (("a b/1.png 0", "# x", "c/gone.png 1"), ("a b/1.png", "# x", "c/gone.png")):
        target_list = listing(root / "t.txt", *lines)
        text = refusal(good, target_list)
        assert f"{target_list}, line 3" in text
        assert str(root / "c/gone.png") in text


@pytest.mark.parametrize(
    ("labels", "line", "label"), [((0, -1), 2, -1), ((0, 2), 2, 2), ((1, 2), 2, 2), ((3, 0), 1, 3)]
)
def test_integer_labels_must_cover_a_range(root: Path, labels: tuple[int, int], line: int, label: int):
    source_list = listing(root / "s.txt", f"a b/1.png {labels[0]}", f"c/3.png {labels[1]}")
    text = refusal(source_list, source_list)
    assert f"line {line}: label {label} is out of range" in text


def test_integer_labels_of_the_target_must_be_the_source_s(root: Path):
    source_list = listing(root / "s.txt", "a b/1.png 0", "c/3.png 1")
    target_list = listing(root / "t.txt", "a b/1.png 1", "c/3.png 2")
    text = refusal(source_list, target_list)
    assert f"{target_list}, line 2: label 2 is out of range" in text


def test_lines_without_a_label(root: Path):
    good = listing(root / "s.txt", "a b/1.png 0", "c/3.png 1")
    bare = listing(root / "bare.txt", "a b/1.png")
    assert f"{bare}, line 1 has no label" in refusal(bare, good)
    mixed = listing(root / "mixed.txt", "a b/1.png 0", "a b/2.png")
    assert f"{mixed}, line 2 has no label" in refusal(good, mixed)


def test_lists_that_cannot_be_used(root: Path):
    good = listing(root / "s.txt", "a b/1.png 0", "c/3.png 1")
    assert "No such file" in refusal(root / "gone.txt", good)
    assert "names no images" in refusal(good, listing(root / "empty.txt", "# nothing", ""))
    (root / "binary.txt").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refusal(good, root / "binary.txt")
    one = listing(root / "one.txt", "c/3.png 0")
    assert "only one class" in refusal(one, one)


def test_one_list_on_its_own(root: Path):
    file = listing(root / "s.txt", "# first", "./a b//1.png 007", "c/3.png 1")
    found = read_list(file)
    assert (found.name, found.root, found.classes) == ("s", root, ("1", "7"))
    assert found.entries == (("a b/1.png", "7"), ("c/3.png", "1"))
    assert first_path(file) == "./a b//1.png"
    assert first_path(listing(root / "bare.txt", "a b/2.png", "c/3.png")) == "a b/2.png"


@pytest.mark.parametrize(
    ("file", "name"),
    [("Art.txt", "Art"), ("cList.txt", "c"), ("amazon_list.txt", "amazon"), ("list.txt", "list")],
)
def test_a_domain_has_the_name_of_its_list(root: Path, file: str, name: str):
    assert read_list(listing(root / file, "c/3.png 0", "c/4.png 1")).name == name


def test_a_list_named_image_list_has_the_name_of_its_folder(root: Path):
    file = listing(root / "c" / "image_list.txt", "3.png 0", "4.png 1")
    assert [domain.name for domain in read_lists(file, file)] == ["c", "c"]
