"""The measured characteristics beside the paper's, as a Markdown table."""

import statistics
from collections.abc import Sequence

from figures import paper
from figures.characteristics import Characteristics


def table(found: Sequence[Characteristics]) -> str:
    """A line for each embedding table, then what the paper says and why ours may differ."""
    most = max(max(item.densification) for item in found)
    lines = [
        f"| model | table | rows | density | overlap | densification at {most} | first of 8 parts "
        f"| skewness at 8 | at {most} |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_line(item, most) for item in found),
        "",
        "| | the paper | why ours may differ |",
        "|---|---|---|",
    ]
    for claim in (
        paper.DENSITY,
        paper.OVERLAP,
        paper.DENSIFICATION,
        paper.FIRST_PART,
        paper.SKEWNESS,
    ):
        lines.append(f"| {claim.what} ({claim.where}) | {claim.paper} | {claim.why} |")
    return "\n".join(lines)


def _line(item: Characteristics, most: int) -> str:
    mean, spread = statistics.fmean(item.overlap), statistics.pstdev(item.overlap)
    return (
        f"| {item.model} | {item.table} | {item.rows:,} | {item.density:.2%} | {mean:.2f} ± "
        f"{spread:.2f} | {item.densification[most]:.1f} | {item.parts[0]:.0%} | "
        f"{item.skewness[8]:.1f} | {item.skewness[most]:.1f} |"
    )
