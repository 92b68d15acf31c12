"""scheme="auto": the same gradients as plain DDP whatever is tried and chosen; what it tells."""

import pickle
from typing import Any

import pytest
import torch
from models import (
    Embedding,
    assert_same_gradients,
    assert_same_on_all_ranks,
    indices,
    pair,
    step,
)
from ranks import run_ranks
from torch import nn

import zensync

ITERATIONS = 12  # more than one profile takes


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"profile_iterations": 0}, ValueError, "profile_iterations is 0: it must be at least 1"),
        ({"reprofile_every": 0}, ValueError, "reprofile_every is 0: it must be at least 1"),
        ({"reprofile_every": 2.5}, TypeError, "reprofile_every is 2.5: it must be a whole number"),
        ({"deterministic": 1}, TypeError, "deterministic is 1: it must be True or False"),
        (
            {"profile_iterations": 3, "scheme": "hierarchical"},
            ValueError,
            "profile_iterations has no effect on scheme 'hierarchical': leave it out",
        ),
        (
            {"reprofile_every": 3, "deterministic": True},
            ValueError,
            "reprofile_every has no effect on scheme 'auto' if deterministic: leave it out",
        ),
        ({"wire_dtype": torch.float16}, ValueError, "choose bfloat16"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error) as caught:
        zensync.State(**{"scheme": "auto", **options})
    assert message in str(caught.value)


def trains_like_plain_ddp(rank: int) -> list[list[str]]:
    """In every mode; what each bucket used, by mode and iteration."""
    used = []
    modes: list[tuple[dict[str, Any], dict[str, Any], torch.dtype]] = [
        ({"reprofile_every": 4}, {}, torch.float32),
        ({"profile_iterations": 2, "pack_values": True}, {"bucket_cap_mb": 0.01}, torch.float32),
        ({"transport": "exact", "pack_values": False}, {}, torch.float32),
        ({"chunks": 2}, {"gradient_as_bucket_view": True}, torch.bfloat16),
        ({"wire_dtype": torch.bfloat16}, {"static_graph": True}, torch.float32),
        ({"deterministic": True}, {}, torch.float64),
    ]
    for options, ddp, dtype in modes:
        state = zensync.State(scheme="auto", **options)
        plain, ours = pair(lambda: Embedding().to(dtype), state, **ddp)  # noqa: B023
        lossy = "wire_dtype" in options or dtype == torch.bfloat16
        bound = 0.02 if lossy else None
        seen = []
        for number in range(ITERATIONS):
            for model in (plain, ours):
                step(model, indices(rank, number))
            assert_same_gradients(plain, ours, rtol=bound, atol=bound)
            assert_same_on_all_ranks(ours)
            buckets = state.stats()["buckets"]
            seen.append(" ".join(f"{b['scheme']}{b['packed']}" for b in buckets))
            if options.get("pack_values") is not None:
                wanted = options["pack_values"]
                assert all(b["packed"] == wanted or b["scheme"] == "allreduce" for b in buckets)
        used.append(seen)
        assert dtype == torch.float64 or "bucket 0" in state.explain()
    return used


def test_the_result_is_that_of_ddp_and_all_ranks_choose_alike() -> None:
    first, *others = run_ranks(3, trains_like_plain_ddp)
    assert all(other == first for other in others)
    assert all(set(mode) == {"allreduceFalse"} for mode in first[-1:]), "float64"
    assert len(set(first[0])) > 1, "something else was tried"


class Growing(nn.Module):
    """An embedding of which first few rows and then all are touched."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(400, 64))

    def forward(self, rows: int) -> torch.Tensor:
        return self.table[:rows]


def looks_again(rank: int) -> tuple[str, str]:
    state = zensync.State(scheme="auto")
    plain, ours = pair(Growing, state)
    explanations = []
    for rows in [4] * 12 + [400] * 24:
        for model in (plain, ours):
            step(model, rows)  # type: ignore[arg-type]
        assert_same_gradients(plain, ours)
        explanations.append(state.explain())
    return explanations[10], explanations[-1]


def test_a_density_that_moves_is_looked_at_again_and_explained() -> None:
    for before, after in run_ranks(2, looks_again):
        assert "density 1% on a rank, 1% in the sum" in before
        assert "because: new" in before
        assert "density 100% on a rank" in after
        assert "moved by half" in after or "sum had moved by half" in after
        assert "allreduce" in after
        assert "times faster" in before or "does not help" in before or "the fastest" in before


def repeats(rank: int) -> tuple[list[bytes], Any]:
    """The gradients of a run; and of one that is interrupted half way and goes on elsewhere."""
    bits = []
    for interrupted in (False, False, True):
        state = zensync.State(scheme="auto", deterministic=True)
        _, model = pair(Embedding, state, bucket_cap_mb=0.05)
        gradients = []
        for number in range(8):
            if interrupted and number == 4:
                choices = state.state_dict()["choices"]
                assert choices
                state = pickle.loads(pickle.dumps(state))
                assert state.deterministic
                assert state.state_dict()["choices"] == choices
                _, model = pair(Embedding, state, bucket_cap_mb=0.05)
            step(model, indices(rank, number))
            gradients += [p.grad.numpy().tobytes() for p in model.parameters()]  # type: ignore[union-attr]
        bits.append(gradients)
    assert bits[0] == bits[1]
    assert bits[0] == bits[2]
    return bits[0], choices


def test_deterministic_runs_repeat_bit_for_bit() -> None:
    first, second = run_ranks(2, repeats)
    assert first == second


def compresses(rank: int) -> list[str]:
    state = zensync.State(scheme="auto", compressor=zensync.DGC(0.1))
    _, ours = pair(Embedding, state)
    used = []
    for number in range(ITERATIONS):
        step(ours, indices(rank, number))
        assert_same_on_all_ranks(ours)
        used += [bucket["scheme"] for bucket in state.stats()["buckets"]]
    return used


def test_with_a_compressor_dense_schemes_are_no_choice() -> None:
    first, second = run_ranks(2, compresses)
    assert first == second
    assert "allreduce" not in first


def test_explanation_without_a_choice() -> None:
    assert "by hierarchical" in zensync.State(scheme="hierarchical").explain()
    assert "nothing has been synchronised yet" in zensync.State(scheme="auto").explain()
