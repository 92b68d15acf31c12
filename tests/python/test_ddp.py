"""DistributedDataParallel with the hook, in every mode, against DistributedDataParallel without."""

import contextlib
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import (
    DIM,
    ROWS,
    Embedding,
    assert_same_gradients,
    assert_same_on_all_ranks,
    indices,
    pair,
    step,
)
from ranks import run_ranks
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    bf16_compress_wrapper,
    fp16_compress_wrapper,
)
from torch.nn.parallel import DistributedDataParallel

import zensync

SMALL_BUCKETS = 0.002  # MB: several buckets, and another cut after the first iteration


def trains_like_plain_ddp(rank: int, options: dict[str, Any], ddp: dict[str, Any]) -> int:
    state = zensync.State(**options)
    plain, ours = pair(Embedding, state, bucket_cap_mb=SMALL_BUCKETS, **ddp)
    for number in range(4):
        for model in (plain, ours):
            step(model, indices(rank, number))
        assert_same_gradients(plain, ours)
        assert_same_on_all_ranks(ours)
    assert state.stats()["iterations"] == 4
    buckets = len(state.stats()["buckets"])
    del plain, ours, state
    return buckets


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("transport", ["capacity", "exact"])
def test_gradients_are_those_of_plain_ddp(ranks: int, transport: str) -> None:
    buckets = run_ranks(ranks, trains_like_plain_ddp, {"transport": transport}, {})
    assert min(buckets) > 1, "the test is meant to have several buckets"


@pytest.mark.parametrize("scheme", zensync.schemes())
def test_every_scheme_trains(scheme: str) -> None:
    run_ranks(3, trains_like_plain_ddp, {"scheme": scheme}, {})


def sends_packed_values(rank: int) -> int:
    state = zensync.State(scheme="balanced_parallelism", pack_values=rank > 0)  # up to each rank
    plain, ours = pair(lambda: nn.Linear(300, 300).bfloat16(), state)
    for number in range(2):
        x = torch.randn(4, 300, generator=torch.Generator().manual_seed(10 * number + rank))
        for model in (plain, ours):
            step(model, x.bfloat16())
        assert_same_gradients(plain, ours, rtol=2**-7, atol=2**-7)
        assert_same_on_all_ranks(ours)
    return state.stats()["last"]["bytes_out"]


def test_packed_values_are_fewer_bytes() -> None:
    as_they_are, packed = run_ranks(2, sends_packed_values)
    assert packed < 0.85 * as_they_are


@pytest.mark.parametrize("chunks", [1, 2, 3, 16])
@pytest.mark.parametrize("transport", ["capacity", "exact"])
def test_any_number_of_chunks(chunks: int, transport: str) -> None:
    run_ranks(2, trains_like_plain_ddp, {"chunks": chunks, "transport": transport}, {})


@pytest.mark.parametrize(
    "ddp",
    [
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"broadcast_buffers": False, "gradient_as_bucket_view": True, "static_graph": True},
    ],
    ids="+".join,
)
def test_ddp_options(ddp: dict[str, Any]) -> None:
    run_ranks(2, trains_like_plain_ddp, {}, ddp)


def accumulates(rank: int, as_view: bool) -> None:
    plain, ours = pair(Embedding, bucket_cap_mb=SMALL_BUCKETS, gradient_as_bucket_view=as_view)
    for number in range(3):
        for model in (plain, ours):
            model.zero_grad()
            for part in range(3):
                with model.no_sync() if part < 2 else contextlib.nullcontext():
                    model(indices(rank, 3 * number + part)).square().sum().backward()
        assert_same_gradients(plain, ours)


@pytest.mark.parametrize("as_view", [False, True])
def test_gradient_accumulation(as_view: bool) -> None:
    run_ranks(2, accumulates, as_view)


def trains_compiled(rank: int, backend: str) -> int:
    """The DDP wrapper itself is compiled: torch cuts the graph where buckets end."""

    def make() -> nn.Module:
        wide = [layer for _ in range(3) for layer in (nn.Linear(400, 400), nn.ReLU())]
        return nn.Sequential(nn.EmbeddingBag(ROWS, 400), *wide)

    state = zensync.State()
    plain, ours = pair(make, state, bucket_cap_mb=1)  # torch.compile refuses smaller ones
    compiled = [torch.compile(model, backend=backend) for model in (plain, ours)]
    for number in range(4):
        for model in compiled:
            step(model, indices(rank, number))  # type: ignore[arg-type]
        assert_same_gradients(plain, ours)
        assert_same_on_all_ranks(ours)
    assert state.stats()["iterations"] == 4
    return len(state.stats()["buckets"])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_torch_compile(backend: str) -> None:
    assert min(run_ranks(2, trains_compiled, backend)) > 1


