"""Quick classifiers of source images, which are asked whether changed images still show their class.

Every image is predicted by a classifier that was not trained on it, nor on any change of it: the images are divided
into folds, and each fold is predicted by the classifier of the others.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tcm.data.augment import View
from tcm.data.stream import derived_generator
from tcm.data.strong_views import SMALL_IMAGES, random_strong_parameters, strong_views
from tcm.nn.backbone import SmallNet
from tcm.nn.heads import classifier

SURE = 0.01  # largest p-value of a difference that counts
FEWEST = 20  # images from which on a difference can count
FOLDS = 3
SIDE = 32  # pixels of the images that the small network sees
STEPS, BATCH, RATE = 150, 32, 4e-3  # of the training of the small network, once for each fold
EPOCHS = 40  # few images are seen at most this often
GREY = (0.299, 0.587, 0.114)
RIDGE = 1.0

Views = Mapping[str, Tensor]  # changed images in the order of the originals, by the name of the change
Predictor = Callable[[Tensor], Tensor]  # images or features of some rows -> their classes


class Recognition(NamedTuple):
    """How many images a classifier recognises, before and after a change of them."""

    images: int
    classes: int
    before: float  # share of the images
    after: float
    p_value: float  # probability of at least such a loss if the change made no difference

    @property
    def tells_something(self) -> bool:
        """Whether the classifier recognises more than chance would, in images enough for a test."""
        from scipy.stats import binomtest

        right = round(self.before * self.images)
        enough = self.images >= FEWEST and self.classes > 1
        above = binomtest(right, self.images, 1 / max(self.classes, 1), alternative="greater") if enough else None
        return above is not None and float(above.pvalue) < SURE / 10

    @property
    def lost(self) -> float:
        """The share of the accuracy above chance that is lost; 0 if the loss may be noise."""
        chance = 1 / self.classes
        return (self.before - self.after) / (self.before - chance) if self.p_value < SURE else 0.0


def recognition(labels: Tensor, before: Tensor, after: Tensor) -> Recognition:
    """The predictions before and after a change [n], compared with the labels [n].

    The p-value is that of McNemar's exact test, one-sided: among the images that are recognised in one of the two forms
    only, each form is as likely as the other if the change makes no difference.
    """
    from scipy.stats import binomtest

    was, now = before == labels, after == labels
    worse, better = int((was & ~now).sum()), int((~was & now).sum())
    p_value = binomtest(worse, worse + better, alternative="greater").pvalue if worse + better else 1.0
    before_share, after_share = (float(right.float().mean()) if len(labels) else 0.0 for right in (was, now))
    return Recognition(len(labels), len(labels.unique()), before_share, after_share, float(p_value))


def stratified(labels: Tensor, count: int) -> Tensor:
    """At most `count` rows, sorted: a random choice, as evenly over the classes as it can be. Classes with one image
    have none to test a classifier on, and are left out; so are unknown labels (-1)."""
    groups = [
        group[torch.randperm(len(group), generator=derived_generator("probe", "rows", label))]
        for label in labels.unique().tolist()
        if label >= 0 and len(group := (labels == label).nonzero().flatten()) > 1
    ]
    turns = [group[turn : turn + 1] for turn in range(max(map(len, groups), default=0)) for group in groups]
    return torch.cat(turns)[:count].sort().values if turns else torch.zeros(0, dtype=torch.int64)


def folds_of(labels: Tensor) -> Tensor:
    """The fold of each row, int64 [n]: each class is spread evenly over the folds."""
    folds = torch.zeros_like(labels)
    for label in labels.unique().tolist():
        members = (labels == label).nonzero().flatten()
        order = torch.randperm(len(members), generator=derived_generator("probe", "fold", label))
        folds[members[order]] = torch.arange(len(members)) % FOLDS
    return folds


def cross_validated(
    images: Tensor, labels: Tensor, views: Views, fit: Callable[[Tensor, Tensor], Predictor]
) -> dict[str, Tensor]:
    """The predicted classes [n] of each view. `fit` makes a predictor of images or features and their labels."""
    folds = folds_of(labels)
    found = {name: torch.full_like(labels, -1) for name in views}
    for fold in folds.unique().tolist():
        inside = folds == fold
        predict = fit(images[~inside], labels[~inside])
        for name, view in views.items():
            found[name][inside] = predict(view[inside])
    return found


def linear_probe(features: Tensor, labels: Tensor) -> Predictor:
    """Ridge regression on features [n, d] of unit length."""
    from sklearn.linear_model import RidgeClassifier

    def unit(rows: Tensor) -> object:
        return F.normalize(rows.float(), dim=1).numpy()

    fitted = RidgeClassifier(alpha=RIDGE).fit(unit(features), labels.numpy())
    return lambda rows: torch.from_numpy(fitted.predict(unit(rows)))


def training_steps(images: int) -> int:
    """How many steps the small network takes on this many images."""
    return min(STEPS, max(images * EPOCHS // BATCH, 1))


def small_network(images: Tensor, labels: Tensor, show: Callable[[], None] = lambda: None) -> Predictor:
    """A small network trained on uint8 images [n, SIDE, SIDE, 3], which sees shapes only: grey images of equal
    brightness and contrast. Colours cannot tell whether an image was mirrored, and they differ between domains."""
    known, numbers = labels.unique(return_inverse=True)
    generator = derived_generator("probe", "network")
    steps = training_steps(len(images))
    with torch.random.fork_rng(devices=[]), one_thread():
        torch.manual_seed(generator.initial_seed())
        network = nn.Sequential(SmallNet(), classifier(SmallNet.num_features, len(known)))
        optimizer = torch.optim.AdamW(network.parameters(), lr=RATE)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps)
        for chosen in _batches(len(images), steps, generator):
            loss = F.cross_entropy(network(_training_views(images[chosen], generator)), numbers[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            show()
    network.eval()

    @torch.inference_mode()
    def predict(rows: Tensor) -> Tensor:
        with one_thread():
            return known[torch.cat([network(shapes(part)).argmax(dim=1) for part in rows.split(256)])]

    return predict


def shapes(images: Tensor) -> Tensor:
    """Grey images [n, 3, side, side] with mean 0 and variance 1 from uint8 [n, side, side, 3]."""
    return _standardised(images.movedim(-1, 1).float() / 255)


def resampled(images: Tensor, side: int = SIDE) -> Tensor:
    """uint8 images [n, any, any, 3] at side x side, smoothed before they are reduced."""
    if images.shape[1] == side:
        return images
    parts = [
        F.interpolate(part.movedim(-1, 1).float(), (side, side), mode="bilinear", antialias=True, align_corners=False)
        for part in images.split(256)
    ]
    return torch.cat([part.round().clamp(0, 255).byte().movedim(1, -1) for part in parts])


@contextmanager
def one_thread() -> Iterator[None]:
    """Runs on one thread: the number of threads changes the rounding of sums, and training amplifies this."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _batches(count: int, steps: int, generator: torch.Generator) -> Iterator[Tensor]:
    for _ in range(steps):
        yield torch.randint(count, (BATCH,), generator=generator)


def _training_views(images: Tensor, generator: torch.Generator) -> Tensor:
    view = View(crop=SIDE, flip=False, shift=0)
    drawn = random_strong_parameters((len(images),), SIDE, view, SMALL_IMAGES, generator)
    return _standardised(strong_views(images, drawn, SIDE))


def _standardised(images: Tensor) -> Tensor:
    grey = (images * images.new_tensor(GREY)[:, None, None]).sum(dim=1, keepdim=True)
    sd, mean = torch.std_mean(grey, dim=(2, 3), keepdim=True)
    return ((grey - mean) / (sd + 0.02)).expand(-1, 3, -1, -1).contiguous()
