import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data.batch import Batch
from tcm.methods.gta import GTA, GTAConfig
from tcm.methods.method import Problem, Recipe
from tcm.nn.backbone import BackboneConfig

CLASSES, COUNT = 3, 5
bce = F.binary_cross_entropy


def built(**own: Any) -> GTA:
    torch.manual_seed(0)
    config = GTAConfig(Recipe(bottleneck=6), side=32, width=2, noise=4, **own)
    method = config.build(Problem(CLASSES, BackboneConfig("small").build()))
    assert isinstance(method, GTA)
    return method


def random_batch(count: int = COUNT, side: int = 32, dtype: torch.dtype = torch.float32) -> Batch:
    images = torch.rand(2, count, 3, side, side, generator=torch.Generator().manual_seed(1)).to(dtype)
    return Batch(images[0], torch.arange(count) % CLASSES, images[1])


def plain_update(method: GTA, batch: Batch, noise: Tensor) -> None:
    """The four parts as the authors' code lists them, each with new passes, by switching off what is not to learn."""
    optimizers = method.build_optimizers()
    parts = {
        "features": nn.ModuleList([method.backbone, method.bottleneck]),
        "classifier": method.classifier,
        "generator": method.generator,
        "discriminator": method.discriminator,
    }
    labels, ones, zeros = batch.labels, torch.ones(COUNT).double(), torch.zeros(COUNT).double()
    before = copy.deepcopy(method.state_dict())

    def images_from(features: Tensor, kinds: list[int], z: Tensor) -> Tensor:
        rows = [
            torch.cat([torch.eye(CLASSES + 1).double()[k], f, n]) for k, f, n in zip(kinds, features, z, strict=True)
        ]
        return method.generator(torch.stack(rows))

    def realism(images: Tensor) -> Tensor:
        return torch.sigmoid(method.discriminator(images).real)

    def step(name: str) -> None:
        for key, part in parts.items():
            part.requires_grad_(key == name)
        source, target = method.features(torch.cat([batch.source, batch.target])).split(COUNT)
        made_s = images_from(source, labels.tolist(), noise[0])
        made_t = images_from(target, [CLASSES] * COUNT, noise[1])
        of_made_s = F.cross_entropy(method.discriminator(made_s).classes, labels)
        if name == "discriminator":
            real = 2 * batch.source - 1
            loss = bce(realism(real), ones) + F.cross_entropy(method.discriminator(real).classes, labels)
            loss = loss + bce(realism(made_s), zeros) + bce(realism(made_t), zeros)
        elif name == "generator":
            loss = of_made_s + bce(realism(made_s), ones)
        else:
            loss = F.cross_entropy(method.classifier(source), labels)
        if name == "features":
            loss = loss + 0.2 * of_made_s + 0.2 * 0.7 * bce(realism(made_t), ones)
        method.zero_grad()
        loss.backward()
        optimizers[name].step()

    for name in ("discriminator", "generator", "classifier", "features"):
        step(name)
    # Running means do not train anything, and the passes above are more than those of the method.
    running = {key: value for key, value in before.items() if "running" in key or "tracked" in key}
    method.load_state_dict(running, strict=False)


def test_a_step_is_a_plain_version_of_it(monkeypatch: pytest.MonkeyPatch):
    ours = built(trade_off=0.2, target_weight=0.7).double().train()
    plain, batch = copy.deepcopy(ours), random_batch(dtype=torch.float64)
    noise = torch.randn(2, COUNT, 4).double()
    monkeypatch.setattr(GTA, "drawn_noise", lambda *_: noise)
    ours.update(batch, 0.5, ours.build_optimizers())
    plain_update(plain, batch, noise)
    found, expected = dict(ours.named_parameters()), dict(plain.named_parameters())
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-7, atol=1e-9, msg=name)


def test_the_losses_are_those_of_the_first_part_before_any_step(monkeypatch: pytest.MonkeyPatch):
    method, batch = built().train(), random_batch()
    noise = torch.randn(2, COUNT, 4)
    monkeypatch.setattr(GTA, "drawn_noise", lambda *_: noise)
    now = method.losses(batch, 0.5)
    updated = method.update(batch, 0.5, method.build_optimizers())
    assert now.keys() == updated.keys()
    torch.testing.assert_close(updated["discriminator"], now["discriminator"].detach())
    assert updated["classification"] < now["classification"]  # the classifier took a step before


def test_every_network_learns_in_one_part_only():
    method = built()
    optimizers = method.build_optimizers()
    owners = [id(p) for one in optimizers.values() for group in one.param_groups for p in group["params"]]
    assert len(owners) == len(set(owners)) == len(list(method.parameters()))
    parts = {name: {id(p) for group in one.param_groups for p in group["params"]} for name, one in optimizers.items()}
    assert parts["classifier"] == {id(p) for p in method.classifier.parameters()}
    assert parts["features"] == {id(p) for p in [*method.backbone.parameters(), *method.bottleneck.parameters()]}
    for name in ("generator", "discriminator"):
        assert parts[name] == {id(p) for p in method.get_submodule(name).parameters()}


def test_the_discriminator_sees_no_real_target_image():
    method, batch, seen = built().train(), random_batch(), []
    method.discriminator.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    method.update(batch, 0.5, method.build_optimizers())
    assert torch.equal(seen[0], 2 * batch.source - 1)
    assert all(not torch.allclose(images, 2 * batch.target - 1) for images in seen)
    assert [len(images) for images in seen] == [COUNT] * 6  # real, made of both, of the source, of both


def test_photographs_are_resized_for_the_discriminator_by_averaging():
    method, batch, seen = built().train(), random_batch(2, side=64), []
    method.discriminator.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    method.discriminator_loss(batch, [])
    blocks = batch.source.unflatten(3, (32, 2)).unflatten(2, (32, 2)).mean(dim=(3, 5))
    torch.testing.assert_close(seen[0], 2 * blocks - 1)


def test_target_features_are_given_to_the_generator_as_fake():
    method, seen = built().eval(), []
    method.generator.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    features, noise, labels = torch.rand(2, 2, 6), torch.randn(2, 2, 4), torch.tensor([2, 0])
    method.generated(list(features), labels, noise)
    expected = torch.cat([torch.eye(4)[[2, 0]], features[0], noise[0]], dim=1)
    assert torch.equal(seen[0], expected)
    assert torch.equal(seen[1], torch.cat([torch.eye(4)[[3, 3]], features[1], noise[1]], dim=1))


def test_the_settings_follow_the_images_and_the_authors():
    assert (GTAConfig.for_images(small=False).side, GTAConfig.for_images(small=True).side) == (64, 32)
    config = GTAConfig.authors()
    assert (config.trade_off, config.target_weight, config.noise, config.gan_lr, config.beta1) == (
        0.1,
        0.3,
        512,
        5e-4,
        0.8,
    )
    assert (config.separate_passes, config.authors_batch) == (True, 100)


def test_few_images_and_low_precision_give_finite_losses():
    method, batch = built().train(), random_batch(2)
    for labels in (torch.zeros(2, dtype=torch.long), torch.tensor([0, 2])):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = method.update(batch._replace(labels=labels), 0.5, method.build_optimizers())
        assert all(loss.isfinite() and loss.dtype == torch.float32 for loss in losses.values())
    assert all(parameter.isfinite().all() for parameter in method.parameters())
