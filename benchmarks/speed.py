"""Speed as ratios to a plain reference in the same run, never in seconds alone.

python benchmarks/speed.py input            what making the batch adds to steps, with images on the device and not
python benchmarks/speed.py stage1           steps of stage 1 against a straightforward implementation
python benchmarks/speed.py growth           steps of stage 1 with 8 mechanisms against 4
python benchmarks/speed.py transport        stored images to counterfactuals
python benchmarks/speed.py stage2           steps of stage 2 against a pass per view; prediction
python benchmarks/speed.py ... --quick      the same with small networks, for a quick check on a CPU
"""

import argparse

import torch
from speed_input import INPUT_METHODS, input_share
from speed_stage1 import FORMS, growth, stage1, transport
from speed_stage2 import stage2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"input": input_share, "stage1": stage1, "growth": growth, "transport": transport, "stage2": stage2}
    parser.add_argument("what", choices=parts)
    parser.add_argument("--forms", nargs="*", choices=FORMS, default=list(FORMS), help="forms of stage 1")
    parser.add_argument("--methods", nargs="*", choices=INPUT_METHODS, default=list(INPUT_METHODS), help="of input")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    torch.set_autocast_cache_enabled(False)
    parts[arguments.what](arguments.quick, arguments.methods if arguments.what == "input" else arguments.forms)


if __name__ == "__main__":
    main()
