"""The lines that a user sees in place of a traceback."""

import pytest
import torch

from tcm.cli.messages import with_options
from tcm.errors import InputError, explain_out_of_memory


def test_an_error_names_its_field_and_the_reason():
    error = InputError("data.crop", "is 8; give 32 or more")
    assert error.field == "data.crop"
    assert str(error) == "`data.crop` is 8; give 32 or more"
    assert isinstance(error, ValueError)


def test_an_error_may_be_about_no_field():
    error = InputError("photos is empty; name a folder of images")
    assert error.field == ""
    assert str(error) == "photos is empty; name a folder of images"


def test_an_error_is_renamed_for_the_config_that_holds_its_fields():
    error = InputError("batch", "is 9; lower `batch` or set `data.on_bad_image=skip`, see `tcm data check`")
    outer = error.renamed(lambda field: f"classifier.{field}")
    assert outer.field == "classifier.batch"
    assert str(outer) == (
        "`classifier.batch` is 9; lower `classifier.batch` or set `classifier.data.on_bad_image=skip`, "
        "see `tcm data check`"
    )
    assert error.field == "batch"
    assert InputError("there is no field").renamed(str.upper).field == ""


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (InputError("data.on_bad_image", "is x"), "--data.on-bad-image is x"),
        (InputError("lower `batch` or `data.crop`"), "lower --batch or --data.crop"),
        (UserWarning("set `data.on_bad_image=skip`"), "set --data.on-bad-image skip"),
        ("set `backbone.pretrained=False`", "set --backbone.no-pretrained"),
        ("set `pretrained=False` or `backbone.pretrained=True`", "set --no-pretrained or --backbone.pretrained"),
        ("`tcm data check` lists `path/to label`", "`tcm data check` lists `path/to label`"),
        ("two\nlines", r"two\nlines"),
    ],
)
def test_the_command_line_shows_fields_as_options(message: object, shown: str):
    assert with_options(message) == shown


def test_memory_that_runs_out_is_one_line():
    @explain_out_of_memory("training", "lower `batch`")
    def allocate(size: int) -> torch.Tensor:
        return torch.empty(size)

    assert allocate(3).shape == (3,)
    for _ in range(2):  # a decorated function may be called again
        with pytest.raises(InputError, match=r"^training needs more memory than is free; lower `batch`$"):
            allocate(10**15)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_so_is_that_of_a_gpu_and_of_python(error: Exception):
    with pytest.raises(InputError, match=r"^it needs more"), explain_out_of_memory("it", "lower it"):
        raise error


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match=r"^shapes differ$"), explain_out_of_memory("it", "lower it"):
        raise RuntimeError("shapes differ")
