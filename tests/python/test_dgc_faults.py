"""A rank that dies while thresholds of tensor-parallel ranks are agreed on."""

import os
import signal

import torch
import torch.distributed as dist
from ranks import end_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync

LONG = 250.0  # the group's timeout in s, which nobody must wait for


def tensor_parallel_peer_is_killed(rank: int) -> None:
    """Ranks 0, 1 hold one copy of the model, ranks 2, 3 another; rank 1 dies in between."""
    tp_groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    dp_groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    model = DistributedDataParallel(nn.Linear(50, 40), process_group=dp_groups[rank % 2])
    compressor = zensync.DGC(0.05, tp_group=tp_groups[rank // 2])
    model.register_comm_hook(
        zensync.State(dp_groups[rank % 2], compressor=compressor), zensync.hook
    )
    for number in range(5):
        if number == 3 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(3, 50)).sum().backward()


def test_dead_tensor_parallel_peer() -> None:
    ended = end_ranks(4, tensor_parallel_peer_is_killed, timeout=LONG)
    assert ended[1].exit_code == -signal.SIGKILL
    for rank in (0, 2, 3):
        # 0 misses its tensor-parallel peer, 3 its data-parallel one, and 2 hears it from either.
        for part in ("RuntimeError", "zensync: rank", "bucket 0", "stage"):
            assert part in ended[rank].error, f"rank {rank}: {ended[rank].error}"
