"""Which ranks share a node.

A node's links are much faster than those between nodes. Gradients are then added up inside the
node, and each of its ranks synchronises one part of them with its counterparts in other nodes.
"""

import os
from dataclasses import dataclass

import torch.distributed as dist

from zensync._checks import check_choice


@dataclass(frozen=True)
class Nodes:
    """Where this rank is, in ranks of the default group."""

    intra: list[int]  # of its own node, itself among them
    inter: list[int]  # with the same place in their nodes, itself among them


def check_topology(
    topology: str | None,
    intra_group: dist.ProcessGroup | None,
    inter_group: dist.ProcessGroup | None,
) -> None:
    """What can be said before there is a process group."""
    if topology is not None:
        check_choice("topology", topology, ["auto"])
    if (intra_group is None) != (inter_group is None):
        raise ValueError(
            "give both intra_group, the ranks of this node, and inter_group, the ranks with the "
            "same place in their nodes, or neither"
        )
    if topology is not None and intra_group is not None:
        raise ValueError("topology='auto' finds the groups itself: leave them out, or topology")


def find_nodes(
    group: dist.ProcessGroup | None,
    topology: str | None,
    intra_group: dist.ProcessGroup | None,
    inter_group: dist.ProcessGroup | None,
) -> Nodes | None:
    """None if every rank of `group` is to talk with every other alike. Raises ValueError."""
    ranks = dist.get_process_group_ranks(group if group is not None else dist.group.WORLD)
    if intra_group is not None and inter_group is not None:
        return _of_groups(ranks, intra_group, inter_group)
    return None if topology is None else _of_environment(ranks, dist.get_rank())


def _of_groups(
    ranks: list[int], intra_group: dist.ProcessGroup, inter_group: dist.ProcessGroup
) -> Nodes:
    me = dist.get_rank()
    nodes = Nodes(
        dist.get_process_group_ranks(intra_group), dist.get_process_group_ranks(inter_group)
    )
    together = set(nodes.intra) | set(nodes.inter)
    if not together <= set(ranks):
        raise ValueError(
            f"intra_group {nodes.intra} and inter_group {nodes.inter} have ranks that are not in "
            f"process_group {ranks}"
        )
    if set(nodes.intra) & set(nodes.inter) != {me}:
        raise ValueError(
            f"rank {me} must be the only one that intra_group {nodes.intra} and inter_group "
            f"{nodes.inter} have in common"
        )
    if len(nodes.intra) * len(nodes.inter) != len(ranks):
        raise ValueError(
            f"{len(nodes.inter)} nodes of {len(nodes.intra)} ranks are not the {len(ranks)} ranks "
            "of process_group: every node must have as many ranks"
        )
    return nodes


def _of_environment(ranks: list[int], me: int) -> Nodes | None:
    """As torchrun numbers them: the ranks of a node follow one another."""
    size = _number("LOCAL_WORLD_SIZE")
    nodes = [list(ranks[begin : begin + size]) for begin in range(0, len(ranks), size)]
    world, groups = _number("WORLD_SIZE", 0), _number("GROUP_WORLD_SIZE", 0)
    even = world == 0 or groups == 0 or world == size * groups
    if not even or any(len(node) != size or len({r // size for r in node}) != 1 for node in nodes):
        raise ValueError(
            f"topology='auto' needs {size} ranks (LOCAL_WORLD_SIZE) of every node, and "
            f"process_group has the ranks {ranks}: give intra_group and inter_group instead"
        )
    if size == 1 or len(nodes) == 1:
        return None
    own = next(node for node in nodes if me in node)
    return Nodes(own, [node[own.index(me)] for node in nodes])


def _number(name: str, default: int | None = None) -> int:
    text = os.environ.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isdecimal() or int(text) < 1:
        raise ValueError(
            f"topology='auto' reads the ranks per node from {name}, which is {text!r}: start with "
            "torchrun, or give intra_group and inter_group"
        )
    return int(text)
