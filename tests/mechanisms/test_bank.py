import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tcm.data.augment import View
from tcm.data.batch import Batch
from tcm.data.stream import Stream
from tcm.data.task import Task
from tcm.mechanisms.bank import BankConfig, MechanismBank, Scored
from tcm.mechanisms.competition import winners
from tcm.mechanisms.components import components
from tcm.mechanisms.pair import SIDES, Side, opposite
from tcm.mechanisms.usage import UsageCounter, usage_shares
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig, initialise
from tcm.nn.losses import adversarial, critic_error, reconstruction
from tcm.training.device import make_fabric
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run

K, COUNT = 3, 6
SMALL = {"generator": GeneratorConfig(width=4, halvings=1, blocks=1), "critic": CriticConfig(width=4, halvings=2)}
COMBINED = {"critic_sees": "combined", "overlap": 0.3, "score": "adversarial", "assignment": "random"}
COMBINED |= {"generator": GeneratorConfig(width=4, halvings=1, blocks=1, residual=True)}


def small_bank(side: int = 16, steps: int = 10, classes: int = 10, **settings) -> MechanismBank:
    torch.manual_seed(0)
    bank = BankConfig(**{"warmup": 0, **SMALL, **settings}).build(K, side, steps, classes)
    bank.mechanisms.apply(initialise)  # residual networks start by changing nothing, which would hide mistakes
    return bank


def random_batch(count: int = COUNT, side: int = 16, dtype: torch.dtype = torch.float32) -> Batch:
    images = torch.rand(2, count, 3, side, side, generator=torch.Generator().manual_seed(1), dtype=dtype)
    return Batch(images[0], torch.arange(count), images[1])


def signed(batch: Batch) -> dict[Side, Tensor]:
    """The images of a batch in [-1, 1]."""
    return {"source": 2 * batch.source - 1, "target": 2 * batch.target - 1}


def gradients(bank: MechanismBank, number: int | None = None) -> dict[str, Tensor]:
    part = bank.mechanisms if number is None else bank.mechanisms[number]
    found = {name: parameter.grad for name, parameter in part.named_parameters()}
    return {name: torch.zeros(()) if gradient is None else gradient.clone() for name, gradient in found.items()}


def without_steps(bank: MechanismBank) -> dict[str, torch.optim.Optimizer]:
    """Optimizers that leave the weights as they are, and the gradients for a test to see."""
    optimizers = bank.build_optimizers()
    for optimizer in optimizers.values():
        for group in optimizer.param_groups:
            group["lr"] = 0.0
    return optimizers


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        torch.testing.assert_close(gradient, theirs[name].expand_as(gradient), rtol=0, atol=1e-10, check_dtype=False)
    assert any(gradient.abs().max() > 1e-4 for gradient in ours.values())


def naive_loss(bank: MechanismBank, images: Tensor, origin: Side) -> tuple[Tensor, Tensor]:
    """All k mechanisms with a graph; the mean over images of the smallest loss (TCM Eq. (2), written out)."""
    totals = torch.stack([bank.terms(pair, images, origin)[0].total(10.0, 5.0) for pair in bank.pairs()])
    return totals.min(dim=0).values.mean(), winners(totals)


def test_winner_only_gradients_equal_those_of_the_sum_of_minima():
    bank = small_bank().double()
    batch = random_batch(dtype=torch.float64)
    plain = copy.deepcopy(bank)
    won: dict[Side, Tensor] = {}
    for origin, images in signed(batch).items():
        loss, won[origin] = naive_loss(plain, images, origin)
        loss.backward()
    bank.update(batch, 0.5, without_steps(bank))
    assert_same(gradients(bank), gradients(plain))
    assert bank.wins.sum(dim=1).tolist() == torch.bincount(torch.cat([*won.values()]), minlength=K).tolist()
    for number in set(range(K)) - set(torch.cat([*won.values()]).tolist()):
        assert all(gradient.abs().max() == 0 for gradient in gradients(bank, number).values())


