"""Rows for people: a table for each network and gradient."""

import itertools
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from zensync.bench.cells import RECORDED, Network
from zensync.bench.expected import expected
from zensync.bench.results import CPU_LIMIT, Row, disturbed

WIDTH = 132
COLUMNS = ("ms", "/ wire", "/ entropy", "CPU", "MB out", "MB in", "MB/s", "x DDP", "x bf16", "mem")


def print_tables(console: Console, rows: Sequence[Row]) -> None:
    for title, group in itertools.groupby(rows, _title):
        console.print()
        console.print(make_table(title, list(group)))
    if any(row.cpu_limited for row in rows):
        console.print(
            f"* more than {CPU_LIMIT:.0%} of the processors' time in use: they, not the wire, may "
            "be the limit"
        )
    long_enough = [row for row in rows if row.scheme != "noop"]
    if others := disturbed(long_enough):
        console.print(
            f"Other programs had up to {others:.0%} of the processors' time: end them and measure "
            "again"
        )


def make_table(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    if (prediction := expected(rows)) is not None:
        table.caption = str(prediction)
    table.add_column("scheme", no_wrap=True)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for kind, group in itertools.groupby(rows, lambda row: row.kind):
        if kind != rows[0].kind:
            table.add_section()
        for row in group:
            table.add_row(row.scheme, *_cells(row))
    return table


def _title(row: Row) -> str:
    network = Network(row.ranks, row.rate_bits_per_second)
    pattern = row.pattern if row.pattern == RECORDED else f"{row.pattern} {row.density:.3g}"
    buckets = "" if row.buckets == 1 else f" in {row.buckets} buckets"
    return (
        f"{network}: {row.numel:,} {row.dtype}{buckets}, {pattern} "
        f"(density {row.density_before:.2%}, summed {row.density_after:.2%})"
    )


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{1e3 * row.seconds:.1f}",
        _ratio(row.ratio_to_wire),
        _ratio(row.ratio_to_entropy),
        f"{row.cpu_share:.0%}{'*' if row.cpu_limited else ' '}",
        f"{row.bytes_out / 1e6:.2f}",
        f"{row.bytes_in / 1e6:.2f}",
        f"{row.algbw / 1e6:.0f}",
        _ratio(row.speedup_over_ddp),
        _ratio(row.speedup_over_ddp_bf16),
        f"{row.extra_resident_ratio:.2f}",
    )


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}" if value < 100 else f"{value:.0f}"
