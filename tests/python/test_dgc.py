"""DGC through DDP: against the paper's rules in plain PyTorch; what becomes of residuals."""

import copy
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from dgc_reference import Reference
from models import assert_same_gradients, assert_same_on_all_ranks
from ranks import run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync

SIZES = (97, 40, 233, 5, 130)  # all different, so that a size names a parameter


class Given(nn.Module):
    """A model whose gradients are what it is given."""

    def __init__(self, sizes: tuple[int, ...] = SIZES, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(size, dtype=dtype) for size in sizes)

    def forward(self, gradients: list[torch.Tensor]) -> torch.Tensor:
        terms = [(w * g).sum() for w, g in zip(self.weights, gradients, strict=True)]
        return torch.stack(terms).sum()


def gradients(
    rank: int, step: int, sizes: tuple[int, ...] = SIZES, whole: bool = False
) -> list[torch.Tensor]:
    """Of no two equal magnitudes, or small whole numbers."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    if whole:
        return [torch.randint(-3, 4, (size,), generator=generator).float() for size in sizes]
    return [torch.randn(size, generator=generator) for size in sizes]


def with_dgc(
    compressor: zensync.DGC, model: nn.Module | None = None, scheme: str = "", **ddp: Any
) -> tuple[DistributedDataParallel, zensync.State]:
    state = zensync.State(
        ddp.get("process_group"),
        scheme=scheme or "balanced_parallelism",
        compressor=compressor,
    )
    parallel = DistributedDataParallel(model or Given(), **ddp)
    parallel.register_comm_hook(state, zensync.hook)
    return parallel, state


def step(model: nn.Module, given: list[torch.Tensor]) -> list[torch.Tensor]:
    model.zero_grad()
    model(given).backward()
    return grads(model)


def grads(model: nn.Module) -> list[torch.Tensor]:
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def residuals(state: zensync.State) -> dict[int, torch.Tensor]:
    """By size."""
    saved = state.state_dict()["dgc"]["parameters"]
    return {arrays["residual"].numel(): arrays["residual"] for arrays in saved.values()}


def selected_share(state: zensync.State) -> float:
    buckets = state.stats()["buckets"]
    listed = sum((b["density_before"] or 0) * b["numel"] for b in buckets)
    return listed / sum(b["numel"] for b in buckets)


# The paper's rules.

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True},
    {"momentum": 0.9, "momentum_masking": False},
    {"clip_norm": 4.0, "momentum": 0.5},
    {"warmup": 6},
    {"error_feedback": False},
)


def follows_the_paper(rank: int) -> None:
    for options in VARIANTS:
        compressor = zensync.DGC(0.05, threshold="bucket", sample_ratio=1.0, **options)
        model, state = with_dgc(compressor, bucket_cap_mb=100)
        local = dict(options)
        if "clip_norm" in local:
            local["clip_norm"] = local["clip_norm"] / 2**0.5
        reference = Reference(0.05, **local)
        for number in range(9):
            given = gradients(rank, number)
            sent = reference.send(torch.cat(given))
            dist.all_reduce(sent)
            actual = torch.cat(step(model, given))
            assert torch.allclose(actual, sent / 2, rtol=1e-6, atol=1e-6), (options, number)
        state.close()


def test_follows_the_paper() -> None:
    run_ranks(2, follows_the_paper)


def full_density_is_plain_ddp(rank: int) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        plain = DistributedDataParallel(Given(dtype=dtype))
        ours, _ = with_dgc(zensync.DGC(1), Given(dtype=dtype))
        for number in range(4):
            for model in (plain, ours):
                step(model, gradients(rank, number, whole=True))
            assert_same_gradients(plain, ours, rtol=0, atol=0)


def test_full_density_is_plain_ddp() -> None:
    run_ranks(2, full_density_is_plain_ddp)


# Nothing is lost.


def sent_and_kept_are_everything(rank: int) -> None:
    """Over small buckets that DDP rebuilds, gradient accumulation and several dtypes."""
    for ddp, dtype, scheme in (
        ({"bucket_cap_mb": 0.0003}, torch.float32, "balanced_parallelism"),
        ({"bucket_cap_mb": 0.0003, "gradient_as_bucket_view": True}, torch.bfloat16, "sparcml"),
        ({"static_graph": True}, torch.float16, "hierarchical"),
    ):
        model, state = with_dgc(zensync.DGC(0.1), Given(dtype=dtype), scheme, **ddp)
        total = [torch.zeros(size) for size in SIZES]
        arrived = [torch.zeros(size) for size in SIZES]
        for number in range(8):
            given = gradients(rank, number, whole=True)
            before = residuals(state)
            model.zero_grad()
            if number % 3 == 2 and "static_graph" not in ddp:
                with model.no_sync():
                    model(given).backward()
                assert all(torch.equal(before[size], r) for size, r in residuals(state).items())
            model(given).backward()
            times = 2 if number % 3 == 2 and "static_graph" not in ddp else 1
            for place, gradient in enumerate(grads(model)):
                total[place] += times * given[place]
                arrived[place] += gradient.float() * 2  # the mean of two ranks
        buckets = len(state.stats()["buckets"])
        assert buckets == 1 if ddp.get("static_graph") else buckets > 1
        kept = residuals(state)
        for size, mine, received in zip(SIZES, total, arrived, strict=True):
            both = torch.stack([mine, kept[size]])
            dist.all_reduce(both)
            torch.testing.assert_close(both[0], received + both[1], rtol=0, atol=0)
        assert_same_on_all_ranks(model)


def test_sent_and_kept_are_everything() -> None:
    run_ranks(2, sent_and_kept_are_everything)


def schemes_agree(rank: int) -> list[list[torch.Tensor]]:
    """Figure 18 of the ZEN paper: what the schemes make of the same selection is the same."""
    wanted = ("agsparse", "omnireduce", "zen_paper", "balanced_parallelism")
    results = []
    for scheme in [name for name in wanted if name in zensync.schemes()]:
        model, _ = with_dgc(zensync.DGC(0.05), Given(), scheme, bucket_cap_mb=0.001)
        results.append([g for n in range(6) for g in step(model, gradients(rank, n, whole=True))])
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))
    assert len(results) >= 3
    assert sum(int(g.count_nonzero()) for g in results[0]) > 0
    return results


def test_schemes_agree() -> None:
    run_ranks(4, schemes_agree)


# Loss scaling.


def scales_do_not_matter(rank: int) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    plain, _ = with_dgc(zensync.DGC(0.1))
    scaled, state = with_dgc(zensync.DGC(0.1, grad_scaler=scaler))
    optimizer = torch.optim.SGD(scaled.parameters(), lr=0.1)
    scales = set()
    for number in range(8):
        given = gradients(rank, number)
        expected = step(plain, given)
        optimizer.zero_grad()
        scaler.scale(scaled(given)).backward()
        scales.add(scaler.get_scale())
        scaler.unscale_(optimizer)
        assert all(torch.equal(a, b) for a, b in zip(grads(scaled), expected, strict=True))
        scaler.step(optimizer)
        scaler.update()
    assert len(scales) > 2
    before = [p.detach().clone() for p in scaled.parameters()]
    given = gradients(rank, 9)
    given[2][7], given[2][8] = torch.inf, torch.nan
    optimizer.zero_grad()
    scaler.scale(scaled(given)).backward()
    found = grads(scaled)[2]
    assert torch.isinf(found[7]) and torch.isnan(found[8])
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < scale
    assert all(torch.equal(a, b) for a, b in zip(before, scaled.parameters(), strict=True))
    assert all(bool(torch.isfinite(r).all()) for r in residuals(state).values())


def test_scales_do_not_matter() -> None:
    run_ranks(2, scales_do_not_matter)


# Saving and loading.


LARGE = (970, 400, 2330, 50, 4300)


def resumes(rank: int) -> None:
    options: dict[str, Any] = {"momentum": 0.9, "warmup": 16, "sample_ratio": 0.5}
    ddp: dict[str, Any] = {"bucket_cap_mb": 0.01}
    model, state = with_dgc(zensync.DGC(0.05, **options), Given(LARGE), **ddp)
    for number in range(5):
        step(model, gradients(rank, number, LARGE))
    checkpoint = copy.deepcopy(state.state_dict())
    pickled = pickle.dumps(state)
    expected = []
    for number in range(5, 10):
        expected.append(step(model, gradients(rank, number, LARGE)))
        # The buckets of a resumed run come in another order once: the limit must stay away.
        assert number > 5 or selected_share(state) < 1.25 * 0.05 ** (2 / 5)

    def expect_same(other: DistributedDataParallel) -> None:
        for number, wanted in zip(range(5, 10), expected, strict=True):
            actual = step(other, gradients(rank, number, LARGE))
            assert all(torch.equal(a, b) for a, b in zip(actual, wanted, strict=True)), number

    other, fresh = with_dgc(zensync.DGC(0.05, **options), Given(LARGE), **ddp)
    fresh.load_state_dict(checkpoint)
    expect_same(other)
    fresh.load_state_dict(checkpoint)  # buckets are rebuilt by now
    expect_same(other)

    unpickled = pickle.loads(pickled)
    assert unpickled.compressor.momentum == 0.9
    other = DistributedDataParallel(Given(LARGE), **ddp)
    other.register_comm_hook(unpickled, zensync.hook)
    expect_same(other)

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("zensync").addHandler(handler)
    checkpoint["dgc"]["ranks"] = 4
    fresh.load_state_dict(checkpoint)
    assert messages == [
        f"the state of DGC was saved on rank {rank} of 4 and is loaded on rank {rank} of 2: "
        "residuals and momenta belong to a rank, so they start from zero"
    ]
    assert fresh.state_dict()["dgc"]["progress"]["iteration"] == 5
    assert not any(bool(r.any()) for r in residuals(fresh).values())

    checkpoint["dgc"]["ranks"] = 2
    _, without_momentum = with_dgc(zensync.DGC(0.05))
    with pytest.raises(ValueError, match="use the options that it was saved with"):
        without_momentum.load_state_dict(checkpoint)


def test_resumes() -> None:
    run_ranks(2, resumes)


# Tensor parallelism: a matrix cut by columns, a bias that both parts hold.

ROWS, COLUMNS, BIAS = 200, 100, 30


def parts(dp_rank: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(77 * number + dp_rank)
    scale = 1 + torch.arange(COLUMNS) / COLUMNS  # the parts differ
    matrix = torch.randn(ROWS, COLUMNS, generator=generator) * scale
    return matrix, torch.randn(BIAS, generator=generator)


def tensor_parallel(rank: int) -> None:
    """Ranks 0, 1 hold one copy of the model, ranks 2, 3 another."""
    tp_groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    dp_groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    tp_group, dp_group = tp_groups[rank // 2], dp_groups[rank % 2]
    mine = slice(rank % 2 * COLUMNS // 2, (rank % 2 + 1) * COLUMNS // 2)
    for ratio, iterations in ((1.0, 8), (0.01, 30)):
        part = Given((ROWS * COLUMNS // 2, BIAS))
        cut, state = with_dgc(
            zensync.DGC(
                0.05,
                tp_group=tp_group,
                replicated=[part.weights[1]],
                sample_ratio=ratio,
                clip_norm=200.0,
            ),
            part,
            process_group=dp_group,
        )
        whole, of_whole_state = with_dgc(
            zensync.DGC(0.05, sample_ratio=ratio, clip_norm=200.0),
            Given((ROWS * COLUMNS, BIAS)),
            process_group=dp_group,
        )
        listed = 0.0
        for number in range(iterations):
            matrix, bias = parts(rank // 2, number)
            of_part = step(cut, [matrix[:, mine].flatten(), bias])
            of_whole = step(whole, [matrix.flatten(), bias])
            if ratio == 1:
                # The parts count towards the limit of 1.3 targets together, but cannot share it.
                assert selected_share(of_whole_state) < 1.29 * 0.05
                expected = of_whole[0].view(ROWS, COLUMNS)[:, mine].flatten()
                assert torch.equal(of_part[0], expected), number
                assert torch.equal(of_part[1], of_whole[1]), number
            shares = torch.tensor([selected_share(state)])
            dist.all_reduce(shares, group=tp_group)
            listed += float(shares) / 2
        assert abs(listed / iterations / 0.05 - 1) < 0.1, listed / iterations


def test_tensor_parallel() -> None:
    run_ranks(4, tensor_parallel)


# The share that is sent, on real gradients.


class Words(nn.Module):
    def __init__(self, words: int = 400, width: int = 48) -> None:
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(self.table(text[:, :-1]))
        return nn.functional.cross_entropy(self.out(states).flatten(0, 1), text[:, 1:].flatten())


def batches(rank: int) -> Iterator[torch.Tensor]:
    """Sequences of letters, digits and signs of Python's own documentation."""
    from pydoc_data.topics import topics

    text = "".join(topics[name] for name in sorted(topics)).encode()[:400_000]
    letters = torch.tensor(list(text))
    generator = torch.Generator().manual_seed(rank)
    while True:
        starts = torch.randint(len(letters) - 33, (8, 1), generator=generator)
        yield letters[starts + torch.arange(33)]


