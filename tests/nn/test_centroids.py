import torch

from tcm.nn.centroids import centroid_distance, moving_centroids


def test_a_moving_centroid_is_a_moving_average_of_the_means_of_its_class():
    torch.manual_seed(0)
    former, features = torch.randn(4, 3), torch.randn(6, 3)
    former[2] = 0  # not seen so far
    classes = [0, 0, 2, 2, 2, None]  # classes 1 and 3 are missing, the last image does not count
    labels = torch.stack([torch.eye(4)[c] if c is not None else torch.zeros(4) for c in classes])
    expected = former.clone()
    expected[0] = 0.7 * former[0] + 0.3 * (features[0] + features[1]) / 2
    expected[2] = (features[2] + features[3] + features[4]) / 3
    torch.testing.assert_close(moving_centroids(former, features, labels, 0.7), expected)


def test_the_gradient_goes_through_the_means_of_the_batch():
    features, former = torch.rand(4, 2, requires_grad=True), torch.ones(2, 2)
    labels = torch.eye(2)[[0, 0, 0, 1]]
    (gradient,) = torch.autograd.grad(moving_centroids(former, features, labels, 0.7).sum(), features)
    torch.testing.assert_close(gradient, torch.tensor([0.1, 0.1, 0.1, 0.3])[:, None].expand(4, 2))


def test_the_distance_is_a_mean_over_classes_and_features_and_skips_unseen_classes():
    source, target = (
        torch.tensor([[1.0, 2.0], [5.0, 5.0], [0.0, 0.0]]),
        torch.tensor([[3.0, 1.0], [0.0, 0.0], [7.0, 7.0]]),
    )
    assert centroid_distance(source, target) == (2**2 + 1**2) / (3 * 2)
    assert centroid_distance(source, source) == 0


def test_centroids_are_in_single_precision_under_autocast():
    features = torch.rand(4, 3, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = moving_centroids(torch.zeros(2, 3), features, torch.eye(2)[[0, 0, 1, 1]], 0.7)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found[0], features[:2].float().mean(dim=0))
