"""Process groups of zensync's own, and the engines that use them.

An engine issues operations from a thread of its own. On a group that anybody else uses, their order
would differ from rank to rank.
"""

import atexit
import os
import weakref
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from zensync import _C
from zensync._topology import Nodes
from zensync.dgc import DGC

# What is left to do for a group when its engine is gone, by engine.
_engines: "weakref.WeakKeyDictionary[_C.Engine, weakref.finalize[..., _C.Engine]]" = (
    weakref.WeakKeyDictionary()
)
# Waits on a GPU end sooner than the group's timeout, at which torch's watchdog over NCCL would end
# the whole process.
_DEADLINE_SHARE = 0.9

_clones: "weakref.WeakKeyDictionary[dist.ProcessGroup, int]" = weakref.WeakKeyDictionary()


def make_engine(
    group: dist.ProcessGroup | None,
    *,
    scheme: str,
    chunks: int = 0,
    pack_values: bool | None = None,
    wire_dtype: torch.dtype | None = None,
    transport: str = "",
    compressor: DGC | None = None,
    profile_iterations: int = _C.PROFILE_ITERATIONS,
    reprofile_every: int = _C.REPROFILE_EVERY,
    deterministic: bool = False,
    nodes: Nodes | None = None,
) -> _C.Engine:
    """Collective over the members of `group` (None: all ranks) and of a compressor's tp_group."""
    parent, name = _next_name(group)
    clones: list[dist.ProcessGroup] = []
    of_nodes: dict[str, Any] = {}
    try:
        if nodes is None:
            clones.append(_make_group(parent, dist.get_process_group_ranks(parent), name))
        else:
            clones.append(_make_group(parent, nodes.inter, f"{name}_part{nodes.inter[0]}"))
            clones.append(_make_group(parent, nodes.intra, f"{name}_node{nodes.intra[0]}"))
            store = c10d.PrefixStore(name, c10d._get_default_store())
            of_nodes = {"node_group": clones[1], "rank": dist.get_rank(parent), "store": store}
        tp_group = None
        if compressor is not None and compressor.tp_group is not None:
            tp_group = _clone(compressor.tp_group)
            clones.append(tp_group)
        engine = _C.Engine(
            clones[0],
            scheme=scheme,
            chunks=chunks,
            pack_values=pack_values,
            wire_dtype=wire_dtype_name(wire_dtype),
            transport=transport,
            timeout=_DEADLINE_SHARE * _timeout(clones[0]).total_seconds(),
            dgc=None if compressor is None else compressor.engine_options(clones[0].size()),
            tp_group=tp_group,
            profile_iterations=profile_iterations,
            reprofile_every=reprofile_every,
            deterministic=deterministic,
            **of_nodes,
        )
    except BaseException:
        _destroy(clones, os.getpid())
        raise
    _engines[engine] = weakref.finalize(engine, _destroy, clones, os.getpid())
    _engines[engine].atexit = False  # the process takes everything with it
    return engine


def close_engine(engine: _C.Engine) -> None:
    """Ends the engine and gives its group's threads and connections back."""
    engine.close()
    _engines[engine]()


def _destroy(clones: list[dist.ProcessGroup], process: int) -> None:
    """torch keeps a group, with its threads and sockets, until it is told to let go."""
    for clone in clones:
        if os.getpid() == process and clone in c10d._world.pg_map:
            dist.destroy_process_group(clone)


def check_options(
    *, scheme: str, pack_values: bool | None = None, wire_dtype: torch.dtype | None = None
) -> None:
    """Raises ValueError if the scheme is unknown or an option has no effect on it."""
    _C.check_options(scheme=scheme, pack_values=pack_values, wire_dtype=wire_dtype_name(wire_dtype))


def wire_dtype_name(dtype: torch.dtype | None) -> str:
    """As the engine knows it."""
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"wire_dtype is {dtype!r}: it must be torch.bfloat16 or None")
    return "" if dtype is None else str(dtype).removeprefix("torch.")


def check_group(group: dist.ProcessGroup | None) -> None:
    """Refuses what is no group, and a group without this rank."""
    if group is None or (isinstance(group, dist.ProcessGroup) and dist.get_rank(group) >= 0):
        return
    if isinstance(group, dist.ProcessGroup) or group == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError(
            "this rank is not a member of the process group: call this on members only"
        )
    raise TypeError(f"the process group is {group!r}: it must be a ProcessGroup or None")


def _clone(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    parent, name = _next_name(group)
    return _make_group(parent, dist.get_process_group_ranks(parent), name)


def _next_name(group: dist.ProcessGroup | None) -> tuple[dist.ProcessGroup, str]:
    """The group itself, and a name for what is made from it: the same on all its ranks."""
    check_group(group)
    parent = group if group is not None else dist.group.WORLD
    if parent is None:
        raise ValueError("there is no default process group: call init_process_group() first")
    number = _clones.get(parent, 0)
    _clones[parent] = number + 1
    return parent, f"zensync_{parent.group_name}_{number}"


def _make_group(parent: dist.ProcessGroup, ranks: list[int], name: str) -> dist.ProcessGroup:
    """Of some ranks of `parent`, collective over them alone, with the parent's backend."""
    # new_group() would do, but for its names: with all ranks it is collective over all ranks, and
    # with members only it counts the groups of each rank, which hangs where the counts differ.
    group, _ = c10d._new_process_group_helper(
        len(ranks),
        ranks.index(dist.get_rank()),
        ranks,
        dist.Backend(dist.get_backend_config(parent)),
        c10d._get_default_store(),
        name,  # type: ignore[arg-type]
        timeout=_timeout(parent),
        group_desc="zensync",
    )
    # torch does not set it if any backend of others is registered, and warns when the group ends.
    cpu_backend = group._get_backend(torch.device("cpu")).name()
    group._set_default_backend(
        dist.Backend.backend_type_map.get(cpu_backend, dist.ProcessGroup.BackendType.CUSTOM)
    )
    c10d._world.pg_group_ranks[group] = {rank: place for place, rank in enumerate(ranks)}
    assert isinstance(group, dist.ProcessGroup)
    return group


def _timeout(group: dist.ProcessGroup) -> timedelta:
    """Of a group's operations. It is not inherited, so a clone must be told."""
    backend = _backend(group)
    backend = getattr(backend, "wrapped_pg", backend)  # TORCH_DISTRIBUTED_DEBUG=DETAIL
    timeout = backend.options._timeout
    assert isinstance(timeout, timedelta)
    return timeout


def _backend(group: dist.ProcessGroup) -> Any:
    """The one that the first lane uses: see csrc/torch/lanes.h."""
    for device in ["cpu", "cuda"] if _C.build_info()["cuda"] else ["cpu"]:
        try:
            return group._get_backend(torch.device(device))
        except RuntimeError:
            continue
    raise ValueError(
        f"the process group's backend {dist.get_backend(group)!r} moves no tensors of a kind that "
        "this build of zensync handles: use init_process_group('cpu:gloo,cuda:nccl'), or give it a "
        "gloo group, new_group(backend='gloo')"
    )


@atexit.register
def _close_engines() -> None:
    """Their threads must not run into a dying interpreter."""
    for engine in list(_engines):
        engine.close()
