import copy
import math
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.etd import ETD, ETDConfig
from tcm.methods.method import Problem, Recipe
from tcm.nn.backbone import BackboneConfig

CLASSES, COUNT, EPSILON = 3, 5, 0.2
both_forms = pytest.mark.parametrize("form", ["semi-dual", "dual"])


def built(**own: Any) -> ETD:
    torch.manual_seed(0)
    config = ETDConfig(Recipe(bottleneck=8), hidden=8, epsilon=EPSILON, **own)
    method = config.build(Problem(CLASSES, BackboneConfig("small").build()))
    assert isinstance(method, ETD)
    for potential in method.potentials.values():
        torch.nn.init.normal_(potential.get_parameter("2.weight"))  # it starts at 0
    torch.nn.init.normal_(method.get_parameter("classifier.weight"))  # with larger logits attention makes a difference
    return method


def random_batch(count: int = COUNT, dtype: torch.dtype = torch.float32) -> Batch:
    images = torch.rand(2, count, 3, 32, 32, generator=torch.Generator().manual_seed(1)).to(dtype)
    return Batch(images[0], torch.arange(count) % CLASSES, images[1])


def plain_distance(method: ETD, source: Tensor, target: Tensor, cost: Tensor) -> Tensor:
    """The transport distance in one of its two forms, pair by pair."""
    g = method.potentials["target"](target)[:, 0]
    n, m = cost.shape
    if method.config.form == "dual":
        u = method.potentials["source"](source)[:, 0]
        pairs = [((u[i] + g[j] - cost[i, j]) / EPSILON).exp() for i in range(n) for j in range(m)]
        return u.mean() + g.mean() - EPSILON * sum(pairs) / (n * m)
    least = [sum(((g[j] - cost[i, j]) / EPSILON).exp() for j in range(m)) / m for i in range(n)]
    return g.mean() - EPSILON * torch.stack([torch.as_tensor(part).log() for part in least]).mean() - EPSILON


def plain_cost(method: ETD, source: Tensor, target: Tensor) -> Tensor:
    """Attention x distance, pair by pair; both have mean 1, and logits have no gradient."""
    attention, rows = method.attention, []
    for x in source:
        query = attention.query(method.classifier(x).detach())
        keys = [attention.key(method.classifier(y).detach()) for y in target]
        rows.append([(torch.sigmoid(query @ key), (x - y).norm()) for key, y in zip(keys, target, strict=True)])
    weights, distances = (torch.stack([torch.stack([pair[k] for pair in row]) for row in rows]) for k in range(2))
    return weights / weights.mean() * distances / distances.mean()


def plain_update(method: ETD, batch: Batch, ramp: float) -> None:
    """The ascents and the descent, by switching off what is not to learn."""
    optimizers, potentials = method.build_optimizers(), list(method.potentials.parameters())
    rest = [parameter for parameter in method.parameters() if all(parameter is not other for other in potentials)]

    def step(name: str, loss: Tensor) -> None:
        method.zero_grad()
        loss.backward()
        learning = potentials if name == "potentials" else rest
        for parameter in method.parameters():
            if all(parameter is not other for other in learning):
                parameter.grad = None
        optimizers[name].step()
        if name == "sgd":
            optimizers["attention"].step()

    source, target = method.features(torch.cat([batch.source, batch.target])).split(COUNT)
    cost = plain_cost(method, source, target)
    for _ in range(method.config.ascents):
        step("potentials", -plain_distance(method, source.detach(), target.detach(), cost.detach()))
    chances = method.classifier(target).softmax(dim=1)
    uncertainty = -(chances * chances.log()).sum() / COUNT
    chosen = [method.classifier(x).softmax(dim=0)[y] for x, y in zip(source, batch.labels, strict=True)]
    classification = -torch.stack(chosen).log().mean()
    distance = plain_distance(method, source, target, cost)
    step("sgd", classification + ramp * (method.config.trade_off * distance + method.config.entropy * uncertainty))


