import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tcm.data.augment import View
from tcm.data.stream import Stream
from tcm.data.task import Task
from tcm.learner import Batch
from tcm.mechanisms.bank import BankConfig, MechanismBank
from tcm.mechanisms.competition import winners
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig
from tcm.run import Run
from tcm.settings import make_fabric
from tcm.train import Rhythm, fit

SMALL = {"generator": GeneratorConfig(width=4, halvings=1, blocks=1), "critic": CriticConfig(width=4, halvings=2)}


def small_bank(side: int = 16, steps: int = 10, **settings) -> MechanismBank:
    torch.manual_seed(0)
    return BankConfig(**{"warmup": 0, **SMALL, **settings}).build(3, side, steps)


def random_batch(count: int = 6, side: int = 16, dtype: torch.dtype = torch.float32) -> Batch:
    images = torch.rand(2, count, 3, side, side, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return Batch(images[0], torch.arange(count), images[1])


def gradients(bank: MechanismBank) -> dict[str, Tensor | None]:
    return {name: parameter.grad for name, parameter in bank.mechanisms.named_parameters()}


def naive_loss(bank: MechanismBank, images: Tensor, origin) -> tuple[Tensor, Tensor]:
    """All k mechanisms with a graph; the mean over images of the smallest loss (Eq. 2, written plainly)."""
    totals = torch.stack([bank.terms(pair, images, origin)[0].total(10.0, 5.0) for pair in bank.pairs()])
    return totals.min(dim=0).values.mean(), winners(totals)


def test_winner_only_gradients_equal_those_of_the_sum_of_minima():
    bank = small_bank().double()
    batch = random_batch(dtype=torch.float64)
    images = {"source": 2 * batch.source - 1, "target": 2 * batch.target - 1}
    plain = copy.deepcopy(bank)
    for origin in ("source", "target"):
        loss, winner = naive_loss(plain, images[origin], origin)
        loss.backward()
        terms, _ = bank.scored(images[origin], origin)
        chosen = bank.chosen(terms, progress=0.5)
        assert chosen is not None
        assert torch.equal(chosen, winner)
        bank.backward(images[origin], origin, chosen)
    ours, theirs = gradients(bank), gradients(plain)
    for name, gradient in ours.items():
        expected = theirs[name]
        assert expected is not None
        if gradient is None:
            assert expected.abs().max() == 0
        else:
            torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-10)


def test_a_mechanism_that_won_nothing_gets_no_gradient_and_does_not_move():
    bank = small_bank()
    optimizers = bank.build_optimizers()
    bank.update(random_batch(), 0.0, optimizers)  # Adam has moments for all that won by now
    before = copy.deepcopy(bank.mechanisms.state_dict())
    bank.chosen = lambda terms, progress: torch.zeros(terms.adversarial.shape[1], dtype=torch.int64)
    bank.update(random_batch(), 0.1, optimizers)
    moved = {
        name.split(".")[0]
        for name, value in bank.mechanisms.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert moved == {"0"}
    assert all((gradient is None) == (not name.startswith("0.")) for name, gradient in gradients(bank).items())


def test_in_the_warm_up_all_learn_from_all():
    bank = small_bank(warmup=5)
    terms, _ = bank.scored(random_batch().source, "source")
    assert bank.chosen(terms, progress=0.4) is None
    assert bank.chosen(terms, progress=0.5) is not None
    bank.backward(random_batch().source, "source", None)
    assert all(gradient is not None for gradient in gradients(bank).values())


def test_random_assignment_deals_evenly():
    bank = small_bank(assignment="random")
    terms, _ = bank.scored(random_batch(9).source, "source")
    chosen = bank.chosen(terms, progress=0.9)
    assert chosen is not None
    assert torch.bincount(chosen, minlength=3).tolist() == [3, 3, 3]


def test_an_update_is_finite_moves_everything_and_reports_wins():
    bank = small_bank(warmup=10)
    before = {name: value.clone() for name, value in bank.named_parameters()}
    logged = bank.update(random_batch(), 0.0, bank.build_optimizers())
    assert all(torch.isfinite(value) for value in logged.values())
    assert sum(logged[f"wins/source/{i}"] for i in range(3)) == pytest.approx(1)
    # The bias before an instance norm shifts nothing, so it has nothing to learn.
    weights = [name for name, value in bank.named_parameters() if value.ndim > 1]
    assert [name for name in weights if torch.equal(before[name], bank.get_parameter(name))] == []


def test_the_critics_do_not_learn_from_the_mechanisms_step():
    bank = small_bank()
    optimizers = bank.build_optimizers()
    bank.update_critics = lambda images, made, optimizer: torch.zeros(())
    bank.update(random_batch(), 0.0, optimizers)
    assert all(parameter.grad is None for parameter in bank.critics.parameters())


def test_transport_keeps_shape_and_range():
    made = small_bank().transport(random_batch().source, to="target")
    assert made.shape == (3, 6, 3, 16, 16)
    assert 0 <= made.min() <= made.max() <= 1


def test_resume_is_exact(digits: Task, tmp_path: Path):
    def trained(folder: Path, breaks: list[int | None]) -> dict[str, Tensor]:
        for at in breaks:
            stream = Stream(*digits, batch=4, seed=2, view=View(32, False, 0), device=torch.device("cpu"))
            bank, run = small_bank(side=32, steps=6, warmup=2, pool=8), Run(folder)
            run.start({})
            rhythm = Rhythm(steps=6, log_every=1, evaluate_every=100, save_every=3)
            whole = stream.batch

            def batch(step: int, at: int | None = at, whole=whole) -> Batch:
                if step == at:
                    raise ConnectionError("the power is gone")
                return whole(step)

            stream.batch = batch
            try:
                fit(make_fabric("cpu", "fp32"), bank, stream, run, rhythm=rhythm, seed=2, evaluate=dict, quiet=True)
            except ConnectionError:
                continue
            return bank.state_dict()
        raise AssertionError("the last attempt must not break")

    whole, resumed = trained(tmp_path / "a", [None]), trained(tmp_path / "b", [4, None])
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []
