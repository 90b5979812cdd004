"""How much each mechanism is used, and which ones are unused (TCM Section 4.3, observation 3)."""

from collections.abc import Sequence

from torch import Tensor

from tcm.mechanisms.bank import MechanismBank

MIN_SHARE = 0.25  # of an equal share: a mechanism with a smaller usage share is unused
PATIENCE = 2  # evaluations in a row after which an unused mechanism is dropped
MIN_COMPONENT = 0.1  # of the strongest component's change: the domains do not differ in weaker components
DOMINANT = 0.9  # usage share from which on one mechanism dominates


class UsageCounter:
    """Called at every evaluation of stage 1: returns the usage for metrics.jsonl and drops unused mechanisms."""

    def __init__(self, bank: MechanismBank, classes: Sequence[str], drops: bool):
        self.bank, self.classes, self.drops = bank, classes, drops

    def __call__(self) -> dict[str, float]:
        """The usage share of each mechanism, and its share of the images of each class, since the last call."""
        bank = self.bank
        usage = dict(zip(bank.active, usage_shares(bank), strict=True))
        row = {f"usage/{number}": share for number, share in usage.items()}
        won = bank.wins[:, :-1] / bank.wins[bank.active, :-1].sum(dim=0).clamp(min=1)
        row |= {
            f"class_wins/{number}/{name}": share
            for number in bank.active
            for name, share in zip(self.classes, won[number].tolist(), strict=True)
        }
        bank.wins.zero_()
        unused = {number for number, share in usage.items() if share < MIN_SHARE / bank.k}
        if self.drops:  # also the least used of more mechanisms than the data can keep apart
            unused |= set(sorted(usage, key=usage.__getitem__)[: max(bank.k - max_mechanisms(bank), 0)])
        for number in range(len(bank.mechanisms)):  # during the warm-up no mechanism has to win
            bank.idle[number] = bank.idle[number] + 1 if number in unused and bank.past_warmup else 0
        row["unused"] = len(unused)
        if self.drops:
            bank.drop([number for number in unused if bank.idle[number] >= PATIENCE])
            row["k"] = bank.k
        return row


def usage_shares(bank: MechanismBank) -> list[float]:
    """The usage share of each active mechanism; they sum to 1.

    If critics see each mechanism alone: its share of the images won since the last count. If they see all changes
    combined: its share of the change by all mechanisms, as the mean over components.
    """
    if bank.config.critic_sees == "each":
        won = bank.wins[bank.active].sum(dim=1)
        return (won / won.sum().clamp(min=1)).tolist()
    change = bank.component_change[:, bank.active][..., used_components(bank)]
    return (change / change.sum(dim=1, keepdim=True).clamp(min=1e-6)).mean(dim=(0, 2)).tolist()


def max_mechanisms(bank: MechanismBank) -> int:
    """How many mechanisms the data can keep apart. If critics see them combined: one per component that changes."""
    return bank.k if bank.config.critic_sees == "each" else int(used_components(bank).sum())


def used_components(bank: MechanismBank) -> Tensor:
    """Which components the mechanisms change: bool [components]."""
    whole = bank.component_change[:, bank.active].sum(dim=1).mean(dim=0)
    return whole >= MIN_COMPONENT * whole.max()


def remarks(row: dict[str, float], numbers: Sequence[int]) -> list[str]:
    """Messages about the last usage row: how many mechanisms remain, which are unused, whether one dominates.

    `numbers` are the mechanisms that remain. Messages count them from 1, in the order of the saved bank.
    """
    usage = {int(name.removeprefix("usage/")): share for name, share in row.items() if name.startswith("usage/")}
    k = len(usage)
    found, remedy = list[str](), "try a smaller `k`, or `k=auto`"
    if "k" in row:
        found, remedy = [f"Mechanisms that remain: {len(numbers)}"], "a longer run would drop it"
    for place, share in enumerate((usage[number] for number in numbers), start=1):
        if share < MIN_SHARE / k:
            found.append(f"Mechanism {place} is unused: its usage share is {share:.0%}; {remedy}")
    if k > 1 and max(usage.values()) > DOMINANT:
        found.append("One mechanism dominates; try `form=disentangled`, or another `seed`")
    return found
