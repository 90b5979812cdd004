"""The lines that a user sees in place of a traceback."""

import pytest
import torch

from tcm.errors import InputError, explain_out_of_memory


def test_memory_that_runs_out_is_one_line():
    @explain_out_of_memory("training", "lower --batch")
    def allocate(size: int) -> torch.Tensor:
        return torch.empty(size)

    assert allocate(3).shape == (3,)
    for _ in range(2):  # a decorated function may be called again
        with pytest.raises(InputError, match=r"^training needs more memory than is free; lower --batch$"):
            allocate(10**15)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory."), MemoryError()])
def test_so_is_that_of_a_gpu_and_of_python(error: Exception):
    with pytest.raises(InputError, match=r"^it needs more"), explain_out_of_memory("it", "lower it"):
        raise error


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match=r"^shapes differ$"), explain_out_of_memory("it", "lower it"):
        raise RuntimeError("shapes differ")
