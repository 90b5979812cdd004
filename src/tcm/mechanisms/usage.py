"""Counts from time to time what each mechanism won, and finds those that are of no use (Section 4.3, observation 3)."""

from collections.abc import Sequence

from torch import Tensor

from tcm.mechanisms.bank import MechanismBank

LEAST = 0.25  # of a fair share: a mechanism that does less is dead
PATIENCE = 2  # counts in a row before a dead mechanism is dropped
UNUSED = 0.1  # of the strongest component's change: a component with less is not what the domains differ in
COLLAPSED = 0.9  # the share of all work at which one mechanism has taken over


class UsageCounter:
    """Called at every evaluation of a run: the row that metrics.jsonl gets, and the dead that are dropped."""

    def __init__(self, bank: MechanismBank, classes: Sequence[str], drops: bool):
        self.bank, self.classes, self.drops = bank, classes, drops

    def __call__(self) -> dict[str, float]:
        """Each mechanism's share in the work and in every class's images since the last count."""
        bank = self.bank
        standing = dict(zip(bank.living, shares_of_work(bank), strict=True))
        row = {f"standing/{number}": share for number, share in standing.items()}
        won = bank.wins[:, :-1] / bank.wins[bank.living, :-1].sum(dim=0).clamp(min=1)
        row |= {
            f"class_wins/{number}/{name}": share
            for number in bank.living
            for name, share in zip(self.classes, won[number].tolist(), strict=True)
        }
        bank.wins.zero_()
        dead = {number for number, share in standing.items() if share < LEAST / bank.k}
        if self.drops:  # the weakest of more mechanisms than the data can keep apart
            dead |= set(sorted(standing, key=standing.__getitem__)[: max(bank.k - kept_apart(bank), 0)])
        for number in range(len(bank.mechanisms)):  # in the warm-up nobody has to win
            bank.idle[number] = bank.idle[number] + 1 if number in dead and bank.past_warmup else 0
        row["dead"] = len(dead)
        if self.drops:
            bank.drop([number for number in dead if bank.idle[number] >= PATIENCE])
            row["k"] = bank.k
        return row


def shares_of_work(bank: MechanismBank) -> list[float]:
    """What share of all work each living mechanism does, by which a dead one is known.

    Where critics see each mechanism alone, it is the share of images that it won since the last count. Where they see
    all changes combined, it is the mechanism's share in what all of them change, a mean over components.
    """
    if bank.config.critic_sees == "each":
        won = bank.wins[bank.living].sum(dim=1)
        return (won / won.sum().clamp(min=1)).tolist()
    moved = bank.moved[:, bank.living][..., used_components(bank)]
    return (moved / moved.sum(dim=1, keepdim=True).clamp(min=1e-6)).mean(dim=(0, 2)).tolist()


def kept_apart(bank: MechanismBank) -> int:
    """How many mechanisms the data can keep apart: judged together, as many as there are components that change."""
    return bank.k if bank.config.critic_sees == "each" else int(used_components(bank).sum())


def used_components(bank: MechanismBank) -> Tensor:
    """Which components change at all, [components], as true or false."""
    whole = bank.moved[:, bank.living].sum(dim=1).mean(dim=0)
    return whole >= UNUSED * whole.max()


def remarks(row: dict[str, float], numbers: Sequence[int]) -> list[str]:
    """What a user should know of the last count: how many are left, which are dead, one that has taken over.

    `numbers` are the mechanisms that are left; they are called by their places there, as in the saved bank.
    """
    standing = {int(name.removeprefix("standing/")): x for name, x in row.items() if name.startswith("standing/")}
    k = len(standing)
    found, remedy = [], "try a smaller --k, or --k auto"
    if "k" in row:
        found, remedy = [f"Mechanisms that are left: {len(numbers)}"], "a longer run would drop it"
    dead = [place for place, number in enumerate(numbers, start=1) if standing[number] < LEAST / k]
    found += [f"Mechanism {place} is dead: it does next to nothing; {remedy}" for place in dead]
    if k > 1 and max(standing.values()) > COLLAPSED:
        found.append("One mechanism has taken over; try --preset default, or another --seed")
    return found
