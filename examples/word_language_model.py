"""Trains an LSTM language model twice from the same seed, with plain DDP and with zensync.

Bytes, times, losses, gradients and parameters are compared at the end.

    python examples/word_language_model.py                  # 4 ranks on this machine's loopback
    python examples/word_language_model.py --rate 1gbit     # a network of that rate; needs root
    python examples/word_language_model.py --compressor dgc --density 0.05
    torchrun --nproc-per-node 4 examples/word_language_model.py

The text is the documentation and the source of the installed Python: nothing is downloaded. What
a training script has to change for zensync is `synchronise` in common/training.py.
"""

import argparse
import sys

from common import command_line
from common.workload import OfRank
from language_model import workload
from language_model.model import SIZES


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        choices=tuple(SIZES),
        default="small",
        help="small has 10 million parameters, medium 35 million (default %(default)s)",
    )


def read(options: argparse.Namespace, ranks: int) -> OfRank:
    return workload.read(options.model, ranks=ranks, seed=options.seed)


EXAMPLE = command_line.Example(
    description="Compares plain DDP and zensync on an LSTM language model.",
    output="runs/demo",
    iterations=100,
    reading="Reading the text: the documentation and the library of this Python",
    add_options=add_options,
    read=read,
)

if __name__ == "__main__":
    sys.exit(command_line.main(EXAMPLE))
