"""SymNets against its formulas, and against two backward passes as in the authors' code."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tcm.data.batch import Batch
from tcm.methods.method import Problem, Recipe
from tcm.methods.symnets import SymNets, SymNetsConfig
from tcm.nn.backbone import BackboneConfig

CLASSES, COUNT = 3, 4


@pytest.fixture
def method() -> SymNets:
    torch.manual_seed(0)
    method = SymNetsConfig(trade_off=0.7).build(Problem(CLASSES, BackboneConfig("small").build()))
    assert isinstance(method, SymNets)
    return method.double().eval()


@pytest.fixture
def batch() -> Batch:
    images = torch.rand(2, COUNT, 3, 32, 32, generator=torch.Generator().manual_seed(1)).double()
    return Batch(images[0], torch.tensor([0, 2, 2, 1]), images[1])


def logits_of(method: SymNets, batch: Batch) -> tuple[Tensor, Tensor]:
    source, target = (method.classifiers(method.backbone(images)) for images in (batch.source, batch.target))
    return source, target


def test_the_losses_are_their_definitions(method: SymNets, batch: Batch):
    found = method.losses(batch, 0.1)
    v_s, v_t = (logits.detach().numpy() for logits in logits_of(method, batch))

    def softmax(v: np.ndarray) -> np.ndarray:
        return np.exp(v) / np.exp(v).sum(axis=1, keepdims=True)

    rows, labels = np.arange(COUNT), batch.labels.numpy()
    q_s, q_t = softmax(v_s), softmax(v_t)
    m = q_t[:, :CLASSES] + q_t[:, CLASSES:]
    of_source, of_target = q_t[:, :CLASSES].sum(axis=1), q_t[:, CLASSES:].sum(axis=1)
    weight = 0.7 * math.tanh(0.5)  # 2 / (1 + exp(-10 p)) - 1 at p = 0.1
    by_source = softmax(v_s[:, :CLASSES])[rows, labels]
    by_target = softmax(v_s[:, CLASSES:])[rows, labels]
    expected = {
        "classification": -np.log(by_source).mean() - np.log(by_target).mean(),
        "domain": -np.log(q_s[:, :CLASSES].sum(axis=1)).mean() - np.log(of_target).mean(),
        "category_confusion": -0.5 * (np.log(q_s[rows, labels]) + np.log(q_s[rows, labels + CLASSES])).mean(),
        "domain_confusion": -0.5 * weight * (np.log(of_source) + np.log(of_target)).mean(),
        "entropy": -weight * (m * np.log(m)).sum(axis=1).mean(),
    }
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].item() == pytest.approx(value, rel=1e-9), name


def test_classifiers_and_backbone_get_the_gradients_of_two_backward_passes(method: SymNets, batch: Batch):
    v_s, v_t = logits_of(method, batch)

    def share(v: Tensor, half: int) -> Tensor:
        return -v.softmax(dim=1)[:, half * CLASSES : (half + 1) * CLASSES].sum(dim=1).log().mean()

    tasks = F.cross_entropy(v_s[:, :CLASSES], batch.labels) + F.cross_entropy(v_s[:, CLASSES:], batch.labels)
    of_classifiers = tasks + share(v_s, 0) + share(v_t, 1)
    category = 0.5 * (F.cross_entropy(v_s, batch.labels) + F.cross_entropy(v_s, batch.labels + CLASSES))
    m = v_t.softmax(dim=1)[:, :CLASSES] + v_t.softmax(dim=1)[:, CLASSES:]
    confusion = 0.5 * share(v_t, 0) + 0.5 * share(v_t, 1) - (m * m.log()).sum(dim=1).mean()
    of_backbone = category + 0.7 * math.tanh(1.5) * confusion  # at p = 0.3

    classifiers, backbone = list(method.classifiers.parameters()), list(method.backbone.parameters())
    expected = torch.autograd.grad(of_classifiers, classifiers, retain_graph=True)
    expected += torch.autograd.grad(of_backbone, backbone)
    total = torch.stack(list(method.losses(batch, 0.3).values())).sum()
    for ours, its in zip(torch.autograd.grad(total, [*classifiers, *backbone]), expected, strict=True):
        torch.testing.assert_close(ours, its)


def test_each_loss_trains_either_the_classifiers_or_the_backbone(method: SymNets, batch: Batch):
    players = {"classifiers": method.classifiers.weight, "backbone": next(method.backbone.parameters())}
    trained = {}
    for name, loss in method.losses(batch, 0.5).items():
        gradients = torch.autograd.grad(loss, list(players.values()), allow_unused=True, retain_graph=True)
        trained[name] = [player for player, gradient in zip(players, gradients, strict=True) if gradient is not None]
    assert trained == {
        "classification": ["classifiers"],
        "domain": ["classifiers"],
        "category_confusion": ["backbone"],
        "domain_confusion": ["backbone"],
        "entropy": ["backbone"],
    }


def test_the_target_losses_are_off_at_the_start(method: SymNets, batch: Batch):
    found = method.losses(batch, 0.0)
    assert (found["domain_confusion"], found["entropy"]) == (0, 0)


def test_the_target_classifier_predicts_and_the_source_classifier_is_a_variant(method: SymNets, batch: Batch):
    _, v_t = logits_of(method, batch)
    answer = method.answer(batch.target)
    torch.testing.assert_close(answer.logits, v_t[:, CLASSES:])
    torch.testing.assert_close(answer.variants["source classifier"], v_t[:, :CLASSES])


def test_the_authors_settings():
    config = SymNetsConfig.authors()
    assert config == SymNetsConfig(Recipe(weight_decay=1e-4), separate_passes=True)
    assert (config.authors_steps, config.authors_batch) == (200 * (4365 // 128), 128)
