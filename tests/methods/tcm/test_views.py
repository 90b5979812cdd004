import pytest
import torch

from tcm.data.batch import Batch, Counterfactuals
from tcm.methods.tcm.views import Views, drawn, drawn_views, predicted_views

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


def test_one_takes_every_image_from_a_random_mechanism():
    torch.manual_seed(0)
    made = torch.arange(K)[:, None].expand(K, 1000) + 10 * torch.arange(1000)
    first, second = drawn(made[0], made, 2, "one")
    for taken in (first, second):
        assert torch.equal(taken // 10, torch.arange(1000))
        assert (taken % 10).bincount().min() > 270
    assert 0.28 < (first == second).double().mean() < 0.39  # each draws for itself: they meet one time in three


def test_one_draws_anew_at_every_call():
    images, made = torch.zeros(1000, 1), torch.arange(K).view(K, 1, 1).expand(K, 1000, 1)
    assert not torch.equal(drawn(images, made, 1, "one"), drawn(images, made, 1, "one"))


def test_several_adds_the_changes_of_all_mechanisms_at_their_strengths():
    images, made = images_and_made()
    torch.manual_seed(5)
    found = drawn(images, made, 2, "several")
    torch.manual_seed(5)
    strength = torch.rand(2, K, COUNT, 1, 1, 1)
    for view in range(2):
        for image in range(COUNT):
            x = images[image].clone()
            for mechanism in range(K):
                x += strength[view, mechanism, image] * (made[mechanism, image] - images[image])
            torch.testing.assert_close(found[view, image], x.clamp(0, 1))
    assert (found == 0).any()  # the clamp had something to do
    assert (found == 1).any()


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_several_at_the_ends_of_the_strengths(strength: float, monkeypatch: pytest.MonkeyPatch):
    images, made = images_and_made()
    monkeypatch.setattr(torch, "rand", lambda *shape, **options: torch.full(shape, strength, **options))
    found = drawn(images, made, 2, "several")
    expected = (images + strength * (made - images).sum(dim=0)).clamp(0, 1)
    torch.testing.assert_close(found, expected.expand(2, *expected.shape))


def test_several_draws_in_the_precision_of_the_images():
    images, made = images_and_made()
    for kind in (torch.bfloat16, torch.float64):
        assert drawn(images.to(kind), made.to(kind), 1, "several").dtype == kind


@pytest.mark.parametrize("mixing", ["one", "several"])
def test_none_takes_all_k_as_they_are(mixing):
    images, made = images_and_made()
    assert torch.equal(drawn(images, made, None, mixing), made)


@pytest.mark.parametrize("count", [None, 0, 1, 5])
def test_without_mechanisms_a_counterfactual_is_the_image_itself(count: int | None):
    images, made = images_and_made()
    found = drawn(images, made, count, "none")
    assert len(found) == (K if count is None else count)
    assert torch.equal(found, images.expand(len(found), *images.shape))


@pytest.mark.parametrize("mixing", ["one", "several", "none"])
def test_0_gives_none_and_the_views_are_the_images(mixing):
    images, made = images_and_made()
    assert drawn(images, made, 0, mixing).shape == (0, COUNT, 3, 2, 2)
    batch = Batch(images, torch.arange(COUNT), 1 - images, Counterfactuals(made, 1 - made))
    views = drawn_views(batch, 0, 0, mixing)
    assert torch.equal(views.source, images[None])
    assert torch.equal(views.target, 1 - images[None])


def test_the_views_of_a_batch_are_the_images_and_their_own_counterfactuals():
    (x_s, made_s), (x_t, made_t) = images_and_made(1), images_and_made(2)
    batch = Batch(x_s, torch.arange(COUNT), x_t, Counterfactuals(made_s, made_t))
    views = drawn_views(batch, None, None, "one")
    assert torch.equal(views.source, torch.cat([x_s[None], made_s]))
    assert torch.equal(views.target, torch.cat([x_t[None], made_t]))
    uneven = drawn_views(batch, 1, 2, "one")
    assert (len(uneven.source), len(uneven.target)) == (2, 3)
    assert torch.equal(uneven.source[0], x_s)
    assert torch.equal(uneven.target[0], x_t)
    for image in range(COUNT):
        assert any(torch.equal(uneven.source[1, image], one) for one in made_s[:, image])
        assert any(torch.equal(uneven.target[2, image], one) for one in made_t[:, image])


@pytest.mark.parametrize("mixing", ["one", "none"])
def test_a_prediction_looks_at_the_image_and_its_counterfactuals(mixing):
    images, made = images_and_made()
    assert torch.equal(predicted_views(images, made, mixing), torch.cat([images[None], made]))


def test_a_prediction_with_mechanisms_put_together_looks_at_all_their_changes_too():
    images, made = images_and_made()
    *single, together = predicted_views(images, made, "several")
    assert torch.equal(torch.stack(single), torch.cat([images[None], made]))
    summed = images + (made[0] - images) + (made[1] - images) + (made[2] - images)
    torch.testing.assert_close(together, summed.clamp(0, 1))
    assert (summed < 0).any()
    assert (summed > 1).any()
