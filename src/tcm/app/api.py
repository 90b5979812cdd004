"""The addresses of the server: the page, the JSON API, and its description as OpenAPI."""

import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, File, HTTPException, Query, Request, UploadFile
from starlette.responses import JSONResponse, Response

from tcm import __version__
from tcm.app.answers import Explanation, Health, Info, ModelInfo, PredictedImage, PredictedImages, Refusal
from tcm.app.explain import SHOWN_CLASSES, Explainer
from tcm.app.label_routes import label_routes
from tcm.app.labels import LabelFolder, LabelNotStored
from tcm.app.runs import ServedRuns
from tcm.app.target import TargetGallery, open_gallery
from tcm.app.target_routes import target_routes
from tcm.app.uploads import MAX_BYTES, MAX_IMAGES, RefusedUpload, decoded_upload, shown_name
from tcm.errors import InputError, printable
from tcm.training.run_folder import read_json

STATIC = Path(__file__).with_name("static")
DESCRIPTION = "Predictions of finished tcm runs. Images are sent as multipart/form-data; refusals have a reason."


def build_app(runs: ServedRuns, sample: int) -> FastAPI:
    """The application for these runs, without its guard; a new audit has `sample` images."""
    explainer, gallery = Explainer(runs), open_gallery(runs)
    labels = LabelFolder(gallery.predictions[0], sample) if gallery else None

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if explainer.source:
            explainer.source.start()
        yield
        explainer.close()

    # The usual pages of the documentation load scripts from another site.
    app = FastAPI(
        title="tcm app",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses={"4XX": {"model": Refusal}},
    )
    app.include_router(image_routes(explainer, info(runs, gallery)))
    if gallery and labels:
        app.include_router(target_routes(explainer, gallery, labels))
        app.include_router(label_routes(runs, gallery, labels))
    app.include_router(static_routes())
    app.add_exception_handler(RefusedUpload, _refused_upload)
    app.add_exception_handler(InputError, _input_error)
    return app


def info(runs: ServedRuns, gallery: TargetGallery | None) -> Info:
    """What the server can do."""
    models = []
    for model in runs.models:
        file = model.folder / "evaluation.json"
        accuracy = read_json(file)["target"]["accuracy"] if file.exists() else None
        backbone = model.trained.config.backbone.name
        about = {"method": model.trained.name, "backbone": backbone, "target_accuracy": accuracy}
        models.append(ModelInfo(title=printable(model.title), **about))
    return Info(
        version=__version__,
        models=models,
        classes=[printable(name) for name in runs.classes],
        source=printable(runs.task.source.name) if runs.task else None,
        target=printable(runs.task.target.name) if runs.task else None,
        images=len(gallery) if gallery else 0,
        mechanisms=runs.transport.bank.k if runs.transport else 0,
        notes=[printable(note) for note in runs.notes],
        max_bytes=MAX_BYTES,
        max_images=MAX_IMAGES,
    )


def image_routes(explainer: Explainer, about: Info) -> APIRouter:
    """The addresses that take an image, and those that tell about the server."""
    router = APIRouter()

    @router.get("/health", tags=["server"])
    def health() -> Health:
        """Whether the server works. It needs no token."""
        return Health()

    @router.get("/info", tags=["server"])
    def information() -> Info:
        """The models, the classes, and what the server can do with them."""
        return about

    @router.post("/predict", tags=["images"])
    def predict(
        images: Annotated[list[UploadFile], File(description="one or more image files")],
        top: Annotated[int, Query(ge=1, le=1000, description="number of classes")] = SHOWN_CLASSES,
    ) -> PredictedImages:
        """The most probable classes of each image, by every model."""
        if len(images) > MAX_IMAGES:
            raise HTTPException(413, f"the request has {len(images)} images; send at most {MAX_IMAGES}")
        names = [shown_name(image.filename) for image in images]
        decoded = (decoded_upload(image.file.read(), name) for image, name in zip(images, names, strict=True))
        found = explainer.predict([explainer.pixels(image) for image in decoded], top)
        parts = zip(names, found, strict=True)
        return PredictedImages(images=[PredictedImage(name=name, predictions=each) for name, each in parts])

    @router.post("/explain", tags=["images"])
    def explain(image: Annotated[UploadFile, File(description="an image file")]) -> Explanation:
        """Predictions, where each model looks, counterfactuals with the predictions on them, nearest source images."""
        name = shown_name(image.filename)
        return explainer.explain(explainer.pixels(decoded_upload(image.file.read(), name)), name)

    return router


def static_routes() -> APIRouter:
    """The page, read once. Names are looked up in a table, so that no request reaches the disk."""
    files = {file.name: file.read_bytes() for file in STATIC.iterdir() if file.is_file()}
    router = APIRouter(include_in_schema=False)

    def answer(name: str) -> Response:
        if name not in files:
            raise HTTPException(404, "there is no such file")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        kind = "text/javascript" if name.endswith(".js") else kind  # a registry of the system may say otherwise
        return Response(files[name], media_type=kind, headers={"Cache-Control": "no-cache"})

    @router.get("/")
    def page() -> Response:
        return answer("index.html")

    @router.get("/docs")
    def docs() -> Response:
        return answer("docs.html")

    @router.get("/static/{name}")
    def static(name: str) -> Response:
        return answer(name)

    return router


async def _refused_upload(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedUpload)
    return JSONResponse({"detail": str(error)}, error.status)


async def _input_error(_: Request, error: Exception) -> Response:
    return JSONResponse({"detail": printable(error)}, 507 if isinstance(error, LabelNotStored) else 409)
