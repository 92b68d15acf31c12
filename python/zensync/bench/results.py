"""Rows: one contender in one cell, from what all ranks measured. Sizes are bytes, times seconds."""

import dataclasses
import datetime
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from zensync.bench import bounds
from zensync.bench.cells import Cell, Network
from zensync.bench.measuring import Measured
from zensync.bench.patterns import Region
from zensync.env import environment

VERSION = 1
CPU_LIMIT = 0.25  # above it the processors, not the wire, may be what is measured
OTHERS_LIMIT = 0.2  # of the processors for other programs, and the kernel's network; more disturbs
STAGES = ("select", "encode", "push", "reduce", "pull", "decode")


@dataclasses.dataclass(frozen=True)
class Row:
    """docs/benchmark.md describes every field."""

    scheme: str
    kind: str
    ranks: int
    rate_bits_per_second: int | None
    dtype: str
    numel: int
    density: float
    density_before: float
    density_after: float
    pattern: str
    buckets: int
    chunks: int
    seconds: float
    seconds_of_repetitions: list[float]
    bytes_out: float
    bytes_in: float
    card_bytes_out: float | None
    wire_seconds: float | None
    ratio_to_wire: float | None
    entropy_bytes: float | None
    entropy_seconds: float | None
    ratio_to_entropy: float | None
    cpu_share: float
    cpu_share_of_ranks: float
    cpu_limited: bool
    algbw: float
    speedup_over_ddp: float
    speedup_over_ddp_bf16: float | None
    imbalance: float | None
    seconds_by_stage: dict[str, float]
    extra_resident_bytes: int
    extra_resident_ratio: float
    exact: bool
    difference: float
    same_on_all_ranks: bool
    used: str = ""


@dataclasses.dataclass(frozen=True)
class GradientFacts:
    """What the entropy bound needs of one rank's gradient. The regions are alike on all ranks."""

    numel: int
    value_bytes: int
    density: float
    listed_units: list[int]


def facts(values: Tensor, regions: Sequence[Region]) -> GradientFacts:
    listed = int(values.count_nonzero())
    return GradientFacts(
        numel=values.numel(),
        value_bytes=values.element_size(),
        density=listed / values.numel(),
        listed_units=bounds.count_units(values, regions),
    )


@dataclasses.dataclass(frozen=True)
class Measurement:
    """A cell as all ranks measured it. `by_rank[rank]` has the same contenders everywhere."""

    network: Network
    cell: Cell
    buckets: int
    regions: Sequence[Region]
    gradients: Sequence[GradientFacts]  # by rank
    summed: GradientFacts
    by_rank: Sequence[Sequence[Measured]]

    def rows(self) -> list[Row]:
        by_contender = list(zip(*self.by_rank, strict=True))
        medians = {ranks[0].name: statistics.median(slowest(ranks)) for ranks in by_contender}
        return [self._row(ranks, medians) for ranks in by_contender]

    def _row(self, ranks: Sequence[Measured], medians: dict[str, float]) -> Row:
        last = [measured.traffic[-1] for measured in ranks]
        seconds = medians[ranks[0].name]
        gradient_bytes = self.summed.numel * self.summed.value_bytes
        extra = max(measured.extra_resident_bytes for measured in ranks)
        cpu_share = _cpu_share(ranks)
        return Row(
            **self._what(),
            **self._bounds(seconds, max(t.bytes_out for t in last), max(t.bytes_in for t in last)),
            scheme=ranks[0].name,
            kind=ranks[0].kind,
            chunks=last[0].chunks,
            seconds=seconds,
            seconds_of_repetitions=slowest(ranks),
            card_bytes_out=_card_bytes(ranks),
            cpu_share=cpu_share,
            cpu_share_of_ranks=_cpu_share_of_ranks(ranks),
            cpu_limited=cpu_share > CPU_LIMIT,
            algbw=gradient_bytes / seconds,
            speedup_over_ddp=medians["ddp"] / seconds,
            speedup_over_ddp_bf16=medians["ddp_bf16"] / seconds if "ddp_bf16" in medians else None,
            imbalance=max((t.imbalance for t in last if t.imbalance is not None), default=None),
            seconds_by_stage=_stages(ranks),
            extra_resident_bytes=extra,
            extra_resident_ratio=extra * self.buckets / gradient_bytes,
            exact=ranks[0].exact,
            difference=max(measured.difference for measured in ranks),
            same_on_all_ranks=len({measured.checksum for measured in ranks}) == 1,
            used=last[0].used,
        )

    def _what(self) -> dict[str, Any]:
        before = statistics.fmean(gradient.density for gradient in self.gradients)
        return {
            "ranks": self.network.ranks,
            "rate_bits_per_second": self.network.rate_bits_per_second,
            "dtype": self.cell.dtype,
            "numel": self.summed.numel,
            "density": self.cell.density or before,
            "density_before": before,
            "density_after": self.summed.density,
            "pattern": self.cell.pattern,
            "buckets": self.buckets,
        }

    def _bounds(self, seconds: float, bytes_out: float, bytes_in: float) -> dict[str, Any]:
        rate = self.network.rate_bits_per_second
        information = self._entropy_bytes()
        wire = bounds.seconds_on_wire(bytes_out, bytes_in, rate)
        entropy = bounds.seconds_on_wire(information, information, rate)
        return {
            "bytes_out": bytes_out,
            "bytes_in": bytes_in,
            "wire_seconds": wire,
            "ratio_to_wire": seconds / wire if wire else None,
            "entropy_bytes": information,
            "entropy_seconds": entropy,
            "ratio_to_entropy": seconds / entropy if entropy else None,
        }

    def _entropy_bytes(self) -> float:
        pushed = [self._information(gradient) for gradient in self.gradients]
        return bounds.push_pull_bytes(pushed, self._information(self.summed))

    def _information(self, gradient: GradientFacts) -> float:
        return bounds.information_bytes(gradient.listed_units, self.regions, gradient.value_bytes)


