"""The paper's Baseline (Section 4.2): domain mapping with one mechanism, a CycleGAN."""

from dataclasses import dataclass, field
from typing import Literal

from tcm.errors import InputError
from tcm.methods.method import Problem, Recipe
from tcm.methods.tcm.alignment import AlignmentConfig
from tcm.methods.tcm.tcm import PAPER, TCM, TCMConfig


@dataclass(frozen=True)
class BaselineConfig:
    """A classifier on source images carried to the target's domain, their features aligned with the target's."""

    uses_counterfactuals = True
    recipe: Recipe = field(default_factory=lambda: PAPER.recipe)
    features: Literal["bottleneck", "backbone"] = "backbone"
    """What the discriminators look at."""
    alignment: AlignmentConfig = field(default_factory=lambda: AlignmentConfig("proxies"))

    def build(self, problem: Problem) -> TCM:
        """The terms of TCM that are left when there is one mechanism and no causal head."""
        k = len(problem.inverse or ())
        if k != 1:
            found = f"the Baseline has one mechanism, but --mechanisms has {k}"
            raise InputError(f"{found}; name a run of tcm mechanisms --preset paper --k 1")
        config = TCMConfig(
            recipe=self.recipe,
            features=self.features,
            source_views=None,
            target_views=None,
            plain=0.0,
            counterfactual=1.0,
            agreement=0.0,
            alignment=self.alignment,
            prediction="single",
        )
        return config.build(problem)


def preset_baseline(small: bool) -> BaselineConfig:
    """Where the options of --method start; the small network learns at the rate of the other methods."""
    return BaselineConfig(recipe=Recipe()) if small else BaselineConfig()
