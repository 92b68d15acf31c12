"""The least time that a synchronisation can take on the wire. Sizes are bytes.

The wire bound is that of the bytes which were sent. The entropy bound is that of a push and a pull
whose messages hold nothing but information: the listed values as they are, and the positions in as
few bits as a random choice of so many units out of so many needs. It knows the structure that the
pattern has (rows, a range), not which rows are popular, and does not count on packing values: with
`packed` a time below it is possible.
"""

import math
from collections.abc import Sequence

from torch import Tensor

from zensync.bench.patterns import Region


def seconds_on_wire(
    bytes_out: float, bytes_in: float, rate_bits_per_second: int | None
) -> float | None:
    """Full duplex: the busier direction counts. None if the rate is not known."""
    if rate_bits_per_second is None:
        return None
    return max(bytes_out, bytes_in) * 8 / rate_bits_per_second


def count_units(values: Tensor, regions: Sequence[Region]) -> list[int]:
    """Units of each region that have a non-zero element."""
    counts = []
    for region in regions:
        part = values[region.start : region.start + region.units * region.unit_elements]
        listed = part.view(region.units, region.unit_elements).ne(0).any(dim=1)
        counts.append(int(listed.sum()))
    return counts


def information_bytes(listed: Sequence[int], regions: Sequence[Region], value_bytes: int) -> float:
    """Values and the entropy of the positions of `listed` units in each region."""
    return sum(
        count * region.unit_elements * value_bytes
        + region.units * _binary_entropy(count / region.units) / 8
        for count, region in zip(listed, regions, strict=True)
        if region.units > 0
    )


def push_pull_bytes(pushed: Sequence[float], pulled: float) -> float:
    """What the busiest rank sends when a gradient of pushed[rank] bytes goes to n equal owners,
    and each owner's part of `pulled` bytes goes to everybody."""
    ranks = len(pushed)
    return (ranks - 1) / ranks * (max(pushed) + pulled)


def _binary_entropy(share: float) -> float:
    if share <= 0 or share >= 1:
        return 0
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)
