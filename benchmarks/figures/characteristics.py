"""The paper's three observations on sparse gradients (section 2.1), measured.

    overlap          |I1 and I2| / min(|I1|, |I2|) of two ranks' non-zeros (Definition 3, figure 2a)
    densification    density of the sum of n ranks over that of one (Definition 4, figure 2b)
    skewness         largest share of a rank's non-zeros in one of n equal parts, times n
                     (Definition 5, figure 3b); figure 3a has the shares in eight parts

Rows are touched as a whole, so all of it is computed on rows.
"""

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor

from figures.recorded import Table

PARTS = 8  # of figure 3a
OVERLAP_RANKS = 32  # whose pairs are compared


@dataclasses.dataclass(frozen=True)
class Characteristics:
    model: str
    table: str
    rows: int
    width: int
    density: float  # of one rank, mean over the ranks
    overlap: list[float]  # of pairs of ranks
    densification: dict[int, float]  # by the number of ranks
    skewness: dict[int, float]  # by the number of parts, mean over the ranks
    parts: list[float]  # shares of the non-zeros in each of PARTS parts, mean over the ranks

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(fields: dict[str, Any]) -> "Characteristics":
        numbered = {
            name: {int(key): value for key, value in fields[name].items()}
            for name in ("densification", "skewness")
        }
        return Characteristics(**{**fields, **numbered})


def measure(table: Table) -> Characteristics:
    ranks, rows = table.touched.shape
    sizes = [2**power for power in range(1, ranks.bit_length()) if 2**power <= ranks]
    return Characteristics(
        model=table.model,
        table=table.name,
        rows=rows,
        width=table.width,
        density=float(table.touched.float().mean()) * table.filled,
        overlap=overlaps(table.touched[:OVERLAP_RANKS]),
        densification={n: densification(table.touched, n) for n in sizes},
        skewness={n: skewness(table.touched, n) for n in sizes},
        parts=part_shares(table.touched, PARTS).mean(0).tolist(),
    )


def overlaps(touched: Tensor) -> list[float]:
    """Of every pair of ranks."""
    counts = touched.sum(1)
    return [
        int((touched[a] & touched[b]).sum()) / int(torch.minimum(counts[a], counts[b]))
        for a, b in itertools.combinations(range(len(touched)), 2)
    ]


def densification(touched: Tensor, ranks: int) -> float:
    """Mean over disjoint groups of so many neighbouring ranks."""
    groups = touched[: len(touched) // ranks * ranks].unflatten(0, (-1, ranks))
    return float(groups.any(1).sum()) * ranks / float(groups.sum())


def skewness(touched: Tensor, parts: int) -> float:
    return float(part_shares(touched, parts).amax(1).mean()) * parts


def part_shares(touched: Tensor, parts: int) -> Tensor:
    """Ranks x parts: of a rank's touched rows those in each of so many equal parts. Rows that do
    not divide evenly lie in the part that has their beginning."""
    rows = touched.shape[1]
    part = torch.arange(rows) * parts // rows
    counts = torch.zeros(len(touched), parts).index_add_(1, part, touched.float())
    return counts / counts.sum(1, keepdim=True)
