"""What a run of stage 2 is: the images, the method, the backbone and the length."""

import dataclasses
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from tcm.config import to_json
from tcm.data.holdout import require_share
from tcm.methods import MethodConfig
from tcm.methods.method import RecipeName
from tcm.nn.backbone import BackboneConfig
from tcm.training.run_config import RunConfig, require_valid_numbers
from tcm.training.run_folder import mechanisms_run

M = TypeVar("M", bound=MethodConfig)


@dataclass(frozen=True, kw_only=True)
class TrainConfig(RunConfig, Generic[M]):
    """A training run of a method."""

    method: M
    mechanisms: Path | None = None
    """Folder of a finished tcm mechanisms run whose images tcm transport has written, or of a tcm fit. Only methods
    that use counterfactuals take it."""
    steps: int | None = None
    """Training steps. Default: 10000, tcm and tcm-control 4000, tcm-release 15000, digits 600; 1 if nothing is
    trained."""
    held_out: float = 0.0
    """Share of the source images of each class that training does not see, for tcm estimate and the selection scores
    dev and source. 0: these scores use training images and are too optimistic."""
    backbone: BackboneConfig = field(default_factory=BackboneConfig)

    @classmethod
    def with_recipe(cls, method: type[M], recipe: RecipeName, small: bool) -> "TrainConfig[M]":
        """The default config of a method; `small` is for images below 64 pixels."""
        settings = method.with_recipe(recipe, small)
        if recipe == "common":
            return cls(method=settings)
        return cls(method=settings, steps=method.authors_steps, batch=method.authors_batch)

    def resolved(self) -> "TrainConfig[M]":
        """This config with every default filled in. Finds mistakes before anything is written."""
        # Batch normalisation needs two images.
        steps = 600 if self.data.is_digits else self.method.default_steps
        settled = self.with_defaults(steps=steps if self.method.trains else 1, min_batch=2)
        require_valid_numbers(to_json(self.method), "method")
        require_share(self.held_out)
        crop = settled.data.view.crop
        backbone = self.backbone.resolved(small_images=settled.data.is_small)
        backbone.require_crop(crop)
        mechanisms = self.mechanisms and mechanisms_run(Path(os.path.abspath(self.mechanisms.expanduser())))
        return dataclasses.replace(settled, backbone=backbone, mechanisms=mechanisms)
