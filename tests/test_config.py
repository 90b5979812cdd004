from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Literal, TypeVar

import pytest

from tcm.config import differences, from_json, to_json
from tcm.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Inner:
    rate: float = 0.1
    kind: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer(Generic[T]):
    inner: T
    place: Path | None = None
    sizes: tuple[int, ...] = (1, 2)
    plain: Inner = field(default_factory=Inner)


def test_a_config_survives_json():
    config = Outer(Inner(0.5, "b"), Path("x/y"), (3, 4, 5))
    assert from_json(Outer[Inner], to_json(config)) == config
    assert to_json(config)["place"] == "x/y"


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"inner": {"rate": 1, "knd": "a"}}, ['unknown key "knd"', 'did you mean "kind"', "config.inner"]),
        ({"inner": {"rate": "fast"}}, ["config.inner.rate", '"fast"', "float"]),
        ({"inner": {"kind": "c"}}, ["config.inner.kind", '"c"', "'a', 'b'"]),
        ({"inner": {}, "sizes": [1, "2"]}, ["config.sizes[1]"]),
        ({"inner": {}, "plain": 3}, ["config.plain"]),
    ],
)
def test_what_does_not_fit_is_named(stored: dict, words: list[str]):
    with pytest.raises(InputError) as error:
        from_json(Outer[Inner], stored)
    for word in words:
        assert word in str(error.value)


def test_differences_name_every_leaf_once():
    old, new = to_json(Outer(Inner(0.5))), to_json(Outer(Inner(0.7), Path("p")))
    assert differences(old, new) == ["inner.rate: 0.5 -> 0.7", 'place: null -> "p"']
    assert differences(old, old) == []
