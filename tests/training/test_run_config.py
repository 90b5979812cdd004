import math
from dataclasses import replace

import pytest

from tcm.data.task import DataConfig
from tcm.errors import InputError
from tcm.training.run_config import RunConfig, require_valid_numbers

DIGITS = DataConfig(benchmark="digits")


def test_defaults_depend_on_the_length():
    config = RunConfig(data=DIGITS).with_defaults(steps=600)
    assert (config.steps, config.evaluate_every) == (600, 60)
    assert RunConfig(data=DIGITS, steps=3).with_defaults(steps=600).schedule.evaluate_every == 1


@pytest.mark.parametrize("field", ["steps", "batch", "log_every", "save_every", "evaluate_every"])
def test_a_count_of_0_is_named_by_its_field(field: str):
    with pytest.raises(InputError, match="is 0; give 1 or more") as caught:
        replace(RunConfig(data=DIGITS), **{field: 0}).with_defaults(steps=600)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({"recipe": {"lr": math.nan}}, "method.recipe.lr"),
        ({"recipe": {"lr": -1.0}}, "method.recipe.lr"),
        ({"recipe": {"momentum": 1.0}}, "method.recipe.momentum"),
        ({"widths": [8, 0]}, "method.widths"),
    ],
)
def test_a_number_that_cannot_be_used_is_named_by_its_field(value: dict, field: str):
    with pytest.raises(InputError, match=field) as caught:
        require_valid_numbers(value, "method")
    assert caught.value.field == field


def test_usable_numbers_pass():
    require_valid_numbers({"lr": 0.0, "on": False, "none": None, "name": "x", "widths": [1, 2]}, "method")
