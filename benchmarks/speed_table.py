"""Prints the tables of docs/performance.md from what `make bench` has left in runs/codec.json.

python benchmarks/speed_table.py [runs/codec.json]
"""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Row = dict[str, Any]

PATTERNS = ("uniform", "rows")
DENSITIES = (0.001, 0.01, 0.05, 0.2)
OPERATIONS = ("select_encode", "merge", "decode_write", "open")


def main() -> None:
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/codec.json")
    rows: list[Row] = json.loads(path.read_text())
    for threads in unique(row["threads"] for row in rows):
        for dtype in unique(row["dtype"] for row in rows):
            print_codecs(rows, dtype, threads)
    print_packing([row for row in rows if row["operation"] in ("pack", "unpack")])


def print_codecs(rows: list[Row], dtype: str, threads: int) -> None:
    mine = [
        row
        for row in rows
        if row["dtype"] == dtype
        and row["threads"] == threads
        and row["operation"] in OPERATIONS
        and row["encoding"] not in ("packed", "none")
    ]
    if not mine:
        return
    heads = [f"{pattern} {density:.3g}" for pattern in PATTERNS for density in DENSITIES]
    print(f"\n{dtype}, {threads} thread{'s' * (threads > 1)}\n")
    print("| operation | encoding | share of | " + " | ".join(heads) + " |")
    print("|---|---|---|" + "---|" * len(heads))
    for operation in OPERATIONS:
        kinds = unique(
            (row["encoding"], row["bandwidth"]) for row in mine if row["operation"] == operation
        )
        for encoding, bandwidth in kinds:
            shares = {
                (row["pattern"], row["density"]): f"{row['ratio_to_bandwidth']:.0%}"
                for row in mine
                if (row["operation"], row["encoding"], row["bandwidth"])
                == (operation, encoding, bandwidth)
            }
            cells = [shares.get((p, d), "-") for p in PATTERNS for d in DENSITIES]
            print(f"| {operation} | {encoding} | {bandwidth} | " + " | ".join(cells) + " |")


def print_packing(rows: list[Row]) -> None:
    if not rows:
        return
    print("\n| values | dtype | threads | operation | time | of copy |\n|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['pattern']} | {row['dtype']} | {row['threads']} | {row['operation']} "
            f"| {row['seconds'] * 1e3:.1f} ms | {row['ratio_to_bandwidth']:.0%} |"
        )


def unique(values: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


if __name__ == "__main__":
    main()
