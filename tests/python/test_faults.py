"""Dead, late and disagreeing ranks: everybody who is left gets an exception that explains."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from models import Embedding, indices, pair, step
from ranks import Ended, end_ranks, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zensync

SHORT = 5.0  # the group's timeout in s, where a test waits for it
LONG = 250.0  # where it must not: the guard of the test processes is only little longer


def assert_explains(end: Ended, *parts: str) -> None:
    for part in ("RuntimeError", "zensync: rank", "stage", *parts):
        assert part in end.error, f"{part!r} is missing in:\n{end.error}"


class Die(torch.autograd.Function):
    """Calls a function in the middle of backward, when some buckets are on the wire."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, action: Callable[[], None]) -> torch.Tensor:
        context.action = action
        return x

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore
        context.action()
        return gradient, None


class Layers(nn.Module):
    """Ten buckets; between them, `action`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(10))
        self.action: Callable[[], None] = lambda: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, layer in enumerate(self.layers):
            if number == 5:
                x = Die.apply(x, self.action)  # type: ignore[no-untyped-call]
            x = layer(x)
        return x


def train(rank: int, action: Callable[[], None], culprit: int, **options: Any) -> None:
    model = Layers()
    ddp = DistributedDataParallel(model, bucket_cap_mb=0.01)
    ddp.register_comm_hook(
        zensync.State(**{"scheme": "balanced_parallelism", **options}), zensync.hook
    )
    for number in range(4):
        if number == 3 and rank == culprit:
            model.action = action
        step(ddp, torch.ones(2, 64))


def is_killed(rank: int, options: dict[str, Any]) -> None:
    train(rank, lambda: os.kill(os.getpid(), signal.SIGKILL), 1, **options)


@pytest.mark.parametrize(
    ("scheme", "transport"),
    [
        ("balanced_parallelism", "capacity"),
        ("balanced_parallelism", "exact"),
        ("sparcml", "capacity"),
        ("allreduce", "capacity"),
    ],
)
def test_killed_rank(scheme: str, transport: str) -> None:
    options = {"scheme": scheme, "transport": transport}
    ended = end_ranks(3, is_killed, options, timeout=LONG)
    assert ended[1].exit_code == -signal.SIGKILL
    for rank in (0, 2):
        assert_explains(ended[rank], f"rank {rank}, bucket", "a rank died")


def raises(rank: int) -> None:
    def action() -> None:
        raise FileNotFoundError("the data set has gone")

    train(rank, action, 2)


def test_rank_that_raises_in_backward() -> None:
    ended = end_ranks(3, raises, timeout=LONG)
    assert "the data set has gone" in ended[2].error
    for rank in (0, 1):
        assert_explains(ended[rank], f"rank {rank}, bucket")


def exits(rank: int) -> None:
    train(rank, lambda: os._exit(7), 0)


def test_rank_that_exits_in_backward() -> None:
    ended = end_ranks(2, exits, timeout=LONG)
    assert ended[0].exit_code == 7
    assert_explains(ended[1], "rank 1, bucket", "waiting for rank 0")


def stalls(rank: int) -> None:
    train(rank, lambda: time.sleep(2 * SHORT), 1)


def test_rank_that_is_later_than_the_timeout() -> None:
    ended = end_ranks(2, stalls, timeout=SHORT)
    assert_explains(
        ended[0],
        "rank 0, bucket",
        "waiting for rank 1",
        "later than the group's",
        "rank 1 has not started bucket 5 of iteration 4 (it has been idle since bucket 4",
    )
    assert_explains(ended[1], "rank 1, bucket")


def has_other_options(rank: int, name: str, values: list[Any]) -> None:
    _, ours = pair(
        Embedding, zensync.State(**{"scheme": "balanced_parallelism", name: values[rank]})
    )
    step(ours, indices(rank, 0))


@pytest.mark.parametrize(
    ("name", "values", "parts"),
    [
        (
            "scheme",
            ["balanced_parallelism", "allreduce"],
            ["by balanced_parallelism", "by allreduce"],
        ),
        ("chunks", [2, 3], ["2 chunks", "3 chunks"]),
        ("transport", ["capacity", "exact"], ["transport capacity", "transport exact"]),
        ("wire_dtype", [None, torch.bfloat16], ["in 1 chunks,", "in 1 chunks as bfloat16"]),
    ],
    ids=["scheme", "chunks", "transport", "wire_dtype"],
)
def test_options_that_differ(name: str, values: list[Any], parts: list[str]) -> None:
    for end in end_ranks(2, has_other_options, name, values, timeout=LONG):
        assert_explains(end, "bucket 0", "stage agree", "rank 0: ", "rank 1: ", *parts)
        assert "use the same model, tensors and options" in end.error


def has_another_tensor(rank: int, tensors: list[torch.Tensor], ops: list[str]) -> None:
    agreed = torch.full((3,), float(rank))
    zensync.all_reduce(agreed, op="sum")
    zensync.all_reduce(tensors[rank], op=ops[rank])


@pytest.mark.parametrize(
    ("tensors", "ops", "parts"),
    [
        ([torch.ones(100), torch.ones(200)], ["sum", "sum"], ["of 100 float32", "of 200 float32"]),
        ([torch.ones(6), torch.ones(2, 3)], ["sum", "sum"], ["shape [6]", "shape [2, 3]"]),
        ([torch.ones(5), torch.ones(5).half()], ["sum", "sum"], ["5 float32", "5 float16"]),
        ([torch.ones(5), torch.ones(5).double()], ["sum", "sum"], ["5 float32", "5 float64"]),
        ([torch.ones(5), torch.ones(5)], ["sum", "mean"], ["sum of 5", "mean of 5"]),
    ],
    ids=["size", "shape", "dtype", "unlike dtype", "op"],
)
def test_tensors_that_differ(tensors: list[torch.Tensor], ops: list[str], parts: list[str]) -> None:
    for end in end_ranks(2, has_another_tensor, tensors, ops, timeout=LONG):
        assert_explains(end, "stage agree", "rank 0: ", "rank 1: ", *parts)


def gradients_of_other_layers(rank: int) -> None:
    """One rank synchronises a second model in between: the ranks are out of step."""
    _, ours = pair(lambda: nn.Linear(8, 8))
    extra = torch.ones(3)
    if rank == 0:
        zensync.all_reduce(extra, async_op=True)
    zensync.all_reduce(torch.ones(4), op="sum")
    step(ours, torch.ones(1, 8))


def test_calls_that_are_out_of_step() -> None:
    for end in end_ranks(2, gradients_of_other_layers, timeout=LONG):
        assert_explains(end, "stage agree", "shape [3]", "shape [4]")


def refused_in_the_hook(rank: int) -> None:
    ours = DistributedDataParallel(nn.EmbeddingBag(50, 4, sparse=True))
    ours.register_comm_hook(zensync.State(), zensync.hook)
    step(ours, indices(rank, 0) % 50)


def test_sparse_gradients_are_refused_by_name() -> None:
    for rank, end in enumerate(end_ranks(2, refused_in_the_hook, timeout=LONG)):
        assert_explains(end, f"rank {rank}, bucket 0, stage plan", "sparse=False")


def goes_on_after_a_failure(rank: int) -> list[str]:
    errors = []
    for size in (10 + rank, 20, 20):
        try:
            zensync.all_reduce(torch.ones(size))
        except RuntimeError as error:
            errors.append(str(error))
    return errors


def test_later_calls_name_the_first_failure() -> None:
    for rank, errors in enumerate(run_ranks(2, goes_on_after_a_failure, timeout=LONG)):
        assert len(errors) == 3
        assert "stage agree" in errors[0]
        for error in errors[1:]:
            assert f"rank {rank}, all_reduce of a tensor of shape [20]" in error
            assert "not synchronised after an earlier failure" in error
            assert "shape [10]" in error


def drops_the_state_with_work_in_flight(rank: int) -> None:
    """Rank 0 lets go while rank 1 waits for it: rank 1 must hear of it at once."""
    tensor = torch.ones(1000)
    zensync.all_reduce(tensor)
    if rank == 0:
        from zensync import all_reduce

        for engine in all_reduce.__globals__["_engines"].values():
            engine.close()
    else:
        zensync.all_reduce(tensor)


def test_engine_that_is_closed_ends_the_wait_of_its_peers() -> None:
    ended = end_ranks(2, drops_the_state_with_work_in_flight, timeout=LONG)
    assert ended[0].error == ""
    assert_explains(ended[1], "rank 1", "stage agree")
