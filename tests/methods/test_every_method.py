"""What every registered method must do, from its config to an exact resume."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tcm.classifier.train import TrainConfig
from tcm.cli.help import COMMANDS
from tcm.config import from_json, to_json
from tcm.data.batch import Batch, Counterfactuals
from tcm.data.stream import Stream
from tcm.data.task import DataConfig, Task
from tcm.methods import METHODS, WITH_PRESETS, Preset, preset_method
from tcm.methods.method import Method, Problem, uses_counterfactuals
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_config import make_fabric
from tcm.training.run_folder import Run

CLASSES = 10
Form = tuple[str, Preset]
PRESETS: tuple[Preset, ...] = ("default", "paper", "release")
FORMS = [(name, preset) for name in METHODS for preset in PRESETS if preset == "default" or name in WITH_PRESETS]
every_method = pytest.mark.parametrize("form", FORMS, ids=" ".join)


def mechanisms(form: Form) -> int:
    return 1 if form[0] == "baseline" else 2


def build(form: Form, seed: int = 0) -> Method:
    torch.manual_seed(seed)
    config, inverse = preset_method(*form, small=True), None
    if uses_counterfactuals(config):
        generator = GeneratorConfig(width=2, halvings=1, blocks=1, kernel=3)
        inverse = FrozenGenerators(generator.build() for _ in range(mechanisms(form)))
    return config.build(Problem(CLASSES, BackboneConfig("small").build(), inverse))


def random_batch(form: Form) -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(2, 8, 3, 32, 32, generator=generator)
    made = torch.rand(2, mechanisms(form), 8, 3, 32, 32, generator=generator)
    return Batch(images[0], torch.arange(8), images[1], Counterfactuals(*made))


class Breaking:
    """A stream that breaks off at a step, as a power cut would."""

    def __init__(self, stream: Stream, at: int | None):
        self.stream, self.at = stream, at

    def batch(self, step: int) -> Batch:
        if step == self.at:
            raise ConnectionError("the power is gone")
        return self.stream.batch(step)


def trained(form: Form, digits: Task, folder: Path, breaks: list[int | None]) -> dict[str, torch.Tensor]:
    """Weights after six steps, with a restart of everything at each break."""
    for at in breaks:
        fabric = make_fabric("cpu", "fp32")
        config = TrainConfig(method=METHODS[form[0]](), data=DataConfig(benchmark="digits")).resolved()
        # Negatives serve as counterfactuals, whether the method looks at them or not.
        k = mechanisms(form)
        made = (255 - digits.source.images)[:, None].expand(-1, k, -1, -1, -1)
        made = made, (255 - digits.target.images)[:, None].expand(-1, k, -1, -1, -1)
        stream = Stream(*digits, batch=8, seed=5, view=config.data.view, device=fabric.device, transported=made)
        method, run = build(form), Run(folder)
        run.start({"method_name": form[0]})
        schedule = Schedule(steps=6, log_every=2, evaluate_every=100, save_every=3)
        try:
            training_loop(
                fabric, method, Breaking(stream, at), run, schedule=schedule, seed=5, evaluate=dict, quiet=True
            )
        except ConnectionError:
            continue
        return method.state_dict()
    raise AssertionError("the last attempt must not break")


@every_method
def test_an_update_is_finite_and_moves_the_weights(form: Form):
    method = build(form).train()
    before = {key: value.clone() for key, value in method.named_parameters()}
    losses = method.update(random_batch(form), 0.5, method.build_optimizers())
    assert losses
    assert all(torch.isfinite(loss) and loss.ndim == 0 and not loss.requires_grad for loss in losses.values())
    still = [key for key, value in method.named_parameters() if value.requires_grad and torch.equal(value, before[key])]
    assert still == []
    assert all(torch.equal(value, before[key]) for key, value in method.named_parameters() if not value.requires_grad)


@every_method
def test_predict_gives_one_logit_a_class(form: Form):
    method = build(form).eval()
    assert method.predict(random_batch(form).target).shape == (8, CLASSES)


@every_method
def test_the_answer_is_the_prediction_and_a_row_of_features_an_image(form: Form):
    method, images = build(form).eval(), random_batch(form).target
    logits, features, variants = method.answer(images)
    assert torch.equal(logits, method.predict(images))
    assert all(variant.shape == logits.shape for variant in variants.values())
    assert features.shape == (8, features.shape[1])
    assert features.isfinite().all()
    assert not torch.allclose(features[0], features[1])


@every_method
def test_predict_does_not_depend_on_the_rest_of_the_batch(form: Form):
    method, images = build(form).eval(), random_batch(form).target
    torch.testing.assert_close(method.predict(images)[:2], method.predict(images[:2]), rtol=1e-4, atol=1e-5)


@every_method
def test_the_config_survives_json(form: Form):
    config: TrainConfig[Any] = TrainConfig(
        method=preset_method(*form, small=True), preset=form[1], data=DataConfig(benchmark="digits"), seed=3
    ).resolved()
    assert from_json(TrainConfig[METHODS[form[0]]], to_json(config)) == config


@every_method
@pytest.mark.parametrize("at", [3, 4, 5])
def test_resume_is_exact(form: Form, digits: Task, tmp_path: Path, at: int):
    whole = trained(form, digits, tmp_path / "whole", [None])
    resumed = trained(form, digits, tmp_path / "resumed", [at, None])
    assert whole.keys() == resumed.keys()
    differing = [key for key in whole if not torch.equal(whole[key], resumed[key])]
    assert differing == []


@every_method
def test_the_rate_follows_the_schedule(form: Form):
    method = build(form)
    assert method.lr_factor(0) == 1
    assert 0 <= method.lr_factor(1) < 1


def test_the_command_line_offers_every_method():
    assert {f"train {name}" for name in METHODS} == {name for name in COMMANDS if name.startswith("train ")}


def test_no_batch_can_carry_target_labels():
    assert not [field for field in Batch._fields if "label" in field and field != "labels"]
    assert Batch._fields == ("source", "labels", "target", "counterfactuals")
    assert Counterfactuals._fields == ("source", "target")
