"""Which images a figure of activation maps shows."""

import pytest
import torch
from torch import Tensor

from tcm.analysis.shown_images import quotas, source_images, target_images
from tcm.errors import InputError

TITLES = ("dann", "tcm")
LABELS = torch.tensor([0, 0, 1, 1, 0, 0, 1, -1])
FIRST = torch.tensor([0, 1, 1, 0, 0, 0, 1, 0])
SECOND = torch.tensor([1, 0, 0, 1, 0, 1, 0, 1])


def chosen(first: Tensor, second: Tensor, count: int) -> tuple[list[int], str]:
    found, counts = target_images([first, second], LABELS, count, TITLES)
    return found.tolist(), counts


def test_images_that_only_one_gets_right_half_of_each_kind():
    found, counts = chosen(FIRST, SECOND, 4)
    assert set(found[:2]) < {0, 2, 5, 6}
    assert found[2:] == [1, 3]
    assert counts == "Of 7 images, only dann classifies 4 correctly and only tcm 2."
    # Too few of a kind: more of the other.
    assert len(chosen(FIRST, SECOND, 6)[0]) == 6
    right = LABELS.clamp(min=0)
    assert chosen(right, SECOND, 3)[0] == [0, 2, 5]
    assert chosen(SECOND, right, 1)[0] == [0]


def test_images_that_only_one_of_three_gets_right():
    third = torch.tensor([1, 1, 0, 0, 0, 0, 0, 0])
    found, counts = target_images([FIRST, SECOND, third], LABELS, 9, ("gvb", "baseline", "tcm"))
    # Image 5 is right in two of them, image 4 in all.
    assert sorted(found[:3].tolist()) == [0, 2, 6]
    assert found[3:].tolist() == [1, 3]
    assert counts == "Of 7 images, only gvb classifies 3 correctly, only baseline 2 and only tcm 0."


def test_images_that_all_get_wrong():
    wrong = torch.tensor([1, 1, 1, 0, 1, 0, 1, 1])
    found, counts = target_images([wrong, FIRST.where(LABELS != 1, 0)], LABELS, 5, TITLES, "wrong")
    assert found.tolist() == [1, 3]
    assert counts == "Of 7 images, 2 are classified wrongly by all runs."
    assert target_images([wrong, FIRST.where(LABELS != 1, 0)], LABELS, 1, TITLES, "wrong")[0].tolist() == [1]
    with pytest.raises(InputError, match="no target image is wrong in all of dann and tcm; name other runs"):
        target_images([FIRST, SECOND], LABELS, 5, TITLES, "wrong")
    with pytest.raises(InputError, match="`show` is wrong, but the target has no labels"):
        target_images([FIRST, SECOND], torch.full((8,), -1), 5, TITLES, "wrong")


def test_without_labels_images_on_which_they_disagree():
    unknown, first = torch.full((4,), -1), torch.tensor([0, 1, 2, 3])
    found, counts = target_images([first, torch.tensor([0, 2, 1, 3])], unknown, 5, TITLES)
    assert found.tolist() == [1, 2]
    assert counts == "They disagree on 2 of 4 images."
    # A third run that differs elsewhere adds its image.
    assert target_images([first, first, torch.tensor([3, 1, 2, 3])], unknown, 5, "abc")[0].tolist() == [0]
    with pytest.raises(InputError, match="dann and tcm do not differ on any target image"):
        target_images([unknown, unknown], unknown, 5, TITLES)


def test_source_images_are_of_the_same_classes_first():
    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3])
    assert source_images(labels, [2, 1, 2], 2).tolist() == [4, 2]
    found = source_images(labels, [2, 1, 2], 4).tolist()
    assert found[:2] == [4, 2]
    assert len(set(found)) == 4
    assert source_images(labels, [5], 1).tolist() == [0]  # the source has no image of that class
    assert source_images(labels, [2], 0).tolist() == []
    assert len(source_images(labels, [2], 99)) == 7


def test_quotas_are_even_as_far_as_the_kinds_suffice():
    assert quotas([9, 9, 9], 7) == [3, 2, 2]
    assert quotas([1, 9, 0], 6) == [1, 5, 0]
    assert quotas([1, 2], 6) == [1, 2]
