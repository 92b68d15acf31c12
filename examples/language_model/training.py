"""Trains the model from a seed, the same way whatever carries the gradients, and measures it."""

import dataclasses
import os
import statistics
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel

import zensync
from language_model.batches import Batches
from language_model.model import LanguageModel, Size
from zensync._network import own_counters

SCHEMES = ("ddp", "zensync")
WARM_UP = 10  # iterations left out of the median: buckets are rebuilt, memory is new
FINAL = 10  # iterations whose mean is the final training loss: one batch alone says little

Progress = Callable[[int, float], None]  # iterations done, the last one's loss on this rank


@dataclasses.dataclass(frozen=True)
class Run:
    """Figures of one training. The same on all ranks, but for the tensors' identity."""

    losses: list[float]  # per iteration, the mean over the ranks
    seconds: list[float]  # per iteration, of the slowest rank
    held_out_loss: float
    bytes_sent: float  # per rank and iteration
    card_bytes_sent: float | None  # the same as the network card counted it, headers included
    parameters: list[Tensor]

    @property
    def final_loss(self) -> float:
        return statistics.fmean(self.losses[-FINAL:])

    @property
    def seconds_per_iteration(self) -> float:
        return median_seconds(self.seconds)


def median_seconds(seconds: list[float]) -> float:
    return statistics.median(seconds[min(WARM_UP, len(seconds) // 4) :])


def new_model(size: Size, seed: int) -> LanguageModel:
    torch.manual_seed(seed)
    return LanguageModel(size)


def new_optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Adagrad, as usual for language models of this kind, from a sum of squares above zero.

    Two ways to add the same gradients differ in the last bit, and the comparison of the trained
    parameters is meant to show that and no more. A step must then change little when its gradient
    does. Without the start value (and with Adam) the first step of a row is its learning rate times
    the gradient's sign, however small the gradient: a difference of one bit around zero would
    become one of two learning rates.
    """
    return torch.optim.Adagrad(
        model.parameters(), lr=0.1, initial_accumulator_value=1e-3, fused=True
    )


def synchronise(
    model: LanguageModel, scheme: str, density: float | None = None
) -> tuple[DistributedDataParallel, zensync.State | None]:
    """Collective. All that a training script has to change for zensync is the last two lines.

    With a density zensync is to compress, at that density.
    """
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    if scheme == "ddp":
        return parallel, None
    state = zensync.State(compressor=None if density is None else zensync.DGC(density))
    parallel.register_comm_hook(state, zensync.hook)
    return parallel, state


def train(
    size: Size,
    batches: Batches,
    scheme: str,
    *,
    iterations: int,
    seed: int,
    progress: Progress,
    density: float | None = None,
) -> Run:
    """Collective."""
    model = new_model(size, seed)
    parallel, state = synchronise(model, scheme, density)
    dist.barrier()
    card_before = _card_bytes_sent()
    losses, seconds = _iterate(parallel, batches, iterations, progress)
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
        held_out_loss=_mean(float(model.held_out_loss(*batches.held_out()))),
        bytes_sent=_mean(sent),
        card_bytes_sent=card,
        parameters=[parameter.detach() for parameter in model.parameters()],
    )


def seconds_computing(size: Size, batches: Batches, *, iterations: int, seed: int) -> float:
    """Collective. An iteration's time under DDP with a hook that sends nothing.

    The mean over the ranks, not the slowest rank's: nobody waits for it here.
    """
    parallel = DistributedDataParallel(new_model(size, seed), gradient_as_bucket_view=True)
    parallel.register_comm_hook(None, noop_hook)
    dist.barrier()
    _, seconds = _iterate(parallel, batches, iterations, lambda done, loss: None)
    return _mean(median_seconds(seconds))


def dense_bytes_sent(model: torch.nn.Module) -> float:
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
    model: torch.nn.Module, batches: Batches, iterations: int, progress: Progress
) -> tuple[list[float], list[float]]:
    optimizer = new_optimizer(model)
    losses, seconds = [], []
    for iteration in range(iterations):
        batch = batches.batch(iteration)
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
