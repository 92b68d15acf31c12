"""Does DGC with error feedback train as well as plain data parallelism, and what without it?

Three models, three seeds, four ranks simulated in one process, which see the batches that four real
ranks would. A variant's held-out loss is the mean of the last five evaluations; DGC should end
within max(1%, two standard errors of the paired differences) of plain data parallelism, and without
error feedback at the same density it should end worse.

    python benchmarks/dgc_convergence.py                # 36 trainings, half an hour on one core
    python benchmarks/dgc_convergence.py --quick        # a minute, to see that it works

Writes rows to runs/dgc.json and, with --figure, a figure. Finished trainings are kept in
runs/dgc_curves.json: a study that was interrupted goes on where it stopped.
"""

import argparse
import dataclasses
import itertools
import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from convergence import report
from convergence.models import TASKS
from convergence.training import VARIANTS, Curve, train

SEEDS = (1, 2, 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one seed and few iterations")
    parser.add_argument("--models", nargs="+", choices=sorted(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=None)
    parser.add_argument("--curves", type=Path, default=Path("runs/dgc_curves.json"))
    parser.add_argument("--output", type=Path, default=Path("runs/dgc.json"))
    parser.add_argument("--figure", type=Path, default=None, help="where to draw the curves")
    options = parser.parse_args()
    torch.set_num_threads(1)
    seeds = options.seeds or (SEEDS[:1] if options.quick else SEEDS)
    known = read_curves(options.curves)
    curves: list[Curve] = []
    for name in options.models:
        task = TASKS[name]()
        iterations = 40 if options.quick else task.iterations
        for seed, variant in itertools.product(seeds, VARIANTS):
            key = (name, variant, seed, iterations)
            if key not in known:
                known[key] = train(task, (name, variant), seed, iterations)
                write_curves(known, options.curves)
            curves.append(known[key])
            print(f"{name:8} {variant:24} seed {seed}: {curves[-1].final:.4f}", flush=True)
    rows = report.rows(curves)
    print(report.table(rows))
    report.save(rows, options.output)
    if options.figure is not None:
        report.draw(curves, options.figure)
    print(json.dumps({"converged": all(row["converged"] is not False for row in rows)}))
    return 0


Curves = dict[tuple[str, str, int, int], Curve]  # by model, variant, seed and iterations


def read_curves(path: Path) -> Curves:
    rows = json.loads(path.read_text()) if path.exists() else []
    curves = [Curve(**row) for row in rows]
    return {(c.model, c.variant, c.seed, c.iterations[-1]): c for c in curves}


def write_curves(curves: Curves, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([dataclasses.asdict(curve) for curve in curves.values()]))


if __name__ == "__main__":
    sys.exit(main())
