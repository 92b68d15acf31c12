"""A PNG per sweep: time over whatever has several values, a curve per contender."""

import contextlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is needed

import matplotlib.pyplot as plt

from zensync._network import format_rate
from zensync.bench.results import Row

INK = "#27323f"
GREY = "#9aa5b1"
OURS = "#d1495b"
COLOURS = ("#00798c", "#edae49", "#3a7d44", "#7d5ba6", "#8d6a4f", "#2e4057", "#c17817", "#5f9ea0")
DASHES = {"ddp": "-", "ddp_bf16": "--", "powersgd": "-.", "coo": ":", "noop": (0, (1, 3))}
AXES = {
    "density": "density of one rank's gradient",
    "ranks": "ranks",
    "rate_bits_per_second": "Mbit/s of each card",
}
FIELDS = ("ranks", "rate_bits_per_second", "dtype", "numel", "pattern", "density")


def write_plots(rows: Sequence[Row], folder: Path) -> list[Path]:
    """A curve needs two points; what is no part of any curve is drawn as bars."""
    rows = [row for row in rows if row.scheme != "noop"]
    written = [path for axis in AXES for path in _sweeps(rows, axis, folder)]
    if written or not rows:
        return written
    return [_bars(group, folder) for group in _groups(rows, None).values()]


def _sweeps(rows: Sequence[Row], axis: str, folder: Path) -> list[Path]:
    known = [row for row in rows if getattr(row, axis)]
    return [
        _curves(group, axis, folder)
        for group in _groups(known, axis).values()
        if len({getattr(row, axis) for row in group}) > 1
    ]


def _groups(rows: Sequence[Row], axis: str | None) -> dict[tuple[Any, ...], list[Row]]:
    """Rows that have all fields but `axis` in common."""
    groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, field) for field in FIELDS if field != axis)].append(row)
    return groups


def _curves(rows: list[Row], axis: str, folder: Path) -> Path:
    with _figure() as (figure, axes):
        for number, (name, points) in enumerate(_by_scheme(rows).items()):
            points.sort(key=lambda row: getattr(row, axis))
            scale = 1e-6 if axis == "rate_bits_per_second" else 1
            x = [scale * getattr(row, axis) for row in points]
            look = _look(points[0], number)
            axes.plot(x, [1e3 * row.seconds for row in points], label=name, **look)
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = sorted({scale * getattr(row, axis) for row in rows})
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.set_xlabel(AXES[axis])
        axes.set_ylabel("ms to synchronise, median")
        axes.grid(alpha=0.25)
        axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
        axes.set_title(_describe(rows[0], axis))
        return _save(figure, folder, _file_name(rows[0], axis))


def _bars(rows: list[Row], folder: Path) -> Path:
    with _figure() as (figure, axes):
        rows = sorted(rows, key=lambda row: row.seconds, reverse=True)
        colours = [GREY if row.kind == "baseline" else OURS for row in rows]
        times = [1e3 * row.seconds for row in rows]
        bars = axes.barh([row.scheme for row in rows], times, color=colours)
        axes.bar_label(bars, labels=[f"{time:.3g}" for time in times], padding=3)
        axes.set_xlabel("ms to synchronise, median")
        axes.set_title(_describe(rows[0], None))
        return _save(figure, folder, _file_name(rows[0], None))


def _by_scheme(rows: Sequence[Row]) -> dict[str, list[Row]]:
    schemes: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        schemes[row.scheme].append(row)
    return schemes


def _look(row: Row, number: int) -> dict[str, Any]:
    if row.kind == "baseline":
        return {"color": GREY, "linestyle": DASHES[row.scheme], "marker": "."}
    if row.scheme.startswith("balanced_parallelism"):
        packed = row.scheme != "balanced_parallelism"
        return {
            "color": OURS,
            "linewidth": 2.4,
            "marker": "o",
            "linestyle": "--" if packed else "-",
        }
    return {"color": COLOURS[number % len(COLOURS)], "marker": "o", "markersize": 4}


def _describe(row: Row, axis: str | None) -> str:
    rate = row.rate_bits_per_second
    parts = {
        "ranks": f"{row.ranks} ranks",
        "rate_bits_per_second": format_rate(rate) if rate else "unshaped network",
        "dtype": f"{row.numel:,} {row.dtype}",
        "pattern": row.pattern,
        "density": f"density {row.density:.3g}",
    }
    return ", ".join(text for field, text in parts.items() if field != axis)


def _file_name(row: Row, axis: str | None) -> str:
    rate = row.rate_bits_per_second
    parts = {
        "ranks": f"n{row.ranks}",
        "rate_bits_per_second": format_rate(rate).replace(" ", "").removesuffix("bit/s").lower()
        if rate
        else "unshaped",
        "dtype": row.dtype,
        "numel": str(row.numel),
        "pattern": row.pattern,
        "density": f"d{row.density:.3g}",
    }
    kept = [text for field, text in parts.items() if field != axis]
    return "-".join([f"by-{axis.split('_')[0]}" if axis else "bars", *kept]) + ".png"


@contextlib.contextmanager
def _figure() -> Iterator[tuple[Any, Any]]:
    """A figure with its axes that is closed when the block ends."""
    style: dict[Any, Any] = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "text.color": INK,
    }
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        yield figure, axes
        plt.close(figure)


def _save(figure: Any, folder: Path, name: str) -> Path:
    path = folder / name
    figure.savefig(path, dpi=110)
    return path
