"""What PyTorch itself offers: the ways that the schemes are compared with.

    ddp        plain DDP: a dense all-reduce. Plain DDP divides by the number of ranks while it
               copies gradients into its buckets, which nobody is charged for here; so this hook
               does not divide, and leaves the sum
    ddp_bf16   DDP with the hook that sends float32 gradients as bfloat16
    powersgd   DDP with the PowerSGD hook, rank 4
    coo        the backend's all-reduce of a sparse tensor, as embeddings with sparse=True use;
               making the sparse tensor is not timed
    noop       DDP with a hook that sends nothing: what no hook can beat

Bytes are what each rank sends by these algorithms (rings); zensync's schemes count theirs.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from zensync.bench.contenders import Contender, Gradients, Traffic
from zensync.bench.replay import Hook, Replay
from zensync.bench.starting import start_together

POWERSGD_RANK = 4
POWERSGD_DENSE_ITERATIONS = 2  # its smallest number; warm-up must cover it
LOSSY = frozenset({"ddp_bf16", "powersgd", "noop"})


class HookBaseline(Contender):
    """DDP with one of PyTorch's hooks. `bytes_sent` is given the parts."""

    def __init__(
        self,
        name: str,
        gradients: Gradients,
        hook: Hook,
        state: Any,
        bytes_sent: Callable[[list[Tensor]], float],
    ) -> None:
        self.name = name
        self.exact = name not in LOSSY
        self._replay = Replay(gradients.parts, hook, state)
        self._bytes = bytes_sent(gradients.parts)

    def synchronise(self, started: Callable[[], None] = lambda: None) -> float:
        return self._replay.synchronise(started)

    def result(self) -> list[Tensor]:
        return self._replay.result()

    def traffic(self) -> Traffic:
        return Traffic(bytes_out=self._bytes, bytes_in=self._bytes)


class SparseAllReduce(Contender):
    """Not through DDP: it sends sparse gradients one by one, and so does this."""

    name = "coo"
    exact = True
    divisor = 1

    def __init__(self, gradients: Gradients) -> None:
        self._sparse = [_to_sparse(part, gradients.by_rows) for part in gradients.parts]
        self._bytes = sum(coo_bytes(tensor) for tensor in self._sparse)
        self._result: list[Tensor] = []

    def synchronise(self, started: Callable[[], None] = lambda: None) -> float:
        self._result = [tensor.clone() for tensor in self._sparse]
        start = start_together(started)
        works = [dist.all_reduce(tensor, async_op=True) for tensor in self._result]
        for work in works:
            assert work is not None
            work.wait()
        return time.perf_counter() - start

    def result(self) -> list[Tensor]:
        return [tensor.to_dense() for tensor in self._result]

    def traffic(self) -> Traffic:
        return Traffic(bytes_out=self._bytes, bytes_in=self._bytes)


def make(name: str, gradients: Gradients) -> Contender:
    """Collective."""
    if name == "coo":
        return SparseAllReduce(gradients)
    hook, state, bytes_sent = _hooks()[name]
    contender = HookBaseline(name, gradients, hook, state, bytes_sent)
    contender.divisor = 1 if name in ("ddp", "noop") else dist.get_world_size()
    return contender


def skip_reason(name: str, gradients: Gradients) -> str | None:
    """Collective. Why a baseline has no row for these gradients; the same on all ranks."""
    dtype = gradients.parts[0].dtype
    if name == "ddp_bf16" and dtype != torch.float32:
        return f"{dtype} gradients are as small as bfloat16 ones"
    if name == "coo" and gradients.density > 0.5:
        return "a list of more than half of all elements is larger than the dense gradient"
    return None


NAMES = ("ddp", "ddp_bf16", "powersgd", "coo", "noop")


def _hooks() -> dict[str, tuple[Hook, Any, Callable[[list[Tensor]], float]]]:
    return {
        "ddp": (sum_hook, None, dense_bytes),
        "ddp_bf16": (default_hooks.bf16_compress_hook, None, lambda parts: dense_bytes(parts) / 2),
        "powersgd": (
            powerSGD_hook,
            PowerSGDState(
                process_group=None,
                matrix_approximation_rank=POWERSGD_RANK,
                start_powerSGD_iter=POWERSGD_DENSE_ITERATIONS,
            ),
            low_rank_bytes,
        ),
        "noop": (noop_hook, None, lambda parts: 0.0),
    }


def sum_hook(_: Any, bucket: Any) -> torch.futures.Future[torch.Tensor]:
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    assert work is not None
    future: torch.futures.Future[torch.Tensor] = work.get_future().then(_first)
    return future


def ring_bytes(size: float) -> float:
    """What each rank sends when `size` bytes are all-reduced in a ring."""
    ranks = dist.get_world_size()
    return 2 * (ranks - 1) / ranks * size


def dense_bytes(parts: list[Tensor]) -> float:
    return ring_bytes(sum(part.nbytes for part in parts))


def low_rank_bytes(parts: list[Tensor]) -> float:
    """Two thin matrices for each gradient that they halve at least, others as they are."""
    size = 0
    for part in parts:
        rows, columns = part.shape if part.dim() == 2 else (part.numel(), 1)
        thin = (rows + columns) * POWERSGD_RANK
        size += (thin if 2 * thin < part.numel() else part.numel()) * part.element_size()
    return ring_bytes(size)


def coo_bytes(tensor: Tensor) -> float:
    """What the rank sends if the others list as much as it does: indices of 8 bytes and values."""
    size = tensor.indices().nbytes + tensor.values().nbytes
    return (dist.get_world_size() - 1) * size


def _to_sparse(part: Tensor, by_rows: bool) -> Tensor:
    """Rows as sparse embeddings have them, or a list of single elements."""
    return (part.to_sparse(1) if by_rows else part.flatten().to_sparse()).coalesce()


def _first(future: torch.futures.Future[list[torch.Tensor]]) -> torch.Tensor:
    return future.value()[0]
