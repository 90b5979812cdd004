"""What each mechanism does: in words, with an example, and whether stage 2 uses it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tcm.analysis.run_record import Record
from tcm.mechanisms.gallery import Gallery
from tcm.report.changes import described, image_changes
from tcm.report.pictures import Picture, picture
from tcm.training.run_folder import read_json

LARGEST = 128  # the side to which pictures are reduced
JUDGEMENT = "mechanisms.json"  # in a run of stage 2: which mechanisms it uses, and why not the others
NOT_USED = {
    "dead": "it never wins an image",
    "duplicate": "it makes the same images as another mechanism",
    "unchanged": "it leaves images as they are",
    "blank": "it makes blank images",
    "unrecognisable": "a classifier of source images does not recognise what it makes",
    "not nearer": "it brings images no nearer to the other domain",
}


@dataclass(frozen=True)
class MechanismCard:
    """One mechanism."""

    number: int  # from 1
    to_target: str  # what it does to source images
    to_source: str  # what its inverse does to target images
    before: Picture
    after: Picture
    use: str  # whether stage 2 uses it, and why not; empty if that is not known


def page_judgement(records: Sequence[Record]) -> Mapping[str, Any] | None:
    """What a run of stage 2 on the page noted about the mechanisms on it; None if that is not certain."""
    noted = [record.folder / JUDGEMENT for record in records if (record.folder / JUDGEMENT).is_file()]
    if len(noted) != 1 or sum(record.is_mechanisms for record in records) != 1:
        return None
    return read_json(noted[0])


def mechanism_cards(
    shown: Sequence[Gallery], measured: Sequence[Gallery], judgement: Mapping[str, Any]
) -> list[MechanismCard]:
    """One card per mechanism. The words come from the `measured` images, the example is a source image that it wins."""
    cards = []
    source = next(gallery for gallery in shown if gallery.origin == "source")
    for number in range(source.counterfactuals.shape[1]):
        words = {one.origin: _words(one, number) for one in measured}
        won = [place for place, winner in enumerate(source.winner) if winner == number] or [0]
        before, after = source.originals[won[0]], source.counterfactuals[won[0], number]
        pictures = picture(before, LARGEST), picture(after, LARGEST)
        cards.append(MechanismCard(number + 1, words["source"], words["target"], *pictures, _use(judgement, number)))
    return cards


def _words(gallery: Gallery, number: int) -> str:
    return described(image_changes(gallery.originals, gallery.counterfactuals[:, number]))


def _use(judgement: Mapping[str, Any], number: int) -> str:
    """Whether stage 2 uses a mechanism, by the verdicts on both directions of transport."""
    verdicts = [one for one in judgement.get("verdicts", ()) if one.get("mechanism") == number]
    reasons: dict[str, list[str]] = {one["origin"]: one.get("reasons") or [] for one in verdicts}
    if not verdicts:
        return ""
    if not any(reasons.values()):
        return "Used in training."
    why = dict.fromkeys(NOT_USED.get(reason, reason) for found in reasons.values() for reason in found)
    where = "" if all(reasons.values()) else f" for {next(side for side, found in reasons.items() if found)} images"
    return f"Not used{where}: {', '.join(why)}."
