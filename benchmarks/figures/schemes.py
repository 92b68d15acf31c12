"""Measured times of the schemes, beside the ranking that the paper's figures 8 and 15 show."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Time:
    model: str  # the folder of its results
    scheme: str
    ranks: int
    rate_bits_per_second: int | None
    seconds: float
    over_ddp: float  # how many times faster than plain DDP


def read(paths: Sequence[Path]) -> list[Time]:
    return [
        Time(
            model=path.parent.name,
            scheme=row["scheme"],
            ranks=row["ranks"],
            rate_bits_per_second=row["rate_bits_per_second"],
            seconds=row["seconds"],
            over_ddp=row["speedup_over_ddp"],
        )
        for path in paths
        for row in json.loads(path.read_text())["rows"]
    ]


def table(times: Sequence[Time]) -> str:
    """How many times faster than plain DDP; the fastest of a column in bold."""
    columns = sorted({(time.model, time.ranks) for time in times})
    by_place = {(time.scheme, time.model, time.ranks): time for time in times}
    schemes = list(dict.fromkeys(time.scheme for time in times))
    best = {
        column: max(time.over_ddp for time in times if (time.model, time.ranks) == column)
        for column in columns
    }
    lines = [
        "| scheme | " + " | ".join(f"{model}, {ranks}" for model, ranks in columns) + " |",
        "|---" * (1 + len(columns)) + "|",
    ]
    for scheme in schemes:
        cells = []
        for column in columns:
            time = by_place.get((scheme, *column))
            text = "" if time is None else f"{time.over_ddp:.2f}"
            cells.append(f"**{text}**" if time and time.over_ddp == best[column] else text)
        lines.append(f"| {scheme} | " + " | ".join(cells) + " |")
    milliseconds = (1e3 * by_place["ddp", column[0], column[1]].seconds for column in columns)
    lines.append("| plain DDP, ms | " + " | ".join(f"{ms:.0f}" for ms in milliseconds) + " |")
    return "\n".join(lines)
