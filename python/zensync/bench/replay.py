"""DistributedDataParallel over a given gradient: its backward pass computes nothing.

So every contender meets the real DDP, bucket by bucket, and nothing but the synchronisation is
timed: from the moment the first bucket is complete on all ranks until backward() returns.
"""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from zensync.bench.starting import start_together

Hook = Callable[[Any, Any], torch.futures.Future[torch.Tensor]]


class Replay:
    """Collective: every rank makes one, and synchronises, in the same order.

    `parts` are the gradients of as many parameters, each a DDP bucket of its own.
    """

    def __init__(self, parts: list[Tensor], hook: Hook, state: Any) -> None:
        self._parts = parts
        self._hook = hook
        self._started: Callable[[], None] = lambda: None
        self._start: float | None = None
        largest = max(part.nbytes for part in parts)
        self._model = DistributedDataParallel(
            _Parameters(parts),
            init_sync=False,
            gradient_as_bucket_view=True,
            bucket_cap_mb=largest / 2**20,  # type: ignore[arg-type]
        )
        self._model.register_comm_hook(state, self._timed_hook())

    def synchronise(self, started: Callable[[], None] = lambda: None) -> float:
        """Seconds. `started` is called when the first bucket is complete on all ranks."""
        self._model.zero_grad(set_to_none=True)
        self._started, self._start = started, None
        self._model(self._parts).backward()
        finished = time.perf_counter()
        assert self._start is not None
        return finished - self._start

    def result(self) -> list[Tensor]:
        """What the last synchronise() left as gradients: views of DDP's buckets."""
        gradients = [parameter.grad for parameter in self._model.parameters()]
        return [gradient for gradient in gradients if gradient is not None]

    def _timed_hook(self) -> Any:
        def timed_hook(state: Any, bucket: Any) -> Any:
            if self._start is None:
                # Buckets of this size are complete at very different moments.
                self._start = start_together(self._started)
            return self._hook(state, bucket)

        # DDP compares annotations, as objects, with these.
        timed_hook.__annotations__ = {
            "bucket": dist.GradBucket,  # type: ignore[attr-defined]
            "return": torch.futures.Future[torch.Tensor],
        }
        return timed_hook


class _Parameters(nn.Module):
    """Parameters of the gradients' shapes that take the memory of one element each."""

    def __init__(self, parts: list[Tensor]) -> None:
        super().__init__()
        self.parameters_of_parts = nn.ParameterList(
            nn.Parameter(torch.zeros(1, dtype=part.dtype).expand(part.shape)) for part in parts
        )

    def forward(self, parts: list[Tensor]) -> Tensor:
        pairs = zip(self.parameters_of_parts, parts, strict=True)
        given = [_Given.apply(*pair) for pair in pairs]  # type: ignore[no-untyped-call]
        return torch.stack(given).sum()


class _Given(torch.autograd.Function):
    """A number whose gradient with respect to the parameter is the given one."""

    @staticmethod
    def forward(ctx: Any, parameter: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return parameter.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[Tensor, None]:
        return ctx.gradient, None
