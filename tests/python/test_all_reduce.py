"""zensync.all_reduce of single tensors, against torch.distributed.all_reduce."""

import hashlib
import os
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import run_ranks

import zensync

SHAPES = [(), (0,), (1,), (63,), (64,), (65,), (5, 0, 2), (7, 9), (127, 129), (3, 4, 5, 6)]
SCHEME_DTYPES = [torch.float32, torch.float16, torch.bfloat16]
BACKEND_DTYPES = [torch.float64, torch.int64, torch.int32, torch.int8, torch.uint8]


def whole_numbers(
    shape: tuple[int, ...], rank: int, density: float, dtype: torch.dtype
) -> torch.Tensor:
    """Small multiples of 12, at most 4 ranks of which have an exact sum and mean in any dtype."""
    generator = torch.Generator().manual_seed(rank)
    values = 12 * torch.randint(0, 2, shape, generator=generator)
    kept = torch.rand(shape, generator=generator) < density
    return (values * kept).to(dtype)


def expected_sum(
    shape: tuple[int, ...], ranks: int, density: float, dtype: torch.dtype
) -> torch.Tensor:
    return sum(  # type: ignore[return-value]
        whole_numbers(shape, rank, density, dtype).double() for rank in range(ranks)
    )


def reduces_everything(rank: int, ranks: int) -> None:
    for scheme in zensync.schemes():
        # The backend's dtypes are the same to every scheme.
        others = BACKEND_DTYPES if scheme == "balanced_parallelism" else []
        for dtype, shape, density in product(SCHEME_DTYPES + others, SHAPES, (0.0, 0.1, 1.0)):
            case = (scheme, dtype, shape, density)
            total = expected_sum(shape, ranks, density, dtype)
            tensor = whole_numbers(shape, rank, density, dtype)
            assert zensync.all_reduce(tensor, op="sum", scheme=scheme) is tensor
            assert torch.equal(tensor.double(), total), case
            if not dtype.is_floating_point or density == 0:
                continue
            tensor = whole_numbers(shape, rank, density, dtype)
            zensync.all_reduce(tensor, scheme=scheme)
            assert torch.equal(tensor.double(), total / ranks), case


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_whole_numbers_are_exact_by_every_scheme(ranks: int) -> None:
    run_ranks(ranks, reduces_everything, ranks)


