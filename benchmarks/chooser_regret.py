"""How much time does scheme="auto" lose against the best scheme? Regret over fixed cells.

Each cell is one gradient on one network: auto, every scheme that could win there and plain DDP are
measured in interleaved repetitions (`zensync bench`). Regret is auto's median over the least
median of the others.

    python benchmarks/chooser_regret.py                     measures all cells, then reports
    python benchmarks/chooser_regret.py --only 4:200mbit rows:0.1    these cells alone
    python benchmarks/chooser_regret.py --report            what has been measured so far

Networks are shaped where that is allowed; it needs root. Rows are kept in runs/regret.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from zensync.bench import launch

NETWORKS = [(ranks, rate) for ranks in (2, 4, 8) for rate in ("200mbit", "500mbit", "unshaped")]
SPARSE = ["balanced_parallelism", "hierarchical"]
PACKED = [f"{scheme}:packed" for scheme in SPARSE]

# Pattern and density, and the schemes beside auto and plain DDP that could be the fastest.
CELLS = [
    ("uniform", 0.01, [*SPARSE, *PACKED, "agsparse", "sparcml"]),
    ("rows", 0.1, [*SPARSE, *PACKED]),
    ("uniform", 0.5, [*SPARSE, *PACKED, "allreduce"]),
    ("uniform", 1.0, [*SPARSE, *PACKED, "allreduce"]),
]
MORE_CELLS = [  # with 4 ranks
    ("uniform", 0.001, [*SPARSE, "agsparse", "sparcml"]),
    ("uniform", 0.1, [*SPARSE, *PACKED]),
]
Row = dict[str, Any]


def main() -> int:
    options = parse()
    for ranks, rate in [] if options.report else NETWORKS:
        for pattern, density, schemes in CELLS + (MORE_CELLS if ranks == 4 else []):
            names = {f"{ranks}:{rate}", f"{pattern}:{density:g}"}
            if not names >= set(options.only):
                continue
            folder = options.output / f"{ranks}_{rate}_{pattern}_{density:g}"
            code = launch.main(
                [
                    *("--ranks", str(ranks), "--rates", rate, "--numel", options.numel),
                    *("--patterns", pattern, "--densities", str(density)),
                    *("--schemes", "auto", *schemes, "--baselines", "--warm-up", "1"),
                    *("--repetitions", str(options.repetitions), "--output", str(folder)),
                ]
            )
            if code != 0:
                return code
    report(options.output)
    return 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NETWORK or CELL")
    parser.add_argument("--report", action="store_true", help="measure nothing")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--numel", default="8M")
    parser.add_argument("--output", type=Path, default=Path("runs/regret"))
    return parser.parse_args()


def report(output: Path) -> None:
    cells = [json.loads(path.read_text())["rows"] for path in sorted(output.glob("*/results.json"))]
    lines = sorted((regret(rows), describe(rows)) for rows in cells)
    for _, line in reversed(lines):
        print(line)
    if lines:
        good = sum(value <= 1.1 for value, _ in lines)
        print(f"{good} of {len(lines)} cells within 1.1 times the best")


def regret(rows: list[Row]) -> float:
    auto, others = split(rows)
    return float(auto["seconds"] / min(row["seconds"] for row in others))


def describe(rows: list[Row]) -> str:
    auto, others = split(rows)
    best = min(others, key=lambda row: row["seconds"])
    dense = next(row for row in rows if row["scheme"] == "ddp")
    rate = auto["rate_bits_per_second"]
    network = "unshaped" if rate is None else f"{rate / 1e6:g} Mbit/s"
    return (
        f"{regret(rows):6.3f}  {auto['ranks']} ranks, {network:>10}, {auto['pattern']:>7} "
        f"{100 * auto['density']:5g}%  auto {1e3 * auto['seconds']:8.1f} ms ({auto['used']}), best "
        f"{1e3 * best['seconds']:8.1f} ms ({best['scheme']}), "
        f"DDP {1e3 * dense['seconds']:8.1f} ms, CPU {100 * auto['cpu_share']:.0f}%"
    )


def split(rows: list[Row]) -> tuple[Row, list[Row]]:
    auto = next(row for row in rows if row["scheme"] == "auto")
    return auto, [row for row in rows if row is not auto]


if __name__ == "__main__":
    sys.exit(main())
