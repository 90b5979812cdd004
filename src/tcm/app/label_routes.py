"""The addresses for labels: of the random sample of an audit, and of other images."""

from fastapi import APIRouter, HTTPException

from tcm.app.answers import AuditResult, AuditState, GivenLabel, LabelChoices, ModelAudit, StoredLabel
from tcm.app.labels import LabelFolder
from tcm.app.runs import ServedRuns
from tcm.app.target import TargetGallery
from tcm.app.target_routes import known
from tcm.errors import InputError, printable
from tcm.estimation.audit import NONE, UNSURE
from tcm.estimation.audit_page import class_keys


def label_routes(runs: ServedRuns, gallery: TargetGallery, labels: LabelFolder) -> APIRouter:
    """Labels are on disk when a response is sent."""
    router = APIRouter(tags=["labels"])
    own_names = dict(zip(gallery.classes, labels.classes, strict=True)) | {NONE: NONE, UNSURE: UNSURE}
    shown = {name: text for text, name in own_names.items()}
    sample = [labels.paths[path] for path in labels.sample.paths]
    keys = class_keys(gallery.classes)
    choices = {"classes": gallery.classes, "keys": keys, "none": NONE, "unsure": UNSURE}

    def checked(given: GivenLabel) -> tuple[str, str | None]:
        """The path and the label that were meant."""
        path = gallery.store.paths[known(given.number, gallery)]
        if given.label is None:
            return path, None
        if given.label not in own_names:
            raise HTTPException(422, f"{printable(given.label)} is not a class; give a class, {NONE} or {UNSURE}")
        return path, own_names[given.label]

    @router.get("/labels")
    def label_choices() -> LabelChoices:
        """The labels that can be given."""
        return LabelChoices(**choices)

    @router.put("/labels")
    def label_doubtful(given: GivenLabel) -> StoredLabel:
        """Stores the label of any target image in doubt-labels.csv. It does not count for the audit."""
        path, label = checked(given)
        return StoredLabel(**given.model_dump(), labelled=labels.label_doubtful(path, label))

    @router.get("/audit")
    def audit_state() -> AuditState:
        """The random sample, without predictions, and its labels so far."""
        found = {labels.paths[path]: shown[label] for path, label in labels.audit_labels().items()}
        identity, file = labels.sample.identity, printable(labels.audit_file)
        return AuditState(**choices, sample=identity, images=sample, labels=found, file=file)

    @router.put("/audit")
    def label_sample(given: GivenLabel) -> StoredLabel:
        """Stores the label of an image of the random sample, in the file that tcm audit takes."""
        path, label = checked(given)
        if given.number not in sample:
            raise HTTPException(422, f"image {given.number} is not in the random sample; send its label to /labels")
        return StoredLabel(**given.model_dump(), labelled=labels.label_for_audit(path, label))

    @router.post("/audit")
    def compute_audit() -> AuditResult:
        """The accuracy of every model by the labels of the random sample, as tcm audit --labels computes it."""
        results = []
        for model in runs.models:
            try:
                found = labels.audit(model.folder)
            except InputError as error:
                if len(runs.models) == 1:
                    raise
                results.append(ModelAudit(model=printable(model.title), sentence=printable(error)))
                continue
            values = {"accuracy": found.accuracy, "low": found.low, "high": found.high}
            results.append(ModelAudit(model=printable(model.title), sentence=found.sentence, **values))
        return AuditResult(models=results)

    return router
