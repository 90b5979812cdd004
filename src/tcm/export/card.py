"""The model card: what a model is for, what it learned from, how it was chosen and how good it probably is."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tcm import __version__
from tcm.classifier.trained import Trained
from tcm.errors import printable

RULES = {"last": "The last iterate. The number of steps was fixed before training, so nothing was chosen."}


class Card(NamedTuple):
    """What a model card is written from."""

    trained: Trained
    evaluation: Mapping[str, Any] | None  # the run's evaluation.json
    estimate: Mapping[str, Any] | None  # its estimate.json
    licence: str | None


def card_text(card: Card) -> str:
    """README.md with the header that the Hub reads."""
    trained = card.trained
    title = f"# {trained.config.backbone.name}, adapted with {trained.name}"
    parts = [header(card), title, task(card), data(card), selection(card), accuracy(card), use(trained), licence(card)]
    return "\n\n".join(parts) + "\n"


def header(card: Card) -> str:
    """The metadata of the Hub, between two lines of hyphens."""
    tags = ["domain-adaptation", "unsupervised-domain-adaptation", card.trained.name]
    lines = ["library_name: tcm", "pipeline_tag: image-classification", f"license: {card.licence or 'other'}", "tags:"]
    return "\n".join(["---", *lines, *(f"- {tag}" for tag in tags), "---"])


def task(card: Card) -> str:
    """What the model does, with all its classes."""
    classes = ", ".join(printable(name) for name in card.trained.classes)
    text = (
        f"An image classifier with {len(card.trained.classes)} classes for one domain of images, trained with labels "
        "of another domain only (unsupervised domain adaptation)."
    )
    return f"## Task\n\n{text}\n\nClasses: {classes}."


def data(card: Card) -> str:
    """The two domains and how images are read."""
    size, crop = card.trained.config.data.sides
    reading = f"Images are resized to {size} x {size} (bicubic) and their centre of {crop} x {crop} is used."
    if card.evaluation is None:
        return f"## Data\n\n{reading}"
    source, target = card.evaluation["source"], card.evaluation["target"]
    labelled = f"- Labelled domain: {printable(source['name'])}, {source['images']} images."
    unlabelled = f"- Domain to adapt to: {printable(target['name'])}, {target['images']} images, without labels."
    return f"## Data\n\n{labelled}\n{unlabelled}\n\n{reading}"


def selection(card: Card) -> str:
    """How the model was chosen among all those of training."""
    config = card.trained.config
    rule = "last" if card.evaluation is None else card.evaluation["selection"]
    chosen = RULES.get(rule, f"By the score `{rule}`, which needs no target labels.")
    trained = (
        f"Trained for {config.schedule.steps} steps of {config.batch} + {config.batch} images, seed {config.seed}."
    )
    return f"## Training and selection\n\n{trained} {chosen} No target label was used for training or selection."


def accuracy(card: Card) -> str:
    """The estimate with its error, and the measured accuracies."""
    lines = []
    if card.estimate is not None:
        value, low, high = (100 * card.estimate[key] for key in ("accuracy", "low", "high"))
        error = f"on {card.estimate['cases']} known cases the estimate was off by {100 * card.estimate['error']:.1f}"
        lines.append(
            f"- Target, estimated without labels: {value:.1f} %, interval {low:.1f} to {high:.1f} %; {error} points on "
            "average."
        )
    if card.evaluation is not None:
        target, source = card.evaluation["target"], card.evaluation["source"]
        if target["accuracy"] is not None:
            measured = f"{100 * target['accuracy']:.1f} % of {target['labelled']} labelled images"
            lines.append(f"- Target, measured after training: {measured}.")
        lines.append(f"- Source, on the training domain: {100 * source['accuracy']:.1f} %.")
    if card.estimate is None and (card.evaluation is None or card.evaluation["target"]["accuracy"] is None):
        lines.append("- The accuracy on the target was neither measured nor estimated.")
    return "## Accuracy\n\n" + "\n".join(lines)


def use(trained: Trained) -> str:
    """How to load the model."""
    code = 'import tcm\n\nmodel = tcm.load("folder-of-this-model")\nmodel.predict("new-images")  # class names'
    return f"## Use\n\n```python\n{code}\n```\n\nWritten by tcm {__version__}."


def licence(card: Card) -> str:
    """What is known of the licence."""
    stated = (
        f"The model is under the licence {card.licence}." if card.licence else "No licence was stated for the model."
    )
    return (
        f"## Licence\n\n{stated} The weights follow from the training images and from the pretrained weights of the "
        "backbone, whose licences still apply. The library tcm is under the MIT license."
    )
