import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tcm.errors import InputError
from tcm.training.files import holds_files, lock, write_atomically

HOLD = """
import sys
from pathlib import Path
from tcm.training.files import lock
held = lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_failed_write_leaves_the_old_file(tmp_path: Path):
    file = tmp_path / "a" / "file"
    file.parent.mkdir()
    write_atomically(file, b"old")
    (file.parent / ".file.tmp").mkdir()  # the temporary file cannot be opened
    with pytest.raises((InputError, IsADirectoryError)):
        write_atomically(file, b"new")
    assert file.read_bytes() == b"old"


def test_links_and_pipes_stay_what_they_are(tmp_path: Path):
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(file)
    write_atomically(link, b"through")
    assert link.is_symlink()
    assert file.read_bytes() == b"through"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"away")
    assert os.read(reader, 9) == b"away"
    os.close(reader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]


def test_the_lock_of_a_killed_process_is_released(tmp_path: Path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(InputError, match="is in use by another process; wait for it or choose another") as caught:
            lock(tmp_path)
        assert caught.value.field == "out"
        assert "\n" not in str(caught.value)
        process.kill()
        process.wait()
        with lock(tmp_path):
            pass


def test_a_lock_is_released_and_its_file_does_no_harm(tmp_path: Path):
    folder = tmp_path / "run"
    with lock(folder):
        assert not holds_files(folder)
    assert not holds_files(folder)
    with lock(folder):
        shutil.rmtree(folder)
    with lock(folder):
        (folder / "holiday.jpg").touch()
        assert holds_files(folder)


def test_a_folder_that_may_not_be_written_to_cannot_be_locked(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"file cannot be written \(.*\); choose another folder"):
        lock(tmp_path / "file")
