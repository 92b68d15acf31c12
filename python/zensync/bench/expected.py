"""Whether the contender with the fewest bytes is the fastest, as where the wire is the limit."""

import dataclasses
from collections.abc import Sequence

from zensync.bench.results import Row

MARGIN = 0.05  # fewer bytes by less than this decide nothing


@dataclasses.dataclass(frozen=True)
class Expected:
    """Of one cell: the exact contender that its bytes predict to be the fastest, and who it was."""

    scheme: str
    margin: float  # share of the wire's time that it saves over the next one
    fastest: str
    processors_limit: bool  # any of the two; then bytes predict nothing

    def __str__(self) -> str:
        predicted = f"fewest bytes: {self.scheme}, by {self.margin:.0%}"
        limit = " (limited by the processors)" if self.processors_limit else ""
        return f"{predicted}; fastest: {self.fastest}{limit}"


def expected(rows: Sequence[Row]) -> Expected | None:
    """None if the bytes of the two best differ by less than MARGIN, or nothing is shaped."""
    exact = [row for row in rows if row.exact and row.wire_seconds]
    by_bytes = sorted(exact, key=_wire_seconds)
    if len(by_bytes) < 2:
        return None
    best, next_best = by_bytes[:2]
    margin = 1 - _wire_seconds(best) / _wire_seconds(next_best)
    if margin <= MARGIN:
        return None
    fastest = min(exact, key=lambda row: row.seconds)
    limited = best.cpu_limited or fastest.cpu_limited
    return Expected(best.scheme, margin, fastest.scheme, limited)


def _wire_seconds(row: Row) -> float:
    assert row.wire_seconds is not None
    return row.wire_seconds
