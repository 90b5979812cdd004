"""What X, y and sample_domain mean: which samples are images, which belong to the target, and their classes."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from tcm.errors import InputError

TARGET = -1  # the label of a target sample, as in skada and in scikit-learn's semi-supervised learning


class Labels(NamedTuple):
    """The classes of samples of which some belong to the target."""

    classes: NDArray[Any]  # [classes], the labels of source samples, sorted
    numbers: NDArray[np.int64]  # [n], the place of each source sample's label in `classes`; -1: a target sample

    @property
    def source(self) -> NDArray[np.bool_]:
        """Which samples belong to the source."""
        return self.numbers >= 0


def target_samples(y: Any, sample_domain: Any = None) -> NDArray[np.bool_]:
    """Which samples belong to the target, bool [n]: those of a negative domain or, without domains, labelled -1.

    numpy makes the text "-1" of [-1, "cup"], so that text counts too.
    """
    if sample_domain is None:
        labels = np.asarray(y)
        if labels.dtype.kind in "UO":
            return np.array([label in (TARGET, str(TARGET)) for label in labels.tolist()], dtype=bool)
        return labels == TARGET
    domains = np.asarray(sample_domain)
    expected = domains.shape if y is None else np.shape(y)
    if domains.shape != expected or domains.ndim != 1 or domains.dtype.kind not in "if":
        found = f"has the shape {list(domains.shape)} and the dtype {domains.dtype}"
        remedy = f"give {expected[0] if expected else 'as many'} numbers, negative for samples of the target"
        raise InputError("sample_domain", f"{found}; {remedy}")
    return domains < 0


def read_labels(y: NDArray[Any], sample_domain: Any = None) -> Labels:
    """The classes of the samples; an error unless the source has two or more."""
    from sklearn.utils.multiclass import check_classification_targets

    target = target_samples(y, sample_domain)
    labels = y[~target]
    if not len(labels):
        found = "has no label but -1" if sample_domain is None else "has no sample of the source"
        raise InputError("y", f"{found}, so there is no class to learn; give samples with labels")
    check_classification_targets(labels)
    unmarked = target_samples(labels)
    if unmarked.any():
        found = f"is -1 for {int(unmarked.sum())} samples that `sample_domain` counts to the source"
        raise InputError("y", f"{found}; give their labels, or negative domains")
    classes, places = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise InputError("y", "has only one class among the samples of the source; give samples of two or more")
    numbers = np.full(len(y), TARGET, dtype=np.int64)
    numbers[~target] = places
    return Labels(classes, numbers)


def are_images(X: Any) -> bool:  # noqa: N803
    """Whether X holds images or their paths, and not feature vectors."""
    if isinstance(X, str | os.PathLike | Image.Image):
        return True
    if isinstance(X, Tensor) or (hasattr(X, "shape") and hasattr(X, "dtype")):
        return len(X.shape) == 4 or (len(X.shape) == 1 and len(X) > 0 and _is_image(np.asarray(X)[0]))
    return isinstance(X, Sequence) and len(X) > 0 and _is_image(X[0])


def _is_image(item: Any) -> bool:
    is_array = isinstance(item, np.ndarray | Tensor)
    return isinstance(item, str | os.PathLike | Image.Image) or (is_array and item.ndim == 3)


def with_channels_last(X: Any) -> Any:  # noqa: N803
    """X, where an array [n, 3, height, width] becomes one [n, height, width, 3], as the library has arrays."""
    if isinstance(X, np.ndarray) and X.ndim == 4 and X.shape[1] == 3 != X.shape[3]:
        return np.moveaxis(X, 1, -1)
    return np.asarray(X) if hasattr(X, "iloc") else X
