"""Do the ZEN paper's observations hold on our models' gradients, and do its schemes rank alike?

    python benchmarks/paper_figures.py characteristics   # figures 2 and 3; minutes on one core
    python benchmarks/paper_figures.py schemes runs/figures/*/results.json   # figures 8 and 15

The first trains the models of examples/, briefly, and plays up to --ranks ranks in one process. The
second reads what `zensync bench --model ...:embedding_gradients --ranks 2 4 8` has measured of the
same gradients. Both write a figure and print a table; docs/reproduction.md has them.
"""

import argparse
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from figures import plots, recorded, report, schemes
from figures.characteristics import Characteristics, measure


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("characteristics", help="overlap, densification, skewness")
    first.add_argument("--models", nargs="+", choices=recorded.MODELS, default=[*recorded.MODELS])
    first.add_argument("--ranks", type=int, default=128, help="at most (default %(default)s)")
    second = commands.add_parser("schemes", help="times of all schemes on the same gradients")
    second.add_argument("results", type=Path, nargs="+", help="of zensync bench")
    for command in (first, second):
        command.add_argument("--output", type=Path, default=Path("runs/figures"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if options.command == "schemes":
        rows = schemes.read(options.results)
        print(schemes.table(rows))
        plots.write_schemes(rows, options.output / "schemes.png")
        return 0
    torch.set_num_threads(1)
    path = options.output / "characteristics.json"
    found = [item for item in _known(path) if item.model not in options.models]
    for model in options.models:
        print(f"{model}: training and {options.ranks} gradients", flush=True)
        found += [measure(table) for table in recorded.tables(model, options.ranks)]
    path.write_text(json.dumps([item.to_json() for item in found], indent=1) + "\n")
    print(report.table(found))
    plots.write_characteristics(found, options.output / "characteristics.png")
    return 0


def _known(path: Path) -> list[Characteristics]:
    """Of an earlier run, so that models can be measured one by one."""
    if not path.exists():
        return []
    return [Characteristics.from_json(fields) for fields in json.loads(path.read_text())]


if __name__ == "__main__":
    sys.exit(main())
