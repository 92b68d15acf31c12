"""How far are `zensync advise`'s predictions from measured times?

    python -m zensync bench --ranks 2 4 --rates 200mbit 500mbit --output runs/cells
    python benchmarks/advise_accuracy.py runs/cells/results.json

Makes the measured gradients again, predicts every row's time from looks at them, as advise does,
and prints the errors. Run it on the machine that was measured: its ranks share the processors, so
that work takes as many times longer. Rows of more than a quarter of the processors' time are
counted apart, because there the kernel's network, which is not predicted, takes its part too. Fails
if more than a tenth of the others are wrong by more than --allowed.
"""

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from zensync import _C
from zensync.advise.prediction import Bucket, Cluster
from zensync.bench import contenders, patterns
from zensync.bench.cells import RECORDED, Cell
from zensync.profile import ProfiledBucket

NO_NODE = 10**12  # one rank per node: nothing travels within


@dataclasses.dataclass(frozen=True)
class Comparison:
    cell: str
    scheme: str
    measured: float
    predicted: float
    cpu_limited: bool

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", type=Path, nargs="+", help="of zensync bench")
    parser.add_argument("--seed", type=int, default=1, help="that the benchmark had")
    parser.add_argument("--allowed", type=float, default=0.15, help="share of the measured time")
    parser.add_argument("--output", type=Path, help="JSON of all rows")
    options = parser.parse_args()
    rows = [row for path in options.results for row in json.loads(path.read_text())["rows"]]
    compared = list(compare(rows, options.seed))
    for comparison in sorted(compared, key=lambda c: abs(c.error)):
        mark = "  (processors busy)" if comparison.cpu_limited else ""
        print(
            f"{comparison.error:+7.1%}  {1e3 * comparison.measured:8.1f} ms measured, "
            f"{1e3 * comparison.predicted:8.1f} predicted  {comparison.cell}: "
            f"{comparison.scheme}{mark}"
        )
    if options.output is not None:
        options.output.write_text(json.dumps([dataclasses.asdict(c) for c in compared], indent=1))
    free = [c for c in compared if not c.cpu_limited]
    print(summary("all rows", compared, options.allowed))
    print(summary("rows with processors to spare", free, options.allowed))
    wrong = sum(abs(c.error) > options.allowed for c in free)
    return 1 if not free or wrong > 0.1 * len(free) else 0


def compare(rows: Sequence[dict[str, Any]], seed: int) -> Iterator[Comparison]:
    """Shaped rows of synthetic gradients, plain DDP's and the schemes'."""
    usable = [row for row in rows if row["rate_bits_per_second"] and row["pattern"] != RECORDED]
    for (cell, ranks, buckets), own in itertools.groupby(usable, key=_where):
        looks = _looks(cell, ranks, buckets, seed)
        for row in own:
            if (choice := _choice(row)) is None:
                continue
            shared = max(1.0, ranks / (os.cpu_count() or 1))
            cluster = Cluster(ranks, 1, row["rate_bits_per_second"], NO_NODE, shared)
            predicted = sum(
                Bucket(bucket, cluster).cost(*choice, cluster, row["chunks"] or None)[1]
                for bucket in looks
            )
            where = f"{ranks} ranks, {row['rate_bits_per_second'] / 1e6:.0f} Mbit/s, {cell}"
            yield Comparison(where, row["scheme"], row["seconds"], predicted, row["cpu_limited"])


def summary(what: str, compared: Sequence[Comparison], allowed: float) -> str:
    errors = [abs(c.error) for c in compared]
    if not errors:
        return f"{what}: none"
    within = sum(error <= allowed for error in errors)
    return (
        f"{what}: {within} of {len(errors)} within {allowed:.0%}, median error "
        f"{statistics.median(errors):.1%}, worst {max(errors):.1%}"
    )


def _where(row: dict[str, Any]) -> tuple[Cell, int, int]:
    cell = Cell(row["dtype"], row["numel"], row["density"], row["pattern"])
    return cell, row["ranks"], row["buckets"]


def _choice(row: dict[str, Any]) -> tuple[str, bool] | None:
    """Scheme and whether packed; None for what advise does not predict."""
    if row["scheme"] == "ddp":
        return "allreduce", False
    if row["kind"] != "scheme":
        return None
    scheme, options = contenders.parse(row["scheme"])
    if set(options) - {"pack_values", "chunks"} or scheme not in _C.schemes():
        return None
    return scheme, options.get("pack_values", False)


def _looks(cell: Cell, ranks: int, buckets: int, seed: int) -> list[ProfiledBucket]:
    """A look of each rank in place of one of each iteration."""
    by_rank = [
        [_C.look(part) for part in _parts(cell, rank, buckets, seed)] for rank in range(ranks)
    ]
    return [
        {"bucket": number, "numel": looks[0]["numel"], "dtype": cell.dtype, "looks": list(looks)}
        for number, looks in enumerate(zip(*by_rank, strict=True))
    ]


def _parts(cell: Cell, rank: int, buckets: int, seed: int) -> list[torch.Tensor]:
    values = patterns.make(cell, rank=rank, seed=seed).values
    rows = values.view(-1, patterns.ROW_ELEMENTS)
    return [part.flatten() for part in rows.tensor_split(buckets)]


if __name__ == "__main__":
    sys.exit(main())
