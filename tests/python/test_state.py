"""State: options, statistics, saving and loading."""

import logging
import pickle
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import Embedding, assert_same_gradients, indices, pair, step
from ranks import run_ranks

import zensync


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"scheme": "fast"}, ValueError, "scheme is 'fast': choose one of auto, allreduce"),
        ({"scheme": None}, ValueError, "scheme is None: choose one of auto, allreduce"),
        ({"process_group": "allreduce"}, TypeError, "the process group is 'allreduce': it must"),
        ({"chunks": 0}, ValueError, "chunks is 0: it must be 1 to 16"),
        ({"chunks": 17}, ValueError, "chunks is 17: it must be 1 to 16"),
        ({"chunks": 2.0}, TypeError, "chunks is 2.0: it must be a whole number"),
        ({"chunks": True}, TypeError, "chunks is True: it must be a whole number"),
        ({"pack_values": 1}, TypeError, "pack_values is 1: it must be True, False or None"),
        ({"transport": "tcp"}, ValueError, "transport is 'tcp': choose one of capacity, exact"),
        ({"log_every": -1}, ValueError, "log_every is -1: it must be at least 0"),
        ({"log_every": None}, TypeError, "log_every is None: it must be a whole number"),
    ],
)
def test_options_are_checked(options: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error) as caught:
        zensync.State(**options)
    assert message in str(caught.value)


def test_options_are_keyword_only() -> None:
    with pytest.raises(TypeError):
        zensync.State(None, "allreduce")  # type: ignore[misc]


@pytest.mark.parametrize("name", ["process_group", "scheme", "chunks", "compressor", "log_every"])
def test_options_cannot_be_changed_afterwards(name: str) -> None:
    state = zensync.State(chunks=3)
    before = getattr(state, name)
    with pytest.raises(AttributeError, match=rf"make another one, State\({name}=\.\.\.\)"):
        setattr(state, name, None)
    assert getattr(state, name) == before
    loaded = pickle.loads(pickle.dumps(state))
    with pytest.raises(AttributeError, match="cannot be changed"):
        setattr(loaded, name, None)


def survives_pickling(rank: int) -> None:
    state = zensync.State(chunks=3, log_every=7)
    _, ours = pair(Embedding, state)
    for number in range(2):
        step(ours, indices(rank, number))
    checkpoint = pickle.dumps({"hook": zensync.hook, "state": state})

    loaded = pickle.loads(checkpoint)
    assert loaded["hook"] is zensync.hook
    assert (loaded["state"].chunks, loaded["state"].log_every) == (3, 7)
    assert loaded["state"].stats()["iterations"] == 2
    plain, ours = pair(Embedding, loaded["state"], hook=loaded["hook"])
    for model in (plain, ours):
        step(model, indices(rank, 0))
    assert_same_gradients(plain, ours)
    assert loaded["state"].stats()["iterations"] == 3


def test_pickling() -> None:
    run_ranks(2, survives_pickling)


def test_pickling_warns_that_the_group_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    pickle.loads(pickle.dumps(zensync.State()))
    messages = [record.getMessage() for record in caplog.records]
    assert messages == [
        "a process group cannot be saved: it is left out of the saved State",
        "the loaded State uses the default process group",
    ]


def test_state_dict_round_trip() -> None:
    state = zensync.State()
    assert state.state_dict() == {"version": 1, "iterations": 0}
    state.load_state_dict({"version": 1, "iterations": 12})
    assert state.stats()["iterations"] == 12
    state.load_state_dict(state.state_dict())
    assert state.stats()["iterations"] == 12


@pytest.mark.parametrize(
    ("saved", "message"),
    [
        ({}, "the state has version None, this zensync reads version 1"),
        ({"version": 2, "iterations": 1}, "the state has version 2"),
        ({"version": 1}, "the state lacks iterations: load what State.state_dict() returned"),
        ({"version": 1, "iterations": 1, "model": {}}, "the state has the unknown model"),
        ({"version": 1, "iterations": -1}, "the state has done -1 iterations"),
        ({"version": 1, "iterations": "7"}, "the state has done '7' iterations"),
        ({"version": 1, "iterations": 7, "dgc": {"rank": 0}}, "DGC lacks ranks, progress, para"),
    ],
)
def test_states_of_something_else_are_refused(saved: dict[str, Any], message: str) -> None:
    state = zensync.State(compressor=zensync.DGC(density=0.1))
    state.load_state_dict({"version": 1, "iterations": 12, "dgc": {}})
    with pytest.raises(ValueError) as caught:
        state.load_state_dict(saved)
    assert message in str(caught.value)
    assert state.stats()["iterations"] == 12, "nothing is loaded by halves"


