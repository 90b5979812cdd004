"""tcm data check and tcm data pack."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from tcm.cli.app import with_options
from tcm.data.check import check, check_root, render
from tcm.data.task import DataConfig, default_cache, load_task, read_domains
from tcm.errors import InputError, printable


def check_data(
    root: Annotated[Path | None, tyro.conf.Positional] = None, data: DataConfig = DataConfig(), quiet: bool = False
) -> int:
    """Read every image of a data set and report what is wrong with it; exit code 1 if anything is.

    Args:
        root: Folder with one subfolder per domain (the same as data.root without domain names).
        data: Where the domains are.
        quiet: No progress, only the result.
    """
    data = data.resolved()
    if data.is_digits:
        raise InputError("the built-in digits are made, not read: there are no files to check")
    if root is not None or (data.root and not (data.source or data.target or data.source_list or data.target_list)):
        found = check_root(Path(root or data.root or "."), quiet)
    else:
        found = check(read_domains(data), quiet=quiet)
    console = Console()
    console.print(render(found))
    console.print(Text(with_options(found.summary)))
    return 1 if found.problems else 0


def pack_data(data: DataConfig, quiet: bool = False) -> int:
    """Decode and resize the images of a task into the cache, so that training starts at once.

    Args:
        data: Where the domains are.
        quiet: No progress, only the result.
    """
    data = data.resolved()
    task = load_task(data, quiet)
    for store in task:
        print(f"{printable(store.name)}: {len(store)} images of side {store.size} in {store.folder}")
    if data.cache is None and not quiet:
        print(f"The cache is {default_cache()}; --data.cache chooses another.")
    return 0
