"""Models with the gradients that zensync is made for, and a comparison with plain DDP."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync

ROWS, DIM = 3000, 16


class Embedding(nn.Module):
    """A table of which a step touches few rows, and dense layers behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(ROWS, DIM)
        self.dense = nn.Sequential(nn.Linear(DIM, 40), nn.ReLU(), nn.Linear(40, 3))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.dense(self.table(indices))
        return result


def indices(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, ROWS, (8, 4), generator=generator)


def pair(
    make: Callable[[], nn.Module],
    state: zensync.State | None = None,
    hook: Callable[..., Any] = zensync.hook,
    **ddp: Any,
) -> tuple[DistributedDataParallel, DistributedDataParallel]:
    """The same model twice: plain DDP, and DDP with zensync."""
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(DistributedDataParallel(make(), **ddp))
    plain, ours = models
    ours.register_comm_hook(state or zensync.State(ddp.get("process_group")), hook)
    return plain, ours


def assert_same_gradients(
    plain: nn.Module, ours: nn.Module, rtol: float | None = None, atol: float | None = None
) -> None:
    expected = dict(plain.named_parameters())
    for name, parameter in ours.named_parameters():
        other = expected[name].grad
        if other is None:
            assert parameter.grad is None, f"{name} has a gradient and should have none"
            continue
        assert parameter.grad is not None, f"{name} has no gradient"
        try:
            torch.testing.assert_close(parameter.grad, other, rtol=rtol, atol=atol)
        except AssertionError as error:
            raise AssertionError(f"gradient of {name}: {error}") from None


def assert_same_on_all_ranks(model: nn.Module, group: dist.ProcessGroup | None = None) -> None:
    """Bit for bit: ranks that drift apart train different models."""
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        mine = parameter.grad.detach().contiguous().view(-1).view(torch.uint8)
        every = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
        dist.all_gather(every, mine, group=group)
        assert all(torch.equal(mine, other) for other in every), f"{name} differs between ranks"


def step(model: nn.Module, *inputs: torch.Tensor) -> None:
    model.zero_grad()
    model(*inputs).square().sum().backward()
