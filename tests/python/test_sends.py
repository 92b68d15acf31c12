"""The order in which messages go out, as torch's profiler sees it."""

import torch
from ranks import run_ranks

import zensync

RANKS = 4


def targets_of_sends(_: int) -> list[int]:
    tensor = torch.ones(100_000)
    zensync.all_reduce(tensor, scheme="balanced_parallelism")
    with torch.profiler.profile(record_shapes=True) as profiler:
        zensync.all_reduce(tensor, scheme="balanced_parallelism")
    events = profiler.events()
    assert events is not None
    sends = [event.concrete_inputs for event in events if event.name == "c10d::send"]
    return [inputs[2] for inputs in sends]


def test_every_rank_begins_with_the_one_behind_it() -> None:
    """Were all to begin with rank 0, its link would be full and the others idle."""
    for rank, targets in enumerate(run_ranks(RANKS, targets_of_sends)):
        circle = [(rank + ahead) % RANKS for ahead in range(1, RANKS)]
        assert targets == 2 * circle, f"rank {rank}: push, then pull"
