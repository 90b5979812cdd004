import gzip
import json
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from support.shards import image, samples, table, tree, write_parquet, write_saved, write_tar

from tcm.data.folders import read_folder, read_plain_folders
from tcm.data.imports.importing import import_shards
from tcm.data.imports.records import Wanted
from tcm.errors import InputError

BYTES = [image(number) for number in range(12)]


def names(folder: Path) -> dict[str, int]:
    """The number of images of each class."""
    return dict(sorted(read_folder(folder).class_counts.items()))


def test_parquet_files_become_class_folders_with_the_bytes_of_the_shards(tmp_path: Path):
    for number in range(2):
        rows = table(BYTES[6 * number : 6 * number + 6], [0, 1, 2, 0, 1, 1])
        write_parquet(tmp_path / f"in/data/train-{number:05d}-of-00002.parquet", rows)
    said: list[str] = []
    found = import_shards([tmp_path / "in"], tmp_path / "out", quiet=True, say=said.append)
    assert said == ["2 shards: the image is image, the label is label."]
    assert (found.images, found.left_out) == ({"cup": 4, "hat": 6, "key": 2}, 0)
    written = tree(tmp_path / "out")
    assert written["cup/train-00000-of-00002@00000003.jpg"] == BYTES[3]
    assert written["hat/train-00001-of-00002@00000001.jpg"] == BYTES[7]
    assert sorted(written.values()) == sorted(BYTES)


