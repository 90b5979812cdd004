"""Settings as YAML text: reading it with PyYAML, and writing it with the defaults as comments."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tcm.errors import InputError, printable


def read_settings(file: Path) -> dict[str, Any]:
    """The settings of a YAML file."""
    try:
        found = yaml.load(file.read_bytes(), settings_loader())
    except OSError as error:
        raise InputError("config", f"{printable(file)} cannot be read ({error.strerror}); check the path") from error
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise InputError(f"{printable(file)} is not readable YAML: {line}{error.problem}; correct it") from error
    except yaml.YAMLError as error:
        raise InputError(f"{printable(file)} is not readable YAML; correct it or name another file") from error
    if not isinstance(found, dict | None):
        raise InputError(f"{printable(file)} holds no settings; write lines such as steps: 100")
    return found or {}


def settings_loader() -> Any:
    """PyYAML's safe loader with the words and numbers of YAML 1.2: off is a word, 1e-3 a number, no dates."""

    class SettingsLoader(yaml.SafeLoader):
        """Refuses keys that are there twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """The mapping of a node."""
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise yaml.constructor.ConstructorError(None, None, f"{key} is there twice", node.start_mark)
            return super().construct_mapping(node, deep)

    tag = "tag:yaml.org,2002:"
    replaced = {f"{tag}{name}" for name in ("bool", "float", "timestamp")}
    SettingsLoader.yaml_implicit_resolvers = {
        letter: [resolver for resolver in resolvers if resolver[0] not in replaced]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    truth = re.compile("^(?:true|True|TRUE|false|False|FALSE)$")
    number = re.compile(r"^(?:[-+]?(?:\d+\.\d*|\.?\d+)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$")
    SettingsLoader.add_implicit_resolver(f"{tag}bool", truth, list("tTfF"))
    SettingsLoader.add_implicit_resolver(f"{tag}float", number, list("-+.0123456789"))
    return SettingsLoader


def yaml_lines(given: dict[str, Any], usual: dict[str, Any], needed: set[str], indent: str = "") -> Iterator[str]:
    """A line for each setting; those with the usual value are comments."""
    for name, value in given.items():
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from yaml_lines(value, usual[name], set(), indent + "  ")
        elif value is None and name in needed:
            yield f"{indent}# {name}: (required)"
        else:
            mark = "# " if value == usual[name] else ""
            text = yaml.safe_dump(value, default_flow_style=True, width=10_000).strip().removesuffix("\n...")
            first, *others = text.splitlines()  # a path with a newline has several
            yield from (f"{indent}{mark}{line}" for line in (f"{name}: {first}", *(f"  {line}" for line in others)))
