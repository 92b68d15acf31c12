"""The command line. Whatever is impossible is refused here, before a rank starts, with a remedy."""

import argparse
import dataclasses
import itertools
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from zensync import _C
from zensync._network import MAX_HOSTS, parse_rate
from zensync.bench import EXIT_USAGE, baselines, contenders, recording, resources
from zensync.bench.cells import RECORDED, Cell, Network, Plan
from zensync.bench.patterns import PATTERNS, smallest_numel

DTYPES = ("float32", "bfloat16", "float16")
DTYPE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
UNSHAPED = "unshaped"

Number = TypeVar("Number", int, float)


class UsageError(ValueError):
    """Options that cannot be served, in a sentence with a remedy."""


@dataclasses.dataclass(frozen=True)
class Options:
    networks: list[Network]
    cells: list[Cell]
    schemes: list[str]
    baselines: list[str]
    warm_up: int
    repetitions: int
    buckets: int
    seed: int
    model: str | None
    output: Path

    def plan(self, network: Network) -> Plan:
        return Plan(
            network=network,
            cells=self.cells,
            schemes=self.schemes,
            baselines=self.baselines,
            warm_up=self.warm_up,
            repetitions=self.repetitions,
            buckets=self.buckets,
            seed=self.seed,
            model=self.model,
            recordings=str((self.output / "recorded").resolve()),
        )


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
    add("--ranks", type=_whole(2, MAX_HOSTS), nargs="+", metavar="N", help="default 4")
    add(
        "--rates",
        type=_rate,
        nargs="+",
        metavar="RATE",
        help="of every rank's card, for example 200mbit or 1gbit; or unshaped (default 200mbit)",
    )
    add(
        "--schemes",
        type=_scheme,
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
    add("--numel", type=_elements, default=8 * 2**20, help="elements: 8M is 8 * 2^20, the default")
    add("--densities", type=_density, nargs="+", metavar="D", help="default 0.01 0.1")
    add("--patterns", choices=PATTERNS, nargs="+", help="default uniform rows")
    add("--buckets", type=_whole(1, 64), default=1, help="equal DDP buckets (default 1)")
    add("--repetitions", type=_whole(1, 1000), default=5, help="timed ones (default 5)")
    add("--warm-up", type=_whole(1, 100), default=2, help="repetitions before (default 2)")
    add("--seed", type=_whole(0, 2**31 - 1), default=1, help="of the gradients (default 1)")
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
    return Options(
        networks=_networks(parsed, under_torchrun),
        cells=_cells(parsed),
        schemes=_distinct(parsed.schemes),
        baselines=_distinct(["ddp", *parsed.baselines]),
        warm_up=parsed.warm_up,
        repetitions=parsed.repetitions,
        buckets=parsed.buckets,
        seed=parsed.seed,
        model=parsed.model,
        output=parsed.output,
    )


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
    largest = max(cell.numel * DTYPE_BYTES[cell.dtype] for cell in options.cells)
    each = (len(options.baselines) + 4.2 * len(options.schemes) + 6) * largest
    ranks = max(network.ranks for network in options.networks)
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if under_torchrun else ranks
    needed, there = local * each, resources.available_memory()
    if needed > there:
        raise UsageError(
            f"{local} ranks with {len(options.schemes)} schemes and {len(options.baselines)} "
            f"baselines may need {needed / 2**30:.1f} GiB of memory, {there / 2**30:.1f} GiB are "
            "free: take fewer --schemes, --baselines or --ranks, or a smaller --numel"
        )


def _distinct(values: Iterable[object]) -> list:  # type: ignore[type-arg]
    return list(dict.fromkeys(values))


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse_number(text: str) -> int:
        if not text.strip().lstrip("-").isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse_number


def _elements(text: str) -> int:
    number, factor = text, 1
    if text[-1:] in "KMG" and text:
        number, factor = text[:-1], {"K": 2**10, "M": 2**20, "G": 2**30}[text[-1]]
    if not number.isdecimal() or not 0 < int(number) * factor < 2**35:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of elements: write it out, or with K, M or G (powers of "
            "1024), for example 8M"
        )
    return int(number) * factor


def _density(text: str) -> float:
    try:
        density = float(text)
    except ValueError:
        density = -1
    if not 0 < density <= 1:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a density: write a number above 0, up to 1"
        )
    return density


def _rate(text: str) -> int | None:
    if text == UNSHAPED:
        return None
    try:
        return parse_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {UNSHAPED}") from error


def _scheme(text: str) -> str:
    try:
        contenders.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text