def pattern_mask(pattern: str, ranks: int, numel: int, generator: torch.Generator) -> torch.Tensor:
    """Which elements each rank holds."""
    if pattern == "scattered":
        return torch.rand(ranks, numel, generator=generator) < 0.03
    if pattern == "rows":
        rows = torch.rand(ranks, (numel + 47) // 48, generator=generator) < 0.1
        return rows.repeat_interleave(48, dim=1)[:, :numel]
    if pattern == "one range":
        return (torch.rand(ranks, numel, generator=generator) < 0.5) & (
            torch.arange(numel) < numel // 8
        )
    if pattern == "one rank":
        return (torch.arange(ranks) == ranks - 1).unsqueeze(1).expand(ranks, numel)
    return torch.ones(ranks, numel, dtype=torch.bool)


def reduces_random_gradients(rank: int, ranks: int) -> list[str]:
    """The error bound of the numerics contract, against float64. Returns digests of all bits."""
    numel = 10_007
    digests = []
    patterns = ("scattered", "rows", "one range", "one rank", "dense", "not finite")
    for pattern, dtype in product(patterns, SCHEME_DTYPES):
        generator = torch.Generator().manual_seed(1)
        everybody = torch.randn(ranks, numel, generator=generator).to(dtype)
        everybody *= pattern_mask(pattern, ranks, numel, generator)
        if pattern == "not finite":
            everybody[ranks - 1, ::97] = float("nan")
            everybody[0, ::89] = float("inf")
            everybody[ranks // 2, ::83] = -0.0
        exact = everybody.double().mean(0)
        bound = ranks * 2.0**-24 * everybody.double().abs().mean(0)
        bound += torch.finfo(dtype).eps / 2 * exact.abs()
        for scheme in zensync.schemes():
            if scheme == "allreduce" and dtype != torch.float32:
                continue  # gloo rounds after every addition
            tensor = everybody[rank].clone()
            zensync.all_reduce(tensor, scheme=scheme)
            result = tensor.double()
            near = (result - exact).abs() <= bound * 1.001 + 1e-7
            same = (result == exact) | (result.isnan() & exact.isnan())
            assert bool((near | same).all()), (scheme, dtype, pattern)
            digests.append(hashlib.sha256(tensor.view(torch.uint8).numpy().tobytes()).hexdigest())
    return digests


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_rounding_is_bounded_and_the_same_everywhere_by_every_scheme(ranks: int) -> None:
    digests = run_ranks(ranks, reduces_random_gradients, ranks)
    assert all(other == digests[0] for other in digests)
    assert len(set(digests[0])) > 1


def reduces_a_large_tensor(rank: int) -> None:
    """Large enough for several chunks."""
    for density in (0.001, 0.5):
        shape = (3_000_001,)
        tensor = whole_numbers(shape, rank, density, torch.float32)
        zensync.all_reduce(tensor, op="sum")
        assert torch.equal(tensor.double(), expected_sum(shape, 2, density, torch.float32))


def test_large_tensor() -> None:
    run_ranks(2, reduces_a_large_tensor)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def reduces_one_large_and_many_small_tensors(rank: int) -> int:
    """How much memory the small ones have given back."""
    large, small = torch.ones(8_000_000), torch.ones(1000)
    zensync.all_reduce(large)
    zensync.all_reduce(small)
    before = resident_bytes()
    for _ in range(10):
        zensync.all_reduce(small)
    return before - resident_bytes()


def test_memory_of_a_large_tensor_is_given_back() -> None:
    for given_back in run_ranks(2, reduces_one_large_and_many_small_tensors):
        assert given_back > 8_000_000 * 4


def reduces_strided(rank: int) -> None:
    def check(make_view, note: str) -> None:  # type: ignore[no-untyped-def]
        base = whole_numbers((12, 10, 8), rank, 0.3, torch.float32)
        untouched = base.clone()
        view = make_view(base)
        expected = make_view(expected_sum((12, 10, 8), 2, 0.3, torch.float32)).float()
        result = zensync.all_reduce(view, op="sum")
        assert result is view
        assert torch.equal(view, expected), note
        # What the view leaves out keeps its values.
        make_view(untouched).copy_(expected)
        assert torch.equal(base, untouched), note

    check(lambda base: base.t() if base.dim() == 2 else base.permute(2, 0, 1), "permuted")
    check(lambda base: base[::2, 1:9:3], "sliced")
    check(lambda base: base[3], "one row")
    check(lambda base: base.flatten()[1:], "not aligned")
    check(lambda base: base.flatten()[5], "a scalar")
    check(lambda base: base.to_dense(), "itself")


def test_any_strides() -> None:
    run_ranks(2, reduces_strided)


def reduces_special_tensors(rank: int) -> None:
    parameter = torch.nn.Parameter(torch.full((5,), float(rank + 1)))
    assert zensync.all_reduce(parameter, op="sum") is parameter
    assert parameter.requires_grad
    assert parameter.tolist() == [3.0] * 5

    with torch.inference_mode():
        inference = torch.full((4, 3), float(rank + 1))
        zensync.all_reduce(inference.t(), op="sum")
        assert torch.equal(inference, torch.full((4, 3), 3.0))

    negated = torch.tensor([1 + 2j * (rank + 1)]).conj().imag
    assert negated.is_neg()
    zensync.all_reduce(negated, op="sum")
    assert negated.tolist() == [-6.0]

    saved = torch.ones(3, requires_grad=True)
    product = (saved * 2).exp()
    zensync.all_reduce(product)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_parameters_inference_and_negated_tensors() -> None:
    run_ranks(2, reduces_special_tensors)


def reduces_special_values(rank: int) -> None:
    one = torch.tensor([float("nan"), float("inf"), float("-inf"), -0.0, 1e-45, 65504.0])
    other = torch.tensor([0.0, 1.0, float("inf"), -0.0, 0.0, -65504.0])
    tensor = (one, other)[rank].clone()
    zensync.all_reduce(tensor, op="sum")
    nan, inf, undefined, zero, subnormal, cancelled = tensor.tolist()
    assert np.isnan(nan)
    assert inf == float("inf")
    assert np.isnan(undefined)
    assert (zero, np.signbit(zero)) == (0.0, False)
    assert subnormal == one[4].item()
    assert cancelled == 0.0


def test_nan_infinity_and_negative_zero() -> None:
    run_ranks(2, reduces_special_values)


def reduces_asynchronously(rank: int) -> None:
    tensors = [torch.full((1000 * size,), float(rank)) for size in range(1, 8)]
    futures = [zensync.all_reduce(tensor, op="sum", async_op=True) for tensor in tensors]
    for future, tensor in zip(futures, tensors, strict=True):
        assert future.wait() is tensor
        assert torch.equal(tensor, torch.ones_like(tensor))
    seen: list[torch.Tensor] = []
    last = zensync.all_reduce(torch.ones(3), async_op=True)
    last.then(lambda done: seen.append(done.value())).wait()
    assert seen[0].tolist() == [1.0] * 3


def test_asynchronous_calls() -> None:
    run_ranks(2, reduces_asynchronously)


def reduces_in_a_callback(rank: int) -> None:
    """On the thread that would do the work: waiting for it there would be for ever."""
    tensor = torch.ones(3)
    zensync.all_reduce(tensor)
    if rank == 1:
        dist.barrier()  # rank 0 has its callback in place
        zensync.all_reduce(tensor, op="sum")
        zensync.all_reduce(tensor, op="sum")
        return

    def callback(done: torch.futures.Future[torch.Tensor]) -> torch.futures.Future[torch.Tensor]:
        with pytest.raises(RuntimeError, match="pass async_op=True"):
            zensync.all_reduce(done.value(), op="sum")
        return zensync.all_reduce(done.value(), op="sum", async_op=True)

    outer = zensync.all_reduce(tensor, op="sum", async_op=True).then(callback)
    dist.barrier()
    assert outer.wait().wait().tolist() == [4.0] * 3


def test_a_call_in_a_callback_must_be_asynchronous() -> None:
    run_ranks(2, reduces_in_a_callback)


def reduces_in_groups(rank: int) -> None:
    groups = [dist.new_group([0, 1]), dist.new_group([1, 2])]
    for members, group in zip(([0, 1], [1, 2]), groups, strict=True):
        if rank in members:
            tensor = torch.tensor([float(rank)])
            zensync.all_reduce(tensor, op="sum", group=group)
            assert tensor.item() == sum(members)
        else:
            with pytest.raises(ValueError, match="not a member"):
                zensync.all_reduce(torch.ones(1), group=group)
    dist.destroy_process_group(groups[0])
    again = torch.tensor([float(rank)])
    zensync.all_reduce(again, op="sum")
    assert again.item() == 3.0


def test_groups() -> None:
    run_ranks(3, reduces_in_groups)


def refuses(rank: int) -> None:
    def error(tensor: torch.Tensor, op: str = "mean", scheme: str = "balanced_parallelism") -> str:
        with pytest.raises(ValueError) as caught:
            zensync.all_reduce(tensor, op=op, scheme=scheme)
        return str(caught.value)

    assert "complex64" in error(torch.ones(2, dtype=torch.complex64))
    assert "view_as_real" in error(torch.ones(2, dtype=torch.complex128))
    assert "sparse" in error(torch.eye(3).to_sparse())
    assert "meta" in error(torch.ones(2, device="meta"))
    assert "bool" in error(torch.ones(2, dtype=torch.bool))
    assert "int16" in error(torch.ones(2, dtype=torch.int16))
    assert "use op='sum'" in error(torch.ones(2, dtype=torch.int64))
    assert "expand" in error(torch.ones(1).expand(4))
    if rank == 0:  # the peers are not waited for
        assert "op is 'max': choose mean or sum" in error(torch.ones(2), op="max")
        assert "balanced_parallelism" in error(torch.ones(2), scheme="fast")
        with pytest.raises(TypeError, match=r"tensor is a list: it must be a torch\.Tensor"):
            zensync.all_reduce([1.0])  # type: ignore[call-overload]
    # None of them has harmed the group.
    tensor = torch.ones(2)
    zensync.all_reduce(tensor, op="sum")
    assert tensor.tolist() == [2.0, 2.0]


def test_refusals_name_the_reason_and_leave_the_group_alive() -> None:
    run_ranks(2, refuses)


def test_needs_a_process_group() -> None:
    with pytest.raises(ValueError, match="init_process_group"):
        zensync.all_reduce(torch.ones(1))
