"""Tensors on GPUs. What needs a GPU is skipped without one; what is decided on the host is tested
by any build."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import Embedding, assert_same_gradients, assert_same_on_all_ranks, indices
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync
from zensync import _C
from zensync._nccl import moves_gpu_tensors_by_nccl, reason_to_wait

GPUS = torch.cuda.device_count() if _C.build_info()["cuda"] else 0
needs_gpu = pytest.mark.skipif(GPUS == 0, reason="needs a build for GPUs, and a GPU")
needs_gpus = pytest.mark.skipif(GPUS < 2, reason="needs a build for GPUs, and two GPUs")


def reasons(rank: int) -> list[str]:
    def reason(layer: nn.Module | None = None, **ddp: Any) -> str:
        state = zensync.State()
        wrapped = DistributedDataParallel(nn.Sequential(nn.Linear(3, 3)), **ddp)
        if layer is not None:  # DDP refuses some on the CPU
            wrapped.module.append(layer)
        wrapped.register_comm_hook(state, zensync.hook)
        return reason_to_wait(state)

    return [
        reason(),
        reason(find_unused_parameters=True),
        reason(nn.SyncBatchNorm(3)),
        reason_to_wait(zensync.State()),
    ]


def test_models_that_communicate_in_their_backward_pass_are_found() -> None:
    (found,) = run_ranks(1, reasons)
    assert found[0] == ""
    assert "find_unused_parameters" in found[1]
    assert "SyncBatchNorm" in found[2]
    assert "not found" in found[3]


def is_on_gloo(rank: int) -> bool:
    return not moves_gpu_tensors_by_nccl(None)


def test_gloo_is_no_reason_to_wait() -> None:
    assert run_ranks(1, is_on_gloo) == [True]


@pytest.mark.skipif(_C.build_info()["cuda"], reason="a build for GPUs says something else")
def test_a_build_for_cpus_refuses_other_tensors_by_name() -> None:
    run_ranks(1, refuses_other_tensors)


def refuses_other_tensors(rank: int) -> None:
    with pytest.raises(ValueError, match="this build handles CPU tensors only"):
        zensync.all_reduce(torch.ones(3, device="meta"))


def train(rank: int, device: str, options: dict[str, Any], ddp: dict[str, Any]) -> None:
    """The same gradients as plain DDP on the CPU, over gloo."""
    torch.cuda.set_device(device)
    models: list[DistributedDataParallel] = []
    state = zensync.State(**options)
    for place in ("cpu", device):
        torch.manual_seed(0)
        models.append(DistributedDataParallel(Embedding().to(place), bucket_cap_mb=0.002, **ddp))
    plain, ours = models
    ours.register_comm_hook(state, zensync.hook)
    for number in range(4):
        for model, place in ((plain, "cpu"), (ours, device)):
            model.zero_grad()
            model(indices(rank, number).to(place)).square().mean().backward()
        for parameter in ours.parameters():
            assert parameter.grad is not None
        on_cpu = Embedding()
        for here, there in zip(on_cpu.parameters(), ours.parameters(), strict=True):
            here.grad = None if there.grad is None else there.grad.cpu()
        named: Any = nn.Module()
        named.module = on_cpu
        assert_same_gradients(plain, named, rtol=1e-4, atol=1e-6)
        assert_same_on_all_ranks(named)
    assert state.stats()["iterations"] == 4


def trains_on_one_gpu(rank: int, options: dict[str, Any], ddp: dict[str, Any]) -> None:
    train(rank, "cuda:0", options, ddp)


@needs_gpu
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("transport", ["capacity", "exact"])
def test_several_ranks_on_one_gpu_over_gloo(ranks: int, transport: str) -> None:
    run_ranks(ranks, trains_on_one_gpu, {"transport": transport}, {})


@needs_gpu
@pytest.mark.parametrize("scheme", zensync.schemes())
def test_every_scheme_on_one_gpu(scheme: str) -> None:
    run_ranks(2, trains_on_one_gpu, {"scheme": scheme}, {})


@needs_gpu
def test_unused_parameters_and_views_on_one_gpu() -> None:
    run_ranks(
        2,
        trains_on_one_gpu,
        {},
        {"find_unused_parameters": True, "gradient_as_bucket_view": True},
    )


def on_nccl(rank: int, function: Callable[..., None], backend: str, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group(backend, rank=rank, world_size=GPUS)
    function(rank)
    dist.destroy_process_group()


def sums_are_right(rank: int) -> None:
    for numel in (1, 65, 4097, 100_003):
        for dtype in (torch.float32, torch.bfloat16, torch.float64):
            tensor = torch.zeros(numel, dtype=dtype, device=f"cuda:{rank}")
            tensor[rank::7] = rank + 1
            expected = torch.zeros(numel, dtype=dtype)
            for other in range(dist.get_world_size()):
                expected[other::7] += other + 1
            zensync.all_reduce(tensor, op="sum")
            assert torch.equal(tensor.cpu(), expected)


@needs_gpus
@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_sums_over_nccl(backend: str) -> None:
    run_ranks(GPUS, on_nccl, sums_are_right, backend, free_port(), group=False)


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_refused_in_a_graph(rank: int) -> None:
    torch.cuda.set_device(0)
    tensor = torch.ones(100, device="cuda")
    state = zensync.State()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(ValueError, match="CUDA graph"), torch.cuda.graph(graph):
        zensync.all_reduce(tensor)
    state.close()


@needs_gpu
def test_graph_capture_is_refused() -> None:
    run_ranks(1, is_refused_in_a_graph)
