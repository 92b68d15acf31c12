"""The shape of `State.stats()`. Sizes are bytes, times seconds."""

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