def test_the_scores_are_those_of_the_losses_and_of_the_images_that_were_made():
    bank, images = small_bank().double(), signed(random_batch(dtype=torch.float64))["source"]
    losses, made = bank.scored(images, "source")
    for place, pair in enumerate(bank.pairs()):
        transported = pair.to_target(images)
        adv = adversarial(bank.critic("target")(transported))
        cyc, idt = reconstruction(pair.to_source(transported), images), reconstruction(pair.to_source(images), images)
        torch.testing.assert_close(losses[place], (adv + 10 * cyc + 5 * idt).float())
        torch.testing.assert_close(made[place], transported)
    only = small_bank(score="adversarial").double()
    expected = torch.stack([adversarial(only.critic("target")(image)) for image in made])
    torch.testing.assert_close(only.scored(images, "source").losses, expected.float())


def test_a_mechanism_that_won_nothing_gets_no_gradient_and_does_not_move():
    bank = small_bank()
    optimizers = bank.build_optimizers()
    bank.update(random_batch(), 0.0, optimizers)  # Adam has moments for all that won by now
    before = copy.deepcopy(bank.mechanisms.state_dict())
    steps = {name: copy.deepcopy(optimizer.state_dict()["state"]) for name, optimizer in optimizers.items()}
    all_to_one = [list(range(COUNT)), [], []]
    bank.assigned_images = lambda winner, progress: dict.fromkeys(SIDES, all_to_one)
    bank.update(random_batch(), 0.1, optimizers)
    moved = {
        name.split(".")[0]
        for name, value in bank.mechanisms.state_dict().items()
        if not torch.equal(value, before[name])
    }
    assert moved == {"0"}
    for number in (1, 2):
        assert all(gradient.abs().max() == 0 for gradient in gradients(bank, number).values())
        name = f"mechanism {number}"
        torch.testing.assert_close(optimizers[name].state_dict()["state"], steps[name], rtol=0, atol=0)
    assert any(gradient.abs().max() > 0 for gradient in gradients(bank, 0).values())


def test_one_that_wins_in_one_domain_alone_learns_from_that_one():
    bank = small_bank().double()
    bank.assigned_images = lambda winner, progress: {
        "source": [[0, 1], [2, 3, 4, 5], []],
        "target": [[], [*range(6)], []],
    }
    plain, batch = copy.deepcopy(bank), random_batch(dtype=torch.float64)
    bank.update(batch, 0.0, without_steps(bank))
    images = signed(batch)["source"][:2]
    (plain.total(plain.terms(plain.pairs()[0], images, "source")[0]).sum() / COUNT).backward()
    assert_same(gradients(bank, 0), gradients(plain, 0))


def test_in_the_warm_up_all_learn_from_all():
    bank, winner = small_bank(warmup=5), dict.fromkeys(SIDES, torch.tensor([0, 0, 1]))
    assert bank.assigned_images(winner, progress=0.4) == dict.fromkeys(SIDES, [[0, 1, 2]] * K)
    assert bank.assigned_images(winner, progress=0.5) == {"source": [[0, 1], [2], []], "target": [[0, 1], [2], []]}
    bank.update(random_batch(), 0.0, without_steps(bank))
    for number in range(K):
        assert any(gradient.abs().max() > 0 for gradient in gradients(bank, number).values())


def test_in_the_warm_up_assignment_may_be_random():
    bank, winner = small_bank(warmup=5, warmup_assignment="random"), dict.fromkeys(SIDES, torch.zeros(9).long())
    assigned = bank.assigned_images(winner, progress=0.4)
    assert [len(own) for side in SIDES for own in assigned[side]] == [3] * 6
    assert bank.assigned_images(winner, progress=0.5) == {side: [[*range(9)], [], []] for side in SIDES}


def test_random_assignment_is_even():
    bank = small_bank(assignment="random")
    assigned = bank.assigned_images(dict.fromkeys(SIDES, torch.zeros(9).long()), progress=0.9)
    for side in SIDES:
        assert [len(own) for own in assigned[side]] == [3, 3, 3]
        assert sorted(place for own in assigned[side] for place in own) == [*range(9)]
    assert assigned["source"] != assigned["target"]


