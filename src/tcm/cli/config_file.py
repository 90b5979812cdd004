"""Settings of a command as a YAML file: --print-config writes one, --config reads one.

The keys are the names of the options: `--data.source-dir` is `source_dir` below `data`.
"""

import argparse
import dataclasses
import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from tcm.cli.yaml_settings import yaml_lines
from tcm.config import to_json, with_settings
from tcm.errors import InputError, printable

FLAT = "config"  # the argument of a command whose fields are options of the command itself
# For the help; `split_file_options` reads them before all others.
FILE_OPTIONS = {
    "config_file": Annotated[
        Path | None,
        tyro.conf.arg(
            name="config",
            metavar="FILE",
            help="YAML file of settings, as --print-config writes it; other options override it.",
            help_behavior_hint="",
        ),
    ],
    "print_config": Annotated[
        bool, tyro.conf.arg(help="Print the settings as YAML for --config, and do nothing else.")
    ],
}


class FileOptions(NamedTuple):
    """The two options about files, and all other words."""

    file: Path | None
    prints: bool
    others: list[str]


def split_file_options(options: list[str]) -> FileOptions:
    """The options `--config FILE` and `--print-config`, apart from the others."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--config", type=Path)
    parser.add_argument("--print-config", action="store_true")
    try:
        found, others = parser.parse_known_args(options)
    except argparse.ArgumentError as error:
        raise InputError("config", "is given without a file; name one, as `print_config` writes it") from error
    return FileOptions(found.config, found.print_config, others)


def with_file_options(function: Callable[..., int]) -> Callable[..., int]:
    """The command with the two options about files, which are only there for its help."""
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for (name, kind), default in zip(FILE_OPTIONS.items(), (None, False), strict=True)
    ]

    def command(**named: Any) -> int:
        return function(**{name: value for name, value in named.items() if name not in FILE_OPTIONS})

    return with_parameters(command, function, [*parameters_of(function), *added])


def with_parameters(
    command: Callable[..., int], model: Callable[..., int], parameters: Sequence[Parameter]
) -> Callable[..., int]:
    """The command with these parameters and the documentation of the model, as tyro reads them."""
    command.__name__, command.__doc__ = model.__name__, model.__doc__
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return command


def parameters_of(function: Callable[..., int]) -> list[Parameter]:
    """The parameters of a command."""
    return list(inspect.signature(function).parameters.values())


def is_required(parameter: Parameter) -> bool:
    """Whether the command cannot run without it."""
    return parameter.default is Parameter.empty


def with_settings_of(
    function: Callable[..., int], given: Mapping[str, Any], where: Path | None, all_optional: bool = False
) -> Callable[..., int]:
    """The command with the settings of a file as its defaults. `all_optional`: what is required may be missing."""
    now = settings_of(function)
    try:
        found = with_settings(now, filled_groups(now, given))
    except InputError as error:
        raise InputError(f"{printable(where)}: {str(error).replace('`', '')}") from error
    parameters = []
    for parameter in parameters_of(function):
        name = parameter.name
        if name == FLAT:
            fields = {field.name: getattr(found, field.name) for field in dataclasses.fields(parameter.default)}
            parameter = parameter.replace(default=dataclasses.replace(parameter.default, **fields))
        elif not is_required(parameter) or getattr(found, name) is not None:
            parameter = parameter.replace(default=getattr(found, name, parameter.default))
        elif all_optional:
            parameter = parameter.replace(default=None, annotation=or_none(parameter.annotation))
        parameters.append(parameter)
    # Among parameters by position, none without a default may follow one that has a default.
    parameters = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]

    def command(**named: Any) -> int:
        return function(**named)

    return with_parameters(command, function, parameters)


def or_none(kind: Any) -> Any:
    """The type, or None."""
    if typing.get_origin(kind) is not Annotated:
        return kind | None
    inner, *about = typing.get_args(kind)
    return Annotated[(inner | None, *about)]


def settings_of(function: Callable[..., int], values: Mapping[str, Any] | None = None) -> Any:
    """The settings of a command as an instance of a dataclass: its defaults, or the values of its arguments.

    What is required has the default None.
    """
    fields: dict[str, tuple[Any, Any]] = {}  # by name, the type and the value
    for parameter in parameters_of(function):
        value: Any = None if is_required(parameter) else parameter.default
        value = value if values is None else values[parameter.name]
        if parameter.name == FLAT:
            hints = typing.get_type_hints(type(value))
            names = [field.name for field in dataclasses.fields(value)]
            fields |= {name: (hints[name], getattr(value, name)) for name in names}
        elif parameter.name not in FILE_OPTIONS:
            fields[parameter.name] = parameter.annotation, value
    kind = dataclasses.make_dataclass("Settings", [(name, hint) for name, (hint, _) in fields.items()], frozen=True)
    return kind(**{name: value for name, (_, value) in fields.items()})


def filled_groups(config: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with names as in Python, without groups that have only comments."""
    found = {}
    for key, value in given.items():
        name = str(key).replace("-", "_")
        now = getattr(config, name, None)
        if dataclasses.is_dataclass(now) and isinstance(value, Mapping):
            value = filled_groups(now, value)
        if not (dataclasses.is_dataclass(now) and value is None):
            found[name] = value
    return found


def print_settings(name: str, function: Callable[..., int], arguments: Mapping[str, Any]) -> int:
    """Prints the settings of a call as YAML. What has its default is a comment."""
    needed = {parameter.name for parameter in parameters_of(function) if is_required(parameter)}
    given, usual = settings_of(function, arguments), settings_of(function)
    print(f"# The settings of tcm {name}, for its --config. Lines that start with # show the defaults.")
    for line in yaml_lines(to_json(given), to_json(usual), needed):
        print(line)
    return 0
