"""All-reduce of a single tensor, for gradients that DDP does not see."""

from typing import Literal, overload

import torch
import torch.distributed as dist

from zensync import _C
from zensync._groups import check_options, close_engine, make_engine

_engines: dict[tuple[dist.ProcessGroup, str, torch.dtype | None], _C.Engine] = {}


@overload
def all_reduce(
    tensor: torch.Tensor,
    op: str = ...,
    group: dist.ProcessGroup | None = ...,
    scheme: str = ...,
    async_op: Literal[False] = ...,
    *,
    wire_dtype: torch.dtype | None = ...,
) -> torch.Tensor: ...
@overload
def all_reduce(
    tensor: torch.Tensor,
    op: str = ...,
    group: dist.ProcessGroup | None = ...,
    scheme: str = ...,
    *,
    async_op: Literal[True],
    wire_dtype: torch.dtype | None = ...,
) -> torch.futures.Future[torch.Tensor]: ...
def all_reduce(
    tensor: torch.Tensor,
    op: str = "mean",
    group: dist.ProcessGroup | None = None,
    scheme: str = "balanced_parallelism",
    async_op: bool = False,
    *,
    wire_dtype: torch.dtype | None = None,
) -> torch.Tensor | torch.futures.Future[torch.Tensor]:
    """Replaces `tensor`, on every rank of `group`, by the mean or sum over the ranks.

    Any shape and strides. float32, float16 and bfloat16 travel by `scheme`, which sends the
    non-zeros only; float64, and integers with op="sum", by the backend's all-reduce. Ranks whose
    tensors or options differ get an error that lists all of them. `wire_dtype` is as in
    `zensync.State`: torch.bfloat16 halves the bytes of float32 and is lossy.

    Returns the tensor, or with `async_op` a future of it; do not touch the tensor until then. Calls
    must be made in the same order on all ranks. The first call for a group, scheme and wire_dtype
    makes a process group, so it is collective in the way `new_group` is.
    """
    _check(tensor, op, scheme, wire_dtype)
    engine = _engine(group, scheme, wire_dtype)
    if engine.on_own_thread and not async_op:
        raise RuntimeError(
            "zensync.all_reduce was called in a callback of one of its own futures, on the thread "
            "that would have to do the work: pass async_op=True"
        )
    future = engine.all_reduce(tensor, op=op)
    return future if async_op else future.wait()


def _check(tensor: torch.Tensor, op: str, scheme: str, wire_dtype: torch.dtype | None) -> None:
    """What can be refused before anything is done together with the other ranks."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"tensor is a {type(tensor).__name__}: it must be a torch.Tensor")
    if op not in ("mean", "sum"):
        raise ValueError(f"op is {op!r}: choose mean or sum")
    if scheme not in _C.schemes():
        raise ValueError(f"scheme is {scheme!r}: choose one of {', '.join(_C.schemes())}")
    check_options(scheme=scheme, wire_dtype=wire_dtype)


def _engine(
    group: dist.ProcessGroup | None, scheme: str, wire_dtype: torch.dtype | None
) -> _C.Engine:
    parent = group if group is not None else dist.group.WORLD
    if parent is None:
        raise ValueError("there is no default process group: call init_process_group() first")
    key = (parent, scheme, wire_dtype)
    if key not in _engines:
        _forget_destroyed_groups()
        _engines[key] = make_engine(parent, scheme=scheme, wire_dtype=wire_dtype)
    return _engines[key]


def _forget_destroyed_groups() -> None:
    for key in list(_engines):
        try:
            dist.get_process_group_ranks(key[0])
        except KeyError:
            close_engine(_engines.pop(key))
