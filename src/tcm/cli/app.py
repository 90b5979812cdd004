"""The command line: a name and options to a call. The only file that imports the command-line library."""

import contextlib
import functools
import io
import re
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise
from typing import Any

from tcm import __version__
from tcm.cli.help import COMMANDS, print_help, split_command
from tcm.errors import FIELD, InputError, Interrupted, printable


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code: 0 done, 1 problems found, 2 bad input, 128 + n stopped by signal n."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not words or words[0] in ("-h", "--help"):
        print_help()
        return 0
    if words[0] == "--version":
        print(f"tcm {__version__}")
        return 0
    try:
        return run_command(*split_command(words))
    except InputError as error:
        print(f"error: {with_options(error)}", file=sys.stderr)
        return 2
    except Interrupted as stopped:
        print(printable(stopped), file=sys.stderr)
        return 128 + stopped.signal_number
    except BrokenPipeError:  # the reader of our output, such as `head`, has seen enough
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        print("stopped; repeat the command to go on", file=sys.stderr)
        return 128 + signal.SIGINT


def with_options(message: object) -> str:
    """The message on one line; fields that it mentions become options.

    `data.on_bad_image=skip` becomes --data.on-bad-image skip, `backbone.pretrained=False` --backbone.no-pretrained.
    """
    return FIELD.sub(lambda found: option(found[1], found[2]), printable(message))


def option(field: str, value: str | None = None) -> str:
    """The option of a field, with its value if there is one."""
    name = field.replace("_", "-")
    if value in ("True", "False"):
        group, dot, last = name.rpartition(".")
        return f"--{name}" if value == "True" else f"--{group}{dot}no-{last}"
    return f"--{name} {value}" if value else f"--{name}"


def run_command(name: str, options: list[str]) -> int:
    """Parses the options against the command's signature and calls it."""
    call = parse(name, ["--quiet" if word == "-q" else word for word in options])
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        # Pillow's remarks on damaged metadata and large images name no file; what cannot be used is refused by name.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.showwarning = warning_lines()
        return call()


def parse(name: str, options: list[str]) -> Callable[[], int]:
    """The call that these options ask for; what the library cannot parse is one line, like every other mistake."""
    # Imported here, because torch takes seconds to load and the list of commands should not.
    import tyro

    if option_values(options).get("--out") == "":  # which would be the folder that one stands in
        raise InputError("--out is empty; name a place for what is written")
    function, positional = implementation(name, options)

    @functools.wraps(function)
    def prepared(*arguments: Any, **named: Any) -> Callable[[], int]:
        return functools.partial(function, *arguments, **named)

    config = (tyro.conf.PositionalRequiredArgs,) if positional else ()
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(prepared, prog=f"tcm {name}", args=options, config=config)
    except SystemExit as ended:
        if not ended.code:
            raise
        raise InputError(f"{on_one_line(complaint.getvalue())}; tcm {name} --help explains the options") from ended


def on_one_line(boxed: str) -> str:
    """What the parser said in a box of titled parts: the parts, without frame, title and help texts."""
    text = " ".join(re.sub("[│╭╮╰╯]", " ", boxed).split())
    # Where the terminal has no lines to draw with, there are rows of hyphens.
    _, *parts = [part for part in re.split(" ?(?:─+|-{20,}) ?", text) if part]
    said = "; ".join(part for part in parts if not part.startswith(("Argument helptext", "For full helptext")))
    said = re.sub(r"invalid literal for int\(\) with base 10: ('.*?')", r"\1 is no INT", said)
    said = re.sub(r"could not convert string to float: ('.*?')", r"\1 is no FLOAT", said)
    # Where there are several readings, such as a number or none, the parser tells of every one that it tried.
    several = r"no type matching (?:\{None\}\|)?(\S+) could be .*? from \[(.*?)\]\. Got errors.*"
    said = re.sub(several, r"\2 is no \1", said)
    return said.replace("Error parsing ", "").replace(" (required)", "").rstrip(".")


def warning_lines() -> Callable[..., None]:
    """Shows warnings to the user as one line each, and none twice: the tasks of a suite share their domains."""
    told: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if (line := with_options(message)) not in told:
            told.add(line)
            print(f"warning: {line}", file=sys.stderr)

    return show


def implementation(name: str, options: list[str]) -> tuple[Callable[..., Any], bool]:
    """The function behind a command, and whether its required arguments stand without option names."""
    from tcm.cli import commands, mechanism_commands

    if name.startswith("train "):
        return train_command(name.removeprefix("train "), options), False
    if name == "mechanisms":
        return mechanisms_command(options), False
    if name == "fit":
        return fit_command(options), False
    if name == "bench":
        return bench_command(options), False
    if name == "data check":
        return check_command(), False
    if name.startswith("figure "):
        # Imported here, because only figures and reports need the plotting library.
        from tcm.cli import figure_commands

        return getattr(figure_commands, name.removeprefix("figure ")), True
    functions: dict[str, Callable[..., int]] = {
        "demo": commands.demo,
        "data pack": commands.data_pack,
        "transport": mechanism_commands.transport,
        "quality": mechanism_commands.quality,
        "cost": commands.cost,
        "evaluate": commands.evaluate,
        "predict": commands.predict,
        "table": commands.table,
        "report": commands.report,
    }
    return functions[name], name not in ("demo", "data pack")