@pytest.mark.parametrize("compressor", [None, zensync.DGC(density=0.1)])
def test_state_of_another_compressor_is_loaded_with_a_warning(
    compressor: zensync.DGC | None, caplog: pytest.LogCaptureFixture
) -> None:
    saved = zensync.State(compressor=None if compressor else zensync.DGC(density=0.1)).state_dict()
    zensync.State(compressor=compressor).load_state_dict(saved)
    assert "compressor has not sent is not loaded" in caplog.text


def logs(rank: int) -> list[str]:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("zensync").addHandler(handler)
    logging.getLogger("zensync").setLevel(logging.INFO)
    _, ours = pair(Embedding, zensync.State(log_every=2), bucket_cap_mb=0.002)
    for number in range(6):
        step(ours, indices(rank, number))
    return lines


def test_one_line_every_so_many_iterations_on_rank_0() -> None:
    first, second = run_ranks(2, logs)
    assert [line.split(":")[0] for line in first] == ["iteration 2", "iteration 4"]
    assert "MB out" in first[0]
    assert second == []


def summarises(rank: int) -> str:
    state = zensync.State()
    _, ours = pair(Embedding, state, bucket_cap_mb=0.002)
    for number in range(2):
        step(ours, indices(rank, number))
    assert len(state.stats()["buckets"]) == len(state.summary().splitlines()) - 3
    return state.summary()


def test_summary_is_a_table() -> None:
    for summary in run_ranks(2, summarises):
        title, header, *rows, total = summary.splitlines()
        assert title == "zensync, iteration 2"
        assert header.split()[:2] == ["bucket", "dtype"]
        assert [row.split()[0] for row in rows] == [str(index) for index in range(len(rows))]
        assert len({len(row) for row in rows} | {len(header)}) == 1, "columns line up"
        assert "times less" in total


def test_summary_before_anything_happened() -> None:
    assert "iteration 0" in zensync.State().summary()


def is_closed(rank: int) -> None:
    # With a backend of somebody else's torch does not know a group's default one.
    dist.Backend.register_backend("elsewhere", lambda *_: None, devices=["meta"])
    state = zensync.State()
    _, ours = pair(Embedding, state)
    step(ours, indices(rank, 0))
    state.close()
    state.close()
    assert state.stats()["iterations"] == 1
    with pytest.raises(ValueError, match="closed"):
        step(ours, indices(rank, 1))


def test_close(capfd: pytest.CaptureFixture[str]) -> None:
    run_ranks(2, is_closed)
    assert "No backend of type" not in capfd.readouterr().err


def has_no_backend_for_the_cpu(rank: int) -> str:
    from torch._C._distributed_c10d import FakeProcessGroup, HashStore

    def make(common: Any, options: Any) -> Any:
        create: Any = FakeProcessGroup._create_internal
        return create(common.group_rank, common.group_size, options)

    dist.Backend.register_backend("gpus", make, extended_api=True, devices=["cuda"])
    dist.init_process_group("gpus", store=HashStore(), rank=rank, world_size=1)
    with pytest.raises(ValueError) as caught:
        zensync.State()
    return str(caught.value)


@pytest.mark.skipif(
    zensync._C.build_info()["cuda"], reason="a build for GPUs works with a backend for GPUs alone"
)
def test_backend_that_does_not_move_cpu_tensors() -> None:
    (message,) = run_ranks(1, has_no_backend_for_the_cpu, group=False)
    assert "backend 'gpus' moves no tensors of a kind that this build of zensync" in message
    assert "cpu:gloo" in message


def keeps_the_timeout(rank: int) -> float:
    from zensync._groups import _clone, _timeout

    torch.manual_seed(0)
    seconds = _timeout(_clone(None)).total_seconds()
    dist.barrier()  # rank 0 hosts the store, by which the others still meet
    return seconds


def test_the_own_group_has_the_timeout_of_its_parent() -> None:
    assert run_ranks(2, keeps_the_timeout, timeout=17) == [17.0, 17.0]
