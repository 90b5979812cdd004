"""Frozen dataclasses to JSON and back, and changed by settings. An unknown key is an error, never ignored."""

import dataclasses
import difflib
import json
import numbers
import reprlib
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from tcm.errors import InputError

T = TypeVar("T")


def to_json(config: Any, names_only: bool = False) -> Any:
    """The value as JSON types: dataclasses become objects, paths strings, and tuples lists.

    With `names_only`, paths are reduced to their last part, for files that leave this machine.
    """
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return {field.name: to_json(getattr(config, field.name), names_only) for field in dataclasses.fields(config)}
    if isinstance(config, Path):
        return config.name if names_only else str(config)
    if isinstance(config, tuple | list):
        return [to_json(value, names_only) for value in config]
    return config


def from_json(kind: type[T], value: Any, where: str = "config") -> T:
    """The inverse of `to_json` for the dataclass `kind`; `where` names the place in error messages."""
    return typing.cast(T, _convert(kind, value, where))


def _convert(kind: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return _convert(arguments[0], value, where)
    if dataclasses.is_dataclass(origin or kind) and isinstance(value, dict):
        return _convert_dataclass(kind, value, where)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(arguments, value, where)
    if origin is typing.Literal and value in arguments:
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_convert(arguments[0], item, f"{where}[{index}]") for index, item in enumerate(value))
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    expected = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
    raise InputError(f"{where} is {json.dumps(value)}, expected {expected}; correct it or start a new run folder")


def _convert_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and types.NoneType in arguments:
        return None
    options = [argument for argument in arguments if argument is not types.NoneType]
    for option in options[:-1]:
        try:
            return _convert(option, value, where)
        except InputError:
            continue
    return _convert(options[-1], value, where)


def _convert_dataclass(kind: Any, value: dict[str, Any], where: str) -> Any:
    origin = typing.get_origin(kind) or kind
    hints = typing.get_type_hints(origin, include_extras=True)
    # The type variables of a generic dataclass, such as TrainConfig[DANNConfig], and what they stand for.
    variables = dict(zip(getattr(origin, "__parameters__", ()), typing.get_args(kind), strict=False))
    fields = {field.name: variables.get(hints[field.name], hints[field.name]) for field in dataclasses.fields(origin)}
    for key in value:
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            hint = f'; did you mean "{near[0]}"?' if near else f"; it has {', '.join(fields)}"
            raise InputError(f'{where} has an unknown key "{key}"{hint}')
    return origin(**{key: _convert(fields[key], item, f"{where}.{key}") for key, item in value.items()})


def leaves(value: Any, where: str = "") -> dict[str, Any]:
    """Every leaf of nested JSON objects by its dotted key; lists are leaves."""
    if not isinstance(value, dict):
        return {where: value}
    return {
        key: leaf
        for name, item in value.items()
        for key, leaf in leaves(item, f"{where}.{name}" if where else name).items()
    }


def differences(old: Any, new: Any, where: str = "") -> list[str]:
    """A line `key: old -> new` for every leaf in which two JSON values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = sorted({*old, *new})
        return [
            line for key in keys for line in differences(old.get(key), new.get(key), f"{where}.{key}" if where else key)
        ]
    return [] if old == new else [f"{where}: {json.dumps(old)} -> {json.dumps(new)}"]


def with_settings(config: T, settings: Mapping[str, Any], where: str = "") -> T:
    """The config with some fields changed, by their names; `where` is its place in the config that holds it.

    The value of a field that is itself a config may be a whole one, or a mapping that changes some of its fields:
    {"recipe": {"lr": 0.1}}. Paths may be strings. Unknown names and values of a wrong type are InputErrors.
    """
    now = {field.name: getattr(config, field.name) for field in dataclasses.fields(typing.cast(Any, config))}
    hints = typing.get_type_hints(type(config))
    changed = {}
    for name, value in settings.items():
        path = f"{where}.{name}" if where else name
        if name not in now:
            raise InputError(path, f"is not a setting; {_nearest_setting(name, now, where)}")
        if isinstance(now[name], type(value)) and dataclasses.is_dataclass(value):
            value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        if not dataclasses.is_dataclass(now[name]):
            changed[name] = _fitting(hints[name], value, path)
        elif isinstance(value, Mapping):
            changed[name] = with_settings(now[name], value, path)
        else:
            expected = f"{type(now[name]).__name__}(...) or a mapping of its fields"
            raise InputError(path, f"is {reprlib.repr(value)}; give {expected}")
    return dataclasses.replace(typing.cast(Any, config), **changed)


def _nearest_setting(name: str, now: dict[str, Any], where: str) -> str:
    """What may have been meant by an unknown name: a setting of the same name in a nested config, or a similar one."""
    start = f"{where}." if where else ""
    nested = [key for key, value in now.items() if name in getattr(value, "__dataclass_fields__", ())]
    near = [f"{key}.{name}" for key in nested] or difflib.get_close_matches(name, now, n=1)
    if near:
        return f"did you mean {' or '.join(f'`{start}{key}`' for key in near)}?"
    return f"there is {', '.join(now)}"


def _fitting(kind: Any, value: Any, path: str) -> Any:
    if isinstance(value, numbers.Real) and not isinstance(value, bool):  # numpy's numbers too
        value = int(value) if isinstance(value, numbers.Integral) else float(value)
    try:
        return from_json(kind, to_json(value), path)
    except (InputError, TypeError):
        raise InputError(path, f"is {reprlib.repr(value)}; give {_described(kind)}") from None


def _described(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(map(repr, typing.get_args(kind)))
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(map(_described, typing.get_args(kind)))
    return "None" if kind is types.NoneType else kind.__name__ if isinstance(kind, type) else str(kind)
