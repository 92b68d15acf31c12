"""Process groups of zensync's own, and the engines that use them.

An engine issues operations from a thread of its own. On a group that anybody else uses, their order
would differ from rank to rank.
"""

import atexit
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from zensync import _C

_engines: "weakref.WeakSet[_C.Engine]" = weakref.WeakSet()
_clones: "weakref.WeakKeyDictionary[dist.ProcessGroup, int]" = weakref.WeakKeyDictionary()


def make_engine(
    group: dist.ProcessGroup | None,
    *,
    scheme: str,
    chunks: int = 0,
    pack_values: bool = False,
    transport: str = "",
) -> _C.Engine:
    """Collective over the members of `group` (None: all ranks)."""
    engine = _C.Engine(
        _clone(group), scheme=scheme, chunks=chunks, pack_values=pack_values, transport=transport
    )
    _engines.add(engine)
    return engine


def _clone(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    parent = group if group is not None else dist.group.WORLD
    if parent is None:
        raise ValueError("there is no default process group: call init_process_group() first")
    if not isinstance(parent, dist.ProcessGroup) or dist.get_rank(parent) < 0:
        raise ValueError(
            "this rank is not a member of the process group: call this on members only"
        )
    # new_group() would do, but for its names: with all ranks it is collective over all ranks, and
    # with members only it counts the groups of each rank, which hangs where the counts differ.
    number = _clones.get(parent, 0)
    _clones[parent] = number + 1
    ranks = dist.get_process_group_ranks(parent)
    clone, _ = c10d._new_process_group_helper(
        len(ranks),
        dist.get_rank(parent),
        ranks,
        dist.Backend(dist.get_backend_config(parent)),
        c10d._get_default_store(),
        f"zensync_{parent.group_name}_{number}",  # type: ignore[arg-type]
        timeout=_timeout(parent),
        group_desc="zensync",
    )
    c10d._world.pg_group_ranks[clone] = {rank: place for place, rank in enumerate(ranks)}
    assert isinstance(clone, dist.ProcessGroup)
    return clone


def _timeout(group: dist.ProcessGroup) -> timedelta:
    """Of a group's operations. It is not inherited, so a clone must be told."""
    backend = group._get_backend(torch.device("cpu"))
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    timeout = backend.options._timeout
    assert isinstance(timeout, timedelta)
    return timeout


@atexit.register
def _close_engines() -> None:
    """Their threads must not run into a dying interpreter."""
    for engine in list(_engines):
        engine.close()
