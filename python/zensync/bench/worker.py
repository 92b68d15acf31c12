"""What every rank does: `python -m zensync.bench.worker PLAN ROWS`, or run() under torchrun."""

import ctypes
import json
import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from zensync.bench import patterns, progress, recording, results
from zensync.bench.baselines import skip_reason
from zensync.bench.cells import RECORDED, Cell, Plan
from zensync.bench.contenders import Gradients
from zensync.bench.measuring import Advance, measure, synchronisations
from zensync.bench.patterns import ROW_ELEMENTS, Gradient

TIMEOUT = timedelta(minutes=10)  # of one operation; a rank that dies is noticed at once
PARENT = "ZENSYNC_BENCH_PARENT"  # process id of the launcher
_PR_SET_PDEATHSIG = 1


def main() -> int:
    _end_with(int(os.environ[PARENT]))
    plan = Plan.from_json(json.loads(Path(sys.argv[1]).read_text()))
    # One thread per rank: they share this machine, and the schemes work on one thread each.
    torch.set_num_threads(1)
    run(plan, Path(sys.argv[2]))
    return 0


def run(plan: Plan, rows_file: Path) -> None:
    """Rank 0 appends the rows of each cell to `rows_file`. RANK and so on are set."""
    dist.init_process_group("gloo", timeout=TIMEOUT)
    try:
        total = len(plan.cells) * synchronisations(
            plan, len(plan.baselines) + len(plan.schemes)
        )  # at most: some baselines have no row in some cells
        with progress.shown(str(plan.network), total, rank=dist.get_rank()) as shown:
            for cell in plan.cells:
                shown.describe(str(cell))
                rows = measure_cell(plan, cell, shown.advance)
                if dist.get_rank() == 0:
                    results.append_lines(rows_file, rows)
    finally:
        dist.destroy_process_group()


def measure_cell(plan: Plan, cell: Cell, advance: Advance) -> list[results.Row]:
    """Collective. Every rank gets the rows."""
    gradient = _gradient(plan, cell)
    mine = results.facts(gradient.values, gradient.regions)
    gradients = Gradients(
        parts=_cut(gradient, plan.buckets),
        density=_mean(mine.density),
        by_rows=cell.pattern == "rows",
    )
    for name in plan.baselines:
        if skip_reason(name, gradients) is not None:
            for _ in range(plan.warm_up + plan.repetitions):
                advance()
    measured, mean = measure(plan, gradients, advance)
    everybody: list[object] = [None] * plan.network.ranks
    dist.all_gather_object(everybody, (measured, mine))
    by_rank, facts = zip(*everybody, strict=True)  # type: ignore[call-overload]
    return results.Measurement(
        network=plan.network,
        cell=cell,
        buckets=plan.buckets,
        regions=gradient.regions,
        gradients=facts,
        summed=results.facts(mean, gradient.regions),
        by_rank=by_rank,
    ).rows()


def _gradient(plan: Plan, cell: Cell) -> Gradient:
    if cell.pattern != RECORDED:
        return patterns.make(cell, rank=dist.get_rank(), seed=plan.seed)
    recorded = recording.load(plan, rank=dist.get_rank())
    values = recorded.values.to(getattr(torch, cell.dtype))
    return Gradient(values, recorded.regions, recorded.width)


def _cut(gradient: Gradient, buckets: int) -> list[torch.Tensor]:
    """Into equal buckets of whole rows, and what is left over into the last."""
    values = gradient.values
    rows = values.numel() // ROW_ELEMENTS
    if rows * ROW_ELEMENTS != values.numel() or rows < buckets:
        return [part.clone() for part in values.tensor_split(buckets)]
    return [part.clone() for part in values.view(rows, ROW_ELEMENTS).tensor_split(buckets)]


def _mean(value: float) -> float:
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor)
    return float(tensor) / dist.get_world_size()


def _end_with(parent: int) -> None:
    """Linux ends this process when the launcher is gone, however that ended."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the benchmark that started this rank is gone")


if __name__ == "__main__":
    sys.exit(main())
