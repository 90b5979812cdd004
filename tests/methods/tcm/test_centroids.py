"""Class centroids: what they are the means of, and what they predict."""

import torch
import torch.nn.functional as F

from tcm.methods.tcm.centroids import CentroidClassifier, matching_scale

CLASSES, WIDTH = 3, 4


def clusters(count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    """Features around one direction per class, and the class of each."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(count) % CLASSES
    noise = 0.1 * torch.randn(count, WIDTH, generator=generator)
    return torch.eye(WIDTH)[labels] * torch.rand(count, 1, generator=generator).add(0.5) + noise, labels


def test_centroids_correct_predictions_that_are_wrong_for_part_of_a_class():
    features, labels = clusters()
    predicted = F.one_hot(labels, CLASSES).float()
    predicted[:12] = torch.tensor([0.5, 0.3, 0.2])  # undecided, and wrong for two of three
    classifier = CentroidClassifier(CLASSES, WIDTH)
    classifier.fit(features, predicted)
    assert torch.equal(classifier(features).argmax(dim=1), labels)


def test_they_are_the_normalised_means_of_the_nearest_images():
    features, labels = clusters()
    classifier = CentroidClassifier(CLASSES, WIDTH)
    classifier.fit(features, F.one_hot(labels, CLASSES).float())
    directions = F.normalize(features, dim=1)
    means = torch.stack([directions[labels == number].mean(dim=0) for number in range(CLASSES)])
    torch.testing.assert_close(classifier.centroids, F.normalize(means, dim=1))


def test_before_the_fit_there_are_none():
    classifier = CentroidClassifier(CLASSES, WIDTH)
    assert not classifier.fitted
    features, labels = clusters()
    classifier.fit(features, F.one_hot(labels, CLASSES).float())
    assert classifier.fitted


def test_a_class_without_a_nearest_image_keeps_a_centroid():
    features, labels = clusters()
    predicted = torch.full((len(labels), CLASSES), 0.01)
    predicted[torch.arange(len(labels)), labels % 2] = 0.98  # the third class is never predicted
    classifier = CentroidClassifier(CLASSES, WIDTH)
    classifier.fit(features, predicted)
    torch.testing.assert_close(classifier.centroids.norm(dim=1), torch.ones(CLASSES))
    assert classifier(features).isfinite().all()


def test_the_probabilities_are_as_sure_as_those_of_the_linear_classifier():
    features, labels = clusters()
    predicted = torch.full((len(labels), CLASSES), 0.15)
    predicted[torch.arange(len(labels)), labels] = 0.7
    classifier = CentroidClassifier(CLASSES, WIDTH)
    classifier.fit(features, predicted)
    torch.testing.assert_close(
        classifier(features).softmax(dim=1).amax(dim=1).mean(), torch.tensor(0.7), rtol=0, atol=1e-3
    )


def test_the_scale_stays_within_its_limits():
    cosines = torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    assert matching_scale(cosines, 0.99) > 900
    assert matching_scale(cosines, 0.1) < 1.1