@pytest.mark.parametrize("settings", [{}, COMBINED], ids=["paper", "combined"])
def test_an_update_is_finite_moves_everything_and_reports_wins(settings: dict):
    bank = small_bank(**{**settings, "warmup": 10})
    before = {name: value.clone() for name, value in bank.named_parameters()}
    logged = bank.update(random_batch(), 0.0, bank.build_optimizers())
    assert all(torch.isfinite(value) and not value.requires_grad for value in logged.values())
    assert ("overlap" in logged) == bool(settings)
    for side in SIDES:
        assert sum(logged[f"wins/{side}/{i}"] for i in range(K)) == pytest.approx(1)
    # The bias before an instance norm shifts nothing, so it has nothing to learn.
    weights = [name for name, value in bank.named_parameters() if value.ndim > 1]
    assert [name for name in weights if torch.equal(before[name], bank.get_parameter(name))] == []


def test_the_logged_losses_are_means_over_the_images_that_were_learnt_from():
    bank, batch = small_bank(warmup=10).double(), random_batch(dtype=torch.float64)
    with torch.no_grad():
        terms = [bank.terms(pair, signed(batch)[side], side)[0] for pair in bank.pairs() for side in SIDES]
    logged = bank.update(batch, 0.0, without_steps(bank))
    for place, name in enumerate(("adversarial", "cycle", "identity")):
        assert logged[name].item() == pytest.approx(torch.stack([part[place] for part in terms]).mean().item())


def test_the_critics_do_not_learn_from_the_mechanisms_step():
    bank = small_bank()
    optimizers = bank.build_optimizers()
    bank.update_critics = lambda images, made, optimizer: torch.zeros(())
    bank.update(random_batch(), 0.0, optimizers)
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in bank.critics.parameters())


def test_transport_keeps_shape_and_range():
    for settings in ({}, COMBINED):
        made = small_bank(**settings).transport(random_batch().source, to="target")
        assert made.shape == (K, COUNT, 3, 16, 16)
        assert 0 <= made.min() <= made.max() <= 1


# Mechanisms that share the change: the critics see all changes combined.


def test_a_step_of_one_mechanism_is_one_of_the_whole_composition_with_the_others_fixed():
    """d/dM_i of the critic's loss on x + sum_j (M_j(x) - x), cycle, identity and overlap, for its own images."""
    bank = small_bank(**COMBINED, identity=0.3, cycle=1.0).double()
    batch = random_batch(dtype=torch.float64)
    given: dict[Side, list[list[int]]] = {"source": [[0, 3], [1, 2], [4, 5]], "target": [[5], [0, 1, 2, 3], [4]]}
    bank.assigned_images = lambda winner, progress: given
    plain = copy.deepcopy(bank)
    bank.update(batch, 0.0, without_steps(bank))
    weights = bank.overlap_weights()
    for place, pair in enumerate(plain.pairs()):
        for row, (side, images) in enumerate(signed(batch).items()):
            others = [other for other in plain.pairs() if other is not pair]
            change = torch.stack([other.network(opposite(side))(images).detach() - images for other in others]).sum(0)
            transported = pair.network(opposite(side))(images)
            back = pair.network(side)
            loss = adversarial(plain.critic(opposite(side))(transported + change))
            loss = loss + reconstruction(back(transported), images) + 0.3 * reconstruction(back(images), images)
            loss = loss + 0.3 * (components(transported - images) * weights[row, place]).sum(dim=1)
            (loss[given[side][place]].sum() / COUNT).backward()
        assert_same(gradients(bank, place), gradients(plain, place))


def test_the_critics_see_the_image_with_all_changes():
    bank, batch = small_bank(**COMBINED, pool=0).double(), random_batch(dtype=torch.float64)
    images = signed(batch)
    with torch.no_grad():
        made = {
            side: torch.stack([pair.network(opposite(side))(images[side]) for pair in bank.pairs()]) for side in SIDES
        }
        whole = {side: images[side] + (made[side] - images[side]).sum(dim=0) for side in SIDES}
        for place in range(K):
            others = bank.changes_of_others(images["source"], made["source"])[place]
            torch.testing.assert_close(made["source"][place] + others, whole["source"])
        expected = sum(
            critic_error(bank.critic(opposite(side))(shown), truth)
            for side in SIDES
            for shown, truth in ((images[opposite(side)], 1.0), (whole[side], 0.0))
        )
    logged = bank.update(batch, 0.0, without_steps(bank))
    torch.testing.assert_close(logged["critics"], expected)


