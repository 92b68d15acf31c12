"""The common start of a timed synchronisation.

A barrier alone would not do: ranks leave it one after the other, up to 30 ms apart where eight
share two cores, and the wait for the last one would be charged to whoever is measured.
"""

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from zensync.bench import resources

SLEEP = 0.03  # seconds in which every rank has left the barrier
LEAD = 0.006  # seconds before the start in which counters are read, because reading takes time


def start_together(started: Callable[[], None]) -> float:
    """Collective. Returns the moment of the start, by time.perf_counter().

    Where all ranks share a machine, and so its clock, it is the same moment on all of them; one
    that is scheduled later has lost that time. Elsewhere it is when this rank leaves a barrier.
    `started` is called just before.
    """
    dist.barrier()
    if not _share_a_clock():
        started()
        dist.barrier()
        return time.perf_counter()
    start = _of_rank_0(time.perf_counter() + SLEEP)
    _sleep_until(start - LEAD)
    started()
    _sleep_until(start)
    return start


def _share_a_clock() -> bool:
    """Linux has one monotonic clock, which time.perf_counter() reads."""
    return resources.ranks_here() == dist.get_world_size()


def _of_rank_0(moment: float) -> float:
    shared = torch.tensor(moment, dtype=torch.float64)
    dist.broadcast(shared, 0)
    return float(shared)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.perf_counter()))
