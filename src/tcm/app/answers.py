"""What the JSON API takes and returns. Pictures are data URIs; classes are named, the most probable first."""

from typing import Literal

from pydantic import BaseModel, Field

MAX_NUMBER = 2**31


class Health(BaseModel):
    """The server works."""

    status: Literal["ok"] = "ok"


class ModelInfo(BaseModel):
    """A model that is served."""

    title: str
    method: str
    backbone: str
    target_accuracy: float | None = Field(description="share of right predictions on the target, where it has labels")


class Info(BaseModel):
    """What this server can do."""

    version: str
    models: list[ModelInfo]
    classes: list[str]
    source: str | None = Field(description="name of the source; null if its images are gone")
    target: str | None
    images: int = Field(description="number of target images that can be browsed")
    mechanisms: int = Field(description="number of mechanisms; 0 without any")
    notes: list[str] = Field(description="what is not available, and why")
    max_bytes: int
    max_images: int


class ClassProbability(BaseModel):
    """A class and its probability."""

    name: str
    probability: float


class ModelPrediction(BaseModel):
    """The most probable classes by one model."""

    model: str
    classes: list[ClassProbability]


class PredictedImage(BaseModel):
    """The predictions for one image."""

    name: str
    predictions: list[ModelPrediction]


class PredictedImages(BaseModel):
    """The predictions for all images of a request, in their order."""

    images: list[PredictedImage]


class NearImage(BaseModel):
    """A source image whose features are near those of the image."""

    picture: str
    label: str
    path: str
    similarity: float = Field(description="cosine between the features")


class ModelExplanation(ModelPrediction):
    """What one model makes of an image."""

    heat: str | None = Field(description="where the model looks (Grad-CAM), to lay over the picture")
    average: list[ClassProbability] | None = Field(
        description="mean prediction on the image and its counterfactuals, TCM Eq. (1)"
    )
    nearest: list[NearImage] | None = Field(description="nearest source images; null while features are computed")


class MadeImage(BaseModel):
    """The counterfactual of the image by one mechanism."""

    mechanism: int
    picture: str
    winner: bool = Field(description="whether this mechanism makes the image best (TCM Eq. (2))")
    predictions: list[ModelPrediction]


class Explanation(BaseModel):
    """All that the server knows about one image."""

    name: str
    picture: str = Field(description="the part of the image that the networks see")
    small: bool
    models: list[ModelExplanation]
    counterfactuals: list[MadeImage] = Field(description="empty without mechanisms")
    source_ready: float = Field(description="share of the source images whose features are computed, 0 to 1")


class TargetRow(BaseModel):
    """A target image in the list."""

    number: int
    path: str
    predictions: list[ClassProbability] = Field(description="the most probable class by each model")
    differ: bool = Field(description="whether the models disagree")
    label: str | None = Field(description="label given in this list; it does not count for the audit")


class TargetList(BaseModel):
    """A part of the target images."""

    total: int
    start: int
    rows: list[TargetRow]


class GivenLabel(BaseModel):
    """A label for a target image; null takes it back."""

    number: int = Field(ge=0, lt=MAX_NUMBER)
    label: str | None = Field(max_length=1000)


class StoredLabel(GivenLabel):
    """The label is on disk."""

    labelled: int = Field(description="number of labels of this kind")


class LabelChoices(BaseModel):
    """The labels that can be given, and a key for each class; no keys if there are too many classes."""

    classes: list[str]
    keys: list[str]
    none: str
    unsure: str


class AuditState(LabelChoices):
    """The random sample of an audit, without predictions, so that they do not influence the labels."""

    sample: str
    images: list[int] = Field(description="numbers of the images, in random order")
    labels: dict[int, str]
    file: str


class ModelAudit(BaseModel):
    """The result of the audit of one model."""

    model: str
    sentence: str
    accuracy: float | None = None
    low: float | None = None
    high: float | None = None


class AuditResult(BaseModel):
    """The results of all models; each is also in the audit.json of its run."""

    models: list[ModelAudit]


class Refusal(BaseModel):
    """Why a request was refused."""

    detail: str