def test_what_datasets_has_saved_is_read_also_by_split(tmp_path: Path):
    for split, part in (("train", BYTES[:8]), ("test", BYTES[8:])):
        halves = len(part) // 2
        parts = [table(part[:halves], [0, 2] * (halves // 2)), table(part[halves:], [1] * halves)]
        folder = write_saved(tmp_path / "saved" / split, *parts)
        (folder / "cache-1234.arrow").write_bytes(b"a cache of datasets, which is no shard")
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(InputError, match=r"several splits: train, test; name one with `split`"):
        import_shards([tmp_path / "saved"], tmp_path / "out", quiet=True)
    assert import_shards([tmp_path / "saved"], tmp_path / "out", split="train", quiet=True).images == {
        "cup": 2,
        "key": 2,
        "hat": 4,
    }
    import_shards([tmp_path / "saved/test"], tmp_path / "test", quiet=True)
    assert sorted(tree(tmp_path / "test").values()) == sorted(BYTES[8:])


@pytest.mark.parametrize("ending", [".tar", ".tar.gz"])
def test_webdataset_shards_are_read_with_the_labels_of_cls_files(tmp_path: Path, ending: str):
    write_tar(tmp_path / "in" / f"part-000{ending}", samples(0, 5), "w:gz" if "gz" in ending else "w")
    write_tar(tmp_path / "in" / f"part-001{ending}", [("README", b"no sample"), *samples(0, 4, "png")], "w")
    if "gz" in ending:
        plain = tmp_path / "in" / f"part-001{ending}"
        plain.write_bytes(gzip.compress(plain.read_bytes()))
    assert import_shards([tmp_path / "in"], tmp_path / "out", quiet=True).images == {"0": 4, "1": 3, "2": 2}
    written = tree(tmp_path / "out")
    assert written["1/part-000@0001.jpg"] == image(1)
    assert written["1/part-001@0001.png"] == image(1, "PNG")


def test_labels_may_be_texts_or_fields_of_json_files(tmp_path: Path):
    about = [json.dumps({"label_name": name, "id": 5, "boxes": [1]}).encode() for name in ("hat", "cup")]
    files = [(f"./a/{number}.{ending}", content) for number in range(2) for ending, content in
             (("jpg", BYTES[number]), ("json", about[number]), ("txt", b"a text\n"))]  # fmt: skip
    shard = write_tar(tmp_path / "x.tar", files)
    said: list[str] = []
    assert set(import_shards([shard], tmp_path / "a", quiet=True, say=said.append).images) == {"hat", "cup"}
    assert said == ["1 shard: the image is jpg, the label is json.label_name."]
    assert import_shards([shard], tmp_path / "b", Wanted(label="txt"), quiet=True).images == {"a text": 2}
    assert import_shards([shard], tmp_path / "c", Wanted(label="json.id"), quiet=True).images == {"5": 2}


def test_columns_without_notes_of_datasets_are_found_by_their_names(tmp_path: Path):
    plain = pa.table(
        {"picture": BYTES[:4], "weight": [0.5] * 4, "category": pa.array(["a", "b"] * 2).dictionary_encode()}
    )
    import_shards([write_parquet(tmp_path / "x.parquet", plain)], tmp_path / "a", quiet=True)
    assert names(tmp_path / "a") == {"a": 2, "b": 2}
    numbers = pa.table({"img": BYTES[:3], "label": [2, 0, 2]})
    import_shards([write_parquet(tmp_path / "y.parquet", numbers)], tmp_path / "b", quiet=True)
    assert names(tmp_path / "b") == {"0": 1, "2": 2}


def test_an_import_is_a_folder_like_any_other(tmp_path: Path):
    shard = write_parquet(tmp_path / "x.parquet", table(BYTES[:6], [0, 1, 2, 0, 1, 2], domain=["art", "photo"] * 3))
    found = import_shards([shard], tmp_path / "out", Wanted(domain="domain"), quiet=True)
    assert set(found.images) == {f"{domain}/{label}" for domain in ("art", "photo") for label in ("cup", "hat", "key")}
    import_shards([shard], tmp_path / "target", Wanted(unlabelled=True), quiet=True)
    with pytest.warns(UserWarning, match="only one image for 3 of its 3 classes"):
        source, target = read_plain_folders(tmp_path / "out" / "art", tmp_path / "target")
    assert (source.classes, len(source.paths), target.labels) == (("cup", "hat", "key"), 3, (-1,) * 6)


@pytest.mark.parametrize("form", ["parquet", "arrow", "tar"])
def test_one_field_may_be_the_domain_and_the_label(tmp_path: Path, form: str):
    rows, field = table(BYTES[:2], [0, 1]), "cls" if form == "tar" else "label"
    if form == "parquet":
        write_parquet(tmp_path / "in/x.parquet", rows)
    elif form == "arrow":
        write_saved(tmp_path / "in", rows)
    else:
        write_tar(tmp_path / "in/x.tar", samples(0, 2))
    found = import_shards([tmp_path / "in"], tmp_path / "out", Wanted(label=field, domain=field), quiet=True)
    assert [*found.images] == (["0/0", "1/1"] if form == "tar" else ["cup/cup", "hat/hat"])


def test_unsafe_names_of_classes_and_keys_stay_apart(tmp_path: Path):
    unsafe = ["a/b", "a:b", "../up", ".hidden", "con", "x" * 300, "ok name", ""]
    shard = write_parquet(tmp_path / "x.parquet", table(BYTES[:8], list(range(8)), unsafe))
    folders = import_shards([shard], tmp_path / "out", quiet=True).images
    assert len(folders) == len({name.casefold() for name in folders}) == 8
    assert "ok name" in folders
    assert all(len(name.encode()) < 120 and not name.startswith(".") and "/" not in name for name in folders)
    assert {path.name for path in tmp_path.iterdir()} == {"x.parquet", "out"}
    assert len(read_folder(tmp_path / "out").classes) == 8
    keys = [("a/1.jpg", BYTES[0]), ("a/1.cls", b"0"), ("a_1.jpg", BYTES[1]), ("a_1.cls", b"0"), ("b@1.jpg", BYTES[2])]
    shard = write_tar(tmp_path / "y.tar", [*keys, ("b@1.cls", b"0")])
    assert import_shards([shard], tmp_path / "keys", quiet=True).images == {"0": 3}
    assert sorted(tree(tmp_path / "keys").values()) == sorted(BYTES[:3])


def test_what_cannot_be_used_is_left_out_and_named(tmp_path: Path):
    contents = [BYTES[0], b"<html>404</html>", None, b"", BYTES[4], image(5, "PPM")]
    shard = write_parquet(tmp_path / "x.parquet", table(contents, [0, 0, 0, 0, -1, 0]))
    found = import_shards([shard], tmp_path / "a", quiet=True)
    assert (found.images, found.left_out) == ({"cup": 1}, 5)
    assert [(key, reason.split(",")[0]) for _, key, reason in found.first_left_out] == [
        ("00000001", "not an image of a known format"),
        ("00000002", "the shard has no bytes of it"),
        ("00000003", "the shard has no bytes of it"),
        ("00000004", "it has no label"),
        ("00000005", "images of the format PPM are not read; convert it"),
    ]
    files = [*samples(0, 2), *samples(5, 1), *samples(0, 1), ("7.jpg", BYTES[7]), ("8.cls", b"1"), ("9.jpg", BYTES[9])]
    shard = write_tar(tmp_path / "y.tar", [*files, ("9.png", BYTES[9]), ("9.cls", b"1")])
    found = import_shards([shard], tmp_path / "b", quiet=True)
    assert sum(found.images.values()) == 3
    assert [(name, key, reason.split(":")[0]) for name, key, reason in found.first_left_out] == [
        ("y.tar", "0000", "its key is in the shard twice"),
        ("y.tar", "7", "it has no label"),
        ("y.tar", "8", "it has no image, only cls"),
        ("y.tar", "9", "it has several images"),
    ]
    assert tree(tmp_path / "b")["0/y@0000.jpg"] == image(0)


def test_names_that_are_not_unicode_text_are_written_too(tmp_path: Path):
    files = [("1.jpg", BYTES[0]), ("1.json", rb'{"label": "\ud800x"}'), ("\udcff.jpg", BYTES[1])]
    shard = write_tar(tmp_path / "x.tar", [*files, ("\udcff.json", rb'{"label": "\ud801x"}')])
    folders = import_shards([shard], tmp_path / "out", quiet=True).images
    assert [*folders.values()] == [1, 1]
    assert all(name.isascii() for name in tree(tmp_path / "out"))


def test_of_several_image_files_the_usual_one_is_taken(tmp_path: Path):
    files = [(f"{number}.{ending}", BYTES[number]) for number in range(2) for ending in ("jpg", "seg.png")]
    shard = write_tar(tmp_path / "x.tar", files)
    said: list[str] = []
    found = import_shards([shard], tmp_path / "out", Wanted(unlabelled=True), quiet=True, say=said.append)
    assert said == ["1 shard: the image is jpg, labels are not read."]
    assert (found.images, found.left_out) == ({"": 2}, 0)


def test_fields_are_those_of_the_first_sample_that_has_an_image_and_a_label(tmp_path: Path):
    shard = write_tar(tmp_path / "x.tar", [("about.txt", b"text"), ("0.jpg", BYTES[0]), *samples(1, 2)])
    found = import_shards([shard], tmp_path / "out", quiet=True)
    assert (found.images, found.left_out) == ({"1": 1, "2": 1}, 2)
    assert [reason for *_, reason in found.first_left_out] == ["it has no image, only txt", "it has no label"]


def test_links_are_left_out_and_named(tmp_path: Path):
    shard = write_tar(tmp_path / "x.tar", samples(0, 1))
    with tarfile.open(shard, "a") as archive:
        for name, kind in (("1.jpg", tarfile.LNKTYPE), ("1.cls", tarfile.LNKTYPE), ("2.jpg", tarfile.SYMTYPE)):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "0000.jpg"
            archive.addfile(member)
    found = import_shards([shard], tmp_path / "out", quiet=True)
    assert (found.images, found.left_out) == ({"0": 1}, 2)
    assert found.first_left_out[0][2] == "1.jpg is not a regular file; write the shard without links"


def test_what_only_looks_like_a_note_of_datasets_is_none(tmp_path: Path):
    write_parquet(tmp_path / "in/train-0.parquet", table(BYTES[:2], [0, 1]))
    for content in ('{"step": 3}', "[1]", '{"_data_files": 1}'):
        (tmp_path / "in/state.json").write_text(content)
        assert import_shards([tmp_path / "in"], tmp_path / "out", quiet=True).images == {"cup": 1, "hat": 1}
    notes = (None, [1], {"label": {"_type": "ClassLabel", "names": 5}}, {"label": {"names": {"0": "a"}}})
    for number, features in enumerate(notes):
        noted = {"huggingface": json.dumps({"info": {"features": features}})}
        shard = write_parquet(tmp_path / "x.parquet", table(BYTES[:2], [0, 1]).replace_schema_metadata(noted))
        assert import_shards([shard], tmp_path / f"{number}", quiet=True).images == {"0": 1, "1": 1}


def test_an_empty_text_is_no_label(tmp_path: Path):
    rows = pa.table({"image": BYTES[:4], "label": ["cup", "", " ", None]})
    found = import_shards([write_parquet(tmp_path / "x.parquet", rows)], tmp_path / "out", quiet=True)
    assert (found.images, found.left_out) == ({"cup": 1}, 3)


def test_a_file_without_content_is_written_again(tmp_path: Path):
    """A machine that stops may leave the name of a file on the disk and not its content."""
    shard, out = write_tar(tmp_path / "x.tar", samples(0, 3)), tmp_path / "out"
    import_shards([shard], out, quiet=True)
    note = json.loads((out / ".tcm-import.json").read_text())
    (out / ".tcm-import.json").write_text(json.dumps({**note, "done": [], "images": {}}))
    (out / "1/x@0001.jpg").write_bytes(b"")
    import_shards([shard], out, quiet=True)
    assert (out / "1/x@0001.jpg").read_bytes() == image(1)


def test_a_damaged_shard_may_be_replaced(tmp_path: Path):
    shards, out = tmp_path / "in", tmp_path / "out"
    for number in range(3):
        write_tar(shards / f"s-{number}.tar", samples(3 * number, 3))
    whole = (shards / "s-1.tar").read_bytes()
    other = write_tar(tmp_path / "x.tar", [("9.jpg", BYTES[9]), ("9.cls", b"0"), *samples(3, 3)]).read_bytes()
    (shards / "s-1.tar").write_bytes(other[: other.index(b"0005.jpg") + 600])
    with pytest.raises(InputError, match=r"s-1\.tar cannot be read: unexpected end of data; download it again"):
        import_shards([shards], out, quiet=True)
    assert "0/s-1@9.jpg" in tree(out)
    (shards / "s-1.tar").write_bytes(whole)
    found = import_shards([shards], out, quiet=True)
    assert found == import_shards([shards], tmp_path / "whole", quiet=True)
    assert tree(out) == tree(tmp_path / "whole")
    (shards / "s-1.tar").write_bytes(other)
    with pytest.raises(InputError, match="other shards"):
        import_shards([shards], out, quiet=True)


def test_other_settings_may_follow_an_import_without_images(tmp_path: Path):
    shard = write_parquet(tmp_path / "x.parquet", table(BYTES[:2], [-1, -1]))
    with pytest.raises(InputError, match="it has no label"):
        import_shards([shard], tmp_path / "out", quiet=True)
    assert import_shards([shard], tmp_path / "out", Wanted(unlabelled=True), quiet=True).images == {"": 2}


def test_a_finished_import_is_repeated_without_writing(tmp_path: Path):
    shard = write_parquet(tmp_path / "x.parquet", table([*BYTES[:4], b"x"], [0, 1, 2, 0, 1]))
    first = import_shards([shard], tmp_path / "out", quiet=True)
    (tmp_path / "out/cup/x@00000000.jpg").unlink()  # an image that the user does not want
    assert import_shards([shard], tmp_path / "out", quiet=True) == first
    assert not (tmp_path / "out/cup/x@00000000.jpg").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
from tcm.data.imports.folder import ImportFolder
from tcm.data.imports.importing import import_shards

usual, count = ImportFolder.add, 0

def add(self, *arguments):
    global count
    count += 1
    if count == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    usual(self, *arguments)

ImportFolder.add = add
import_shards([Path(sys.argv[1])], Path(sys.argv[2]), quiet=True)
"""


@pytest.mark.parametrize("form", ["parquet", "arrow", "tar"])
def test_a_killed_import_continues_to_the_same_folder(tmp_path: Path, form: str):
    shards = tmp_path / "in"
    for number in range(2):
        rows = table([*BYTES[5 * number : 5 * number + 5], b"no image"], [0, 1, 2, 0, 1, 1])
        if form == "parquet":
            write_parquet(shards / f"train-{number}.parquet", rows)
        elif form == "tar":
            write_tar(shards / f"train-{number}.tar", [*samples(5 * number, 5), ("x.jpg", b"no"), ("x.cls", b"0")])
        elif number == 0:
            write_saved(shards, rows, rows)
    whole = import_shards([shards], tmp_path / "whole", quiet=True)
    out = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", KILLED, shards, out], check=False)
    assert done.returncode == -signal.SIGKILL
    begun = tree(out)
    assert 0 < len(begun) < len(tree(tmp_path / "whole"))
    times = {file: file.stat().st_mtime_ns for file in out.rglob("*.jpg")}
    assert import_shards([shards], out, quiet=True) == whole
    assert whole.left_out == 2
    assert tree(out) == tree(tmp_path / "whole")
    assert {file: file.stat().st_mtime_ns for file in times} == times  # what was there is not written again


def test_two_processes_do_not_import_into_the_same_folder(tmp_path: Path):
    shard, out = write_parquet(tmp_path / "x.parquet", table(BYTES, [0, 1, 2] * 4)), tmp_path / "out"
    slow = KILLED.replace(
        "os.kill(os.getpid(), signal.SIGKILL)", "import time; print('here', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", slow, shard, out], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"here\n"
        with pytest.raises(InputError, match="in use by another process"):
            import_shards([shard], out, quiet=True)
        process.kill()
    assert sum(import_shards([shard], out, quiet=True).images.values()) == 12


PEAK = """
import re, sys
from pathlib import Path
from tcm.data.imports.importing import import_shards

def peak():  # not ru_maxrss, which a process has from the one that started it
    return int(re.search("VmHWM: *\\t* *([0-9]+) kB", Path("/proc/self/status").read_text())[1]) / 1000

import_shards([Path(sys.argv[1])], Path(sys.argv[2]), quiet=True)
before = peak()
import_shards([Path(sys.argv[3])], Path(sys.argv[4]), quiet=True)
print(peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("form", ["parquet", "tar"])
def test_a_large_shard_takes_no_more_memory_than_a_small_one(tmp_path: Path, form: str):
    content, places = image(0, "PNG", side=512), []  # 0.8 MB
    for count in (20, 120):
        different = [content[:-9] + number.to_bytes(9, "big") for number in range(count)]
        if form == "parquet":
            places += [write_parquet(tmp_path / f"{count}.parquet", table(different, [0] * count))]
        else:
            files = [file for n in range(count) for file in ((f"{n}.png", different[n]), (f"{n}.cls", b"0"))]
            places += [write_tar(tmp_path / f"{count}.tar", files)]
        places += [tmp_path / f"out-{count}"]
    done = subprocess.run([sys.executable, "-c", PEAK, *places], check=True, capture_output=True, text=True)
    assert float(done.stdout) < 60  # MB, of 80 MB more images
