"""Runs a function as the ranks of a group: real processes over gloo on the loopback.

Processes are forked from a server that has imported torch and zensync once, so that a test with
three ranks takes a second, not ten. DistributedDataParallel imports torch._dynamo when the first
model is wrapped, which takes seconds too.
"""

import multiprocessing as mp
import os
import pickle
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

_context = mp.get_context("forkserver")
_context.set_forkserver_preload(["torch._dynamo", "zensync", "models", "ranks"])

_GUARD_SECONDS = 300  # only a hang takes that long; it then fails by name instead of blocking CI


@dataclass(frozen=True)
class Setting:
    rank: int
    ranks: int
    port: int | None  # None: the function makes its own group
    timeout: float


@dataclass
class Ended:
    """How one rank ended."""

    result: Any = None
    error: str = ""  # the traceback, if the function raised
    exit_code: int | None = None


def run_ranks(
    ranks: int, function: Callable[..., Any], *args: Any, timeout: float = 60, group: bool = True
) -> list[Any]:
    """Calls function(rank, *args) on every rank and returns the results; raises if one raised."""
    ended = end_ranks(ranks, function, *args, timeout=timeout, group=group)
    errors = [f"rank {rank}: {end.error}" for rank, end in enumerate(ended) if end.error]
    errors += [
        f"rank {rank}: exit code {end.exit_code}"
        for rank, end in enumerate(ended)
        if end.exit_code != 0 and not end.error
    ]
    assert not errors, "\n".join(errors)
    return [end.result for end in ended]


def end_ranks(
    ranks: int, function: Callable[..., Any], *args: Any, timeout: float = 60, group: bool = True
) -> list[Ended]:
    """As run_ranks(), for functions that are meant to fail. `timeout` is the group's, in s."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pipes = [_context.Pipe(duplex=False) for _ in range(ranks)]
    processes = []
    for rank in range(ranks):
        setting = Setting(rank, ranks, port if group else None, timeout)
        process = _context.Process(
            target=_main, args=(pipes[rank][1], setting, function, args), daemon=True
        )
        process.start()
        pipes[rank][1].close()
        processes.append(process)
    ended = [_collect(receiver) for receiver, _ in pipes]
    for rank, process in enumerate(processes):
        process.join(_GUARD_SECONDS)
        if process.exitcode is None:
            process.kill()
            ended[rank].error += "did not exit"
        ended[rank].exit_code = process.exitcode
    return ended


def _collect(receiver: Connection) -> Ended:
    if not receiver.poll(_GUARD_SECONDS):
        return Ended(error="hangs")
    try:
        end = pickle.loads(receiver.recv_bytes())
        assert isinstance(end, Ended)
        return end
    except EOFError:
        return Ended()  # killed


def _main(
    sender: Connection, setting: Setting, function: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    end = Ended()
    try:
        if setting.port is not None:
            dist.init_process_group(
                "gloo",
                init_method=f"tcp://127.0.0.1:{setting.port}",
                rank=setting.rank,
                world_size=setting.ranks,
                timeout=timedelta(seconds=setting.timeout),
            )
        end.result = function(setting.rank, *args)
    except BaseException:
        end.error = traceback.format_exc()
    sender.send_bytes(pickle.dumps(end))
    sender.close()
