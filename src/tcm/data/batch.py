"""What a learner sees in one training step."""

from typing import NamedTuple

from torch import Tensor


class Counterfactuals(NamedTuple):
    """The k counterfactuals of every image of a batch, cropped and flipped like the image itself."""

    source: Tensor  # [k, batch, 3, height, width] in [0, 1]: M_i(x_s)
    target: Tensor  # [k, batch, 3, height, width] in [0, 1]: M_i^-1(x_t)


class StrongViews(NamedTuple):
    """A strongly augmented view of every image of a batch, or of a counterfactual of it."""

    source: Tensor  # [batch, 3, height, width] in [0, 1]
    target: Tensor  # [batch, 3, height, width] in [0, 1]


class Batch(NamedTuple):
    """The images of one step. There is no field for target labels, so no method can look at them."""

    source: Tensor  # [batch, 3, height, width] in [0, 1]
    labels: Tensor  # [batch], classes of the source images
    target: Tensor  # [batch, 3, height, width] in [0, 1]
    counterfactuals: Counterfactuals | None = None  # only in a run with mechanisms and without strong views
    strong: StrongViews | None = None  # only for methods that use them
    target_indices: Tensor | None = None  # [batch], the places of the target images in their domain
    source_domains: Tensor | None = None  # [batch], the number of each source image's domain; None: there is only one
