"""TCMClassifier: every method of the library as a scikit-learn estimator."""

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from tcm.classifier.load import Classifier
from tcm.config import to_json, with_settings
from tcm.data.task import DataConfig
from tcm.errors import InputError, Interrupted, printable
from tcm.estimator.images import ImageSettings, fit_images, separate
from tcm.estimator.samples import Labels, are_images, read_labels, target_samples, with_channels_last
from tcm.estimator.saving import load_estimator, save_estimator
from tcm.estimator.vectors import VectorNetwork, default_settings, fit_vectors, probabilities, require_vectors, restored
from tcm.methods import METHODS
from tcm.methods.method import Method
from tcm.nn.backbone import BackboneConfig
from tcm.pipeline.config import StageOne
from tcm.pipeline.plan import WITH_MECHANISMS, WITHOUT
from tcm.training.device import Device, require_device
from tcm.training.run_config import require_valid_numbers

VECTOR_STEPS = 300


class TCMClassifier(ClassifierMixin, BaseEstimator):
    """Unsupervised domain adaptation as a scikit-learn estimator, on images or on feature vectors.

    `fit` takes the samples of both domains together. Samples of the target have the label -1 in `y`; or
    `sample_domain` says it, as in skada: negative numbers are target domains, others are source domains, and the labels
    of target samples are not read. Without any target sample the source stands in for it, with a warning.

    `X` is an array of images uint8 [n, height, width, 3] or [n, 3, height, width], a list of arrays, of PIL images or
    of paths; or a table of feature vectors [n, features]. On vectors a small network takes the place of the backbone,
    strong views replace some values of a vector by those of other samples, and there are no mechanisms: `tcm` is
    trained as `tcm-control`.

    Args:
        method: A method of `tcm.METHODS`.
        settings: Settings of the method, such as {"trade_off": 0.5, "recipe": {"lr": 0.02}}.
        steps: Training steps. Default: 300 on vectors; images as `tcm.fit`.
        batch: Samples of each domain in a step, or fewer if a domain of images has fewer.
        k: Number of mechanisms of a method that uses counterfactuals. Default: 4, photographs 0 for `tcm`; with 0 `tcm`
            is trained as `tcm-control`.
        hidden_layer_sizes: Widths of the network in front of the method's own layers, on vectors. (): none.
        data: Settings of `DataConfig` for images, such as {"size": 32, "flip": False}.
        backbone: Settings of `BackboneConfig` for images, such as {"name": "resnet18"}.
        mechanisms: Settings of stage 1, such as {"steps": 2000}.
        random_state: Seed of all random choices.
        device: "auto" is the GPU if there is one.
        verbose: Show progress.

    Attributes:
        classes_: The labels of the source, sorted: the columns of `predict_proba`.
        n_features_in_: Number of features, on vectors.
        feature_names_in_: Names of the features, if X was a table with such names.
        method_: The network, a `torch.nn.Module`.
        classifier_: On images, the `Classifier` with `features`, `explain` and more; None on vectors.
        seed_: The seed that was used.
    """

    # As skada's own estimators: its pipelines pass these on without being asked.
    __metadata_request__fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__predict_proba: ClassVar = {"sample_domain": True, "allow_source": True}
    __metadata_request__score: ClassVar = {"sample_domain": True, "allow_source": True}

    n_features_in_: int
    feature_names_in_: NDArray[np.object_]
    classifier_: Classifier | None
    method_: Method
    about_: dict[str, Any]  # what model.safetensors says about the network

    def __init__(
        self,
        method: str = "tcm",
        *,
        settings: Mapping[str, Any] | None = None,
        steps: int | None = None,
        batch: int = 32,
        k: int | None = None,
        hidden_layer_sizes: Sequence[int] = (100,),
        data: Mapping[str, Any] | DataConfig | None = None,
        backbone: Mapping[str, Any] | BackboneConfig | None = None,
        mechanisms: Mapping[str, Any] | StageOne | None = None,
        random_state: Any = 0,
        device: Device = "auto",
        verbose: bool = False,
    ):
        self.method = method
        self.settings = settings
        self.steps = steps
        self.batch = batch
        self.k = k
        self.hidden_layer_sizes = hidden_layer_sizes
        self.data = data
        self.backbone = backbone
        self.mechanisms = mechanisms
        self.random_state = random_state
        self.device: Device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_domain: Any = None) -> Self:  # noqa: N803
        """Trains on the samples of both domains."""
        self._require_settings()
        images, samples = are_images(X), X
        if images:
            y = column_or_1d(_given(y), warn=True)
        else:
            samples, y = cast(tuple[Any, Any], validate_data(self, X, _given(y), dtype=np.float64))
        labels = read_labels(y, sample_domain)
        if labels.source.all():
            warnings.warn(
                "X has no samples of the target (label -1 or a negative domain); those of the source stand in",
                UserWarning,
                stacklevel=2,
            )
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        if isinstance(self.random_state, int | np.integer):
            self.seed_ = int(self.random_state)
        try:
            with torch.random.fork_rng():  # the user's own random numbers stay as they are
                self._fit_images(samples, labels) if images else self._fit_vectors(samples, labels)
        except Interrupted as stopped:  # the temporary folder with what was saved is gone
            raise KeyboardInterrupt("training was stopped") from stopped
        self.classes_ = labels.classes
        return self

    def predict(self, X: Any, sample_domain: Any = None, allow_source: bool = False) -> NDArray[Any]:  # noqa: N803
        """The label of every sample. The other arguments are for skada: a prediction does not depend on the domain."""
        numbers = self.predict_proba(X).argmax(axis=1)
        return self.classes_[numbers]

    def predict_proba(
        self,
        X: Any,  # noqa: N803
        sample_domain: Any = None,
        allow_source: bool = False,
    ) -> NDArray[Any]:
        """Class probabilities [n, classes] of the samples, in the order of `classes_`."""
        check_is_fitted(self)
        if self.classifier_ is not None:
            return self.classifier_.predict_proba(with_channels_last(X))
        vectors = cast(NDArray[np.float64], validate_data(self, X, dtype=np.float64, reset=False))
        return probabilities(self.method_, vectors)

    def score(
        self,
        X: Any,  # noqa: N803
        y: Any,
        sample_weight: Any = None,
        sample_domain: Any = None,
        allow_source: bool = False,
    ) -> float:
        """The accuracy on the samples that have a label; those with -1 are left out."""
        known = ~target_samples(y)
        if not known.any():
            raise InputError("y", "has no label but -1; use a `TargetScorer`, which needs no labels")
        predicted, truth = self.predict(X)[known], np.asarray(y)[known]
        weights = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(truth, predicted, sample_weight=weights))

    def save(self, folder: "str | os.PathLike[str]") -> None:
        """Writes model.safetensors and estimator.json, without pickle. On images `tcm.load` reads the folder too."""
        check_is_fitted(self)
        save_estimator(self, Path(folder).expanduser())

    @classmethod
    def load(cls, folder: "str | os.PathLike[str]", *, device: Device = "auto") -> Self:
        """The estimator that `save` wrote."""
        found = cls()
        load_estimator(found, Path(folder).expanduser(), device)
        return found

    def __getstate__(self) -> dict[str, Any]:
        """Weights in place of the network on vectors: some networks cannot be pickled."""
        state = cast(dict[str, Any], super().__getstate__())
        on_vectors = hasattr(self, "method_") and self.classifier_ is None
        return {**state, "method_": self.method_.state_dict()} if on_vectors else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("method_"), dict):
            network = VectorNetwork.read(state["about_"]["vectors"], "the pickled estimator")
            state = {**state, "method_": restored(network, state["method_"])}
        super().__setstate__(state)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "classes_")

    def _require_settings(self) -> None:
        if self.method not in METHODS:
            raise InputError("method", f'is "{printable(self.method)}"; give one of {", ".join(METHODS)}')
        require_device(self.device)
        for name, value, least in (("steps", self.steps, 1), ("batch", self.batch, 2), ("k", self.k, 0)):
            if value is not None and (not isinstance(value, int | np.integer) or value < least):
                raise InputError(name, f"is {value!r}; give a whole number, {least} or more")

    def _fit_images(self, X: Any, labels: Labels) -> None:  # noqa: N803
        samples = separate(with_channels_last(X), len(labels.numbers))
        given = ImageSettings(
            self.method,
            self.settings or {},
            self.steps,
            self.batch,
            self.k,
            self.data or {},
            self.backbone or {},
            self.mechanisms or {},
            self.seed_,
            self.device,
            quiet=not self.verbose,
        )
        classifier, self.about_ = fit_images(samples, labels, given)
        self.classifier_, self.method_ = classifier, classifier.method

    def _fit_vectors(self, X: NDArray[np.float64], labels: Labels) -> None:  # noqa: N803
        if self.k:
            raise InputError("k", f"is {self.k}, but X holds feature vectors, which have no mechanisms; leave it out")
        name = WITHOUT if self.method == WITH_MECHANISMS else self.method
        require_vectors(name)
        config = with_settings(default_settings(name), self.settings or {}, "settings")
        require_valid_numbers(to_json(config), "settings")
        widths = tuple(int(width) for width in self.hidden_layer_sizes)
        require_valid_numbers(list(widths), "hidden_layer_sizes")
        network = VectorNetwork(name, config, X.shape[1], widths, len(labels.classes))
        source = X[labels.source]
        target = X if labels.source.all() else X[~labels.source]
        steps = (VECTOR_STEPS if config.trains else 1) if self.steps is None else self.steps
        self.method_ = fit_vectors(
            *(network, source, labels.numbers[labels.source], target),
            steps=steps,
            batch=self.batch,
            seed=self.seed_,
            device=self.device,
            quiet=not self.verbose,
        )
        self.classifier_, self.about_ = None, {"vectors": network.about()}


def _given(y: Any) -> Any:
    if y is None:
        needed = "TCMClassifier requires y to be passed, but the target y is None"  # the words of scikit-learn
        raise InputError(f"{needed}; give labels, and -1 for samples of the target")
    return y
