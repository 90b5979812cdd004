"""Strong views against the nearest chain of kornia.augmentation: time in one run, random draws, exactness.

python benchmarks/augmentation.py            64 images of 256 x 256 to 224 x 224
python benchmarks/augmentation.py --quick    8 images of them

Kornia is not a dependency of tcm.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from timing import seconds_a_call
from torch import Tensor

from tcm.data import strong_views as strong
from tcm.data.augment import View, as_input
from tcm.data.strong_views import PHOTOGRAPHS, box_transforms, random_strong_parameters, strong_views, transformed

SIZE, CROP = 256, 224


def nearest_chain(library: Any) -> Callable[..., Tensor]:
    """The augmentations of kornia that come nearest: no tint by a factor, squares of one grey, a blur of 3 x 3."""
    shear = 57.3 * torch.tensor(PHOTOGRAPHS.shear).atan().item()
    side = PHOTOGRAPHS.square
    steps = [
        library.RandomResizedCrop((CROP, CROP), scale=(PHOTOGRAPHS.area, 1), ratio=(3 / 4, 4 / 3), align_corners=False),
        library.RandomHorizontalFlip(),
        library.RandomAffine(
            PHOTOGRAPHS.rotation, shear=(-shear, shear), padding_mode="reflection", p=strong.TURNED, align_corners=False
        ),
        library.ColorJitter(strong.BRIGHTNESS, strong.CONTRAST, strong.SATURATION, p=strong.JITTERED),
        library.RandomRGBShift(0.25, 0.25, 0.25, p=strong.TINTED),
        library.RandomGrayscale(p=strong.GREY),
        library.RandomSolarize(strong.SOLARISE, (0, 0), p=PHOTOGRAPHS.solarised),
        library.RandomPosterize(strong.POSTERISE, p=strong.POSTERISED),
        library.RandomSharpness((1 + strong.SHARPEN[0], 1 + strong.SHARPEN[1]), p=strong.SHARPENED),
        library.RandomErasing((side[0] ** 2, side[1] ** 2), (1, 1), 0.45, p=strong.COVERED),
    ]
    return library.AugmentationSequential(*steps, data_keys=["input"])


def compare_time(images: Tensor, chain: Callable[..., Tensor], device: torch.device) -> None:
    view, generator = View(CROP, True, 0), torch.Generator().manual_seed(0)

    def ours(apply: Callable[..., Tensor]) -> Tensor:
        drawn = random_strong_parameters((len(images),), SIZE, view, PHOTOGRAPHS, generator)
        return apply(images, drawn.to(device), CROP)

    compiled = torch.compile(strong_views, fullgraph=True)
    calls: dict[str, Callable[[int], object]] = {
        "kornia": lambda _: chain(as_input(images)),
        "strong_views": lambda _: ours(strong_views),
        "compiled": lambda _: ours(compiled),
    }
    took = seconds_a_call(calls, device, repeats=20 if device.type == "cuda" else 1)
    for name, seconds in took.items():
        print(f"{name}: {1000 * seconds:.1f} ms for {len(images)} images, {seconds / took['kornia']:.2f} of kornia's")


def compare_draws(images: Tensor, chain: Callable[..., Tensor]) -> None:
    """Whether a generator can be passed, and whether a view depends on the other images of the batch."""
    x = as_input(images)
    try:
        chain(x, generator=torch.Generator())
        print("kornia: takes a generator")
    except TypeError:
        print("kornia: takes no generator, draws from the global one")
    drawn = random_strong_parameters(
        (len(x),), SIZE, View(CROP, True, 0), PHOTOGRAPHS, torch.Generator().manual_seed(0)
    )
    others = torch.cat([images[:1], images[:-1]])
    theirs, ours = [], []
    for batch in (images, others):
        torch.manual_seed(0)
        theirs.append(chain(as_input(batch))[0])
        ours.append(strong_views(batch, drawn, CROP)[0])
    for name, (one, other) in {"kornia": theirs, "strong_views": ours}.items():
        print(f"{name}: a view {'is the same' if one.equal(other) else 'differs'} among other images")


def compare_sharpness(library: Any) -> None:
    """How much of fine detail, white noise, is left in views that are cropped and turned: one sampling against two."""
    noise = torch.randint(0, 256, (4, SIZE, SIZE, 3), generator=torch.Generator().manual_seed(0)).byte()
    crop = library.RandomResizedCrop((CROP, CROP), (0.7, 0.7), (1, 1), align_corners=False)
    turn = library.RandomAffine((20.0, 20.0), padding_mode="reflection", p=1.0, align_corners=False)
    side = round(0.7**0.5 * SIZE)
    boxes = torch.tensor([20, 20, 0, side, side]).repeat(4, 1).T
    ours = transformed(noise, box_transforms(boxes, SIZE, torch.full((4,), 0.349), torch.zeros(4)), CROP)
    for name, view in {"kornia": turn(crop(as_input(noise))), "strong_views": ours}.items():
        print(f"{name}: {100 * view.std() / as_input(noise).std():.0f} % of fine detail left after crop and turn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    count = 8 if parser.parse_args().quick else 64
    try:
        import kornia.augmentation as library  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise SystemExit("pip install kornia") from None
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    images = torch.randint(0, 256, (count, SIZE, SIZE, 3), generator=torch.Generator().manual_seed(0)).byte()
    chain = nearest_chain(library)
    compare_draws(images, chain)
    compare_sharpness(library)
    compare_time(images.to(device), chain, device)


if __name__ == "__main__":
    main()
