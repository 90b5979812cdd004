"""What every registered method must do, from its config to an exact resume."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tcm.classifier.train_config import TrainConfig
from tcm.cli.app import main
from tcm.cli.train import purpose_of
from tcm.config import from_json, to_json
from tcm.data.augment import as_input
from tcm.data.batch import Batch, Counterfactuals, StrongViews
from tcm.data.stream import Stream, Strong
from tcm.data.strong_views import SMALL_IMAGES
from tcm.data.task import DataConfig, Task
from tcm.methods import METHODS
from tcm.methods.method import Method, Problem, TargetImages, TaskFeatures
from tcm.nn.backbone import BackboneConfig
from tcm.nn.generator import FrozenGenerators, GeneratorConfig
from tcm.training.device import make_fabric
from tcm.training.loop import Schedule, training_loop
from tcm.training.run_folder import Run

CLASSES = 10
every_method = pytest.mark.parametrize("name", list(METHODS))
every_trained_method = pytest.mark.parametrize("name", [name for name, config in METHODS.items() if config().trains])


def mechanisms(name: str) -> int:
    return METHODS[name].number_of_mechanisms or 2


def build(name: str, task: Task | None = None) -> Method:
    """The method; with the target images of a task, which it may then predict in the course of its training."""
    torch.manual_seed(0)
    config, inverse, target, features = METHODS[name].for_images(small=True), None, None, None
    if task:
        features = partial(features_of_task, task)
        images = as_input(task.target.images)
        target = TargetImages(
            len(images),
            lambda method: method.predict_fast(images).softmax(dim=1).detach(),
            lambda method: method.answer_fast(images).features.detach(),
        )
    if config.runs_inverse:
        generator = GeneratorConfig(width=2, halvings=1, blocks=1, kernel=3)
        inverse = FrozenGenerators(generator.build() for _ in range(mechanisms(name)))
    return config.build(Problem(CLASSES, BackboneConfig("small").build(), inverse, target, features))


@torch.no_grad()
def features_of_task(task: Task, network: Callable[[torch.Tensor], torch.Tensor]) -> TaskFeatures:
    source, target = (network(as_input(store.images)) for store in task)
    return TaskFeatures(source, task.source.labels, target)


def random_batch(name: str) -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(4, 8, 3, 32, 32, generator=generator)
    made = torch.rand(2, mechanisms(name), 8, 3, 32, 32, generator=generator)
    strong = StrongViews(images[2], images[3])
    return Batch(images[0], torch.arange(8), images[1], Counterfactuals(*made), strong, torch.arange(8))


class Breaking:
    """A stream that breaks off at a step, as a power cut would."""

    def __init__(self, stream: Stream, at: int | None):
        self.stream, self.at = stream, at

    def batch(self, step: int) -> Batch:
        if step == self.at:
            raise ConnectionError("the power is gone")
        return self.stream.batch(step)


def trained(name: str, digits: Task, folder: Path, breaks: list[int | None]) -> dict[str, torch.Tensor]:
    """Weights after six steps, with a restart of everything at each break."""
    for at in breaks:
        fabric = make_fabric("cpu", "fp32")
        config = TrainConfig(method=METHODS[name](), data=DataConfig(benchmark="digits")).resolved()
        # Negatives serve as counterfactuals, whether the method looks at them or not.
        k = mechanisms(name)
        made = (255 - digits.source.images)[:, None].expand(-1, k, -1, -1, -1)
        made = made, (255 - digits.target.images)[:, None].expand(-1, k, -1, -1, -1)
        share = config.method.strong_counterfactuals
        strong = None if share is None else Strong(SMALL_IMAGES, share)
        options = {"view": config.data.view, "device": fabric.device, "transported": made, "strong": strong}
        stream = Stream(*digits, batch=8, seed=5, **options)
        method, run = build(name, digits), Run(folder)
        run.start({"method_name": name})
        schedule = Schedule(steps=6, log_every=2, evaluate_every=100, save_every=3)
        try:
            training_loop(
                fabric, method, Breaking(stream, at), run, schedule=schedule, seed=5, evaluate=dict, quiet=True
            )
        except ConnectionError:
            continue
        return method.state_dict()
    raise AssertionError("the last attempt must not break")


@every_trained_method
def test_an_update_is_finite_and_moves_the_weights(name: str):
    method = build(name).train()
    before = {key: value.clone() for key, value in method.named_parameters()}
    losses = method.update(random_batch(name), 0.5, method.build_optimizers())
    assert losses
    assert all(torch.isfinite(loss) and loss.ndim == 0 and not loss.requires_grad for loss in losses.values())
    still = [key for key, value in method.named_parameters() if value.requires_grad and torch.equal(value, before[key])]
    assert still == []
    assert all(torch.equal(value, before[key]) for key, value in method.named_parameters() if not value.requires_grad)


@every_method
def test_predict_gives_one_logit_a_class(name: str):
    method = build(name).eval()
    assert method.predict(random_batch(name).target).shape == (8, CLASSES)


@every_method
def test_the_answer_is_the_prediction_and_a_row_of_features_an_image(name: str):
    method, images = build(name).eval(), random_batch(name).target
    logits, features, variants = method.answer(images)
    assert torch.equal(logits, method.predict(images))
    assert all(variant.shape == logits.shape for variant in variants.values())
    assert features.shape == (8, features.shape[1])
    assert features.isfinite().all()
    assert not torch.allclose(features[0], features[1])


@every_method
def test_predict_does_not_depend_on_the_rest_of_the_batch(name: str):
    method, images = build(name).eval(), random_batch(name).target
    torch.testing.assert_close(method.predict(images)[:2], method.predict(images[:2]), rtol=1e-4, atol=1e-5)


@every_method
def test_the_config_survives_json(name: str):
    config: TrainConfig[Any] = TrainConfig(
        method=METHODS[name].for_images(small=True), data=DataConfig(benchmark="digits"), seed=3
    ).resolved()
    assert from_json(TrainConfig[METHODS[name]], to_json(config)) == config


@every_method
@pytest.mark.parametrize("at", [3, 4, 5])
def test_resume_is_exact(name: str, digits: Task, tmp_path: Path, at: int):
    whole = trained(name, digits, tmp_path / "whole", [None])
    resumed = trained(name, digits, tmp_path / "resumed", [at, None])
    assert whole.keys() == resumed.keys()
    differing = [key for key in whole if not torch.equal(whole[key], resumed[key])]
    assert differing == []


@every_method
def test_the_rate_follows_the_schedule(name: str):
    method = build(name)
    assert method.lr_factor(0) == 1
    assert 0 <= method.lr_factor(1) < 1


def test_the_command_line_offers_every_method(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["train", "--help"])
    assert not ended.value.code
    said = capsys.readouterr().out
    assert all(f"tcm train {name} " in said for name in METHODS)


@every_method
def test_every_method_says_what_it_is(name: str):
    assert len(purpose_of(name)) > 20


def test_no_batch_can_carry_target_labels():
    assert not [field for field in Batch._fields if "label" in field and field != "labels"]
    fields = ("source", "labels", "target", "counterfactuals", "strong", "target_indices", "source_domains")
    assert Batch._fields == fields
    assert Counterfactuals._fields == StrongViews._fields == ("source", "target")
