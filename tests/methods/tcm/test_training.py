"""The forms of TCM in training: what their terms are, and whom they train."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.small_tcm import (
    COUNT,
    HEAD_TERMS,
    K,
    every_form,
    losses,
    paper_forms,
    random_batch,
    small,
    small_paper,
)
from torch import Tensor
from torch.optim import SGD, Adam

from tcm.data.batch import Batch
from tcm.errors import InputError
from tcm.methods.method import Method
from tcm.methods.tcm.paper import PaperConfig
from tcm.methods.tcm.views import all_views
from tcm.training.device import make_fabric
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run

DEFAULT_TERMS = {"classification", "confusion", "pseudo_labels"}


def discriminators(method: Method) -> list[Tensor]:
    """The parameters of all discriminators."""
    return [parameter for name, parameter in method.named_parameters() if "alignment." in name]


@pytest.mark.parametrize("input", ["backbone", "bottleneck"])
def test_the_head_is_given_x_and_its_proxies_in_their_roles(input: Any):
    method = small_paper(input=input)
    seen: list[tuple[Tensor, ...]] = []
    method.head.register_forward_pre_hook(lambda _, args: seen.append(args))
    losses(method)
    ((x, x_hat, x_hat_of_target, labels),) = seen
    width = method.backbone.features if input == "backbone" else method.recipe.bottleneck
    assert x.shape == (1, COUNT, width)
    assert x_hat.shape == x_hat_of_target.shape == (K, COUNT, width)
    assert torch.equal(labels, random_batch().labels)
    views = all_views(random_batch())
    torch.manual_seed(3)
    # Of the images: in the same batch, so batch normalisation does the same.
    torch.testing.assert_close(x[0], method.train().features(views.flat)[:COUNT])


def test_all_views_of_a_step_of_the_paper_go_through_the_backbone_at_once():
    method = small_paper()
    seen: list[int] = []
    method.backbone.register_forward_pre_hook(lambda _, args: seen.append(len(args[0])))
    assert losses(method).keys() == {"alignment", *HEAD_TERMS}
    assert seen == [2 * (1 + K) * COUNT]


def parts(method: Method) -> set[str]:
    return {name.split(".")[0] for name, _ in method.named_parameters()}


def test_a_part_that_nothing_trains_is_not_built():
    assert parts(small("tcm")) == {"backbone", "bottleneck", "classifier"}
    assert parts(small("tcm-paper")) == {"backbone", "bottleneck", "alignment", "head", "inverse"}
    assert parts(small("tcm-paper", input="backbone")) == {"backbone", "alignment", "head", "inverse"}
    plain = {f"{side}_{part}" for side in ("source", "target") for part in ("classifier", "alignment")}
    assert parts(small("tcm-release")) == {"backbone", "head", "inverse", *plain}


@paper_forms
def test_early_alignment_trains_the_discriminators_only(form: str):
    for progress, learns in ((0.0, False), (0.5, True)):
        method = small(form)
        losses(method, progress)["alignment"].backward()
        assert any(part.grad is not None and part.grad.any() for part in discriminators(method))
        moved = any(part.grad is not None and part.grad.any() for part in method.backbone.parameters())
        assert moved == learns


@pytest.mark.parametrize(
    ("form", "weight", "term"),
    [
        ("tcm-paper", "alpha", "alignment"),
        ("tcm-release", "alpha", "alignment"),
    ],
)
def test_a_weight_multiplies_its_term(form: str, weight: str, term: str):
    settings = {"dropout": 0.0} if form == "tcm-release" else {}
    once, less = (losses(small(form, **{weight: value}, **settings)) for value in (1.0, 0.5))
    torch.testing.assert_close(less[term], 0.5 * once[term])
    assert all(torch.equal(less[name], once[name]) for name in once if name != term)


@every_form
def test_a_step_moves_what_it_should_and_nothing_else(form: str):
    method = small(form).train()
    before = {name: parameter.clone() for name, parameter in method.named_parameters()}
    told = method.update(random_batch(), 0.5, method.build_optimizers())
    still = {name for name, parameter in method.named_parameters() if torch.equal(parameter, before[name])}
    assert still == {name for name in before if name.startswith("inverse.")}
    assert ("head/share" in told) == (form != "tcm")
    assert all(value.isfinite() and not value.requires_grad for value in told.values())


@paper_forms
def test_the_inverse_mechanisms_get_no_gradient(form: str):
    method = small(form)
    torch.stack(list(losses(method).values())).sum().backward()
    assert method.inverse is not None
    assert all(parameter.grad is None and not parameter.requires_grad for parameter in method.inverse.parameters())
    assert all(not module.training for module in method.inverse.modules())


@every_form
def test_every_parameter_is_in_one_optimizer_and_the_vaes_in_adam(form: str):
    method = small(form)
    optimizers = method.build_optimizers()
    names = {id(parameter): name for name, parameter in method.named_parameters()}
    found = {
        kind: [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]
        for kind, optimizer in optimizers.items()
    }
    of_vae = {name for name in names.values() if name.startswith("head.vae.")}
    others = {name for name in names.values() if not name.startswith(("head.vae.", "inverse."))}
    assert sorted(found["sgd"]) == sorted(others)
    assert isinstance(optimizers["sgd"], SGD)
    if form == "tcm":
        assert found.keys() == {"sgd"}
        return
    assert of_vae
    assert sorted(found["vae"]) == sorted(of_vae)
    assert type(optimizers["vae"]) is Adam  # AdamW is one too, whose weight decay is another
    (group,) = optimizers["vae"].param_groups
    assert (group["lr"], group["weight_decay"]) == (1e-3, method.recipe.weight_decay)


def test_on_photographs_the_vae_and_the_discriminators_have_the_papers_sizes():
    assert small_paper().config.head.vae.latent == 32
    assert PaperConfig.for_images(small=False).head.vae.latent == 100


class OneBatch:
    """The same batch at every step."""

    def batch(self, step: int) -> Batch:
        return random_batch()


@pytest.mark.parametrize(
    ("form", "term"),
    [
        *(("tcm", term) for term in sorted(DEFAULT_TERMS)),
        *(("tcm-paper", term) for term in (*sorted(HEAD_TERMS), "alignment")),
    ],
)
def test_a_term_that_is_not_finite_is_named(form: str, term: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    method, run = small(form), Run(tmp_path / "run")
    plain = method.losses

    def spoiled(batch: Batch, progress: float) -> dict[str, Tensor]:
        found = plain(batch, progress)
        return found | {term: found[term] * math.nan} if progress == 0.5 else found

    monkeypatch.setattr(method, "losses", spoiled)
    run.start({})
    schedule = Schedule(steps=4, log_every=4, evaluate_every=4, save_every=1)
    fabric = make_fabric("cpu", "fp32")
    with pytest.raises(InputError, match=rf"not finite at step 3 \({term}\); .*state.pt holds the last good"):
        training_loop(fabric, method, OneBatch(), run, schedule=schedule, seed=0, evaluate=dict, quiet=True)
