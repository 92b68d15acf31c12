"""The command line. Whatever is impossible is refused here, before a rank starts, with a remedy."""

import argparse
import dataclasses
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from zensync import _C
from zensync._network import MAX_HOSTS, parse_rate
from zensync.bench import EXIT_USAGE, baselines, contenders, recording, resources, values
from zensync.bench.cells import RECORDED, Cell, Network, Plan, Settings
from zensync.bench.patterns import PATTERNS, smallest_numel

DTYPES = ("float32", "bfloat16", "float16")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


class UsageError(ValueError):
    """Options that cannot be served, in a sentence with a remedy."""


@dataclasses.dataclass(frozen=True)
class Options:
    networks: list[Network]
    settings: Settings
    output: Path

    def plan(self, network: Network) -> Plan:
        return Plan(network=network, **vars(self.settings))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"{self.prog}: {message} (--help lists the options)\n")


def parser() -> argparse.ArgumentParser:
    result = _Parser(
        prog="zensync bench",
        description="Measures what synchronising a gradient costs: zensync's schemes beside "
        "PyTorch's own ways, on shaped networks of this machine, or under torchrun on your own.",
    )
    add = result.add_argument
    add("--ranks", type=values.whole(2, MAX_HOSTS), nargs="+", metavar="N", help="default 4")
    add(
        "--rates",
        type=values.rate,
        nargs="+",
        metavar="RATE",
        help="of every rank's card, for example 200mbit or 1gbit; or unshaped (default 200mbit)",
    )
    add(
        "--schemes",
        type=values.scheme,
        nargs="+",
        default=_C.schemes(),
        metavar="SCHEME",
        help="default: all of them; with options behind colons, for example "
        f"balanced_parallelism:packed ({contenders.OPTIONS})",
    )
    add(
        "--baselines",
        choices=baselines.NAMES,
        nargs="*",
        default=list(baselines.NAMES),
        help="default: all of them; plain DDP (ddp) is always measured",
    )
    add("--dtypes", choices=DTYPES, nargs="+", default=["float32"], help="default float32")
    add(
        "--numel",
        type=values.elements,
        default=8 * 2**20,
        help="elements: 8M is 8 * 2^20, the default",
    )
    add("--densities", type=values.density, nargs="+", metavar="D", help="default 0.01 0.1")
    add("--patterns", choices=PATTERNS, nargs="+", help="default uniform rows")
    add("--buckets", type=values.whole(1, 64), default=1, help="equal DDP buckets (default 1)")
    add("--repetitions", type=values.whole(1, 1000), default=5, help="timed ones (default 5)")
    add("--warm-up", type=values.whole(1, 100), default=2, help="repetitions before (default 2)")
    add("--seed", type=values.whole(0, 2**31 - 1), default=1, help="of the gradients (default 1)")
    add(
        "--model",
        nargs="?",
        const=recording.DEMO,
        metavar="MODULE:FUNCTION",
        help="a model's own gradients instead of synthetic ones; without a value the demo's",
    )
    add(
        "--output",
        type=Path,
        default=Path("runs/bench"),
        metavar="FOLDER",
        help="for results.json and plots (default runs/bench)",
    )
    return result


def parse(arguments: Sequence[str], *, under_torchrun: bool = False) -> Options:
    """Exits with one line and EXIT_USAGE if an option or their combination is impossible."""
    command_line = parser()
    parsed = command_line.parse_args(arguments)
    try:
        options = _options(parsed, under_torchrun)
        _check_folder(options.output)
        _check_memory(options, under_torchrun)
    except (UsageError, recording.ModelError) as error:
        command_line.error(str(error))
    return options


def _options(parsed: argparse.Namespace, under_torchrun: bool) -> Options:
    if "powersgd" in parsed.baselines and parsed.warm_up < baselines.POWERSGD_DENSE_ITERATIONS:
        raise UsageError(
            f"--warm-up {parsed.warm_up} is too short for powersgd, whose first "
            f"{baselines.POWERSGD_DENSE_ITERATIONS} iterations are dense: raise it, or leave "
            "powersgd out of --baselines"
        )
    settings = Settings(
        cells=_cells(parsed),
        schemes=_distinct(parsed.schemes),
        baselines=_distinct(["ddp", *parsed.baselines]),
        warm_up=parsed.warm_up,
        repetitions=parsed.repetitions,
        buckets=parsed.buckets,
        seed=parsed.seed,
        model=parsed.model,
        recordings=str((parsed.output / "recorded").resolve()),
    )
    return Options(_networks(parsed, under_torchrun), settings, parsed.output)


def _networks(parsed: argparse.Namespace, under_torchrun: bool) -> list[Network]:
    if not under_torchrun:
        pairs = itertools.product(parsed.ranks or [4], parsed.rates or [parse_rate("200mbit")])
        return [Network(*pair) for pair in _distinct(pairs)]
    if parsed.ranks or parsed.rates:
        raise UsageError(
            "--ranks and --rates are for networks that this command makes: under torchrun the "
            "ranks are torchrun's and the network is your own, so leave them out"
        )
    return [Network(int(os.environ["WORLD_SIZE"]), None)]


def _cells(parsed: argparse.Namespace) -> list[Cell]:
    if parsed.model is not None:
        if parsed.densities or parsed.patterns:
            raise UsageError("--model brings its own gradients: leave out --densities, --patterns")
        recording.find_model(parsed.model)
        return [Cell(dtype, 0, 0.0, RECORDED) for dtype in _distinct(parsed.dtypes)]
    cells = [
        Cell(dtype, parsed.numel, density, pattern)
        for dtype, pattern, density in itertools.product(
            _distinct(parsed.dtypes),
            _distinct(parsed.patterns or ["uniform", "rows"]),
            _distinct(parsed.densities or [0.01, 0.1]),
        )
    ]
    for cell in cells:
        least = smallest_numel(cell.pattern, cell.density) * parsed.buckets
        if cell.numel < least:
            raise UsageError(
                f"--numel {cell.numel} is too small for pattern {cell.pattern} at density "
                f"{cell.density:g} in {parsed.buckets} buckets: take at least {least}"
            )
    return cells


def _check_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--output {folder} cannot be used: {error}") from error


def _check_memory(options: Options, under_torchrun: bool) -> None:
    """Every contender has a bucket; a scheme at work up to 3.2 times one more in messages."""
    cells, schemes = options.settings.cells, options.settings.schemes
    baselines_there = options.settings.baselines
    largest = max(cell.numel * DTYPE_BYTES[cell.dtype] for cell in cells)
    each = (len(baselines_there) + 4.2 * len(schemes) + 6) * largest
    ranks = max(network.ranks for network in options.networks)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if under_torchrun else ranks
    needed, there = local * each, resources.available_memory()
    if needed > there:
        raise UsageError(
            f"{local} ranks with {len(schemes)} schemes and {len(baselines_there)} "
            f"baselines may need {needed / 2**30:.1f} GiB of memory, {there / 2**30:.1f} GiB are "
            "free: take fewer --schemes, --baselines or --ranks, or a smaller --numel"
        )


def _distinct(values: Iterable[object]) -> list:  # type: ignore[type-arg]
    return list(dict.fromkeys(values))