def share_stays_at_the_target(rank: int) -> None:
    for density in (0.05, 0.01):
        torch.manual_seed(0)
        model, state = with_dgc(zensync.DGC(density), Words(), bucket_cap_mb=0.05)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
        shares = []
        for _, text in zip(range(50), batches(rank), strict=False):
            optimizer.zero_grad()
            model(text).backward()
            optimizer.step()
            shares.append(selected_share(state) / density)
        assert abs(sum(shares) / len(shares) - 1) < 0.1, shares
        # Each bucket of the first iteration may round up to one element more.
        assert max(shares) < 1.32, shares
        assert len(state.stats()["buckets"]) > 1


def test_share_stays_at_the_target() -> None:
    run_ranks(2, share_stays_at_the_target)


# Options and single tensors.

any_dgc: Any = zensync.DGC  # for what mypy refuses
any_state: Any = zensync.State


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: zensync.DGC(0), ValueError, "density is 0: it must be above 0 and at most 1"),
        (lambda: zensync.DGC(1.1), ValueError, "density is 1.1: it must be above 0 and at most 1"),
        (lambda: zensync.DGC(float("nan")), ValueError, "density is nan"),
        (lambda: any_dgc("5%"), TypeError, "density is '5%': it must be a number"),
        (lambda: zensync.DGC(momentum=1.0), ValueError, "momentum is 1.0: it must be at least 0"),
        (lambda: zensync.DGC(clip_norm=0.0), ValueError, "clip_norm is 0.0: it must be above 0"),
        (lambda: zensync.DGC(sample_ratio=0.0), ValueError, "sample_ratio is 0.0"),
        (lambda: zensync.DGC(warmup=0), ValueError, "warmup is 0: it must be at least 1"),
        (lambda: zensync.DGC(threshold="layer"), ValueError, "choose one of global, bucket"),
        (
            lambda: zensync.DGC(residual_dtype="int8"),
            ValueError,
            "choose one of float32, parameter",
        ),
        (lambda: zensync.DGC(nesterov=True), ValueError, "give a momentum"),
        (
            lambda: zensync.DGC(momentum=0.9, error_feedback=False),
            ValueError,
            "momentum correction accumulates in the residual",
        ),
        (lambda: zensync.DGC(replicated=[torch.ones(1)]), ValueError, "give both"),
        (lambda: any_dgc(error_feedback=1), TypeError, "it must be True or False"),
        (lambda: any_dgc(0.1, True), TypeError, "positional"),
        (lambda: any_state(compressor=0.05), TypeError, "it must be a zensync.DGC or None"),
        (
            lambda: zensync.State(compressor=zensync.DGC(), scheme="allreduce"),
            ValueError,
            "scheme 'allreduce' sends every element",
        ),
    ],
)
def test_options_are_checked(make: Callable[[], Any], error: type, message: str) -> None:
    with pytest.raises(error) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_compresses_a_tensor(dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    tensor = torch.randperm(2000).to(torch.float32).view(40, 50) / 64 - 10
    tensor = tensor.to(dtype)
    dgc = zensync.DGC(0.05, sample_ratio=1)
    before = tensor.clone()
    indices, values = dgc.compress(tensor)
    assert torch.equal(tensor, before)
    dense = dgc.decompress(indices, values, tensor.shape)
    assert torch.equal(dense.flatten()[indices], values)
    assert 90 <= len(indices) <= 130 and bool((indices.diff() > 0).all())
    smallest = values.abs().min()
    assert int((tensor.abs() > smallest).sum()) <= len(indices)

    residual = torch.zeros(40, 50)
    sent = torch.zeros(40, 50)
    for _ in range(5):
        indices, values = dgc.compress(tensor, residual)
        sent += dgc.decompress(indices, values, tensor.shape).float()
    torch.testing.assert_close(sent + residual, 5 * tensor.float(), rtol=1e-6, atol=1e-5)


def test_compresses_what_is_unusual() -> None:
    dgc = zensync.DGC(0.01)
    assert [len(part) for part in dgc.compress(torch.zeros(1000))] == [0, 0]
    assert [len(part) for part in dgc.compress(torch.zeros(0))] == [0, 0]
    assert dgc.compress(torch.tensor([1.0, -3.0, 2.0]))[0].tolist() == [1]
    assert dgc.compress(torch.ones(1000))[0].tolist() == list(range(13))
    odd = torch.ones(1000)
    odd[500], odd[600] = torch.nan, -torch.inf
    assert {500, 600} <= set(dgc.compress(odd)[0].tolist())
    assert dgc.compress(torch.arange(100.0).view(10, 10).T)[0].tolist() == [99]
    with pytest.raises(ValueError, match="the tensor is float64: convert it"):
        dgc.compress(torch.ones(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="the residual must be contiguous"):
        dgc.compress(torch.ones(3), torch.ones(4))
    with pytest.raises(IndexError, match="index 9 lies outside of a tensor of 3 elements"):
        dgc.decompress(torch.tensor([9]), torch.ones(1), (3,))
    with pytest.raises(ValueError, match="equally long"):
        dgc.decompress(torch.tensor([1, 2]), torch.ones(1), (3,))


def test_operators_pass_opcheck() -> None:
    compress, decompress = torch.ops.zensync.dgc_compress, torch.ops.zensync.dgc_decompress
    torch.manual_seed(0)
    for residual in (None, torch.zeros(30, 7)):
        torch.library.opcheck(compress.default, (torch.randn(30, 7), residual, 0.1, 1.0, 3))
    where = torch.tensor([1, 5, 9])
    torch.library.opcheck(decompress.default, (where, torch.randn(3), [4, 3]))
