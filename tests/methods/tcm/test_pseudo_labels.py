"""Pseudo-labels: which classes they name, which of them are kept, and what they are corrected by."""

import pytest
import torch

from tcm.methods.tcm.pseudo_labels import PseudoLabeller, PseudoLabels, divided_by

CLASSES = 3


def labeller(threshold: float = 0.9, momentum: float = 0.5) -> PseudoLabeller:
    return PseudoLabeller(CLASSES, threshold, momentum)


def test_only_confident_labels_are_kept():
    found = labeller(momentum=0.999)(torch.tensor([[0.95, 0.03, 0.02], [0.5, 0.4, 0.1], [0.0, 0.0, 1.0]]))
    assert found.classes.tolist() == [0, 0, 2]
    assert found.kept.tolist() == [1, 0, 1]


def test_the_prior_is_a_running_mean_of_predictions():
    one, other = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    labels = labeller(momentum=0.5)
    labels(one)
    torch.testing.assert_close(labels.prior, torch.tensor([4 / 6, 1 / 6, 1 / 6]))
    labels(other)
    torch.testing.assert_close(labels.prior, torch.tensor([4 / 12, 1 / 12 + 1 / 4, 1 / 12 + 1 / 4]))


def test_a_class_that_is_predicted_too_often_needs_more_evidence():
    labels = labeller(threshold=0.0, momentum=0.0)  # the prior is the mean of the batch
    batch = torch.tensor([[0.6, 0.4, 0.0], [0.9, 0.1, 0.0], [0.9, 0.1, 0.0]])
    assert batch.argmax(dim=1).tolist() == [0, 0, 0]
    assert labels(batch).classes.tolist() == [1, 0, 0]


def test_the_former_round_has_its_share():
    labels, own = labeller(threshold=0.0, momentum=1.0), torch.tensor([[0.6, 0.3, 0.1]])
    former = torch.tensor([[0.0, 0.2, 0.8]])
    assert [labels(own, former, share).classes.item() for share in (0.0, 0.2, 1.0)] == [0, 0, 2]


def test_a_class_without_any_probability_leaves_everything_finite():
    probabilities = torch.tensor([[1.0, 0.0, 0.0]] * 4)
    labels = labeller(momentum=0.0)
    found = labels(probabilities)
    assert found.classes.tolist() == [0] * 4
    assert divided_by(labels.prior, probabilities).isfinite().all()
    assert divided_by(torch.zeros(CLASSES), probabilities).isfinite().all()


def test_the_loss_is_a_mean_over_all_images_and_not_over_the_kept_ones():
    logits = torch.zeros(4, CLASSES, requires_grad=True)
    found = PseudoLabels(torch.tensor([0, 1, 2, 0]), torch.tensor([1.0, 0.0, 0.0, 1.0]))
    loss = found.loss(logits)
    assert loss.item() == pytest.approx(0.5 * torch.tensor(3.0).log().item())
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[1:3].abs().sum() == 0
    assert (logits.grad[[0, 3]].abs().sum(dim=1) > 0).all()


def test_labels_have_no_gradient():
    probabilities = torch.rand(4, CLASSES, requires_grad=True)
    assert not labeller()(probabilities).kept.requires_grad
