from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
import pytest

from tcm.config import differences, from_json, to_json, with_settings
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


def test_settings_change_the_fields_that_they_name():
    config = Outer(Inner(), plain=Inner(0.5, "b"))
    found = with_settings(config, {"place": "x/y", "sizes": (3, 4), "plain": {"rate": 2}})
    assert found == Outer(Inner(), Path("x/y"), (3, 4), Inner(2.0, "b"))
    assert with_settings(config, {"inner": Inner(0.2), "plain": Inner()}) == Outer(Inner(0.2))
    assert with_settings(config, {"place": None}) == config


def test_numbers_of_numpy_are_numbers():
    found = with_settings(Outer(Inner()), {"plain": {"rate": np.float32(0.5)}})
    assert type(found.plain.rate) is float
    assert found.plain.rate == 0.5


@pytest.mark.parametrize(
    ("settings", "field", "said"),
    [
        ({"palce": "x"}, "palce", "did you mean `place`?"),
        ({"plain": {"rat": 1}}, "plain.rat", "did you mean `plain.rate`?"),
        ({"rate": 1}, "rate", "did you mean `inner.rate` or `plain.rate`?"),
        ({"zzz": 1}, "zzz", "there is inner, place, sizes, plain"),
        ({"plain": {"rate": "fast"}}, "plain.rate", "is 'fast'; give float"),
        ({"plain": {"kind": "c"}}, "plain.kind", "is 'c'; give 'a' or 'b'"),
        ({"plain": "a"}, "plain", "is 'a'; give Inner(...) or a mapping of its fields"),
        ({"place": 3}, "place", "is 3; give Path or None"),
        ({"sizes": 3}, "sizes", "is 3; give tuple[int, ...]"),
        ({"place": object}, "place", "give Path or None"),
    ],
)
def test_settings_that_do_not_fit_are_named(settings: dict[str, Any], field: str, said: str):
    with pytest.raises(InputError) as caught:
        with_settings(Outer(Inner()), settings)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"`{field}` ")
    assert said in str(caught.value)


def test_settings_of_a_nested_config_are_named_by_their_place():
    with pytest.raises(InputError, match=r"`data\.plain\.rat` is not a setting; did you mean `data\.plain\.rate`"):
        with_settings(Outer(Inner()), {"plain": {"rat": 1}}, "data")