class Branches(nn.Module):
    """Uses one of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(3))

    def forward(self, x: torch.Tensor, branch: int) -> torch.Tensor:
        result: torch.Tensor = self.branches[branch](self.branches[2](x))
        return result


def ranks_use_different_layers(rank: int) -> None:
    plain, ours = pair(Branches, bucket_cap_mb=0.001, find_unused_parameters=True)
    for number in range(4):
        x = torch.randn(5, DIM, generator=torch.Generator().manual_seed(10 * number + rank))
        for model in (plain, ours):
            model.zero_grad()
            model(x, (rank + number) % 2).square().sum().backward()
        assert_same_gradients(plain, ours)


def test_unused_parameters_that_differ_between_ranks() -> None:
    run_ranks(2, ranks_use_different_layers)


def joins_with_uneven_inputs(rank: int) -> None:
    plain, ours = pair(Embedding, bucket_cap_mb=SMALL_BUCKETS)
    for model in (plain, ours):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        with model.join():
            for number in range(2 + 2 * rank):
                step(model, indices(rank, number))
                optimizer.step()
    for expected, parameter in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected)


def test_join_with_uneven_inputs() -> None:
    run_ranks(3, joins_with_uneven_inputs)


class Mixed(nn.Module):
    """A parameter of every kind that may meet in one model."""

    def __init__(self) -> None:
        super().__init__()
        dtypes = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
        self.weights = nn.ParameterList(
            nn.Parameter(torch.arange(size).remainder(7).to(dtype))
            for dtype in dtypes
            for size in (0, 1, 130)
        )

    def forward(self, factor: float) -> torch.Tensor:
        # Whole numbers, small enough for each dtype: sums and means are exact.
        return sum((weight.sum() * factor).double() for weight in self.weights)  # type: ignore


def reduces_mixed_dtypes(rank: int) -> list[str]:
    state = zensync.State()
    plain, ours = pair(Mixed, state, bucket_cap_mb=0.0001)
    for number in range(3):
        for model in (plain, ours):
            model.zero_grad()
            model(4.0 * (rank + number)).backward()
        assert_same_gradients(plain, ours, rtol=0, atol=0)
    return [bucket["dtype"] for bucket in state.stats()["buckets"]]


def test_mixed_dtypes_and_tiny_parameters() -> None:
    for dtypes in run_ranks(2, reduces_mixed_dtypes):
        assert {"float32", "bfloat16", "float16", "float64"} == set(dtypes)


def reduces_in_a_subgroup(rank: int) -> None:
    members = [0, 2]
    group = dist.new_group(members)
    if rank not in members:
        with pytest.raises(ValueError, match="not a member"):
            zensync.State(group)
        return
    state = zensync.State(group)
    plain, ours = pair(Embedding, state, process_group=group, bucket_cap_mb=SMALL_BUCKETS)
    for number in range(3):
        for model in (plain, ours):
            step(model, indices(rank, number))
        assert_same_gradients(plain, ours)
        assert_same_on_all_ranks(ours, group)


def test_subgroup() -> None:
    run_ranks(3, reduces_in_a_subgroup)


def reduces_channels_last(rank: int) -> None:
    def make() -> nn.Module:
        layers = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
        layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return layers

    plain, ours = pair(make)
    for number in range(3):
        x = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(10 * number + rank))
        for model in (plain, ours):
            step(model, x.to(memory_format=torch.channels_last))
        assert_same_gradients(plain, ours)


def test_channels_last() -> None:
    run_ranks(2, reduces_channels_last)


class Complex(nn.Module):
    """DDP hands complex gradients over as pairs of real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(70, 3, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x @ self.weight).abs()


def reduces_complex(rank: int) -> None:
    plain, ours = pair(Complex)
    for number in range(3):
        generator = torch.Generator().manual_seed(10 * number + rank)
        x = torch.randn(2, 70, dtype=torch.complex64, generator=generator)
        for model in (plain, ours):
            step(model, x)
        assert_same_gradients(plain, ours)


def test_complex_parameters() -> None:
    run_ranks(2, reduces_complex)


def scales_gradients(rank: int) -> None:
    plain, ours = pair(Embedding, bucket_cap_mb=SMALL_BUCKETS)
    for number in range(4):
        for model in (plain, ours):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            model.zero_grad()
            loss = model(indices(rank, number)).square().sum()
            if rank == 1 and number == 2:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            expected = 512.0 if number == 2 else 1024.0
            assert scaler.get_scale() == expected, f"step {number}"
    for expected_parameter, parameter in zip(plain.parameters(), ours.parameters(), strict=True):
        torch.testing.assert_close(parameter, expected_parameter)


