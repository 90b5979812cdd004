import pytest
import torch

from tcm.classifier.evaluate import Predictions, TaskPredictions
from tcm.classifier.neighbours import neighbour_agreement, neighbour_agreements

CORNERS = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])


def test_the_nearest_have_the_predicted_class_or_not():
    classes = torch.tensor([0, 0, 1, 1])
    queries = 5 * torch.tensor([[1.0, 0.05], [0.05, 1.0]])  # length does not count
    assert neighbour_agreement(queries, torch.tensor([0, 1]), CORNERS, classes, count=2) == 1
    assert neighbour_agreement(queries, torch.tensor([0, 0]), CORNERS, classes, count=2) == 0.5
    assert neighbour_agreement(queries, torch.tensor([0, 1]), CORNERS, classes, count=9) == 0.5  # all four


def test_an_image_is_not_its_own_neighbour():
    predicted = torch.tensor([0, 1, 1, 1])
    assert neighbour_agreement(CORNERS, predicted, None, predicted, count=1) == 0.5


def test_held_out_images_are_compared_with_training_images_only():
    labels, held_out = torch.tensor([0, 0, 1, 1]), torch.tensor([False, True, False, True])
    right, wrong = torch.eye(2)[labels], torch.eye(2)[[0, 1, 1, 1]]
    target = Predictions(torch.eye(2)[[0, 1]], torch.tensor([[1.0, 0.0], [0.9, 0.1]]))
    found = neighbour_agreements(TaskPredictions(Predictions(right, CORNERS), target), labels, held_out)
    assert found["held_out"] == 0.5  # both training images are neighbours, and one has the class
    assert found["source"] == 0.5
    assert found["target"] == 0  # the two target images have different predictions
    found = neighbour_agreements(TaskPredictions(Predictions(wrong, CORNERS), target), labels, None)
    assert found["held_out"] is None
    assert found["source"] == pytest.approx(0.5)


def test_a_single_target_image_has_no_neighbours_in_the_target():
    labels = torch.tensor([0, 0, 1, 1])
    target = Predictions(torch.eye(2)[[0]], CORNERS[:1])
    found = neighbour_agreements(TaskPredictions(Predictions(torch.eye(2)[labels], CORNERS), target), labels, None)
    assert found["target"] is None
