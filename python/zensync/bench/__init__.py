"""`zensync bench`: what synchronising a gradient costs, beside PyTorch's own ways.

    options     the command line, checked before any rank starts
    cells       what is measured: networks, and gradients on them
    patterns    synthetic gradients;  recording   a model's own ones
    contenders  who synchronises: schemes of zensync and, in baselines, what they are compared with
    replay      DDP over a given gradient
    measuring   the interleaved repetitions of one cell, on one rank
    bounds      the least time that the bytes, and that the information in them, can take
    results     rows;  table, plots   rows for people
    launch      makes the network and starts the ranks;  worker   what every rank does

docs/benchmark.md tells how to read the figures.
"""

import importlib.util
import sys
from collections.abc import Sequence

EXIT_USAGE = 2
PACKAGES = ("matplotlib", "numpy", "rich")


def main(arguments: Sequence[str]) -> int:
    """The exit code of `zensync bench` with these arguments."""
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        install = f"pip install {' '.join(missing)}"
        print(f"zensync bench: it needs {', '.join(missing)}: {install}", file=sys.stderr)
        return EXIT_USAGE
    from zensync.bench import launch

    return launch.main(arguments)
