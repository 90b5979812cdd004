"""Unused mechanisms are reported; those that stay unused are dropped, if that is asked for."""

import pytest
import torch

from tcm.mechanisms.bank import BankConfig, MechanismBank
from tcm.mechanisms.usage import PATIENCE, UsageCounter, remarks
from tcm.nn.critic import CriticConfig
from tcm.nn.generator import GeneratorConfig

CLASSES = ("cup", "hat", "key")


@pytest.fixture
def bank() -> MechanismBank:
    return BankConfig(GeneratorConfig(2, 1, 1, kernel=3), CriticConfig(2, 1)).build(4, 16, 10, len(CLASSES))


def win(bank: MechanismBank, *shares: int) -> None:
    """Each mechanism wins so many images of each of the first two classes, and of the target."""
    bank.wins[:, [0, 1, 3]] = torch.tensor(shares, dtype=torch.float32)[:, None].expand(-1, 3)


def test_usage_shares_and_shares_of_every_class(bank: MechanismBank):
    bank.wins[:] = torch.tensor([[3, 0, 0, 2], [1, 2, 0, 1], [0, 2, 0, 0], [0, 0, 0, 0]])
    row = UsageCounter(bank, CLASSES, drops=False)()
    assert [row[f"usage/{i}"] for i in range(4)] == pytest.approx([5 / 11, 4 / 11, 2 / 11, 0])
    assert [row[f"class_wins/{i}/cup"] for i in range(4)] == [0.75, 0.25, 0, 0]
    assert [row[f"class_wins/{i}/hat"] for i in range(4)] == [0, 0.5, 0.5, 0]
    assert [row[f"class_wins/{i}/key"] for i in range(4)] == [0, 0, 0, 0]  # no image of it was seen
    assert row["unused"] == 1
    assert "k" not in row


def test_counting_starts_again_after_every_evaluation(bank: MechanismBank):
    usage = UsageCounter(bank, CLASSES, drops=False)
    win(bank, 9, 1, 1, 1)
    usage()
    assert not bank.wins.any()
    win(bank, 1, 1, 1, 1)
    assert usage()["usage/0"] == 0.25


def test_unused_mechanisms_are_reported_and_stay_unless_drops_are_asked_for(bank: MechanismBank):
    usage = UsageCounter(bank, CLASSES, drops=False)
    for _ in range(PATIENCE + 2):
        win(bank, 5, 5, 5, 0)
        assert usage()["unused"] == 1
    assert bank.active == [0, 1, 2, 3]
    assert bank.idle.tolist() == [0, 0, 0, PATIENCE + 2]


def test_unused_mechanisms_are_dropped_after_some_evaluations_in_a_row(bank: MechanismBank):
    usage = UsageCounter(bank, CLASSES, drops=True)
    found = []
    for shares in ((5, 0, 5, 5), (5, 0, 5, 0), (5, 5, 5, 0)):
        win(bank, *shares)
        found.append((usage()["k"], bank.active))
    # 1 was unused twice in a row; 3 once, then once more.
    assert found == [(4, [0, 1, 2, 3]), (3, [0, 2, 3]), (2, [0, 2])]
    win(bank, 5, 5, 5, 5)
    row = usage()
    assert {name for name in row if name.startswith("usage/")} == {"usage/0", "usage/2"}
    assert row["usage/0"] == row["class_wins/2/hat"] == 0.5


def test_a_mechanism_that_is_used_again_has_all_its_time_again(bank: MechanismBank):
    usage = UsageCounter(bank, CLASSES, drops=True)
    for last in (0, 5, 0, 5, 0, 5):
        win(bank, 5, 5, 5, last)
        usage()
    assert bank.active == [0, 1, 2, 3]


def test_used_mechanisms_are_never_dropped_and_one_always_remains(bank: MechanismBank):
    usage = UsageCounter(bank, CLASSES, drops=True)
    for _ in range(2 * PATIENCE):
        win(bank, 4, 4, 4, 1)  # just above a quarter of an equal share
        assert usage()["unused"] == 0
    assert bank.k == 4
    for _ in range(2 * PATIENCE):
        win(bank, 0, 7, 0, 0)
        usage()
    assert bank.active == [1]


def test_if_critics_see_all_changes_combined_usage_is_the_share_of_the_change():
    combined = BankConfig(GeneratorConfig(2, 1, 1, kernel=3), CriticConfig(2, 1), critic_sees="combined")
    bank = combined.build(3, 16, 10, len(CLASSES))
    bank.component_change[:, 0, :2] = 0.3
    bank.component_change[:, 1, 2:] = 0.1  # small, but no other mechanism does it
    win_all = torch.zeros_like(bank.wins)
    win_all[2] = 5  # its images look best, since it leaves them as they are
    bank.wins.copy_(win_all)
    row = UsageCounter(bank, CLASSES, drops=False)()
    assert [row[f"usage/{i}"] for i in range(3)] == pytest.approx([0.5, 0.5, 0])
    assert row["unused"] == 1
    assert row["class_wins/2/cup"] == 1


def test_a_checkpoint_keeps_which_mechanisms_are_active(bank: MechanismBank):
    usage = UsageCounter(bank, CLASSES, drops=True)
    for _ in range(PATIENCE):
        win(bank, 5, 0, 5, 5)
        usage()
    win(bank, 5, 0, 5, 0)
    usage()
    other = bank.config.build(4, 16, 10, len(CLASSES))
    other.load_state_dict(bank.state_dict())
    assert (other.active, other.idle.tolist()) == ([0, 2, 3], [0, 0, 0, 1])


def test_the_messages():
    def row(*usage: float, **more: float) -> dict[str, float]:
        return {"step": 9, **{f"usage/{i}": share for i, share in enumerate(usage)}, **more}

    assert remarks(row(0.4, 0.3, 0.3), [0, 1, 2]) == []
    (unused,) = remarks(row(0.6, 0.01, 0.39), [0, 1, 2])
    assert "Mechanism 2 is unused" in unused
    assert "1%" in unused
    assert "`k=auto`" in unused
    collapsed = remarks(row(0.95, 0.05), [0, 1])
    assert [line.split(";")[0].split(":")[0] for line in collapsed] == [
        "Mechanism 2 is unused",
        "One mechanism dominates",
    ]
    assert remarks(row(1.0), [0]) == []
    # Mechanism 0 was dropped at this evaluation, and 2 before: those that remain are numbered anew.
    after = {"usage/0": 0.0, "usage/1": 0.6, "usage/3": 0.01, "usage/4": 0.39, "k": 3}
    left, unused = remarks(after, [1, 3, 4])
    assert left == "Mechanisms that remain: 3"
    assert unused.startswith("Mechanism 2 is unused")
    assert unused.endswith("a longer run would drop it")


def test_no_more_are_kept_than_components_that_change():
    config = BankConfig(GeneratorConfig(2, 1, 1, kernel=3), CriticConfig(2, 1), critic_sees="combined", overlap=1.0)
    bank = config.build(6, 16, 10, len(CLASSES))
    # Two mechanisms share the level, two the colour, two the detail; contrast hardly changes.
    bank.component_change[:] = torch.tensor(
        [[3, 0, 0, 0], [0, 0, 0, 2], [0, 0, 1, 0], [2, 0, 0, 0], [0, 0.01, 0, 1], [0, 0, 0.5, 0]]
    )
    usage = UsageCounter(bank, CLASSES, drops=True)
    assert [usage()["k"] for _ in range(PATIENCE + 1)] == [6, 3, 3]
    assert bank.active == [0, 1, 2]