def test_grad_scaler_sees_an_infinity_of_another_rank() -> None:
    run_ranks(2, scales_gradients)


def trains_inside_wrapper(rank: int, name: str) -> None:
    wrapper = {"fp16": fp16_compress_wrapper, "bf16": bf16_compress_wrapper}[name]
    hook = wrapper(zensync.hook)
    hook.__name__ = "wrapped"  # by its own name DDP refuses the bf16 wrapper without CUDA
    plain, ours = pair(Embedding, hook=hook, bucket_cap_mb=SMALL_BUCKETS)
    for number in range(3):
        for model in (plain, ours):
            step(model, indices(rank, number))
        assert_same_gradients(plain, ours, rtol=2**-6, atol=1e-3)
        assert_same_on_all_ranks(ours)


@pytest.mark.parametrize("name", ["fp16", "bf16"])
def test_compress_wrappers(name: str) -> None:
    run_ranks(2, trains_inside_wrapper, name)


def sends_less_than_dense(rank: int) -> None:
    state = zensync.State(scheme="balanced_parallelism")
    _, ours = pair(lambda: nn.EmbeddingBag(ROWS, DIM), state)
    step(ours, indices(rank, 0))
    statistics = state.stats()
    (bucket,) = statistics["buckets"]
    touched = indices(rank, 0).unique().numel()
    assert bucket["density_before"] == pytest.approx(touched / ROWS)
    everywhere = torch.cat([indices(other, 0).flatten() for other in range(2)]).unique().numel()
    assert bucket["density_after"] == pytest.approx(everywhere / ROWS)
    assert 0 < bucket["bytes_out"] < 0.1 * bucket["dense_bytes"]
    assert bucket["dense_bytes"] == ROWS * DIM * 4
    assert statistics["total"]["bytes_out"] == bucket["bytes_out"]
    for stage, seconds in bucket["seconds"].items():
        assert isinstance(seconds, float)
        assert seconds > 0, stage


def test_statistics_of_a_sparse_model() -> None:
    run_ranks(2, sends_less_than_dense)


def makes_the_state_first(rank: int, port: int) -> None:
    state = zensync.State()
    assert state.stats()["iterations"] == 0
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    plain, ours = pair(Embedding, state, bucket_cap_mb=SMALL_BUCKETS)
    for model in (plain, ours):
        step(model, indices(rank, 0))
    assert_same_gradients(plain, ours)


def test_state_made_before_the_process_group(free_port: int) -> None:
    run_ranks(2, makes_the_state_first, free_port, group=False)


def shows_ranges(rank: int) -> set[str]:
    _, ours = pair(Embedding, zensync.State(scheme="balanced_parallelism"))
    step(ours, indices(rank, 0))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step(ours, indices(rank, 1))
    return {event.key for event in profile.key_averages() if event.key.startswith("zensync::")}


def test_profiler_ranges() -> None:
    stages = ("select", "encode", "push", "reduce", "pull", "decode")
    for ranges in run_ranks(2, shows_ranges):
        assert ranges == {f"zensync::{stage}" for stage in stages}


def trains_two_models(rank: int) -> None:
    """Each with its State; their buckets are on the wire at the same time."""
    plain, ours = pair(Embedding, bucket_cap_mb=SMALL_BUCKETS)
    other_plain, other = pair(Embedding, zensync.State(chunks=2), bucket_cap_mb=0.01)
    for number in range(3):
        for models in ((plain, other_plain), (ours, other)):
            for model in models:
                model.zero_grad()
            sum(model(indices(rank, number)).square().sum() for model in models).backward()  # type: ignore
        assert_same_gradients(plain, ours)
        assert_same_gradients(other_plain, other)


def test_two_models_in_one_backward() -> None:
    run_ranks(2, trains_two_models)


def reports_hook_name(rank: int) -> str:
    ours = DistributedDataParallel(nn.Linear(2, 2))
    ours.register_comm_hook(zensync.State(), zensync.hook)
    step(ours, torch.ones(1, 2))
    return str(ours._get_ddp_logging_data()["comm_hook"])


def test_ddp_logs_the_name_of_the_hook() -> None:
    assert run_ranks(1, reports_hook_name) == ["hook"]


def has_no_state(rank: int) -> None:
    ours = DistributedDataParallel(nn.Linear(2, 2))
    ours.register_comm_hook(None, zensync.hook)
    with pytest.raises((TypeError, RuntimeError), match=r"register_comm_hook\(zensync.State\(\)"):
        step(ours, torch.ones(1, 2))


def test_hook_without_a_state() -> None:
    run_ranks(1, has_no_state)
