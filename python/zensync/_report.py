"""Statistics as text."""

from zensync.statistics import BucketStats, StageSeconds, Statistics, Totals

_HEADER = ("bucket", "dtype", "elements", "scheme", "MB out", "MB in", "dense MB", "density", "ms")


def no_statistics(iterations: int) -> Statistics:
    return {"iterations": iterations, "total": _nothing(), "last": _nothing(), "buckets": []}


def summary_line(statistics: Statistics) -> str:
    last = statistics["last"]
    return (
        f"iteration {statistics['iterations']}: {last['buckets']} buckets, "
        f"{_mb(last['bytes_out'])} MB out, {_mb(last['bytes_in'])} MB in, "
        f"dense {_mb(last['dense_bytes'])} MB ({_ratio(last)}), "
        f"{_milliseconds(last['seconds'])} ms"
    )


def summary_table(statistics: Statistics) -> str:
    rows = [_HEADER, *(_row(bucket) for bucket in statistics["buckets"])]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]
    total = statistics["total"]
    return "\n".join(
        [
            f"zensync, iteration {statistics['iterations']}",
            *lines,
            f"all iterations: {_mb(total['bytes_out'])} MB out, {_mb(total['bytes_in'])} MB in, "
            f"dense {_mb(total['dense_bytes'])} MB ({_ratio(total)})",
        ]
    )


def _row(bucket: BucketStats) -> tuple[str, ...]:
    return (
        str(bucket["bucket"]),
        bucket["dtype"],
        f"{bucket['numel']:,}",
        bucket["scheme"],
        _mb(bucket["bytes_out"]),
        _mb(bucket["bytes_in"]),
        _mb(bucket["dense_bytes"]),
        f"{_percent(bucket['density_before'])} -> {_percent(bucket['density_after'])}",
        _milliseconds(bucket["seconds"]),
    )


def _nothing() -> Totals:
    seconds: StageSeconds = {
        "select": 0.0,
        "encode": 0.0,
        "push": 0.0,
        "reduce": 0.0,
        "pull": 0.0,
        "decode": 0.0,
    }
    return {"buckets": 0, "bytes_out": 0, "bytes_in": 0, "dense_bytes": 0, "seconds": seconds}


def _mb(size: int) -> str:
    return f"{size / 1e6:.3f}" if size < 10e6 else f"{size / 1e6:.1f}"


def _ratio(totals: Totals) -> str:
    if totals["bytes_out"] == 0:
        return "nothing sent"
    return f"{totals['dense_bytes'] / totals['bytes_out']:.2f} times less"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.3g}%"


def _milliseconds(seconds: StageSeconds) -> str:
    total = (
        seconds["select"]
        + seconds["encode"]
        + seconds["push"]
        + seconds["reduce"]
        + seconds["pull"]
        + seconds["decode"]
    )
    return f"{1000 * total:.1f}"
