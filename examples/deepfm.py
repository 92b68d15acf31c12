"""Trains DeepFM on clicks twice from the same seed, with plain DDP and with zensync.

26 categorical fields with as many values as Criteo's, up to --values each, drawn by Zipf's law. The
clicks are synthetic (click_model/synthetic.py says how), or those of a file of Criteo's.

    python examples/deepfm.py                               # 4 ranks on this machine's loopback
    python examples/deepfm.py --rate 1gbit                  # a network of that rate; needs root
    python examples/deepfm.py --criteo train.txt --examples 500000

Bytes, times, losses, gradients and parameters are compared at the end.
"""

import argparse
import sys
from pathlib import Path

from click_model import criteo, recording, workload
from common import command_line
from common.workload import OfRank


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--values",
        type=command_line.whole_number(2, 2**24),
        default=recording.VALUES,
        help="of a field, at most; rarer ones share one (default %(default)s: 9.7 million "
        "parameters)",
    )
    parser.add_argument(
        "--criteo", type=Path, metavar="FILE", help="train.txt of the Display Advertising Challenge"
    )
    parser.add_argument(
        "--examples",
        type=command_line.whole_number(1, 10**8),
        default=200_000,
        help="to read of that file (default %(default)s)",
    )


def check(options: argparse.Namespace) -> str | None:
    if options.criteo is None:
        return None
    try:
        criteo.read(options.criteo, 1, options.values)
    except (OSError, ValueError) as error:
        return f"--criteo cannot be used: {error}"
    return None


def read(options: argparse.Namespace, ranks: int) -> OfRank:
    if options.criteo is None:
        return workload.synthetic(options.values, seed=options.seed)
    return workload.from_criteo(
        options.criteo, options.examples, options.values, ranks=ranks, seed=options.seed
    )


EXAMPLE = command_line.Example(
    description="Compares plain DDP and zensync on DeepFM.",
    output="runs/deepfm",
    iterations=100,
    reading="Preparing clicks",
    add_options=add_options,
    read=read,
    check=check,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXAMPLE))
