"""Synthetic gradients. A rank's gradient depends on the cell, the seed and the rank alone.

    uniform    every element is non-zero with the same chance
    rows       whole rows of 512, as of an embedding table: drawn by Zipf popularity, the commonest
               first, so that ranks share the popular ones and these crowd at one end
    clustered  as uniform, but within one range that is the same on all ranks and half full

Values are normal, and their scale varies from block to block of 1,024, as between the layers and
rows of a model: what value packing gains depends on it.
"""

import dataclasses

import torch
from torch import Tensor

from zensync.bench.cells import Cell

PATTERNS = ("uniform", "rows", "clustered")

ROW_ELEMENTS = 512
# Zipf-Mandelbrot popularity 1 / (rank + 2.7)^1.1 of a row: between the fits to a translation
# model's and a language model's batches.
ZIPF_OFFSET, ZIPF_EXPONENT = 2.7, 1.1
CLUSTER_DENSITY = 0.5
SCALE_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class Region:
    """A part of the gradient whose elements are listed in units: single ones, or whole rows."""

    start: int
    units: int
    unit_elements: int


@dataclasses.dataclass(frozen=True)
class Gradient:
    """One rank's gradient, flat, and the structure that an ideal encoding would know."""

    values: Tensor
    regions: list[Region]
    width: int  # columns, if it is laid out as a matrix


def smallest_numel(pattern: str, density: float) -> int:
    """Of a gradient that lists anything at all."""
    elements = ROW_ELEMENTS if pattern == "rows" else 1
    return max(ROW_ELEMENTS, round(elements / density))


def make(cell: Cell, *, rank: int, seed: int) -> Gradient:
    generator = torch.Generator().manual_seed(seed * 1_000_003 + rank)
    values = _values(cell.numel, generator)
    mask, region = _MASKS[cell.pattern](cell.numel, cell.density, generator)
    values.masked_fill_(~mask, 0)  # not multiplied: that would leave -0.0 in half of the places
    return Gradient(values.to(getattr(torch, cell.dtype)), [region], ROW_ELEMENTS)


def _values(numel: int, generator: torch.Generator) -> Tensor:
    blocks = -(-numel // SCALE_BLOCK)
    scales = torch.randn(blocks, generator=generator).exp_().mul_(1e-3)
    values = torch.randn(blocks, SCALE_BLOCK, generator=generator)
    return values.mul_(scales[:, None]).flatten()[:numel]


def _uniform(numel: int, density: float, generator: torch.Generator) -> tuple[Tensor, Region]:
    return torch.rand(numel, generator=generator) < density, Region(0, numel, 1)


def _rows(numel: int, density: float, generator: torch.Generator) -> tuple[Tensor, Region]:
    rows = numel // ROW_ELEMENTS
    listed = draw_rows(rows, max(1, round(density * rows)), generator)
    mask = torch.zeros(numel, dtype=torch.bool)
    mask[: rows * ROW_ELEMENTS].view(rows, ROW_ELEMENTS)[listed] = True
    return mask, Region(0, rows, ROW_ELEMENTS)


def draw_rows(rows: int, count: int, generator: torch.Generator) -> Tensor:
    """`count` distinct rows, drawn one after the other by popularity (Gumbel's trick)."""
    popularity = -ZIPF_EXPONENT * (torch.arange(rows, dtype=torch.float64) + ZIPF_OFFSET).log()
    uniform = torch.rand(rows, generator=generator, dtype=torch.float64).clamp_min_(1e-300)
    return (popularity - (-uniform.log()).log()).topk(count).indices


def _clustered(numel: int, density: float, generator: torch.Generator) -> tuple[Tensor, Region]:
    length = min(numel, round(numel * density / CLUSTER_DENSITY))
    start = (numel - length) // 3  # somewhere inside, where equal ranges would cut it badly
    mask = torch.zeros(numel, dtype=torch.bool)
    chance = density * numel / length
    mask[start : start + length] = torch.rand(length, generator=generator) < chance
    return mask, Region(start, length, 1)


_MASKS = {"uniform": _uniform, "rows": _rows, "clustered": _clustered}
