"""Options of the comparing examples, starting the ranks, and what the exit code says."""

import argparse
import dataclasses
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import zensync
from common.training import DEFAULT_SCHEME, Choice
from common.workload import OfRank
from zensync import _network

RANKS = 4
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


@dataclasses.dataclass(frozen=True)
class Example:
    """What an example's file says about itself."""

    description: str
    output: str  # the default folder
    iterations: int
    reading: str  # what it waits for before it can train
    add_options: Callable[[argparse.ArgumentParser], None]
    read: Callable[[argparse.Namespace, int], OfRank]  # collective; with the number of ranks
    check: Callable[[argparse.Namespace], str | None] = lambda options: None  # what is wrong


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (--help lists the options)\n")


def main(example: Example) -> int:
    """Under torchrun, which sets RANK, this process is one of the ranks."""
    options = parse(example, sys.argv[1:])
    try:
        return train(example, options) if "RANK" in os.environ else launch(options)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def parse(example: Example, arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(description=example.description)
    _add_options(parser, example)
    example.add_options(parser)
    options = parser.parse_args(arguments)
    if options.compressor == "dgc":
        options.density = options.density or 0.05
    elif options.density is not None:
        parser.error("--density belongs to --compressor dgc: give that too, or leave both out")
    if (wrong := example.check(options)) is not None:
        parser.error(wrong)
    try:
        choice(options).state()  # there is no process group yet: it only checks
    except ValueError as error:
        parser.error(str(error))
    return options


def choice(options: argparse.Namespace) -> Choice:
    return Choice(options.scheme, options.density)


def _add_options(parser: argparse.ArgumentParser, example: Example) -> None:
    parser.add_argument(
        "--ranks",
        type=whole_number(2, 64),
        default=RANKS,
        help="processes; under torchrun it says how many (default %(default)s)",
    )
    parser.add_argument(
        "--iterations",
        type=whole_number(1, 10**6),
        default=example.iterations,
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
        "--scheme",
        choices=["auto", *zensync.schemes()],
        metavar="SCHEME",
        help=f"how zensync's gradients travel: auto, {', '.join(zensync.schemes())} "
        f"(default {DEFAULT_SCHEME})",
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
        type=whole_number(0, 2**31 - 1),
        default=1,
        help="of both trainings: parameters and batches (default %(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(example.output),
        metavar="FOLDER",
        help="for plot.png and results.json (default %(default)s)",
    )


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


def train(example: Example, options: argparse.Namespace) -> int:
    """What every rank does."""
    import torch.distributed as dist

    if options.rate is not None and os.environ.get("GLOO_SOCKET_IFNAME") != _network.INTERFACE:
        return _refuse(
            "--rate belongs to a network that this file makes: start it without torchrun"
        )
    dist.init_process_group("gloo")
    try:
        return _compare(example, options)
    finally:
        dist.destroy_process_group()


def _compare(example: Example, options: argparse.Namespace) -> int:
    import torch.distributed as dist
    from rich.console import Console

    from common import plot, report
    from common.comparison import compare

    rank, ranks = dist.get_rank(), dist.get_world_size()
    console = Console(width=None if sys.stdout.isatty() else report.WIDTH)
    if rank == 0:
        console.print(example.reading, highlight=False)
    comparison = compare(
        console,
        example.read(options, ranks)(rank),
        choice(options),
        iterations=options.iterations,
        seed=options.seed,
        rate_bits_per_second=options.rate,
    )
    failures = comparison.failures()
    if rank == 0:
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


def whole_number(low: int, high: int) -> Callable[[str], int]:
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
