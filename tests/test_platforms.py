"""macOS and Windows, as far as Linux can tell: the package works without what only some systems have."""

import ast
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "tcm"
MODULES = ("fcntl", "resource", "pwd", "grp", "termios")
OS_NAMES = (
    *("fork", "forkpty", "setsid", "setpgid", "killpg", "nice", "sched_getaffinity", "process_cpu_count", "sysconf"),
    *("fdatasync", "posix_fallocate", "posix_fadvise", "pread", "pwrite", "preadv", "pwritev", "mkfifo", "statvfs"),
    *("getuid", "geteuid", "getgid", "getresuid", "chown", "lchown", "fchown", "getloadavg"),
)
SIGNAL_NAMES = (
    *("SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGSTOP", "SIGCHLD"),
    *("alarm", "pause", "setitimer", "pthread_sigmask", "pthread_kill", "sigwait"),
)
# In a process of its own. PyTorch and NumPy may see that this is Linux: os.uname and os.register_at_fork stay.
WITHOUT = f"""
import importlib, multiprocessing, os, pkgutil, signal, sys
from pathlib import Path

for module, names in ((os, {OS_NAMES}), (signal, {SIGNAL_NAMES})):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
sys.modules |= dict.fromkeys({MODULES})
multiprocessing.get_all_start_methods = lambda: ["spawn"]

import tcm
for module in pkgutil.walk_packages(tcm.__path__, "tcm."):
    if module.name != "tcm.__main__":
        importlib.import_module(module.name)

from tcm.bench.config import SuiteConfig, method_settings
from tcm.bench.runner import run_suite
from tcm.cli.app import main
from tcm.data.task import DataConfig, load_task
from tcm.errors import InputError
from tcm.mechanisms.counterfactual_store import CounterfactualIndex, CounterfactualWriter, open_counterfactuals
from tcm.training.device import cpu_count, free_memory
from tcm.training.files import lock
import numpy as np
import torch

here = Path(sys.argv[1])
assert cpu_count() >= 1
assert free_memory(torch.device("cpu")) > 0
with lock(here / "folder"):
    try:
        lock(here / "folder")
    except InputError as error:
        assert "is in use by another process" in str(error), error
    else:
        raise AssertionError("two locks")
with lock(here / "folder"):
    pass

words = "train erm --data.benchmark digits --steps 2 --batch 4 --save-every 1 --device cpu -q --out"
assert main([*words.split(), str(here / "run")]) == 0

store = load_task(DataConfig(benchmark="digits").resolved(), quiet=True).source
index = CounterfactualIndex("m", "h", "a", "b", store.fingerprint, len(store), k=2, size=store.size, batch=8)
images = np.random.default_rng(0).integers(0, 256, index.arrays["images"][1], dtype=np.uint8)
losses = np.random.default_rng(1).random((len(store), 2)).astype(np.float32)
half = len(store) // 2
for rows in (slice(0, half), slice(half, None)):
    writer = CounterfactualWriter(here / "counterfactuals", index)
    writer.append(rows.start, images[rows], losses.argmin(axis=1)[rows], losses[rows])
    writer.save() if rows.stop else writer.finish()
    writer.close()
found = open_counterfactuals(here / "counterfactuals", store)
assert (found.images.numpy() == images).all() and (found.losses.numpy() == losses).all()

config = SuiteConfig(methods="erm", seeds=1, steps=1, batch=4, device="cpu")
result = run_suite("digits", config, method_settings(small=True), here / "suite", quiet=True)
assert not result.failed and len(result.finished) == 1, result
print("works")
"""


def test_the_package_works_without_what_only_some_systems_have(tmp_path: Path):
    words = [sys.executable, "-W", "ignore", "-c", WITHOUT, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.stdout.endswith("works\n"), done.stderr


def test_what_only_some_systems_have_is_asked_for_first():
    assert [found for file in PACKAGE.rglob("*.py") for found in unguarded(file)] == []


def unguarded(file: Path) -> list[str]:
    """Names of `os` and `signal` that not every system has, in files that do not ask for them; and such imports."""
    text = file.read_text(encoding="utf-8")
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in ("os", "signal"):
            is_guarded = f'hasattr({ast.unparse(node.value)}, "{node.attr}")' in text
            found += [node.attr] if node.attr in (*OS_NAMES, *SIGNAL_NAMES) and not is_guarded else []
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name in MODULES]
        elif isinstance(node, ast.ImportFrom):
            found += [str(node.module)] if node.module in MODULES else []
            found += [alias.name for alias in node.names if node.module in ("os", "signal")]
    return [f"{file.relative_to(PACKAGE)}: {name}" for name in found]
