"""tcm data check and tcm data pack."""

from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.text import Text

from tcm.cli.arguments import Quiet
from tcm.cli.messages import with_options
from tcm.data.check import check, check_root, render
from tcm.data.task import DataConfig, default_cache, load_task, read_domains
from tcm.errors import InputError, printable


def check_data(
    root: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[ROOT]", help_behavior_hint="")] = None,
    data: DataConfig = DataConfig(),
    quiet: Quiet = False,
) -> int:
    """Read every image of a data set and report all problems. The exit code is 1 if there are any.

    Args:
        root: Folder with one subfolder per domain, all of which are checked.
        data: Where the images of the domains are.
        quiet: Print only the result, no progress.
    """
    data = data.resolved()
    if data.is_digits:
        raise InputError("the built-in digits are generated, so there are no files to check; name a folder of images")
    if root is not None or (data.root and not (data.source or data.target or data.source_list or data.target_list)):
        found = check_root(Path(root or data.root or "."), quiet)
    else:
        found = check(read_domains(data), quiet=quiet)
    console = Console()
    console.print(render(found))
    console.print(Text(with_options(found.summary)))
    return 1 if found.problems else 0


def pack_data(data: DataConfig, quiet: Quiet = False) -> int:
    """Decode and resize the images of a task and store them in the cache, so that training starts faster.

    Args:
        data: Where the images of the domains are.
        quiet: Print only the result, no progress.
    """
    data = data.resolved()
    task = load_task(data, quiet)
    for store in task:
        print(f"{printable(store.name)}: {len(store)} images of side {store.size} in {store.folder}")
    if data.cache is None and not quiet:
        print(f"The cache is {default_cache()}; --data.cache chooses another.")
    return 0