def check_command() -> Callable[..., int]:
    """The check, whose root stands without an option name although it may be left out."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from tcm.cli.commands import DataConfig, data_check

    def check(
        root: Annotated[Path | None, tyro.conf.Positional] = None,
        data: DataConfig = DataConfig(),
        quiet: bool = False,
    ) -> int:
        return data_check(root, data, quiet)

    check.__doc__ = data_check.__doc__
    return check


def mechanisms_command(options: list[str]) -> Callable[..., int]:
    """Stage 1. The preset among the options decides where the others start, so help and defaults tell its values."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from tcm.cli import mechanism_commands
    from tcm.mechanisms.train import PRESETS, MechanismsConfig, preset_bank

    preset, small = asked_preset(options, PRESETS)
    start = MechanismsConfig(preset=preset, bank=preset_bank(preset, small))

    def mechanisms(
        out: Path, config: Annotated[MechanismsConfig, tyro.conf.arg(name="")] = start, quiet: bool = False
    ) -> int:
        return mechanism_commands.mechanisms(config, out, quiet)

    mechanisms.__doc__ = documented(COMMANDS["mechanisms"].purpose)
    return mechanisms


def fit_command(options: list[str]) -> Callable[..., int]:
    """Both stages, whose options start at the values of the preset."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from tcm.cli import commands
    from tcm.mechanisms.train import preset_bank
    from tcm.methods.tcm.tcm import PRESETS, preset_tcm
    from tcm.pipeline import BANK_OF, FitConfig, StageOne, StageTwo

    preset, small = asked_preset(options, PRESETS)
    one, two = StageOne(bank=preset_bank(BANK_OF[preset], small)), StageTwo(method=preset_tcm(preset, small))
    start = FitConfig(preset=preset, mechanisms=one, classifier=two)

    def fit(out: Path, config: Annotated[FitConfig, tyro.conf.arg(name="")] = start, quiet: bool = False) -> int:
        return commands.fit(config, out, quiet)

    fit.__doc__ = documented(COMMANDS["fit"].purpose)
    return fit


def bench_command(options: list[str]) -> Callable[..., int]:
    """A suite, with the options of every method."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from tcm.bench.config import SuiteConfig, method_settings
    from tcm.cli import commands

    start = method_settings(asked_benchmark(options), *asked_sides(options))

    def bench(
        benchmark: Annotated[str, tyro.conf.Positional],
        out: Path,
        config: Annotated[SuiteConfig, tyro.conf.arg(name="")] = SuiteConfig(),
        method: Annotated[Any, tyro.conf.arg(constructor=type(start))] = start,
        jobs: int | None = None,
        report: bool = True,
        quiet: bool = False,
    ) -> int:
        return commands.bench(benchmark, config, method, out, jobs, report, quiet)

    bench.__doc__ = f"""{COMMANDS["bench"].purpose}

    Args:
        benchmark: office-home, imageclef-da, visda-2017, office-31 or digits.
        out: Folder of the suite. Repeating the command continues it.
        method: The settings of each method.
        jobs: Runs at once. Default: on a CPU one a core, on a GPU one.
        report: Draw the figures and write the report.
        quiet: No progress, only the table.
    """
    return bench


def asked_preset(options: list[str], known: Collection[str]) -> tuple[Any, bool]:
    """The preset among the options, if it is known, and whether they ask for images so small that networks are too."""
    from tcm.data.task import DataConfig

    given = option_values(options)
    wanted = given.get("--preset", "default")
    size, crop = asked_sides(options, "data.")
    data = DataConfig(given.get("--data.benchmark"), size=size, crop=crop)
    # The parser will complain of any other preset.
    return wanted if wanted in known else "default", data.is_small


def asked_sides(options: list[str], prefix: str = "") -> tuple[int | None, int | None]:
    """The size and the crop of images among the options; the parser will complain of those that are no numbers."""
    given = option_values(options)
    sides = (given.get(f"--{prefix}{name}", "") for name in ("size", "crop"))
    size, crop = (int(side) if side.isdecimal() else None for side in sides)
    return size, crop


def asked_benchmark(options: list[str]) -> str:
    """The benchmark among the options of a suite, wherever it stands; "" if there is none, as with --help alone."""
    from tcm.bench.plan import suite_benchmark

    for before, word in pairwise(["", *options]):
        # Folders may have its name.
        if before not in ("--out", "--root", "--cache"):
            with contextlib.suppress(InputError):
                return suite_benchmark(word)
    return ""


def option_values(options: list[str]) -> dict[str, str]:
    """The word after each option, whether a space or = stands between them."""
    return dict(pairwise(part for word in options for part in word.split("=", 1)))


def documented(purpose: str) -> str:
    """The docstring of a training command."""
    return f"""{purpose}

    Args:
        out: Folder of the run. Repeating the command continues it.
        quiet: No progress, only the result.
    """


def train_command(method: str, options: list[str]) -> Callable[..., int]:
    """A function whose signature holds the options of this method, which start at the values of the preset."""
    from pathlib import Path
    from typing import Annotated

    import tyro

    from tcm.classifier.train import TrainConfig
    from tcm.cli.commands import train_method
    from tcm.methods import METHODS, preset_method
    from tcm.methods.tcm.tcm import PRESETS

    preset, small = asked_preset(options, PRESETS)
    start = TrainConfig(method=preset_method(method, preset, small), preset=preset)

    def train(
        out: Path,
        config: Annotated[TrainConfig[METHODS[method]], tyro.conf.arg(name="")] = start,  # pyright: ignore
        quiet: bool = False,
    ) -> int:
        return train_method(method, config, out, quiet)

    train.__doc__ = documented(COMMANDS[f"train {method}"].purpose)
    return train
