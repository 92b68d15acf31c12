"""plot.png: loss over iterations, bytes and time per iteration."""

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is needed

import matplotlib.pyplot as plt

from common.comparison import NAMES, Comparison
from common.training import CONTENDERS

COLOURS = {"ddp": "#9aa5b1", "zensync": "#d1495b"}
INK = "#27323f"
BAR = 0.62  # width


def write_plot(comparison: Comparison, path: Path) -> None:
    style: dict[Any, Any] = {
        "font.size": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "text.color": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with plt.rc_context(style):
        figure, (loss, size, seconds) = plt.subplots(
            1, 3, figsize=(12, 4.2), width_ratios=(2, 1, 1)
        )
        figure.set_layout_engine("constrained", wspace=0.04)
        _plot_loss(loss, comparison)
        _plot_bytes(size, comparison)
        _plot_seconds(seconds, comparison)
        figure.suptitle(
            f"{comparison.title}, {comparison.ranks} ranks on {comparison.network}: "
            "plain DDP and zensync",
            x=0.008,
            ha="left",
        )
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _plot_loss(axes: Any, comparison: Comparison) -> None:
    # The curves coincide: a broad one below, a thin dashed one above, so that both are seen.
    look: dict[str, dict[str, Any]] = {
        "ddp": {"linewidth": 5},
        "zensync": {"linewidth": 1.6, "linestyle": (0, (4, 2))},
    }
    for contender in CONTENDERS:
        losses = comparison.runs[contender].losses
        iterations = range(1, len(losses) + 1)
        axes.plot(
            iterations, losses, label=NAMES[contender], color=COLOURS[contender], **look[contender]
        )
    difference = comparison.max_parameter_difference
    axes.set_title(f"Training loss: parameters end at most {difference:.1g} apart")
    axes.set_xlabel("iteration")
    axes.set_ylabel(comparison.loss_unit)
    axes.set_xlim(left=0)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(frameon=False)


def _plot_bytes(axes: Any, comparison: Comparison) -> None:
    sizes = [comparison.runs[contender].bytes_sent / 1e6 for contender in CONTENDERS]
    _bars(axes, sizes, "MB")
    axes.set_title(f"Bytes sent: {_times(sizes, 'fewer', 'more')}")
    axes.set_ylabel("MB per rank and iteration")


def _plot_seconds(axes: Any, comparison: Comparison) -> None:
    times = [1e3 * comparison.runs[contender].seconds_per_iteration for contender in CONTENDERS]
    _bars(axes, times, "ms")
    computing = 1e3 * comparison.seconds_computing
    axes.axhline(computing, color=INK, linewidth=1.5, linestyle="dotted", label="computing alone")
    axes.legend(frameon=False, loc="upper right")
    axes.set_title(f"Time: {_times(times, 'faster', 'slower')}")
    axes.set_ylabel("ms per iteration, median")


def _times(pair: list[float], less: str, more: str) -> str:
    """How the second compares with the first."""
    first, second = pair
    if second <= first:
        return f"{first / second:.1f} times {less}"
    return f"{second / first:.1f} times {more}"


def _bars(axes: Any, values: list[float], unit: str) -> None:
    names = [NAMES[contender] for contender in CONTENDERS]
    bars = axes.bar(
        names, values, color=[COLOURS[contender] for contender in CONTENDERS], width=BAR
    )
    axes.bar_label(bars, labels=[f"{value:.3g} {unit}" for value in values], padding=3)
    axes.set_ylim(0, 1.2 * max(values))  # room for a legend above the numbers
    axes.tick_params(axis="x", length=0)
