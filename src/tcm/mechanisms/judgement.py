"""Which mechanisms stage 2 uses, and why it does not use the others. The answer needs no target labels."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tcm.mechanisms.measurements import Measurements
from tcm.mechanisms.pair import SIDES, Side

DEAD = 0.01  # a mechanism that wins a smaller share of the images is dead: the competition did not train it
UNCHANGED = 1 / 255  # mean change of a pixel, in [0, 1], up to which a mechanism does nothing
SAME = 0.1  # two mechanisms are the same if they differ by this share of their change
BLANK = 0.5  # share of blank images
DESTROYED = 0.5  # share of the accuracy above chance that is lost
AGREES, DISAGREES = 0.3, 0.05  # Cohen's kappa of some mechanism, and of one that destroys target images
NEARER = 0.9  # a useful mechanism leaves at most this share of the distance between the domains

Reason = Literal["dead", "duplicate", "unchanged", "blank", "unrecognisable", "not nearer"]


@dataclass(frozen=True)
class Verdict:
    """A mechanism in one direction."""

    mechanism: int  # from 0
    origin: Side  # the domain whose images it transports
    wins: float | None  # share of the images; None if winners play no part in training
    change: float  # mean absolute difference from the original, in [0, 1]
    blank: float  # share of the images that became blank
    recognised: float | None  # share of held-out source images that a classifier of source images recognises
    agreement: float | None  # of its answers on target images before and after, Cohen's kappa
    distance: float | None  # share of the Frechet distance between the domains that is left
    same_as: int | None  # the mechanism that makes nearly the same images
    reasons: tuple[Reason, ...]  # why it is not used; empty: it is used


@dataclass(frozen=True)
class Judgement:
    """The verdicts of all mechanisms in both directions."""

    recognised: float  # share of the same source images that is recognised before transport
    distance: float | None  # Frechet distance between the domains; None without pretrained features
    verdicts: tuple[Verdict, ...]

    def of(self, origin: Side) -> list[Verdict]:
        """The verdicts of one direction, in the order of the mechanisms."""
        return [verdict for verdict in self.verdicts if verdict.origin == origin]

    @property
    def used(self) -> tuple[list[int], list[int]]:
        """The mechanisms that stage 2 uses for source images, and those for target images."""
        source, target = ([one.mechanism for one in self.of(side) if not one.reasons] for side in SIDES)
        return source, target


def judged(found: Measurements) -> Judgement:
    """The verdicts that follow from the measurements."""
    verdicts = [verdict for side in SIDES for verdict in _verdicts(found, side)]
    before = found.recognised[0].before if found.recognised else 0.0
    return Judgement(before, found.distances.untouched if found.distances else None, tuple(verdicts))


def _verdicts(found: Measurements, side: Side) -> list[Verdict]:
    pixels, same = found.pixels[side], _same_as(found, side)
    distances = found.distances and (found.distances.from_source if side == "source" else found.distances.from_target)
    verdicts = []
    for number in range(len(pixels.change)):
        wins = found.wins[side][number] if found.wins else None
        left = distances[number] / found.distances.untouched if distances and found.distances else None
        change, blank = float(pixels.change[number]), float(pixels.blank[number])
        holds: dict[Reason, bool] = {
            "dead": wins is not None and wins < DEAD,
            "duplicate": same[number] is not None,
            "unchanged": change <= UNCHANGED,
            "blank": blank >= BLANK,
            "unrecognisable": _unrecognisable(found, side, number),
            "not nearer": left is not None and left > NEARER,
        }
        recognised = found.recognised[number].after if side == "source" else None
        agreement = found.agreement[number] if side == "target" else None
        reasons: tuple[Reason, ...] = tuple(reason for reason in holds if holds[reason])
        verdicts.append(Verdict(number, side, wins, change, blank, recognised, agreement, left, same[number], reasons))
    return verdicts


def _unrecognisable(found: Measurements, side: Side, number: int) -> bool:
    """Whether a classifier of source images no longer recognises what the mechanism makes.

    Target images have no labels. There its answers before and after transport are compared, and count only if it agrees
    with itself on the images of another mechanism.
    """
    if side == "source":
        one = found.recognised[number]
        return one.tells_something and one.lost >= DESTROYED
    return found.agreement[number] <= DISAGREES and max(found.agreement) >= AGREES


def _same_as(found: Measurements, side: Side) -> list[int | None]:
    """For each mechanism another one that makes nearly the same images and wins more of them; None if there is none."""
    pixels, wins = found.pixels[side], found.wins[side] if found.wins else None
    k = len(pixels.change)
    order = sorted(range(k), key=lambda number: (-(wins[number] if wins else 0.0), number))
    same: list[int | None] = [None] * k
    for place, number in enumerate(order):
        if float(pixels.change[number]) <= UNCHANGED:
            continue
        for other in order[:place]:
            change = float(pixels.change[number] + pixels.change[other]) / 2
            if same[other] is None and float(pixels.apart[number, other]) <= SAME * change:
                same[number] = other
                break
    return same


def remarks(judgement: Judgement) -> list[str]:
    """Sentences that name the mechanisms that are not used, with the reasons; empty if all are used."""
    groups: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for number in sorted({verdict.mechanism for verdict in judgement.verdicts}):
        why = {one.origin: _reasons(one) for one in judgement.verdicts if one.mechanism == number}
        if why["source"] == why["target"]:
            groups["", why["source"]].append(number)
            continue
        for side in SIDES:
            groups[f" for {side} images", why[side]].append(number)
    found = [f"{_named(numbers)} not used{where}: {why}" for (where, why), numbers in groups.items() if why]
    without = [side for side, numbers in zip(SIDES, judgement.used, strict=True) if not numbers]
    if without:
        which = "" if len(without) == len(SIDES) else f" for {without[0]} images"
        remedy = "training went on without counterfactuals; a longer stage 1 may help"
        found.append(f"no mechanism is left{which}: {remedy}")
    return found


def _reasons(verdict: Verdict) -> str:
    words = {
        "dead": "never wins an image",
        "duplicate": f"makes the same images as mechanism {(verdict.same_as or 0) + 1}",
        "unchanged": "leaves images as they are",
        "blank": "makes blank images",
        "unrecognisable": "makes images that a classifier of source images does not recognise",
        "not nearer": "brings images no nearer to the other domain",
    }
    return ", ".join(words[reason] for reason in verdict.reasons)


def _named(numbers: Sequence[int]) -> str:
    *first, last = (str(number + 1) for number in numbers)
    return f"mechanisms {', '.join(first)} and {last} are" if first else f"mechanism {last} is"
