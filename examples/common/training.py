"""Trains a workload from a seed, the same way whatever carries the gradients, and measures it."""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel

import zensync
from common.workload import Workload
from zensync._network import own_counters

CONTENDERS = ("ddp", "zensync")
DEFAULT_SCHEME = "balanced_parallelism"  # "auto" would spend a short run on its trials
WARM_UP = 10  # iterations left out of the median: buckets are rebuilt, memory is new
FINAL = 10  # iterations whose mean is the final training loss: one batch alone says little

Progress = Callable[[int, float], None]  # iterations done, the last one's loss on this rank


@dataclasses.dataclass(frozen=True)
class Choice:
    """What zensync is to do."""

    scheme: str | None = None  # None: DEFAULT_SCHEME
    density: float | None = None  # of DGC; None: nothing is lost

    def state(self) -> zensync.State:
        """Collective. Raises ValueError for what does not go together."""
        options: dict[str, Any] = {"scheme": self.scheme or DEFAULT_SCHEME}
        if self.density is not None:
            options["compressor"] = zensync.DGC(self.density)
        return zensync.State(**options)


@dataclasses.dataclass(frozen=True)
class Run:
    """Figures of one training. The same on all ranks, but for the tensors' identity."""

    losses: list[float]  # per iteration, the mean over the ranks
    seconds: list[float]  # per iteration, of the slowest rank
    held_out_loss: float
    bytes_sent: float  # per rank and iteration
    card_bytes_sent: float | None  # the same as the network card counted it, headers included
    parameters: list[Tensor]
    scheme: str | None = None  # zensync's

    @property
    def final_loss(self) -> float:
        return statistics.fmean(self.losses[-FINAL:])

    @property
    def seconds_per_iteration(self) -> float:
        return median_seconds(self.seconds)


def median_seconds(seconds: list[float]) -> float:
    return statistics.median(seconds[min(WARM_UP, len(seconds) // 4) :])


def synchronise(
    model: nn.Module, contender: str, choice: Choice
) -> tuple[DistributedDataParallel, zensync.State | None]:
    """Collective. All that a training script has to change for zensync is the last two lines."""
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if contender == "ddp":
        return parallel, None
    state = choice.state()
    parallel.register_comm_hook(state, zensync.hook)
    return parallel, state


def train(
    workload: Workload,
    contender: str,
    choice: Choice,
    *,
    iterations: int,
    seed: int,
    progress: Progress,
) -> Run:
    """Collective."""
    model = workload.new_model(seed)
    parallel, state = synchronise(model, contender, choice)
    dist.barrier()
    card_before = _card_bytes_sent()
    losses, seconds = _iterate(parallel, workload, iterations, progress)
    card_after = _card_bytes_sent()
    sent = dense_bytes_sent(model) if state is None else zensync_bytes_sent(state)
    if state is not None:
        state.close()
    card = None
    if card_before is not None and card_after is not None:
        card = _mean((card_after - card_before) / iterations)
    return Run(
        losses=_over_ranks(losses, "mean"),
        seconds=_over_ranks(seconds, "max"),
        held_out_loss=_mean(workload.held_out_loss(model)),
        bytes_sent=_mean(sent),
        card_bytes_sent=card,
        parameters=[parameter.detach() for parameter in model.parameters()],
        scheme=None if state is None else state.scheme,
    )


def seconds_computing(workload: Workload, *, iterations: int, seed: int) -> float:
    """Collective. An iteration's time under DDP with a hook that sends nothing.

    The mean over the ranks, not the slowest rank's: nobody waits for it here.
    """
    parallel = DistributedDataParallel(workload.new_model(seed), gradient_as_bucket_view=True)
    parallel.register_comm_hook(None, noop_hook)
    dist.barrier()
    _, seconds = _iterate(parallel, workload, iterations, lambda done, loss: None)
    return _mean(median_seconds(seconds))


def dense_bytes_sent(model: nn.Module) -> float:
    """What a rank sends in a ring all-reduce of all gradients: 2 (n - 1) / n times their bytes."""
    ranks = dist.get_world_size()
    gradients = sum(p.numel() * p.element_size() for p in model.parameters())
    return 2 * (ranks - 1) / ranks * gradients


def zensync_bytes_sent(state: zensync.State) -> float:
    """Messages as the transport counted them: payloads and their headers."""
    stats = state.stats()
    return stats["total"]["bytes_out"] / stats["iterations"]


def same_on_all_ranks(tensors: list[Tensor]) -> bool:
    """Collective: are the tensors' bits equal everywhere?"""
    for tensor in tensors:
        bits = tensor.flatten().view(torch.int32)
        low, high = bits.clone(), bits.clone()
        dist.all_reduce(low, dist.ReduceOp.MIN)
        dist.all_reduce(high, dist.ReduceOp.MAX)
        if not torch.equal(low, high):
            return False
    return True


def _iterate(
    model: nn.Module, workload: Workload, iterations: int, progress: Progress
) -> tuple[list[float], list[float]]:
    optimizer = workload.optimizer(model)
    losses, seconds = [], []
    for iteration in range(iterations):
        batch = workload.batch(iteration)
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = model(batch)
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
        losses.append(float(loss.detach()))
        progress(iteration + 1, losses[-1])
    return losses, seconds


def _card_bytes_sent() -> int | None:
    """None on the loopback, which all ranks share."""
    card = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    return None if card == "lo" else own_counters(card).bytes_out


def _over_ranks(values: list[float], reduction: str) -> list[float]:
    tensor = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(tensor, dist.ReduceOp.MAX if reduction == "max" else dist.ReduceOp.SUM)
    if reduction == "mean":
        tensor /= dist.get_world_size()
    result: list[float] = tensor.tolist()
    return result


def _mean(value: float) -> float:
    return _over_ranks([value], "mean")[0]
