"""Bytes and times of every scheme on a cluster.

Times are of synchronising alone, one bucket after the other: neither what overlaps with the
backward pass nor what overlaps between buckets is taken off.
"""

import dataclasses
import itertools
from collections.abc import Sequence

from zensync import _C
from zensync.profile import SKIPPED, Profile, ProfiledBucket

# Frame and TCP headers, and what a scheme leaves of a link that it has to itself: docs/benchmark.md
# has 1.02 to 1.04 times the wire bound where the processors have time.
LINK_FACTOR = 1.03
RING_FACTOR = 1.013  # the backend's all-reduce, which streams
DENSE = "allreduce"  # plain DDP


@dataclasses.dataclass(frozen=True)
class Cluster:
    ranks: int
    ranks_per_node: int
    rate_bits_per_second: int  # of a node's link, each way
    node_rate_bits_per_second: int  # of each rank within a node
    ranks_per_processor: float = 1

    @property
    def nodes(self) -> int:
        return self.ranks // self.ranks_per_node

    def rates(self) -> dict[str, float]:
        """Seconds per byte, and of work over the cost model's standard ones. The ranks of a node
        share the work on its gradient."""
        byte = 8 / self.rate_bits_per_second
        return {
            "byte": byte * LINK_FACTOR,
            "ring_byte": byte * RING_FACTOR,
            "work": self.ranks_per_processor / self.ranks_per_node,
        }

    def impossible(self, looks: int) -> str | None:
        """Why it cannot be predicted from so many looks."""
        if self.ranks < 2:
            return f"{self.ranks} rank has nobody to synchronise with: give at least 2"
        if self.ranks % self.ranks_per_node:
            return f"{self.ranks} ranks are no whole number of nodes of {self.ranks_per_node}"
        if self.ranks > looks:
            return (
                f"{self.ranks} ranks need as many recorded iterations, the profile has {looks}: "
                f"train for {self.ranks + SKIPPED + 1} iterations with State(profile=...)"
            )
        return None


@dataclasses.dataclass(frozen=True)
class Sparseness:
    """Of a whole gradient, its buckets weighted by their elements."""

    density: float  # on a node
    density_of_sum: float
    packed_share: float


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one synchronisation of all buckets."""

    scheme: str
    packed: bool
    bytes: float  # that the busiest node sends or receives
    seconds: float
    seconds_in_node: float  # of them

    @property
    def name(self) -> str:
        return self.scheme + (", packed" if self.packed else "")


@dataclasses.dataclass(frozen=True)
class Advice:
    cluster: Cluster
    sparseness: Sparseness
    costs: list[Cost]  # by falling time saved

    @property
    def dense(self) -> Cost:
        return next(cost for cost in self.costs if cost.scheme == DENSE)


def advise(profile: Profile, cluster: Cluster) -> Advice:
    """REQUIRES: the cluster is possible with the profile's looks."""
    buckets = [Bucket(bucket, cluster) for bucket in profile["buckets"]]
    costs = [_cost(buckets, cluster, *choice) for choice in choices()]
    elements = sum(bucket.numel for bucket in buckets)

    def mean(values: Sequence[float]) -> float:
        pairs = zip(values, buckets, strict=True)
        return sum(value * bucket.numel for value, bucket in pairs) / elements

    return Advice(
        cluster,
        Sparseness(
            density=mean([bucket.nodes.density() for bucket in buckets]),
            density_of_sum=mean([bucket.nodes.density_of_sum() for bucket in buckets]),
            packed_share=mean([bucket.nodes.packed_share() for bucket in buckets]),
        ),
        sorted(costs, key=lambda cost: cost.seconds),
    )


def choices() -> list[tuple[str, bool]]:
    """Schemes, raw and where they can packed."""
    return [
        (scheme, packed)
        for scheme, packed in itertools.product(_C.schemes(), (False, True))
        if not packed or _packs(scheme)
    ]


class Bucket:
    """One profiled bucket on a cluster."""

    def __init__(self, bucket: ProfiledBucket, cluster: Cluster) -> None:
        looks = bucket["looks"][: cluster.ranks]
        size = cluster.ranks_per_node
        nodes = [looks[first : first + size] for first in range(0, len(looks), size)]
        self.numel = bucket["numel"]
        self.nodes = _C.Sparsity([_C.together(node) if size > 1 else node[0] for node in nodes])
        self.dtype = bucket["dtype"]
        self._ranks = self.nodes if size == 1 else _C.Sparsity(looks)

    def cost(
        self, scheme: str, packed: bool, cluster: Cluster, chunks: int | None = None
    ) -> tuple[float, float]:
        """Bytes of the busiest node's link, and seconds between the nodes. Without `chunks` they
        are as many as a State cuts by itself."""
        # Plain DDP is one ring through all ranks, which passes each node's link once.
        sparsity = self._ranks if scheme == DENSE else self.nodes
        if sparsity.ranks == 1:
            return 0, 0
        predicted = sparsity.predict(
            scheme,
            dtype=self.dtype,
            chunks=chunks or _C.default_chunks(self.bytes),
            pack_values=packed,
            **cluster.rates(),
        )
        return predicted["bytes"], predicted["seconds"]

    @property
    def bytes(self) -> int:
        return self.numel * (4 if self.dtype == "float32" else 2)


def _cost(buckets: Sequence[Bucket], cluster: Cluster, scheme: str, packed: bool) -> Cost:
    pairs = [bucket.cost(scheme, packed, cluster) for bucket in buckets]
    in_node = 0.0
    if scheme != DENSE and cluster.ranks_per_node > 1:
        # A dense reduce-scatter before and an all-gather after, as in the paper (section 4).
        share = 2 * (cluster.ranks_per_node - 1) / cluster.ranks_per_node
        total = sum(bucket.bytes for bucket in buckets)
        in_node = share * total * 8 / cluster.node_rate_bits_per_second
    sent, seconds = (sum(values) for values in zip(*pairs, strict=True))
    return Cost(scheme, packed, sent, seconds + in_node, in_node)


def _packs(scheme: str) -> bool:
    try:
        _C.check_options(scheme=scheme, pack_values=True, wire_dtype="")
    except ValueError:
        return False
    return True