def test_a_critic_learns_the_same_from_portions_as_from_all_images_at_once(monkeypatch: pytest.MonkeyPatch):
    found = []
    for at_once in (64, 4):  # 4 + 4 + 3 images
        monkeypatch.setattr("tcm.mechanisms.bank.CRITIC_BATCH", at_once)
        bank = small_bank().double()
        bank.build_optimizers()
        torch.manual_seed(1)
        real, shown = torch.rand(2, 3, 16, 16).double(), torch.rand(11, 3, 16, 16).double()
        loss = bank.add_critic_gradients("source", real, shown)
        found.append([loss, *(x.grad.clone() for x in bank.critic("source").parameters() if x.grad is not None)])
    assert len(found[0]) > 4
    for whole, portions in zip(*found, strict=True):
        torch.testing.assert_close(portions, whole, rtol=1e-10, atol=1e-14)


def test_alone_the_critic_sees_each_image_and_nothing_is_added():
    bank, images, made = small_bank(), torch.rand(2, 3, 16, 16), torch.rand(K, 2, 3, 16, 16)
    assert bank.changes_of_others(images, made).abs().max() == 0
    assert torch.equal(bank.critic_input(images, made), made.flatten(0, 1))


def overlap_of(bank: MechanismBank, made: Tensor, images: Tensor) -> float:
    """The overlap of these changes, with the weights that they themselves lead to."""
    bank.component_change.zero_()
    for _ in range(30):
        bank.track_changes(
            dict.fromkeys(SIDES, images), dict.fromkeys(SIDES, Scored(torch.zeros(K, len(images)), made))
        )
    weights = bank.overlap_weights()[0]
    return sum((components(made[i] - images) * weights[i]).sum(dim=1).mean().item() for i in range(K))


def test_the_overlap_is_less_where_mechanisms_change_different_things():
    bank, images = small_bank(**COMBINED), torch.zeros(2, 3, 16, 16)
    light, detail, colour = torch.zeros(3, *images.shape)
    light += 0.3
    detail[:] = 0.3 * (-1.0) ** (torch.arange(16)[:, None] + torch.arange(16))
    colour[:, 0], colour[:, 2] = 0.3, -0.3
    disjoint = overlap_of(bank, torch.stack([light, detail, colour]), images)
    alike = overlap_of(bank, (light + detail + colour).expand(K, *images.shape) / 3, images)
    assert disjoint < 0.05 < alike


# Which mechanisms win, and which remain.


def test_wins_are_counted_by_class_and_in_the_target():
    bank = small_bank(classes=3)
    bank.drop([1])
    bank.count_wins(
        {"source": torch.tensor([0, 1, 1, 1]), "target": torch.tensor([1, 1, 0, 1])}, torch.tensor([0, 2, 2, 1])
    )
    assert bank.wins.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 2, 3]]


def test_training_continues_without_dropped_mechanisms():
    bank = small_bank(**COMBINED)
    optimizers = bank.build_optimizers()
    bank.update(random_batch(), 0.0, optimizers)
    bank.drop([1])
    assert (bank.k, bank.active) == (2, [0, 2])
    before = copy.deepcopy(bank.mechanisms[1].state_dict())
    moved = bank.component_change.clone()
    logged = bank.update(random_batch(), 0.1, optimizers)
    assert {name for name in logged if name.startswith("wins/source")} == {"wins/source/0", "wins/source/2"}
    assert all(torch.equal(value, before[name]) for name, value in bank.mechanisms[1].state_dict().items())
    assert torch.equal(bank.component_change[:, 1], moved[:, 1])
    assert bank.transport(random_batch().source, to="target").shape[0] == 2
    assert sum(usage_shares(bank)) == pytest.approx(1)
    saved = small_bank(**COMBINED)
    assert {name.split(".")[1] for name in bank.weights() if name.startswith("mechanisms.")} == {"0", "1"}
    saved.mechanisms = saved.mechanisms[:2]
    saved.load_weights(bank.weights())
    expected = bank.mechanisms[2].state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in saved.mechanisms[1].state_dict().items())