def slowest(ranks: Sequence[Measured]) -> list[float]:
    """Seconds of each repetition, of the rank that took longest."""
    return [max(seconds) for seconds in zip(*(m.seconds for m in ranks), strict=True)]


def _cpu_share(ranks: Sequence[Measured]) -> float:
    """Of the busiest machine."""
    return max(m.busy_ticks / m.all_ticks if m.all_ticks else 0.0 for m in ranks)


def _cpu_share_of_ranks(ranks: Sequence[Measured]) -> float:
    """Without the kernel's work for the network that no process is charged for."""
    there = sum(slowest(ranks)) * sum(measured.processors for measured in ranks)
    return sum(measured.processor_seconds for measured in ranks) / there


def disturbed(rows: Sequence[Row]) -> float:
    """The largest share of the processors that other programs had, if it is too large; else 0."""
    others = max((row.cpu_share - row.cpu_share_of_ranks for row in rows), default=0.0)
    return others if others > OTHERS_LIMIT else 0.0


def _card_bytes(ranks: Sequence[Measured]) -> float | None:
    counted = [m.card_bytes_out / len(m.seconds) for m in ranks if m.card_bytes_out is not None]
    return max(counted, default=None)


def _stages(ranks: Sequence[Measured]) -> dict[str, float]:
    """Mean over the ranks of each stage's median."""
    if not ranks[0].traffic[-1].seconds_by_stage:
        return {}
    return {
        stage: statistics.fmean(
            statistics.median(t.seconds_by_stage[stage] for t in m.traffic) for m in ranks
        )
        for stage in STAGES
    }


def write(path: Path, rows: Sequence[Row], command: Sequence[str]) -> None:
    content = {
        "version": VERSION,
        "date": datetime.date.today().isoformat(),
        "command": " ".join(command),
        "machine": environment(),
        "rows": [dataclasses.asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")


def read_lines(path: Path) -> list[Row]:
    """Rows as the ranks leave them: one JSON object a line. None yet if there is no such file."""
    if not path.exists():
        return []
    return [Row(**json.loads(line)) for line in path.read_text().splitlines()]


def append_lines(path: Path, rows: Sequence[Row]) -> None:
    with path.open("a") as file:
        for row in rows:
            file.write(json.dumps(dataclasses.asdict(row)) + "\n")
