"""The shapes of `State.stats()` and `State.explain()`. Sizes are bytes, times seconds."""

from typing import TypedDict


class StageSeconds(TypedDict):
    select: float
    encode: float
    push: float
    reduce: float
    pull: float
    decode: float


class BucketStats(TypedDict):
    bucket: int
    dtype: str
    scheme: str
    packed: bool
    numel: int
    chunks: int
    bytes_out: int
    bytes_in: int
    dense_bytes: int
    density_before: float | None
    density_after: float | None
    imbalance: float | None
    seconds: StageSeconds


class Totals(TypedDict):
    buckets: int
    bytes_out: int
    bytes_in: int
    dense_bytes: int
    seconds: StageSeconds


class Statistics(TypedDict):
    iterations: int
    total: Totals
    last: Totals
    buckets: list[BucketStats]


class CandidateChoice(TypedDict):
    """A scheme, packed or not, that scheme="auto" may take. Bytes and times are those of the rank
    that has most of them."""

    scheme: str
    packed: bool
    bytes: float
    predicted: float
    predicted_latency: float
    predicted_wire: float
    predicted_work: float
    measured: float | None  # the fastest trial of the latest profile
    expected: float  # what was compared


class BucketChoice(TypedDict):
    bucket: int
    dtype: str
    numel: int
    reason: str  # for the latest profile
    profiling: bool  # then what is chosen is only tried
    turns: int  # before the latest consultation
    profiles: int
    ranks: int
    density_before: float
    density_after: float
    densification: list[float]  # of 2, 4, 8, ... ranks
    skew: float
    packed_share: float
    round_seconds: float
    link_bytes_per_second: float
    chosen: int
    candidates: list[CandidateChoice]
