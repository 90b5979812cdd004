"""tcm data check, tcm data import and tcm data pack."""

import dataclasses
import sys
from pathlib import Path
from typing import Annotated

import torch
import tyro
from rich.console import Console
from rich.text import Text

from tcm.classifier.augmentation_evidence import IMAGES, AugmentationEvidence, evidence_of
from tcm.cli.arguments import OptionalOutput, OptionalText, Output, Quiet, Shards
from tcm.cli.messages import option, with_options
from tcm.data.check import check, check_root, render
from tcm.data.domains import Domain
from tcm.data.samples import SampleViews, read_rows, samples_of
from tcm.data.task import DataConfig, default_cache, load_task, read_domains
from tcm.errors import InputError, printable
from tcm.figures.samples import samples_figure
from tcm.figures.svg import format_of, write_figure
from tcm.nn.backbone import BackboneConfig
from tcm.training.source_probe import stratified

SHOWN = 5  # images of each domain on the contact sheet
LARGEST = 256  # pixels of the images that classifiers are asked about


def check_data(
    root: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[ROOT]", help_behavior_hint="")] = None,
    data: DataConfig = DataConfig(),
    backbone: BackboneConfig = BackboneConfig(),
    out: OptionalOutput = None,
    quiet: Quiet = False,
) -> int:
    """Read every image of a data set and report all problems. The exit code is 1 if there are any.

    For a source and a target it also says which augmentations keep the class of the source images.

    Args:
        root: Folder with one subfolder per domain, all of which are checked.
        data: Where the images of the domains are.
        backbone: A pretrained network that is asked about augmentations too, if its weights file is given.
        out: File for a sheet of images as training sees them: png, svg or pdf. Needs a source and a target.
        quiet: Print only the result, no progress.
    """
    resolved = data.resolved()
    if out is not None:
        format_of(out)  # an unknown format is an error before the work
    if data.is_digits:
        raise InputError("the built-in digits are generated, so there are no files to check; name a folder of images")
    task = None
    if root is not None or (data.root and not (data.source or data.target or data.source_list or data.target_list)):
        if out is not None:
            raise InputError("out", "needs a source and a target; name both, for example with `data.source_dir`")
        found = check_root(Path(root or data.root or "."), quiet)
    else:
        task = read_domains(resolved)
        found = check([*(task[0].parts or task[:1]), task[1]], quiet=quiet)
    console = Console()
    console.print(render(found))
    console.print(Text(with_options(found.summary)))
    if task:
        show_augmentation(console, task, data, backbone, out, quiet)
    return 1 if found.problems else 0


def show_augmentation(
    console: Console,
    task: tuple[Domain, Domain],
    data: DataConfig,
    backbone: BackboneConfig,
    out: Path | None,
    quiet: bool,
) -> None:
    """Prints which augmentations the source images allow, and writes the sheet if it is wanted."""
    evidence = source_evidence(task[0], data, backbone, quiet)
    for sentence in evidence.sentences:
        console.print(Text(sentence[0].upper() + sentence[1:] + "."))
    fields = {name: value for name, value in evidence.data_fields.items() if getattr(data, name) is None}
    settled = dataclasses.replace(data, **fields)
    if fields.get("flip") is False or fields.get("gentle"):
        changed = " ".join(option(f"data.{name}", str(value)) for name, value in fields.items() if value is not None)
        console.print(Text(f"tcm fit takes this into account; give other commands {changed}."))
    if out is not None:
        write_figure(samples_figure([domain_samples(domain, settled, quiet) for domain in task]), out)
        console.print(Text(f"Images as training sees them: {printable(out)}"))


def source_evidence(source: Domain, data: DataConfig, backbone: BackboneConfig, quiet: bool) -> AugmentationEvidence:
    """The evidence of some source images, read from their files."""
    labels = torch.tensor(source.labels)
    images, rows = read_rows(source, stratified(labels, IMAGES), min(data.sides[0], LARGEST), quiet)
    network = backbone.resolved(data.is_small).build() if backbone.weights else None
    return evidence_of(images, labels[rows], source.classes, data, network, quiet)


def domain_samples(domain: Domain, data: DataConfig, quiet: bool) -> SampleViews:
    """A few images of the domain, of several classes where they are known, as training sees them."""
    count = len(domain.paths)
    rows = torch.linspace(0, count - 1, min(SHOWN, count)).long()
    images, rows = read_rows(domain, rows, data.sides[0], quiet)
    names = domain.class_names
    return samples_of(images, domain.name, [names[row] or "" for row in rows.tolist()], data)


def import_data(
    shards: Shards,
    out: Output,
    split: OptionalText = None,
    image: OptionalText = None,
    label: OptionalText = None,
    domain: OptionalText = None,
    unlabelled: bool = False,
    quiet: Quiet = False,
) -> int:
    """Write the images of Hugging Face datasets (Arrow, Parquet) or of WebDataset shards (tar) into a folder, as they
    are, one subfolder per class. The exit code is 1 if some are left out.

    Args:
        shards: A folder of shards, or the shards themselves.
        out: The folder to write. Repeat the command to continue.
        split: The part of the data set to write, such as train. Default: the only one.
        image: Field of the image. Default: detected.
        label: Field of the label; json.NAME for a field of a JSON file. Default: detected.
        domain: Field that names the domain of each image. Each domain gets a subfolder. Default: one domain.
        unlabelled: Read no labels; images are written without class folders.
        quiet: Print only the result, no progress.
    """
    from tcm.data.imports.importing import import_shards, left_out_line
    from tcm.data.imports.records import Wanted

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr)

    wanted = Wanted(image, label, domain, unlabelled)
    found = import_shards(shards, out, wanted, split, quiet, say)
    classes = "" if unlabelled else f" of {len({folder.split('/')[-1] for folder in found.images})} classes"
    domains = f", {len({folder.split('/')[0] for folder in found.images})} domains" if domain else ""
    print(f"{printable(out)}: {sum(found.images.values())} images{classes}{domains}")
    if found.left_out:
        print(left_out_line(found))
    return 1 if found.left_out else 0


def pack_data(data: DataConfig = DataConfig(), quiet: Quiet = False) -> int:
    """Decode and resize the images of a task and store them in the cache, so that training starts faster.

    Args:
        data: Where the images of the domains are.
        quiet: Print only the result, no progress.
    """
    data = data.resolved()
    task = load_task(data, quiet)
    for store in task:
        print(f"{printable(store.name)}: {len(store)} images of side {store.size} in {store.folder}")
        for source in store.sources:
            print(f"  {printable(source.name)}: {source.images} images")
    if data.cache is None and not quiet:
        print(f"The cache is {default_cache()}; --data.cache chooses another.")
    return 0
