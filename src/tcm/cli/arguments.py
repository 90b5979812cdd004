"""The arguments that several commands have, with their names in the help."""

from pathlib import Path
from typing import Annotated

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from tcm.training.tracking import TrackerName


def _output_path(words: list[str]) -> Path:
    if not words[0]:
        raise ValueError("is empty; name a place for the results")  # Path("") would be the current folder
    return Path(words[0])


_OUTPUT = PrimitiveConstructorSpec(
    nargs=1,
    metavar="PATH",
    instance_from_str=_output_path,
    is_instance=lambda value: value is None or isinstance(value, Path),
    str_from_instance=lambda path: [str(path)],
)

Run = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
Runs = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)"),
]
Shards = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="SHARDS [SHARDS ...]", help_behavior_hint="(required)"),
]
Images = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES")]
Stores = Annotated[
    tuple[Path, ...],
    tyro.conf.Positional,
    tyro.conf.arg(metavar="SUITE|CSV [SUITE|CSV ...]", help_behavior_hint="(required)"),
]
Rates = Annotated[tuple[Path, ...], tyro.conf.arg(metavar="SUITE|CSV [...]", help_behavior_hint="")]
Output = Annotated[Path, _OUTPUT]
_NO_HINT = tyro.conf.arg(help_behavior_hint="")  # the text says what the default is
SourceFolder = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE", help_behavior_hint="")]
TargetFolder = Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="TARGET", help_behavior_hint="")]
OptionalOutput = Annotated[Path | None, _OUTPUT, _NO_HINT]
OptionalFile = Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
OptionalInt = Annotated[int | None, _NO_HINT]
OptionalText = Annotated[str | None, _NO_HINT]
Log = Annotated[TrackerName | None, _NO_HINT]
Quiet = Annotated[bool, tyro.conf.arg(aliases=("-q",))]
