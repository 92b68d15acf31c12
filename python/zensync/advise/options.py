"""The command line of `zensync advise`."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from zensync import profile
from zensync._network import parse_rate
from zensync.advise import EXIT_USAGE
from zensync.advise.prediction import Cluster
from zensync.profile import Profile, ProfileError


@dataclasses.dataclass(frozen=True)
class Options:
    profile: Profile
    clusters: list[Cluster]
    plot: Path | None


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (--help lists the options)\n")


def parse(arguments: Sequence[str]) -> Options:
    """Exits with one line and EXIT_USAGE if an option is impossible."""
    parser = _Parser(
        prog="zensync advise",
        description="Predicts what synchronising the profiled gradients would cost with every "
        "scheme, and says whether zensync helps.",
    )
    add = parser.add_argument
    add("profile", type=Path, help='the file of State(profile="file.json")')
    add("--ranks", type=_whole, nargs="+", default=[2, 4, 8, 16], metavar="N", help="2 4 8 16")
    add("--ranks-per-node", type=_whole, default=1, metavar="N", help="default 1")
    add(
        "--rates",
        type=_rate,
        nargs="+",
        default=[10**9, 10**10],
        metavar="RATE",
        help="of a node's link, each way (default 1gbit 10gbit)",
    )
    add(
        "--node-rate",
        type=_rate,
        default="100gbit",
        metavar="RATE",
        help="of each rank within a node (default 100gbit)",
    )
    add("--plot", type=Path, metavar="FILE", help="where to draw the times")
    parsed = parser.parse_args(arguments)
    try:
        recorded = profile.read(parsed.profile)
    except ProfileError as error:
        parser.error(str(error))
    clusters = [
        Cluster(ranks, parsed.ranks_per_node, rate, parsed.node_rate)
        for rate in parsed.rates
        for ranks in parsed.ranks
    ]
    looks = min(len(bucket["looks"]) for bucket in recorded["buckets"])
    for cluster in clusters:
        if wrong := cluster.impossible(looks):
            parser.error(wrong)
    return Options(recorded, clusters, parsed.plot)


def _whole(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _rate(text: str) -> int:
    try:
        return parse_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
