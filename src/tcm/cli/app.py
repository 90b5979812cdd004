"""The command line: the table of commands, and the program that calls them."""

import functools
import importlib
import signal
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tcm import __version__
from tcm.cli.help import Command, print_command_help, print_group, print_overview, unknown_command
from tcm.cli.interrupts import STOPPED, interruptible
from tcm.cli.messages import is_first_process, reports, warning_printer, with_options
from tcm.errors import InputError, Interrupted

HELP = ("-h", "--help", "--help-all")
SHELLS = ("bash", "zsh", "fish")
FOLDERS = "--data.source-dir photos --data.target-dir cliparts"
COMMANDS = {
    "demo": Command("Compare four methods on the built-in digits, in minutes.", "tcm demo", "tcm.cli.demo:demo"),
    "data check": Command(
        "Read every image of a data set and report all problems.",
        "tcm data check office-home",
        "tcm.cli.data:check_data",
    ),
    "data import": Command(
        "Write Hugging Face or WebDataset shards as a folder of images.",
        "tcm data import photos-parquet --out photos",
        "tcm.cli.data:import_data",
    ),
    "data pack": Command(
        "Decode and resize images once, so that training starts faster.",
        "tcm data pack --data.root office-home --data.source Art --data.target Clipart",
        "tcm.cli.data:pack_data",
    ),
    "fit": Command(
        "From two folders to a classifier, predictions and a report.",
        "tcm fit photos cliparts",
        "tcm.cli.train:fit_command",
        adaptive=True,
    ),
    "train": Command(
        "Train one method; tcm train --help lists the methods.",
        f"tcm train dann {FOLDERS} --out runs/dann",
        "tcm.cli.train:train_command",
        adaptive=True,
    ),
    "mechanisms": Command(
        "Stage 1: train mechanisms that transport images.",
        f"tcm mechanisms {FOLDERS} --k 4 --out runs/mechanisms",
        "tcm.cli.mechanisms:mechanisms_command",
        adaptive=True,
    ),
    "transport": Command(
        "Write the counterfactuals of every image under all mechanisms.",
        "tcm transport runs/mechanisms",
        "tcm.cli.mechanisms:transport",
    ),
    "quality": Command(
        "Measure how close transported images are to the other domain.",
        "tcm quality runs/mechanisms --backbone.weights resnet50.safetensors",
        "tcm.cli.mechanisms:quality",
    ),
    "bench": Command(
        "Run a whole benchmark: tasks x methods x seeds. Repeat the command to continue.",
        "tcm bench office-home --root office-home --tasks A2C,R2C --methods erm,dann,tcm --out runs/bench",
        "tcm.cli.bench:bench_command",
        adaptive=True,
    ),
    "table": Command(
        "Print results as the paper's tables do, beside its numbers.",
        "tcm table results.csv --benchmark Office-Home --format markdown",
        "tcm.cli.bench:table",
    ),
    "cost": Command(
        "Count the multiply-adds and parameters of every method.",
        "tcm cost --backbone.name resnet50 --classes 65 --k 4",
        "tcm.cli.runs:cost",
    ),
    "evaluate": Command("Evaluate a finished run again.", "tcm evaluate runs/a2c", "tcm.cli.runs:evaluate"),
    "predict": Command(
        "Classify an image or a folder of images.",
        "tcm predict runs/a2c new-images --csv out.csv",
        "tcm.cli.runs:predict",
    ),
    "estimate": Command(
        "Estimate the accuracy of runs without target labels.",
        "tcm estimate runs/a2c",
        "tcm.cli.estimate:estimate",
    ),
    "audit": Command(
        "Measure the accuracy on a random sample that you label.",
        "tcm audit runs/a2c --n 100",
        "tcm.cli.estimate:audit",
    ),
    "compare": Command(
        "Rank runs on the same data without target labels.",
        "tcm compare runs/erm runs/dann runs/tcm",
        "tcm.cli.compare:compare",
    ),
    "app": Command(
        "Serve a page about runs in the browser, and a JSON API.",
        "tcm app runs/erm runs/a2c --port 8000",
        "tcm.cli.serve:app",
    ),
    "export": Command(
        "Write a model as ONNX, as .pt2 or for the Hugging Face Hub.",
        "tcm export runs/a2c --format onnx --out a2c.onnx",
        "tcm.cli.export:export",
    ),
    "figure mechanisms": Command(
        "Draw images and their counterfactuals; the winners are outlined.",
        "tcm figure mechanisms runs/mechanisms --out mechanisms.png",
        "tcm.cli.figures:mechanisms",
    ),
    "figure embedding": Command(
        "Draw the features of runs as points, with their proxy A-distances.",
        "tcm figure embedding runs/gvb runs/tcm --out embedding.png",
        "tcm.cli.figures:embedding",
    ),
    "figure activation": Command(
        "Draw where runs look, in target images that only one or none of them classifies correctly.",
        "tcm figure activation runs/gvb runs/baseline runs/tcm --source-images 2 --out activation.png",
        "tcm.cli.figures:activation",
    ),
    "figure accuracy": Command(
        "Draw target accuracy against training steps, one line per method.",
        "tcm figure accuracy runs/dann-* runs/tcm-* --out accuracy.png",
        "tcm.cli.figures:accuracy",
    ),
    "figure tradeoff": Command(
        "Draw target accuracy against minutes of training and against memory, one point per method.",
        "tcm figure tradeoff runs/office-home/results.csv --task A2C --out tradeoff.png",
        "tcm.cli.figures:tradeoff",
    ),
    "figure k": Command(
        "Draw target accuracy against the number of mechanisms k.",
        "tcm figure k runs/tcm-k* --out k.png",
        "tcm.cli.figures:k",
    ),
    "report": Command(
        "Write one HTML page about one or more runs.",
        "tcm report runs/erm runs/a2c --out report",
        "tcm.cli.runs:report",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. The exit code is 0: done, 1: problems found, 2: bad input, 128 + n: stopped by signal n."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        return PROGRAM_OPTIONS.get(words[0], run_command)(words)
    except InputError as error:
        if reports(error):
            print(f"error: {with_options(error)}", file=sys.stderr)
        return 2
    except Interrupted as stopped:
        if is_first_process():
            print(with_options(stopped), file=sys.stderr)
        return 128 + stopped.signal_number
    except BrokenPipeError:  # the reader of our output, such as `head`, has closed it
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        if is_first_process():
            print(STOPPED, file=sys.stderr)
        return 128 + signal.SIGINT


def run_command(words: list[str]) -> int:
    """Parses the words and calls the command."""
    name, command, options = split_command(words)
    for word in HELP:
        if word in options:
            return explain(name, command, everything=word == "--help-all")
    call = parsed_call(words)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        # Pillow's warnings about damaged metadata and large images name no file; unusable images are reported by name.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.showwarning = warning_printer()
        with interruptible():
            return call()


def explain(name: str, command: Command, everything: bool) -> int:
    """Prints the help of a command."""
    from tcm.cli.options import option_groups

    print_command_help(name, command.example, *option_groups(name, function_of(command)), everything)
    return 0


def parsed_call(words: list[str]) -> functools.partial[int]:
    """The function call that the words ask for."""
    from tcm.cli.config_file import print_settings, split_file_options, with_settings_of
    from tcm.cli.parser import parse
    from tcm.cli.yaml_settings import read_settings

    name, command, words = split_command(words)
    file, prints, options = split_file_options(words)
    given = read_settings(file) if file else {}

    def parsed(function: Callable[..., int]) -> functools.partial[int]:
        if file or prints:
            function = with_settings_of(function, given, file, all_optional=prints)
        return parse(name, function, options)

    function = function_of(command)
    call = parsed(function)
    if command.adaptive:
        # The default values of some options depend on others: small images have small networks. So the options are
        # parsed with the usual defaults first, and then with those that fit.
        function = function_of(command, call.keywords)
        call = parsed(function)
    return functools.partial(print_settings, name, function, call.keywords) if prints else call


def split_command(words: list[str]) -> tuple[str, Command, list[str]]:
    """The name of a command (one word or two), its row of the table, and its options."""
    group = commands_of(words[0])
    for count in (2, 1):
        name = " ".join(words[:count])
        if name in group:
            return name, group[name], words[count:]
    if group and (len(words) == 1 or words[1] in HELP):
        print_group(words[0], group)
        raise SystemExit(0 if len(words) > 1 else 2)
    if group:
        raise unknown_command(f"tcm {words[0]}", words[1], (name.split()[1] for name in group))
    raise unknown_command("tcm", words[0], (name.split()[0] for name in COMMANDS))


def commands_of(word: str) -> dict[str, Command]:
    """The commands that start with this word; `train` has one for each method."""
    if word != "train":
        return {name: command for name, command in COMMANDS.items() if name.split()[0] == word}
    from tcm.cli.train import purpose_of
    from tcm.methods import METHODS

    train = COMMANDS["train"]
    return {
        f"train {name}": Command(purpose_of(name), train_example(name), train.function, True, (name,))
        for name in METHODS
    }


def train_example(method: str) -> str:
    """How a method is trained on two folders."""
    from tcm.methods import METHODS

    needed = " --mechanisms runs/mechanisms" if METHODS[method].uses_counterfactuals else ""
    return f"tcm train {method} {FOLDERS}{needed} --out runs/{method}"


def function_of(command: Command, parsed: Mapping[str, Any] | None = None) -> Callable[..., int]:
    """The function behind a command. It is imported only now, because torch takes seconds to load."""
    from tcm.cli.config_file import with_file_options

    module, name = command.function.split(":")
    function = getattr(importlib.import_module(module), name)
    return with_file_options(function(*command.arguments, parsed) if command.adaptive else function)


def show_help(words: list[str]) -> int:
    """tcm --help, and tcm help COMMAND."""
    if words[0] == "help" and len(words) > 1:
        return run_command([*words[1:], "--help"])
    print_overview(COMMANDS)
    return 0


def show_version(_: list[str]) -> int:
    """tcm --version."""
    print(f"tcm {__version__}")
    return 0


def show_completion(words: list[str]) -> int:
    """tcm completion SHELL: a script of all commands, as tyro writes it."""
    from tcm.cli.parser import print_completion

    if len(words) != 2 or words[1] not in SHELLS:
        given = f'"{words[1]}"' if len(words) > 1 else "no shell"
        raise InputError(f"tcm completion was given {given}; give {', '.join(SHELLS[:-1])} or {SHELLS[-1]}")
    functions: dict[str, Any] = {}
    for word in dict.fromkeys(name.split()[0] for name in COMMANDS):
        group = {name.partition(" ")[2]: function_of(command) for name, command in commands_of(word).items()}
        functions[word] = group.get("", group)
    print_completion(functions, words[1])
    return 0


PROGRAM_OPTIONS: dict[str, Callable[[list[str]], int]] = {
    **dict.fromkeys(("help", *HELP), show_help),
    "--version": show_version,
    "completion": show_completion,
}
