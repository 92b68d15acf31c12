"""What `scheme="auto"` has chosen, and why, as text."""

from zensync.statistics import BucketChoice, CandidateChoice

_HEADER = ("scheme", "MB", "wire ms", "work ms", "latency ms", "predicted ms", "measured ms", "")


def explanation(scheme: str, choices: list[BucketChoice]) -> str:
    if scheme != "auto":
        return f"zensync: every bucket is synchronised by {scheme}, as this State was told"
    if not choices:
        return (
            "zensync, scheme auto: nothing has been synchronised yet, or there is nothing to "
            "choose (one rank only; several ranks per node, where it is balanced_parallelism)"
        )
    return "\n\n".join(_bucket(choice) for choice in choices)


def _bucket(choice: BucketChoice) -> str:
    title = f"bucket {choice['bucket']}, {choice['numel']:,} {choice['dtype']} elements"
    if not choice["candidates"][choice["chosen"]]["bytes"]:
        return f"{title}: {_name(choice['candidates'][choice['chosen']])}, not looked at yet"
    return "\n".join([title, _numbers(choice), *_table(choice), _verdict(choice)])


def _numbers(choice: BucketChoice) -> str:
    growth = ", ".join(
        f"{factor:.2f} of {2 ** (power + 1)}"
        for power, factor in enumerate(choice["densification"])
    )
    return (
        f"  density {_percent(choice['density_before'])} on a rank, "
        f"{_percent(choice['density_after'])} in the sum; densification {growth} ranks; "
        f"skew {choice['skew']:.2f} of {choice['ranks']}; values pack to "
        f"{_percent(choice['packed_share'])}\n"
        f"  link {8e-6 * choice['link_bytes_per_second']:,.0f} Mbit/s, a round of messages "
        f"{1e3 * choice['round_seconds']:.2f} ms; profile {choice['profiles']}, because: "
        f"{choice['reason']}"
    )


def _table(choice: BucketChoice) -> list[str]:
    order = sorted(choice["candidates"], key=lambda candidate: candidate["expected"])
    chosen = choice["candidates"][choice["chosen"]]
    rows = [_HEADER, *(_row(candidate, candidate is chosen) for candidate in order)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return [
        "  "
        + row[0].ljust(widths[0])
        + "".join(
            "  " + cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)
        ).rstrip()
        for row in rows
    ]


def _row(candidate: CandidateChoice, chosen: bool) -> tuple[str, ...]:
    measured = candidate["measured"]
    return (
        _name(candidate),
        f"{candidate['bytes'] / 1e6:.3f}",
        _milliseconds(candidate["predicted_wire"]),
        _milliseconds(candidate["predicted_work"]),
        _milliseconds(candidate["predicted_latency"]),
        _milliseconds(candidate["predicted"]),
        "-" if measured is None else _milliseconds(measured),
        "<" if chosen else "",
    )


def _verdict(choice: BucketChoice) -> str:
    chosen = choice["candidates"][choice["chosen"]]
    if choice["profiling"]:
        return f"  still profiling: trying {_name(chosen)}"
    dense = [one for one in choice["candidates"] if one["scheme"] == "allreduce"]
    if not dense:
        return f"  {_name(chosen)} is the fastest"
    if chosen is dense[0]:
        others = min(one["expected"] for one in choice["candidates"] if one is not chosen)
        return (
            "  allreduce is the fastest: zensync does not help this bucket, the next best would "
            f"take {others / chosen['expected']:.2f} times as long"
        )
    return (
        f"  {_name(chosen)} is the fastest: {dense[0]['expected'] / chosen['expected']:.2f} times "
        "faster than allreduce"
    )


def _name(candidate: CandidateChoice) -> str:
    return candidate["scheme"] + (", packed" if candidate["packed"] else "")


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"
