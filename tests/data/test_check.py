import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from tcm.data import check as check_module
from tcm.data.benchmarks import Benchmark, PublishedDomain, find_benchmark
from tcm.data.check import Check, Size, check, check_domain, check_root, render
from tcm.data.folders import read_domain
from tcm.errors import InputError

MakeImages = Callable[..., Path]


def printed(result: Check) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(render(result))
    return out.getvalue()


@pytest.fixture
def root(tmp_path: Path, make_images: MakeImages) -> Path:
    root = tmp_path / "root"
    make_images(root / "Art", "mug/1.png", "mug/2.png", "mug/3.png", "bike/1.png", "bike/2.png", size=(10, 20))
    Image.new("RGB", (4, 3)).save(root / "Art/mug/small.png")
    Image.new("RGB", (100, 50)).save(root / "Art/mug/large.png")
    make_images(root / "Photo", "mug/1.png", "bike/1.png", size=(10, 20), seed=1)
    return root


def test_a_sound_domain(root: Path):
    found = check_domain(read_domain(root / "Art"))
    assert (found.name, found.images) == ("Art", 7)
    assert found.class_counts == {"bike": 2, "mug": 5}
    assert found.largest_class == ("mug", 5)
    assert found.smallest_class == ("bike", 2)
    assert found.sizes == (Size(4, 3), Size(10, 20), Size(100, 50))
    assert (found.bad, found.not_images, found.duplicates) == ([], [], [])


def test_a_sound_root_has_no_problems(root: Path):
    result = check_root(root)
    assert [domain.name for domain in result.domains] == ["Art", "Photo"]
    assert not result.problems
    assert result.benchmark is None
    text = printed(result)
    for part in ("Art", "7", "mug (5)", "bike (2)", "4 x 3, 10 x 20, 100 x 50"):
        assert part in text
    assert result.summary == "No problems found."


def test_bad_files_and_files_that_are_not_images(root: Path):
    (root / "Art/mug/empty.png").write_bytes(b"")
    (root / "Art/mug/[red]odd\n.png").write_text("no image")
    (root / "Art/readme.txt").write_text("x")
    (root / "Art/mug/.DS_Store").write_text("x")
    result = check_root(root)
    assert result.problems
    assert [path for path, _ in result.domains[0].bad] == ["mug/[red]odd\n.png", "mug/empty.png"]
    assert result.domains[0].not_images == ["mug/.DS_Store", "readme.txt"]
    text = printed(result)
    shown = (r"mug/[red]odd\n.png: not an image", "mug/empty.png: the file is empty", "readme.txt")
    for part in shown:
        assert part in text
    for part in ("There are problems", "`data.on_bad_image=skip`"):
        assert part in result.summary


def test_duplicates_within_and_across_domains(root: Path):
    content = (root / "Art/mug/1.png").read_bytes()
    (root / "Art/bike/same.png").write_bytes(content)
    (root / "Photo/bike/same.png").write_bytes(content)
    result = check_root(root)
    assert result.domains[0].duplicates == [["bike/same.png", "mug/1.png"]]
    assert result.domains[1].duplicates == []
    assert result.shared == [["Art/bike/same.png", "Art/mug/1.png", "Photo/bike/same.png"]]
    assert "bike/same.png = mug/1.png" in printed(result)
    assert not result.problems
    assert "domains share images" in result.summary
    assert "the target is not new" not in result.summary  # both may be sources


def test_domains_without_labels_and_without_readable_images(tmp_path: Path, make_images: MakeImages):
    flat = make_images(tmp_path / "flat", "1.png")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "1.png").write_bytes(b"")
    result = check([read_domain(flat), read_domain(tmp_path / "bad")])
    assert result.domains[0].largest_class is None
    assert result.domains[1].sizes is None
    assert "no labels" in printed(result)


def test_long_lists_are_cut(root: Path):
    for number in range(25):
        (root / f"Art/mug/bad {number:02}.png").write_bytes(b"")
    text = printed(check_root(root))
    assert "bad 19.png" in text
    assert "bad 20.png" not in text
    assert "and 5 more" in text


def test_a_root_without_domains(tmp_path: Path, make_images: MakeImages):
    with pytest.raises(InputError, match="<root>/<domain>/<class>/<image>"):
        check_root(make_images(tmp_path / "flat", "1.png"))


def test_an_incomplete_benchmark(root: Path, monkeypatch: pytest.MonkeyPatch):
    counts = {"art": 7, "photo": 3, "sketch": 9}
    domains = tuple(PublishedDomain(name, images, name[0]) for name, images in counts.items())
    benchmark = Benchmark("Toy", domains, classes=2, columns="a>p")
    monkeypatch.setattr(check_module, "recognise_benchmark", lambda *_: benchmark)
    result = check_root(root)
    assert result.differences == ["Photo has 2 images, Toy photo has 3"]
    assert result.problems
    assert "Photo has 2 images" in printed(result)


def test_the_root_s_name_recognises_a_benchmark(root: Path):
    (root / "Photo").rename(root / "real_world")
    assert check_root(root).benchmark is None
    result = check_root(root.rename(root.with_name("OfficeHome")))
    assert result.benchmark == find_benchmark("Office-Home")
    assert result.differences[0].startswith(
        "Art has 7 images, Office-Home Art has 2427; class bike has 2 of 75, class mug has 5"
    )
    assert "real_world has 2 classes, Office-Home has 65" in result.differences


def test_three_sizes_are_shown_unless_all_are_equal(tmp_path: Path, make_images: MakeImages):
    folder = make_images(tmp_path / "photos", "1.png", "2.png", size=(10, 10))
    assert "10 x 10  " in printed(check([read_domain(folder)]))
    make_images(tmp_path / "photos", "3.png", size=(90, 70))
    assert "10 x 10, 10 x 10, 90 x 70" in printed(check([read_domain(folder)]))


def test_what_is_doubtful_is_listed(root: Path):
    Image.new("RGB", (1, 1)).save(root / "Art/mug/dot.png")
    text = printed(check_root(root))
    assert "Art: the smallest image has 1 x 1 pixels; less than 8 show nothing" in text
    assert "Art: fewer than 4 images of bike\n" in "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    assert "Photo: fewer than 4 images of bike, mug" in text
