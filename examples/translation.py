"""Trains a sequence-to-sequence model twice from the same seed, with plain DDP and with zensync.

Two LSTMs with attention and a vocabulary for each language. The pairs are the docstrings of the
installed Python's library and the code that follows them: nothing is downloaded, and it is no
natural language on the target's side (translation_model/pairs.py says more).

    python examples/translation.py                          # 4 ranks on this machine's loopback
    python examples/translation.py --rate 1gbit             # a network of that rate; needs root
    torchrun --nproc-per-node 4 examples/translation.py

Bytes, times, losses, gradients and parameters are compared at the end.
"""

import argparse
import sys

from common import command_line
from common.workload import OfRank
from translation_model import workload
from translation_model.model import SIZES


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        choices=tuple(SIZES),
        default="small",
        help="small has 7 million parameters, medium 25 million (default %(default)s)",
    )


def read(options: argparse.Namespace, ranks: int) -> OfRank:
    return workload.read(options.model, ranks=ranks, seed=options.seed)


EXAMPLE = command_line.Example(
    description="Compares plain DDP and zensync on a sequence-to-sequence model.",
    output="runs/translation",
    iterations=100,
    reading="Reading the pairs: docstrings and code of this Python's library",
    add_options=add_options,
    read=read,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXAMPLE))
