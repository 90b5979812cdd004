"""The addresses of the target images: the list, the pictures, and what is known about one of them."""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query
from starlette.responses import Response

from tcm.app.answers import MAX_NUMBER, Explanation, TargetList
from tcm.app.explain import Explainer
from tcm.app.labels import LabelFolder
from tcm.app.target import Order, TargetGallery

Number = Annotated[int, Path(ge=0, lt=MAX_NUMBER, description="number of the image")]


def target_routes(explainer: Explainer, gallery: TargetGallery, labels: LabelFolder) -> APIRouter:
    """The list of the target images, in parts, and each of them."""
    router = APIRouter(prefix="/target", tags=["target"])

    @router.get("")
    def target(
        order: Order = "doubt",
        model: Annotated[int, Query(ge=0, lt=len(gallery.predictions), description="whose doubt, from 0")] = 0,
        start: Annotated[int, Query(ge=0, lt=MAX_NUMBER)] = 0,
        count: Annotated[int, Query(ge=1, le=200)] = 48,
    ) -> TargetList:
        """A part of the target images. By doubt: the least confident predictions of the model first."""
        given = labels.doubt_labels()
        numbers = gallery.order(order, model)[start : start + count].tolist()
        rows = [gallery.row(number, given.get(gallery.store.paths[number])) for number in numbers]
        return TargetList(total=len(gallery), start=start, rows=rows)

    @router.get("/{number}")
    def explain_target(number: Number) -> Explanation:
        """Everything about a target image, as /explain says it of an upload."""
        return explainer.explain(gallery.pixels(known(number, gallery)), gallery.shown_path(number))

    @router.get("/{number}/image", response_class=Response, responses={200: {"content": {"image/png": {}}}})
    def picture(number: Number) -> Response:
        """The image as the run stores it."""
        kept = {"Cache-Control": "private, max-age=3600"}
        return Response(gallery.png(known(number, gallery)), media_type="image/png", headers=kept)

    return router


def known(number: int, gallery: TargetGallery) -> int:
    """The number, if there is such an image; a 404 otherwise."""
    if number >= len(gallery):
        raise HTTPException(404, f"there is no image {number}; the last one is {len(gallery) - 1}")
    return number