@both_forms
def test_a_step_is_a_plain_version_of_it(form: Any):
    ours = built(form=form, ascents=3, trade_off=2.0, entropy=0.7).double().train()
    plain, batch = copy.deepcopy(ours), random_batch(dtype=torch.float64)
    ours.update(batch, 0.1, ours.build_optimizers())
    plain_update(plain, batch, math.tanh(0.5))
    for (name, found), expected in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-10, msg=name)


@both_forms
def test_potentials_raise_the_distance_that_the_features_lower(form: Any):
    method, batch = built(form=form, entropy=0.0, ascents=20).train(), random_batch()

    def distance() -> float:
        with torch.no_grad():
            found = method.passed(batch)
            return float(method.distance(found.source, found.target, found.cost))

    optimizers, before = method.build_optimizers(), distance()
    sgd = optimizers["sgd"]
    for group in sgd.param_groups:
        group["lr"] = 0.0
    method.update(batch, 1.0, optimizers)
    raised = distance()
    assert raised > before
    found = method.passed(batch)
    loss = method.distance(found.source, found.target, found.cost)
    weight = method.get_parameter("bottleneck.0.weight")
    (gradient,) = torch.autograd.grad(loss, weight)
    with torch.no_grad():
        weight -= 1e-3 * gradient / gradient.norm()
    assert distance() < raised


def test_who_learns_from_what():
    method = built().train()
    losses = method.losses(random_batch(), 0.5)

    def learning(name: str) -> set[str]:
        named = dict(method.named_parameters())
        found = torch.autograd.grad(losses[name], list(named.values()), retain_graph=True, allow_unused=True)
        return {key.split(".")[0] for key, gradient in zip(named, found, strict=True) if gradient is not None}

    network = {"backbone", "bottleneck", "classifier"}
    assert learning("classification") == learning("entropy") == network
    assert learning("transport") == {"backbone", "bottleneck", "attention", "potentials"}
    trained = {
        name: {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for name, optimizer in method.build_optimizers().items()
    }
    parts = {name: {id(parameter) for parameter in part.parameters()} for name, part in method.named_children()}
    assert trained["potentials"] == parts["potentials"]
    assert trained["attention"] == parts["attention"]
    assert trained["sgd"] == parts["backbone"] | parts["bottleneck"] | parts["classifier"]


def test_adaptation_starts_at_nothing_and_grows():
    method, batch = built().eval(), random_batch()
    start, middle, end = (method.losses(batch, progress) for progress in (0.0, 0.1, 1.0))
    for name in ("transport", "entropy"):
        assert start[name] == 0
        torch.testing.assert_close(middle[name], math.tanh(0.5) / math.tanh(5) * end[name])
    assert start["classification"] == end["classification"]


def test_the_authors_form_has_two_potentials_and_one_pass_for_each_domain():
    config = ETDConfig.authors()
    assert (config.form, config.separate_passes, config.ascents, config.entropy) == ("dual", True, 10, 0.5)
    assert (config.potential_lr, config.attention_lr) == (3e-4, 2e-6)
    for form, separate, sides, passes in (("semi-dual", False, 1, [10]), ("dual", True, 2, [5, 5])):
        method = built(form=form, separate_passes=separate).train()
        with patch.object(method.backbone, "forward", wraps=method.backbone.forward) as forward:
            method.update(random_batch(), 0.5, method.build_optimizers())
        assert [len(call.args[0]) for call in forward.call_args_list] == passes
        assert len(method.potentials) == sides


@both_forms
def test_few_images_and_low_precision_give_finite_losses(form: Any):
    method, batch = built(form=form).train(), random_batch(2)
    for images in (batch, batch._replace(target=batch.source)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            losses = method.update(images, 0.5, method.build_optimizers())
        assert all(loss.isfinite() and loss.dtype == torch.float32 for loss in losses.values())
    assert all(parameter.isfinite().all() for parameter in method.parameters())
