"""`zensync bench`: makes the networks, starts the ranks, collects their rows and reports."""

import contextlib
import dataclasses
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console

from zensync import _network
from zensync._network import Hosts, Loopback, ShapedNetwork
from zensync.bench import options, plots, resources, results, table, worker
from zensync.bench.cells import Network
from zensync.bench.options import Options
from zensync.bench.results import Row

EXIT_FAILED, EXIT_INTERRUPTED = 1, 130


def main(arguments: Sequence[str]) -> int:
    """Under torchrun, which sets RANK, this process is one of the ranks."""
    under_torchrun = "RANK" in os.environ
    parsed = options.parse(arguments, under_torchrun=under_torchrun)
    try:
        return run_as_rank(parsed, arguments) if under_torchrun else launch(parsed, arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def run_as_rank(parsed: Options, arguments: Sequence[str]) -> int:
    """Rank 0 reports. The network is measured as it is."""
    with tempfile.TemporaryDirectory() as folder:
        rows_file = Path(folder) / "rows"
        worker.run(parsed.plan(parsed.networks[0]), rows_file)
        if int(os.environ["RANK"]) == 0:
            report(parsed, results.read_lines(rows_file), arguments)
    return 0


def launch(parsed: Options, arguments: Sequence[str]) -> int:
    """Results are written after each network, so that little is lost when a later one fails."""
    parsed = _without_shaping_where_refused(parsed)
    rows: list[Row] = []
    for network in parsed.networks:
        codes, found = _measure(parsed, network)
        rows += found
        if rows:
            results.write(parsed.output / "results.json", rows, ["zensync", "bench", *arguments])
        if any(codes):  # the ranks have said why
            return EXIT_FAILED
    report(parsed, rows, arguments)
    return 0


def report(parsed: Options, rows: Sequence[Row], arguments: Sequence[str]) -> None:
    path = parsed.output / "results.json"
    results.write(path, rows, ["zensync", "bench", *arguments])
    console = Console(width=None if sys.stdout.isatty() else table.WIDTH)
    table.print_tables(console, rows)
    written = [path, *plots.write_plots(rows, parsed.output)]
    console.print("Written:", *map(str, written), sep="\n  ", highlight=False, soft_wrap=True)


def _measure(parsed: Options, network: Network) -> tuple[list[int], list[Row]]:
    with tempfile.TemporaryDirectory() as folder, _hosts(network) as hosts:
        plan_file, rows_file = Path(folder) / "plan", Path(folder) / "rows"
        plan_file.write_text(json.dumps(parsed.plan(network).to_json()))
        codes = _network.run_ranks(
            hosts,
            [sys.executable, "-m", "zensync.bench.worker", str(plan_file), str(rows_file)],
            environment={
                worker.PARENT: str(os.getpid()),
                "OMP_NUM_THREADS": "1",
                resources.RANKS_HERE: str(network.ranks),
                # There are no host names in a namespace, about which torch would warn.
                "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "ERROR"),
            },
            port=_free_port() if network.rate_bits_per_second is None else 29500,
        )
        return codes, results.read_lines(rows_file)


@contextlib.contextmanager
def _hosts(network: Network) -> Iterator[Hosts]:
    if network.rate_bits_per_second is None:
        yield Loopback(network.ranks)
        return
    with ShapedNetwork(network.ranks, network.rate_bits_per_second) as shaped:
        yield shaped


def _without_shaping_where_refused(parsed: Options) -> Options:
    if all(network.rate_bits_per_second is None for network in parsed.networks):
        return parsed
    why_not = _network.available()
    if why_not is None:
        return parsed
    print(
        f"zensync bench: no network is shaped here, because {why_not}. The ranks meet on the "
        "loopback, as fast as it goes: times say little about a network",
        file=sys.stderr,
    )
    networks = {Network(network.ranks, None): None for network in parsed.networks}
    return dataclasses.replace(parsed, networks=list(networks))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
