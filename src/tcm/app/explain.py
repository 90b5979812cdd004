"""What is computed for an image: predictions, where a model looks, counterfactuals, and the nearest source images."""

import base64
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tcm.analysis.grad_cam import activation_maps
from tcm.app.answers import ClassProbability, Explanation, MadeImage, ModelExplanation, ModelPrediction, NearImage
from tcm.app.nearest import SourceFeatures
from tcm.app.runs import ServedModel, ServedRuns
from tcm.classifier.evaluate import centre_crop_batches
from tcm.data.augment import as_stored
from tcm.data.images import resized
from tcm.errors import InputError, printable
from tcm.estimation.audit_page import SMALL, data_uri

SHOWN_CLASSES = 5
NEIGHBOURS = 6
HEAT_SIDE = 160  # pixels of a map, at least: it is smooth when it is shown large
STRONGEST = 0.65  # opacity of a map where it is highest


class Explainer:
    """Answers questions about images. One thread computes them in turn: the threads of PyTorch belong to one caller,
    and a map of where a model looks changes the model for a moment."""

    def __init__(self, runs: ServedRuns):
        self.runs = runs
        self.classes = [printable(name) for name in runs.classes]
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="models")
        self.source = SourceFeatures(runs.models, runs.task.source, self._worker) if runs.task else None

    def close(self) -> None:
        """Ends the threads."""
        if self.source:
            self.source.stop()
        self._worker.shutdown()

    def pixels(self, image: Image.Image) -> NDArray[np.uint8]:
        """The image as uint8 [size, size, 3], resized as training images are."""
        return resized(image, self.runs.models[0].size)

    def predict(self, images: Sequence[NDArray[np.uint8]], top: int) -> list[list[ModelPrediction]]:
        """For each image [size, size, 3] the `top` most probable classes by every model."""
        batch = torch.from_numpy(np.stack(images))
        found = self._worker.submit(self._probabilities, batch).result()
        return [self._predictions([one[place] for one in found], top) for place in range(len(images))]

    def explain(self, pixels: NDArray[np.uint8], name: str) -> Explanation:
        """Everything about one image uint8 [size, size, 3]."""
        return self._worker.submit(self._explain, pixels, name).result()

    def _probabilities(self, batch: Tensor) -> list[Tensor]:
        return [model.answer(batch).probabilities for model in self.runs.models]

    def _explain(self, pixels: NDArray[np.uint8], name: str) -> Explanation:
        batch = torch.tensor(pixels)[None]
        first = self.runs.models[0]
        (seen,) = centre_crop_batches(batch, first.crop, torch.device("cpu"))
        made = self.runs.transport.counterfactuals(batch) if self.runs.transport else None
        transported = made.images[0].cpu() if made else batch[:0]  # [k, size, size, 3]
        each = [model.on_counterfactuals(transported) for model in self.runs.models] if made else []
        models = [
            self._explained(place, model, batch, each[place] if made else None)
            for place, model in enumerate(self.runs.models)
        ]
        winner = int(made.winner[0]) if made else None
        counterfactuals = [
            MadeImage(
                mechanism=number + 1,
                picture=data_uri(image.numpy()),
                winner=number == winner,
                predictions=self._predictions([found[number] for found in each], 1),
            )
            for number, image in enumerate(transported)
        ]
        return Explanation(
            name=name,
            picture=data_uri(as_stored(seen)[0].numpy()),
            small=first.crop <= SMALL,
            models=models,
            counterfactuals=counterfactuals,
            source_ready=self.source.ready if self.source else 0.0,
        )

    def _explained(self, place: int, model: ServedModel, batch: Tensor, each: Tensor | None) -> ModelExplanation:
        found = model.answer(batch)
        alone = found.probabilities[0]
        nearest = self.source.nearest(place, found.features.cpu(), NEIGHBOURS) if self.source else None
        return ModelExplanation(
            model=model.title,
            classes=self._most_probable(alone, SHOWN_CLASSES),
            heat=heat_picture(model, batch, int(alone.argmax())),
            average=None if each is None else self._most_probable(torch.cat([alone[None], each]).mean(dim=0), 1),
            nearest=None if nearest is None else [self._near(near.number, near.similarity) for near in nearest],
        )

    def _near(self, number: int, similarity: float) -> NearImage:
        assert self.source is not None
        store = self.source.store
        return NearImage(
            picture=data_uri(store.images[number].numpy()),
            label=self.classes[int(store.labels[number])],
            path=printable(store.paths[number]),
            similarity=similarity,
        )

    def _predictions(self, found: Sequence[Tensor], top: int) -> list[ModelPrediction]:
        return [
            ModelPrediction(model=model.title, classes=self._most_probable(row, top))
            for model, row in zip(self.runs.models, found, strict=True)
        ]

    def _most_probable(self, row: Tensor, top: int) -> list[ClassProbability]:
        best = row.topk(min(top, len(row)))
        names = (self.classes[number] for number in best.indices.tolist())
        values = best.values.tolist()
        return [ClassProbability(name=name, probability=value) for name, value in zip(names, values, strict=True)]


def heat_picture(model: ServedModel, batch: Tensor, number: int) -> str | None:
    """Where the model looks for the class of this number, as a transparent picture; None if it cannot be computed.

    A backbone without convolutional feature maps has no such map, and one that is nowhere positive shows nothing.
    """
    (images,) = centre_crop_batches(batch, model.crop, model.fabric.device)
    try:
        maps, _ = activation_maps(model.trained.method, images, torch.tensor([number], device=images.device))
    except InputError:
        return None
    heat = maps.float().sum(dim=0).clip(min=0)  # of the prediction: the sum over views, [1, height, width]
    if not float(heat.max()) > 0:
        return None
    side = max(HEAT_SIDE, model.crop)
    large = F.interpolate(heat[None] / heat.max(), (side, side), mode="bilinear")[0, 0].cpu().numpy()
    return _coloured(large)


def _coloured(heat: NDArray[np.float32]) -> str:
    """A map in [0, 1] as a PNG from clear over yellow to red."""
    colours = np.stack([np.full_like(heat, 255), 225 * (1 - heat), 0 * heat, 255 * STRONGEST * heat], axis=2)
    buffer = io.BytesIO()
    Image.fromarray(colours.round().astype(np.uint8), "RGBA").save(buffer, "PNG")
    return f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
