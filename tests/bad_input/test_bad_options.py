"""Mistakes in the options of a command."""

import pytest
import safetensors.torch
import torch
from support.mistakes import TRAIN, Case, World, refusal, require_refusal

from tcm.cli.app import main

PAPER = TRAIN.replace("erm", "tcm-paper") + " --mechanisms {mechanisms}"
CONTROL = TRAIN.replace("erm", "tcm-control")
CASES = (
    Case("unknown option", TRAIN + " --stpes 3", ("--stpes", "--steps", "tcm train erm --help"), absent="out"),
    Case(
        "unknown option of a fit",
        "fit a b --stepz 3",
        ("error: Unrecognized options: --stepz, 3; did you mean --steps?;",),
    ),
    *(
        Case(
            f"fit with {option} {value}",
            f"fit {{data}}/Art {{data}}/Clipart --out {{here}}/out --device cpu {option} {value}",
            (f"error: {option} is {value}; give ",),
            absent="out",
        )
        for option, value in (("--steps", 0), ("--batch", -1), ("--mechanisms.steps", 0), ("--method.threshold", 1.5))
    ),
    Case("k without mechanisms", TRAIN + " --k 4", ("--k has no meaning for erm", "leave it out"), absent="out"),
    Case(
        "k of other mechanisms",
        PAPER + " --k 7",
        ("--k is 7", "/mechanisms has 2 mechanisms", "tcm mechanisms --k 7"),
        absent="out",
    ),
    Case("wrong type", TRAIN + " --seed many", ("--seed", "'many'", "tcm train erm --help"), absent="out"),
    Case("wrong type of a number", TRAIN + " --batch 1.5", ("error: --batch: '1.5' is not an integer;",), absent="out"),
    Case("wrong type of a share", TRAIN + " --held-out x", ("error: --held-out: 'x' is not a number;",), absent="out"),
    Case(
        "number or word",
        "mechanisms --k x --out {here}/out",
        ("error: --k: 'x' is not an integer or auto;",),
        absent="out",
    ),
    Case(
        "wrong type of an optional number", TRAIN + " --steps 1.5", ("--steps", "'1.5' is not an integer"), absent="out"
    ),
    Case("wrong choice", TRAIN + " --device gpu", ("--device", "'gpu'", "'cpu', 'cuda'"), absent="out"),
    Case("missing option", "train erm {folders} {small}", ("--out", "tcm train erm --help")),
    Case("option without its value", "train erm {folders} {small} --out", ("--out", "tcm train erm --help")),
    Case("missing argument", "predict {run}", ("IMAGES", "Folder of images", "tcm predict --help")),
    Case("report without runs", "report", ("no run folder", "name at least one")),
    *(
        Case(f"{name} of no runs", f"figure {name}", ("no run folder", "name at least one"))
        for name in ("accuracy", "k")
    ),
    Case("empty output folder", "train erm {folders} {small} --out=", ("error: --out is empty; name a place",)),
    Case("empty output of a report", "report {run} --out=", ("error: --out is empty; name a place",)),
    Case("unknown command", "trian erm", ('"tcm trian"', 'did you mean "tcm train')),
    Case("command like no other", "xyzzy", ('"tcm xyzzy"', "tcm --help")),
    Case("unknown method", "train drann", ('"tcm train drann"', 'did you mean "tcm train dann"')),
    Case("unknown figure", "figure mechanism", ('did you mean "tcm figure mechanisms"',)),
    Case("unknown data command", "data chek", ('did you mean "tcm data check"',)),
    Case("batch of none", TRAIN + " --batch 0", ("--batch is 0", "give 2 or more"), absent="out"),
    Case("batch of one", TRAIN + " --batch 1", ("--batch is 1", "give 2 or more"), absent="out"),
    Case(
        "batch above the data",
        TRAIN + " --batch 13",
        ("--batch is 13", "Art has 12", "lower it or add images"),
        absent="out/config.json",
    ),
    Case("all held out", TRAIN + " --held-out 1", ("--held-out is 1.0", "give a share from 0 to 0.9"), absent="out"),
    Case(
        "a class held out whole",
        TRAIN + " --held-out 0.9",
        ("--held-out 0.9 leaves no image of cup to train on", "Art has 4", "lower it or add images"),
        absent="out/config.json",
    ),
    Case("no steps", TRAIN + " --steps 0", ("--steps is 0", "give 1 or more"), absent="out"),
    Case("never save", TRAIN + " --save-every 0", ("--save-every is 0", "give 1 or more"), absent="out"),
    Case("never log", TRAIN + " --log-every -5", ("--log-every is -5", "give 1 or more"), absent="out"),
    Case("no area", TRAIN + " --data.area 0", ("--data.area is 0.0", "more than 0 and at most 1"), absent="out"),
    Case("area above all", TRAIN + " --data.area 1.5", ("--data.area is 1.5", "at most 1"), absent="out"),
    Case(
        "area and shift",
        TRAIN + " --data.area 0.5 --data.shift 2",
        ("--data.shift is for crops of one size", "leave it out, or --data.area"),
        absent="out",
    ),
    Case("crop above size", TRAIN + " --data.crop 64", ("--data.crop is 64", "side 32", "give 8 to 32"), absent="out"),
    Case("tiny size", TRAIN + " --data.size 4", ("--data.size is 4", "8 or more"), absent="out"),
    Case("huge size", TRAIN + " --data.size 100000", ("--data.size is 100000", "give 4096 or less"), absent="out"),
    Case("negative rate", TRAIN + " --method.recipe.lr -1", ("--method.recipe.lr is -1.0", "0 or more"), absent="out"),
    Case("rate without number", TRAIN + " --method.recipe.lr nan", ("--method.recipe.lr is nan",), absent="out"),
    Case(
        "momentum that grows",
        TRAIN + " --method.recipe.momentum 1",
        ("--method.recipe.momentum is 1.0", "less than 1"),
        absent="out",
    ),
    Case(
        "dropout above all",
        PAPER + " --method.dropout 1.5",
        ("--method.dropout is 1.5", "less than 1"),
        absent="out",
    ),
    *(
        Case(
            f"{option} of {value}",
            f"{CONTROL} --method.{option} {value}",
            (f"--method.{option} is {float(value) if option != 'rounds' else value}", remedy),
            absent="out",
        )
        for option, value, remedy in (
            ("threshold", "1.5", "give 0 to 1"),
            ("threshold", "-0.5", "0 or more"),
            ("counterfactuals", "1.5", "give 0 to 1"),
            ("temperature", "0", "more than 0"),
            ("momentum", "1", "less than 1"),
            ("confusion", "inf", "finite"),
            ("pseudo-labels", "-1", "0 or more"),
            ("rounds", "0", "1 or more"),
        )
    ),
    *(
        Case(
            f"{option} of {value} in {method}",
            f"{TRAIN.replace('erm', method)} --method.{option} {value}",
            (f"--method.{option} is {float(value)}", remedy),
            absent="out",
        )
        for method, option, value, remedy in (
            ("dmrl", "concentration", "0", "more than 0"),
            ("etd", "epsilon", "0", "more than 0"),
            ("a2lp", "propagation.spreading", "1", "less than 1"),
            ("gta", "beta1", "1", "less than 1"),
        )
    ),
    Case(
        "no width among several",
        PAPER + " --method.head.vae.encoder 8 0",
        ("--method.head.vae.encoder is 0", "give 1 or more"),
        absent="out",
    ),
    Case(
        "no width",
        TRAIN + " --method.recipe.bottleneck 0",
        ("--method.recipe.bottleneck is 0", "give 1 or more"),
        absent="out",
    ),
    Case(
        "unknown network",
        TRAIN + " --backbone.name ResNet5O",
        ("--backbone.name", '"ResNet5O"', "resnet50", '"small"'),
        absent="out",
    ),
    Case(
        "unknown weights of a network",
        TRAIN + " --backbone.name resnet18.mine --backbone.no-pretrained",
        ('"resnet18.mine"', "resnet18.a1_in1k"),
        absent="out",
    ),
    Case(
        "network of another image size",
        TRAIN + " --backbone.name vit_tiny_patch16_224 --backbone.no-pretrained",
        ("--data.crop is 32", "vit_tiny_patch16_224", "give --data.crop 224"),
        absent="out",
    ),
    Case(
        "missing weights",
        TRAIN + " --backbone.weights {here}/w.safetensors",
        ("--backbone.weights", "/w.safetensors", "check the path"),
        absent="out",
    ),
    Case(
        "weights of another kind of file",
        TRAIN + " --backbone.weights {here}/w.pth",
        ("--backbone.weights", "/w.pth", "not a readable safetensors", "save_file"),
        lambda world: torch.save({"w": torch.zeros(3)}, world.here / "w.pth"),
        absent="out",
    ),
    Case(
        "weights of another network",
        TRAIN + " --backbone.weights {here}/w.safetensors",
        ("/w.safetensors", "another network", "--backbone.name"),
        lambda world: safetensors.torch.save_file({"conv.weight": torch.zeros(3)}, world.here / "w.safetensors"),
        absent="out/config.json",
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("command", [TRAIN, "evaluate {run}", "predict {run} {data}/Art"])
def test_no_gpu(world: World, capfd: pytest.CaptureFixture[str], command: str):
    said = refusal(capfd, world.words(f"{command} --device cuda"))
    assert "no GPU is available" in said
    assert "--device is cuda" in said
    assert "give cpu" in said
    assert not (world.here / "out").exists()


def test_any_integer_is_a_seed(world: World):
    assert main(world.words(f"{TRAIN} --seed -1 --quiet")) == 0
