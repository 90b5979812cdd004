"""Mistakes with estimates, audits and comparisons."""

import numpy as np
import pytest
from support.mistakes import Case, Prepare, World, require_refusal, write

from tcm.estimation.audit import draw_sample, note_sample


def of_an_earlier_version(world: World) -> None:
    file = world.copy("out") / "evaluation.npz"
    with np.load(file) as stored:
        arrays = {name: stored[name] for name in stored.files if name != "on_source"}
    np.savez(file, allow_pickle=False, **arrays)


def unfinished(world: World) -> None:
    run = world.copy("out")
    (run / "evaluation.json").unlink()
    (run / "model.safetensors").unlink()


def damaged(world: World) -> None:
    (world.copy("out") / "evaluation.npz").write_bytes(b"PK")


def other_classes(world: World) -> None:
    file = world.copy("out") / "evaluation.json"
    file.write_text(file.read_text().replace('"cup"', '"mug"'))


def with_labels(text: str) -> Prepare:
    """A drawn sample, and a CSV of labels in which SAMPLE stands for its identity and PATH for its first image."""

    def prepare(world: World) -> None:
        run = world.copy("out")
        sample = draw_sample(run, 3, 0)
        note_sample(run, sample)
        content = text.replace("SAMPLE", sample.identity).replace("PATH", sample.paths[0])
        write("labels.csv", "sample,number,path,label\n" + content)(world)

    return prepare


LABELS = "audit {here}/out --labels {here}/labels.csv"
CASES = (
    Case("estimate of nothing", "estimate", ("there are no runs", "name at least one")),
    Case("estimate of a missing run", "estimate {here}/no", ("/no is not a folder", "name the folder of a run")),
    Case("estimate of a folder", "estimate {data}", ("is not a run folder", "name the --out of a run")),
    Case("estimate of mechanisms", "estimate {mechanisms}", ("holds no classifier", "of a tcm train run")),
    Case("estimate of an unfinished run", "estimate {here}/out", ("is not finished", "repeat its command"), unfinished),
    Case(
        "estimate of an earlier version",
        "estimate {here}/out",
        ("has no predictions for the source", "tcm evaluate"),
        of_an_earlier_version,
    ),
    Case("estimate of damaged predictions", "estimate {here}/out", ("evaluation.npz is damaged", "evaluate"), damaged),
    Case("compare no run", "compare", ("needs two runs or more, but was given 0", "name runs")),
    Case("compare one run", "compare {run}", ("needs two runs or more, but was given 1", "name runs")),
    Case("compare other data", "compare {run} {here}/out", ("has other target images or classes",), other_classes),
    Case("audit of no images", "audit {run} --n 0", ("--n is 0", "give 1 or more")),
    Case("audit with a negative seed", "audit {run} --seed -1", ("--seed is -1", "give 0 or more")),
    Case("audit into a missing folder", "audit {run} --out {here}/no/a.html", ("--out", "choose another file")),
    Case("audit into a folder", "audit {run} --csv {here}", ("--csv", "it is a folder", "choose another file")),
    Case("labels without a sample", "audit {run} --labels {here}/x.csv", ("has no sample", "draw one with tcm audit")),
    Case("missing labels", "audit {here}/out --labels {here}/no.csv", ("--labels", "cannot be read"), with_labels("")),
    Case(
        "labels of another sample", LABELS, ("labels the sample xyz", "label this one"), with_labels("xyz,1,PATH,cup")
    ),
    Case(
        "an unknown class", LABELS, ("mug, which is not a class", "give one of cup"), with_labels("SAMPLE,1,PATH,mug")
    ),
    Case("an unknown image", LABELS, ("no.jpg", "is not in the sample"), with_labels("SAMPLE,1,no.jpg,cup")),
    Case("no labels", LABELS, ("has no label", "fill in the column label"), with_labels("SAMPLE,1,PATH,")),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_one_line_and_destroys_nothing(world: World, capfd: pytest.CaptureFixture[str], case: Case):
    require_refusal(case, world, capfd)
