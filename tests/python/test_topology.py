"""Several ranks per node: dense inside a node, a scheme between nodes."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import Embedding, assert_same_gradients, assert_same_on_all_ranks, indices, pair, step
from ranks import end_ranks, run_ranks
from torch import nn

import zensync
from zensync._network import ShapedNetwork, available
from zensync._network import run_ranks as run_on_hosts
from zensync._topology import check_topology

LONG = 250.0  # the group's timeout in s, where nobody must wait for it


def node_groups(rank: int, per_node: int) -> dict[str, Any]:
    """Ranks of a node follow one another. Every rank makes every group, as new_group wants it."""
    ranks = list(range(dist.get_world_size()))
    nodes = [ranks[begin : begin + per_node] for begin in range(0, len(ranks), per_node)]
    intra = [dist.new_group(node) for node in nodes]
    inter = [dist.new_group(list(part)) for part in zip(*nodes, strict=True)]
    return {"intra_group": intra[rank // per_node], "inter_group": inter[rank % per_node]}


class Mixed(nn.Module):
    """Buckets of several dtypes, of one element, and of fewer words than ranks of a node."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = Embedding()
        self.short = nn.Linear(3, 700).bfloat16()
        self.long = nn.Linear(3, 5).double()
        self.one = nn.Parameter(torch.ones(()))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        x = self.embedding(given) * self.one
        result: torch.Tensor = self.short(x.bfloat16()).float().sum() + self.long(x.double()).sum()
        result = result + x.sum()
        return result


def trains_like_plain_ddp(rank: int, per_node: int) -> None:
    groups = node_groups(rank, per_node)
    for options in (
        {},
        {"transport": "exact", "scheme": "hierarchical"},
        {"scheme": "allreduce"},
        {"pack_values": True, "scheme": "balanced_parallelism", "chunks": 3},
    ):
        state = zensync.State(**groups, **options)
        plain, ours = pair(Mixed, state, bucket_cap_mb=0.002)
        for number in range(3):
            for model in (plain, ours):
                step(model, indices(rank, number))
            assert_same_gradients(plain, ours)
            assert_same_on_all_ranks(ours)
        nodes = dist.get_world_size() // per_node
        dense = state.stats()["last"]["dense_bytes"]
        elements = sum(b["numel"] for b in state.stats()["buckets"])
        assert elements < sum(p.numel() for p in ours.parameters()), "a rank has a part"
        assert (dense > 0) == (nodes > 1)
        del plain, ours
        state.close()


@pytest.mark.parametrize(("nodes", "per_node"), [(2, 2), (3, 2), (1, 3)])
def test_gradients_are_those_of_plain_ddp(nodes: int, per_node: int) -> None:
    run_ranks(nodes * per_node, trains_like_plain_ddp, per_node)


def finds_its_node(rank: int) -> None:
    os.environ["LOCAL_WORLD_SIZE"] = "2"
    state = zensync.State(topology="auto")
    plain, ours = pair(Embedding, state)
    for number in range(2):
        for model in (plain, ours):
            step(model, indices(rank, number))
        assert_same_gradients(plain, ours)
    numel = sum(p.numel() for p in ours.parameters())
    assert abs(2 * state.stats()["buckets"][0]["numel"] - numel) <= 64
    for local, part in (("4", 1), ("1", 1)):  # one node, and nodes of one rank
        os.environ["LOCAL_WORLD_SIZE"] = local
        state = zensync.State(topology="auto")
        _, ours = pair(Embedding, state)
        step(ours, indices(rank, 0))
        assert state.stats()["buckets"][0]["numel"] * part == numel
    os.environ["LOCAL_WORLD_SIZE"] = "3"
    with pytest.raises(ValueError, match=r"needs 3 ranks .LOCAL_WORLD_SIZE. of every node"):
        zensync.State(topology="auto")
    del os.environ["LOCAL_WORLD_SIZE"]
    with pytest.raises(ValueError, match="start with torchrun, or give intra_group"):
        zensync.State(topology="auto")


def test_topology_is_found() -> None:
    run_ranks(4, finds_its_node)


def refuses_wrong_groups(rank: int) -> None:
    groups = node_groups(rank, 2)
    alone = [dist.new_group([other]) for other in range(4)][rank]
    with pytest.raises(ValueError, match="every node must have as many ranks"):
        zensync.State(intra_group=groups["intra_group"], inter_group=alone)
    with pytest.raises(ValueError, match="the only one that"):
        zensync.State(intra_group=groups["intra_group"], inter_group=groups["intra_group"])
    with pytest.raises(ValueError, match="not in process_group"):
        zensync.State(groups["intra_group"], **groups)
    with pytest.raises(ValueError, match="leave one of them out"):
        zensync.State(**groups, compressor=zensync.DGC(0.1))
    dist.barrier()  # rank 0 hosts the store, by which the others still meet


def test_wrong_groups_are_refused() -> None:
    run_ranks(4, refuses_wrong_groups)


def test_options_that_exclude_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="topology is 'nodes'"):
        check_topology("nodes", None, None)
    group: Any = object()
    with pytest.raises(ValueError, match="give both intra_group"):
        check_topology(None, group, None)
    with pytest.raises(ValueError, match="finds the groups itself"):
        check_topology("auto", group, group)


def is_killed(rank: int) -> None:
    _, ours = pair(Embedding, zensync.State(**node_groups(rank, 2)))
    for number in range(5):
        if number == 3 and rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        step(ours, indices(rank, number))


def test_killed_rank() -> None:
    ended = end_ranks(4, is_killed, timeout=LONG)
    assert ended[2].exit_code == -signal.SIGKILL
    for rank in (0, 1, 3):
        for part in ("RuntimeError", f"zensync: rank {rank}, bucket", "stage"):
            assert part in ended[rank].error, ended[rank].error


ON_HOSTS = """
import torch, torch.distributed as dist, zensync
from torch.nn.parallel import DistributedDataParallel
from zensync._network import own_counters

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.EmbeddingBag(20000, 64))
state = zensync.State(topology="auto")
model.register_comm_hook(state, zensync.hook)
sent = []
for number in range(3):
    dist.barrier()
    before = own_counters()
    generator = torch.Generator().manual_seed(number * 100 + dist.get_rank())
    model.zero_grad()
    model(torch.randint(0, 20000, (50, 4), generator=generator)).sum().backward()
    dist.barrier()
    sent.append((own_counters() - before).bytes_out)
numbers = torch.tensor([float(state.stats()["last"]["bytes_out"])])
dist.all_reduce(numbers)  # of four ranks on two hosts
payload = float(numbers) / 2
dense = 20000 * 64 * 4
assert payload < 0.05 * dense, payload
assert payload < sent[-1] < 1.2 * payload + 50000, (payload, sent)
"""


@pytest.mark.skipif(available() is not None, reason=str(available()))
def test_only_sums_of_nodes_leave_a_host(tmp_path: Path) -> None:
    """Dense gradients stay on the host's loopback; the card carries what the scheme sends."""
    script = tmp_path / "train.py"
    script.write_text(ON_HOSTS)
    with ShapedNetwork(hosts=2, rate_bits_per_second=1_000_000_000) as network:
        environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
        codes = run_on_hosts(
            network, [sys.executable, str(script)], ranks_per_host=2, environment=environment
        )
    assert codes == [0, 0, 0, 0]
