"""wire_dtype: float32 gradients as bfloat16 on the wire; options that a scheme cannot honour."""

import hashlib

import pytest
import torch
from models import step
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync

NARROW = [
    "omnireduce",
    "sparse_ps",
    "sparse_ps_broadcast",
    "sparse_ps_scatter_allgather",
    "zen_paper",
    "zen_paper_coo_pull",
    "balanced_parallelism",
]
U = 2.0**-8  # the largest relative error of rounding to bfloat16


def reduces_narrow(rank: int, ranks: int) -> str:
    """Returns a digest of all results."""
    generator = torch.Generator().manual_seed(0)
    everybody = torch.randn(ranks, 5_003, generator=generator)
    everybody *= torch.rand(ranks, 5_003, generator=generator) < 0.3
    rounded = everybody.bfloat16()
    magnitude = everybody.double().abs().mean(0)
    exact = everybody.double().mean(0)
    whole = torch.arange(-60.0, 60.0)
    digest = hashlib.sha256()
    for scheme in NARROW:
        tensor, narrow = everybody[rank].clone(), rounded[rank].clone()
        zensync.all_reduce(tensor, scheme=scheme, wire_dtype=torch.bfloat16)
        zensync.all_reduce(narrow, scheme=scheme)
        assert torch.equal(tensor, narrow.float()), scheme
        bound = (U + ranks * 2.0**-24) * (1 + U) * magnitude + U * exact.abs()
        assert bool(((tensor.double() - exact).abs() <= bound * 1.001).all()), scheme
        assert not torch.equal(tensor.double(), exact), "nothing was rounded"
        digest.update(tensor.numpy().tobytes())
        for dtype in (torch.float32, torch.float16, torch.float64):
            sums = whole.to(dtype, copy=True)
            zensync.all_reduce(sums, op="sum", scheme=scheme, wire_dtype=torch.bfloat16)
            assert torch.equal(sums, (whole * ranks).to(dtype)), (scheme, dtype)
    precise = torch.tensor([1.001], dtype=torch.float64)
    zensync.all_reduce(precise, wire_dtype=torch.bfloat16)
    assert precise.item() == 1.001
    return digest.hexdigest()


@pytest.mark.parametrize("ranks", [2, 3])
def test_values_are_rounded_once_each_way_and_alike_everywhere(ranks: int) -> None:
    digests = run_ranks(ranks, reduces_narrow, ranks)
    assert len(set(digests)) == 1


def share_of_bytes(rank: int) -> float:
    """Bytes that a hook sends as bfloat16 over what it sends without."""
    sent = []
    for wire_dtype in (None, torch.bfloat16):
        torch.manual_seed(0)
        state = zensync.State(scheme="balanced_parallelism", wire_dtype=wire_dtype)
        model = DistributedDataParallel(nn.Linear(300, 200))
        model.register_comm_hook(state, zensync.hook)
        step(model, torch.ones(4, 300) * (rank + 1))
        sent.append(state.stats()["total"]["bytes_out"])
    return sent[1] / sent[0]


def test_hook_sends_half_the_bytes() -> None:
    for share in run_ranks(2, share_of_bytes):
        assert 0.49 < share < 0.51


@pytest.mark.parametrize("scheme", zensync.schemes())
def test_schemes_refuse_what_has_no_effect_on_them(scheme: str) -> None:
    if scheme in NARROW:
        assert zensync.State(scheme=scheme, wire_dtype=torch.bfloat16).wire_dtype == torch.bfloat16
    else:
        with pytest.raises(ValueError, match=f"wire_dtype has no effect on scheme '{scheme}'"):
            zensync.State(scheme=scheme, wire_dtype=torch.bfloat16)
    if scheme in ("balanced_parallelism", "hierarchical"):
        assert zensync.State(scheme=scheme, pack_values=True).pack_values
    else:
        with pytest.raises(ValueError, match=f"pack_values has no effect on scheme '{scheme}'"):
            zensync.State(scheme=scheme, pack_values=True)


def test_other_types_are_refused() -> None:
    with pytest.raises(ValueError, match="wire_dtype is float16: choose bfloat16"):
        zensync.State(wire_dtype=torch.float16)
    with pytest.raises(ValueError, match="unknown wire_dtype 'int8': choose bfloat16"):
        zensync.State(wire_dtype=torch.int8)
    with pytest.raises(TypeError, match="wire_dtype is 'bfloat16': it must be torch"):
        zensync.State(wire_dtype="bfloat16")  # type: ignore[arg-type]
