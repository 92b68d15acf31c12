"""pack_values: the same gradients in fewer bytes."""

import pytest
import torch
from models import assert_same_gradients
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync


def dense_model(dtype: torch.dtype) -> DistributedDataParallel:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(200, 300), nn.Tanh(), nn.Linear(300, 100))
    return DistributedDataParallel(layers.to(dtype))


def backward(model: nn.Module, rank: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(16, 200, generator=generator).to(dtype)
    model(inputs).float().square().mean().backward()


def share_of_bytes(rank: int, dtype: torch.dtype) -> float:
    """Bytes sent with packed values over bytes sent without."""
    sent = []
    models = []
    for pack_values in (False, True):
        state = zensync.State(scheme="balanced_parallelism", pack_values=pack_values)
        model = dense_model(dtype)
        model.register_comm_hook(state, zensync.hook)
        backward(model, rank, dtype)
        sent.append(state.stats()["total"]["bytes_out"])
        models.append(model)
    unpacked, packed = models
    assert_same_gradients(unpacked, packed, rtol=0, atol=0)
    return sent[1] / sent[0]


@pytest.mark.parametrize(
    ("dtype", "limit"), [(torch.bfloat16, 0.72), (torch.float32, 0.87)], ids=str
)
def test_dense_gradients_take_fewer_bytes(dtype: torch.dtype, limit: float) -> None:
    for share in run_ranks(2, share_of_bytes, dtype):
        assert share <= limit
