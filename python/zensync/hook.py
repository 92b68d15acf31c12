"""The function that users register with DDP, beside a State.

No `from __future__ import annotations` here: DDP compares the annotations as objects.
"""

import torch
import torch.distributed as dist

from zensync.state import State


def hook(
    state: State,
    bucket: dist.GradBucket,  # type: ignore[name-defined]
) -> torch.futures.Future[torch.Tensor]:
    """Averages a gradient bucket over the group, in place, by the State's scheme. Most of them send
    the non-zeros only. This is what "balanced_parallelism" does:

    1. Each rank finds the non-zeros of its bucket and sends every owner those of the owner's part.
       Parts are pseudo-random, so that owners have equally much to do.
    2. An owner adds what it received in float32, in rank order, divides by the number of ranks and
       rounds once.
    3. It sends the sum to everybody, who write it into their bucket.

    Works on the engine's thread; the future is DDP's to wait for. float64 goes through the
    backend's all-reduce. A failure anywhere comes out of backward() as a RuntimeError on every
    rank.

        model.register_comm_hook(zensync.State(), zensync.hook)
    """
    if not isinstance(state, State):
        raise TypeError(
            f"the state of zensync.hook is {state!r}: register it as "
            "model.register_comm_hook(zensync.State(), zensync.hook)"
        )
    return state.reduce(bucket)
