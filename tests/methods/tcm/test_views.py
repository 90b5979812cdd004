import pytest
import torch

from tcm.data.batch import Batch, Counterfactuals
from tcm.methods.tcm.views import Views, all_views, sampled, sampled_views

K, COUNT = 3, 4


def images_and_made(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    everything = torch.rand(1 + K, COUNT, 3, 2, 2, generator=torch.Generator().manual_seed(seed))
    return everything[0], everything[1:]


def numbered(source: int, target: int) -> Views:
    """Views whose pixel tells side, view and image, of batches that differ in length."""
    first = torch.arange(source)[:, None] * 10.0 + torch.arange(COUNT)
    second = 100 + torch.arange(target)[:, None] * 10.0 + torch.arange(COUNT + 1)
    return Views(first[..., None], second[..., None])


@pytest.mark.parametrize(("source", "target"), [(2, 3), (4, 1), (1, 1)])
def test_flat_is_the_source_then_the_target_view_by_view(source: int, target: int):
    views = numbered(source, target)
    expected = [10.0 * view + image for view in range(source) for image in range(COUNT)]
    expected += [100 + 10.0 * view + image for view in range(target) for image in range(COUNT + 1)]
    assert views.flat[:, 0].tolist() == expected


@pytest.mark.parametrize(("source", "target"), [(2, 3), (4, 1), (1, 1)])
def test_like_undoes_flat_whatever_a_network_made_of_it(source: int, target: int):
    views = numbered(source, target)
    restored = views.like(views.flat)
    assert all(torch.equal(new, old) for new, old in zip(restored, views, strict=True))
    wider = views.like(torch.cat([views.flat, -views.flat], dim=1))
    assert wider.source.shape == (source, COUNT, 2)
    assert wider.target.shape == (target, COUNT + 1, 2)
    for new, old in zip(wider, views, strict=True):
        assert torch.equal(new, torch.cat([old, -old], dim=-1))


def test_like_refuses_another_number_of_images():
    views = numbered(2, 3)
    with pytest.raises(RuntimeError, match="split"):
        views.like(views.flat[:-1])


def test_every_image_gets_the_counterfactual_of_a_random_mechanism():
    torch.manual_seed(0)
    made = torch.arange(K)[:, None].expand(K, 1000) + 10 * torch.arange(1000)
    first, second = sampled(made, 2)
    for taken in (first, second):
        assert torch.equal(taken // 10, torch.arange(1000))
        assert (taken % 10).bincount().min() > 270
    assert 0.28 < (first == second).double().mean() < 0.39  # each draws for itself: they meet one time in three


def test_every_call_draws_again():
    made = torch.arange(K).view(K, 1, 1).expand(K, 1000, 1)
    assert not torch.equal(sampled(made, 1), sampled(made, 1))


def batch_of(seed: int = 1) -> Batch:
    (x_s, made_s), (x_t, made_t) = images_and_made(seed), images_and_made(seed + 1)
    return Batch(x_s, torch.arange(COUNT), x_t, Counterfactuals(made_s, made_t))


def test_all_views_are_the_images_and_their_own_counterfactuals():
    batch = batch_of()
    assert batch.counterfactuals is not None
    views = all_views(batch)
    assert torch.equal(views.source, torch.cat([batch.source[None], batch.counterfactuals.source]))
    assert torch.equal(views.target, torch.cat([batch.target[None], batch.counterfactuals.target]))


def test_sampled_views_are_the_images_and_some_of_their_own_counterfactuals():
    batch = batch_of()
    assert batch.counterfactuals is not None
    views = sampled_views(batch, 1, 2)
    assert (len(views.source), len(views.target)) == (2, 3)
    assert torch.equal(views.source[0], batch.source)
    assert torch.equal(views.target[0], batch.target)
    for image in range(COUNT):
        assert any(torch.equal(views.source[1, image], one) for one in batch.counterfactuals.source[:, image])
        assert any(torch.equal(views.target[2, image], one) for one in batch.counterfactuals.target[:, image])
