"""Ranks that part ways in the middle of training, or stop: what each of them is told, and when."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from models import Embedding, assert_same_gradients, indices, pair, step
from ranks import Ended, end_ranks, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync

SHORT = 5.0  # the group's timeout in s, where a test waits for it
LONG = 250.0  # where it must not: the guard of the test processes is only little longer


def assert_explains(end: Ended, *parts: str) -> None:
    for part in ("RuntimeError", "zensync: rank", "stage", *parts):
        assert part in end.error, f"{part!r} is missing in:\n{end.error}"


def part_ways(rank: int, options: dict[str, object], known: bool) -> None:
    """Two models share a State. After three iterations rank 1 alone goes on with the other one,
    whose buckets everybody has seen if it is `known`."""
    state = zensync.State(**options)  # type: ignore[arg-type]
    models = []
    for size in (30, 40):
        model = DistributedDataParallel(nn.Linear(size, size, bias=False))
        model.register_comm_hook(state, zensync.hook)
        models.append((model, torch.ones(2, size)))
    for _ in range(3):
        step(models[0][0], models[0][1])
        if known:
            step(models[1][0], models[1][1])
    model, x = models[int(rank == 1)]
    step(model, x)


@pytest.mark.parametrize(
    ("ranks", "options", "known"),
    [
        (2, {"scheme": "balanced_parallelism"}, False),
        (3, {"scheme": "balanced_parallelism"}, True),
        (3, {"scheme": "hierarchical"}, False),
        (2, {"scheme": "allreduce"}, False),
        (2, {"scheme": "balanced_parallelism", "transport": "exact"}, False),
    ],
    ids=["new layout", "known layout", "hierarchical", "allreduce", "exact"],
)
def test_layouts_that_differ_after_some_iterations(
    ranks: int, options: dict[str, object], known: bool
) -> None:
    for rank, end in enumerate(end_ranks(ranks, part_ways, options, known, timeout=LONG)):
        assert_explains(
            end,
            f"rank {rank}, bucket 0",
            "the ranks do not mean the same: rank",
            "mean of 900 float32",
            "rank 1: bucket 0, mean of 1600 float32",
            "use the same model, tensors and options on every rank",
        )


def is_stopped(rank: int, culprit: int) -> None:
    """The culprit stops itself in the third iteration. The next rank, once its own wait has ended,
    lets it go on."""
    processes: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(processes, os.getpid())
    _, ours = pair(Embedding)
    try:
        for number in range(4):
            if number == 2 and rank == culprit:
                os.kill(os.getpid(), signal.SIGSTOP)
            step(ours, indices(rank, number))
    finally:
        if rank == (culprit + 1) % len(processes):
            os.kill(processes[culprit], signal.SIGCONT)


@pytest.mark.parametrize("culprit", [0, 2])  # rank 0 hosts the store
def test_stopped_rank(culprit: int) -> None:
    ended = end_ranks(3, is_stopped, culprit, timeout=SHORT)
    for rank, end in enumerate(ended):
        assert_explains(end, f"rank {rank}, bucket 0", "later than the group's timeout")
        assert end.exit_code == 0
    if culprit != 0:
        told = [end.error for rank, end in enumerate(ended) if rank != culprit]
        assert any(f"rank {culprit} has not told where it is" in error for error in told), told


def is_slow(rank: int) -> None:
    plain, ours = pair(Embedding)
    for number in range(4):
        if (number, rank) in ((1, 1), (2, 0)):
            time.sleep(4)  # longer than a watch's patience
        for model in (ours, plain):  # ours is the one that waits
            step(model, indices(rank, number))
        assert_same_gradients(plain, ours)


def test_slow_rank_is_waited_for() -> None:
    run_ranks(2, is_slow, timeout=LONG)
