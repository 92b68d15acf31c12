"""Trains an LSTM language model twice from the same seed, with plain DDP and with zensync.

Bytes, times, losses, gradients and parameters are compared at the end.

    python examples/word_language_model.py                  # 4 ranks on this machine's loopback
    python examples/word_language_model.py --rate 1gbit     # a network of that rate; needs root
    python examples/word_language_model.py --compressor dgc --density 0.05
    torchrun --nproc-per-node 4 examples/word_language_model.py

The text is the documentation and the source of the installed Python: nothing is downloaded. What
a training script has to change for zensync is `synchronise` in language_model/training.py.
"""

import argparse
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from zensync import _network

RANKS = 4
ITERATIONS = 100
MODELS = ("small", "medium")
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (--help lists the options)\n")


def main() -> int:
    options = parse(sys.argv[1:])
    try:
        return train(options) if "RANK" in os.environ else launch(options)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(description="Compares plain DDP and zensync on an LSTM language model.")
    parser.add_argument(
        "--ranks",
        type=_whole_number(2, 64),
        default=RANKS,
        help="processes; under torchrun it says how many (default %(default)s)",
    )
    parser.add_argument(
        "--iterations",
        type=_whole_number(1, 10**6),
        default=ITERATIONS,
        help="of each of the two trainings (default %(default)s)",
    )
    parser.add_argument(
        "--rate",
        type=_rate,
        metavar="RATE",
        help="give every rank a network namespace with a card of this rate, for example 1gbit or "
        "200mbit; needs root (default: the loopback, as fast as it goes)",
    )
    parser.add_argument(
        "--model",
        choices=MODELS,
        default=MODELS[0],
        help="small has 10 million parameters, medium 35 million (default %(default)s)",
    )
    parser.add_argument(
        "--compressor",
        choices=("none", "dgc"),
        default="none",
        help="dgc: send the largest gradients and keep the rest for later (default %(default)s)",
    )
    parser.add_argument(
        "--density",
        type=_share,
        help="of dgc: the share of the gradient that is sent (default 0.05)",
    )
    parser.add_argument(
        "--seed",
        type=_whole_number(0, 2**31 - 1),
        default=1,
        help="of both trainings: parameters, order of the text, negatives (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("runs/demo"),
        metavar="FOLDER",
        help="for plot.png and results.json (default %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.compressor == "dgc":
        options.density = options.density or 0.05
    elif options.density is not None:
        parser.error("--density belongs to --compressor dgc: give that too, or leave both out")
    return options


def launch(options: argparse.Namespace) -> int:
    """Starts this file once for each rank."""
    for module in ("matplotlib", "rich"):
        if importlib.util.find_spec(module) is None:
            return _refuse(f"the report needs {module}: pip install {module}")
    try:  # now, rather than after the training
        options.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return _refuse(f"--output cannot be used: {error}")
    # Ranks that share cores get in each other's way with more threads than there are cores.
    threads = max(1, (os.cpu_count() or 1) // options.ranks)
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    if options.rate is None:
        return _launch_on_loopback(options.ranks)
    if (why_not := _network.available()) is not None:
        return _refuse(f"--rate cannot be used: {why_not}. Leave it out to use the loopback")
    # There are no host names in there, about which torch would warn.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    with _network.ShapedNetwork(options.ranks, options.rate) as network:
        codes = _network.run_ranks(network, [sys.executable, *sys.argv])
    return EXIT_FAILED if any(codes) else 0


def _launch_on_loopback(ranks: int) -> int:
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    where = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--local-addr=localhost"]
    try:
        run.main([*where, f"--nproc-per-node={ranks}", *sys.argv])
    except ChildFailedError:  # the rank has said why
        return EXIT_FAILED
    except SignalException:
        return EXIT_INTERRUPTED
    return 0


def train(options: argparse.Namespace) -> int:
    """What every rank does."""
    import torch.distributed as dist

    if options.rate is not None and os.environ.get("GLOO_SOCKET_IFNAME") != _network.INTERFACE:
        return _refuse(
            "--rate belongs to a network that this file makes: start it without torchrun"
        )
    dist.init_process_group("gloo")
    try:
        return _compare(options)
    finally:
        dist.destroy_process_group()


def _compare(options: argparse.Namespace) -> int:
    import torch.distributed as dist
    from rich.console import Console

    from language_model import plot, report
    from language_model.comparison import compare

    console = Console(width=None if sys.stdout.isatty() else report.WIDTH)
    comparison = compare(
        console,
        model=options.model,
        iterations=options.iterations,
        seed=options.seed,
        rate_bits_per_second=options.rate,
        density=options.density,
    )
    failures = comparison.failures()
    if dist.get_rank() == 0:
        options.output.mkdir(parents=True, exist_ok=True)
        plot.write_plot(comparison, options.output / "plot.png")
        report.write_results(comparison, options.output / "results.json")
        report.print_report(console, comparison, options.output)
        for failure in failures:
            print(f"FAILED: {failure}", file=sys.stderr)
    return EXIT_FAILED if failures else 0


def _refuse(reason: str) -> int:
    print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    return EXIT_USAGE


def _whole_number(low: int, high: int) -> Callable[[str], int]:
    def parse_number(text: str) -> int:
        if not text.strip().lstrip("-").isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse_number


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0, up to 1")
    return share


def _rate(text: str) -> int:
    try:
        return _network.parse_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main())