def test_changes_are_tracked_without_an_overlap_loss_too():
    bank = small_bank(critic_sees="combined")
    bank.update(random_batch(), 0.0, bank.build_optimizers())
    assert min(usage_shares(bank)) > 0
    assert sum(usage_shares(bank)) == pytest.approx(1)


@pytest.mark.parametrize("settings", [{"warmup": 2}, COMBINED], ids=["paper", "combined"])
def test_resume_is_exact(settings: dict, digits: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Mechanism 1 is unused: idle at the first evaluation and dropped at the second, in step 4.
    usage = {0: 0.6, 1: 0.0, 2: 0.4}
    monkeypatch.setattr("tcm.mechanisms.usage.usage_shares", lambda bank: [usage[number] for number in bank.active])

    def trained(folder: Path, breaks: list[int | None]) -> tuple[dict[str, Tensor], list[dict[str, float]]]:
        for at in breaks:
            stream = Stream(*digits, batch=4, seed=2, view=View(32, False, 0), device=torch.device("cpu"))
            bank, run = small_bank(side=32, steps=8, pool=8, **settings), Run(folder)
            run.start({})
            schedule = Schedule(steps=8, log_every=1, evaluate_every=2, save_every=3)
            whole = stream.batch

            def batch(step: int, at: int | None = at, whole=whole) -> Batch:
                if step == at:
                    raise ConnectionError("the power is gone")
                return whole(step)

            stream.batch = batch
            usage = UsageCounter(bank, digits.source.classes, drops=True)
            try:
                training_loop(
                    make_fabric("cpu", "fp32"), bank, stream, run, schedule=schedule, seed=2, evaluate=usage, quiet=True
                )
            except ConnectionError:
                continue
            assert bank.active == [0, 2]
            return bank.state_dict(), run.metrics()
        raise AssertionError("the last attempt must not break")

    (whole, rows), (resumed, others) = trained(tmp_path / "a", [None]), trained(tmp_path / "b", [4, 7, None])
    assert {"component_change", "wins", "idle", "_extra_state"} <= whole.keys()
    assert [name for name in whole if not torch.equal(whole[name], resumed[name])] == []
    assert whole["_extra_state"].tolist() == [0, 2]
    untimed = [
        [{key: value for key, value in row.items() if "second" not in key} for row in found] for found in (rows, others)
    ]
    assert untimed[0] == untimed[1]


@pytest.mark.gpu
@pytest.mark.parametrize("settings", [{"warmup": 2}, COMBINED], ids=["paper", "combined"])
def test_recorded_steps_are_those_of_plain_calls(settings: dict):
    def trained(recorded: bool) -> tuple[dict[str, Tensor], list[float]]:
        # In double precision: Adam's first steps are the signs of gradients, so rounding alone parts two runs.
        bank = small_bank(pool=8, **settings).double().cuda()
        bank.recorder.on = recorded
        optimizers = bank.build_optimizers()
        critics = []
        for step in range(8):
            torch.manual_seed(step)
            if step == 6:
                bank.drop([1])
            images = torch.rand(2, 8, 3, 16, 16, dtype=torch.float64).cuda()
            batch = Batch(images[0], torch.arange(8).cuda(), images[1])
            critics.append(bank.update(batch, step / 10, optimizers)["critics"].item())
        return bank.state_dict(), critics

    (plain, losses), (recorded, others) = trained(False), trained(True)
    assert others == pytest.approx(losses, rel=1e-6)
    for name in ("component_change", "wins", "idle", "_extra_state"):
        torch.testing.assert_close(recorded[name], plain[name], rtol=1e-2, atol=1e-3)


def test_images_are_transported_to_a_side_and_nowhere_else():
    nowhere: Any = "Clipart"  # the name of a domain is not a side
    with pytest.raises(ValueError, match='"Clipart"'):
        small_bank().transport(random_batch().source, to=nowhere)
