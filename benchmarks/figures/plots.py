"""Small figures for docs/figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # before pyplot: no display is needed

import matplotlib.pyplot as plt

from figures.characteristics import PARTS, Characteristics
from figures.schemes import Time

STYLE: dict[Any, Any] = {"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}


def write_characteristics(found: Sequence[Characteristics], path: Path) -> None:
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
        _overlap(axes[0][0], found)
        _growth(axes[0][1], found)
        _parts(axes[1][0], found)
        _skewness(axes[1][1], found)
        figure.savefig(path, dpi=80)
        plt.close(figure)


def _name(item: Characteristics) -> str:
    return f"{item.model} {item.table}"


def _overlap(axes: Any, found: Sequence[Characteristics]) -> None:
    for item in found:
        axes.hist(item.overlap, bins=30, density=True, histtype="step", label=_name(item))
    axes.set_title("Overlap of two ranks (figure 2a)", loc="left")
    axes.set_xlabel("overlap")
    axes.set_ylabel("probability density")
    axes.legend(frameon=False, fontsize="small")


def _growth(axes: Any, found: Sequence[Characteristics]) -> None:
    for item in found:
        axes.plot([1, *item.densification], [1, *item.densification.values()], marker="o", ms=3)
    ranks = [1, *found[0].densification]
    axes.plot(ranks, ranks, color="black", linestyle="dotted", label="n: no overlap")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_title("Densification (figure 2b)", loc="left")
    axes.set_xlabel("ranks")
    axes.legend(frameon=False)


def _parts(axes: Any, found: Sequence[Characteristics]) -> None:
    image = axes.imshow([item.parts for item in found], cmap="Reds", vmin=0, vmax=1, aspect="auto")
    axes.set_yticks(range(len(found)), [_name(item) for item in found])
    axes.set_xticks(range(PARTS), range(1, PARTS + 1))
    for row, item in enumerate(found):
        for part, share in enumerate(item.parts):
            colour = "white" if share > 0.5 else "black"
            axes.text(part, row, f"{100 * share:.0f}", ha="center", va="center", color=colour)
    axes.set_title("Non-zeros in each of eight parts, % (figure 3a)", loc="left")
    axes.figure.colorbar(image, ax=axes, shrink=0.8)


def _skewness(axes: Any, found: Sequence[Characteristics]) -> None:
    for item in found:
        axes.plot([*item.skewness], [*item.skewness.values()], marker="o", ms=3)
    axes.set_xscale("log", base=2)
    axes.set_title("Skewness (figure 3b)", loc="left")
    axes.set_xlabel("parts")


def write_schemes(times: Sequence[Time], path: Path) -> None:
    models = list(dict.fromkeys(time.model for time in times))
    with plt.rc_context(STYLE):
        figure, axes = plt.subplots(
            1, len(models), figsize=(4 * len(models), 3.6), squeeze=False, layout="constrained"
        )
        for axis, model in zip(axes[0], models, strict=True):
            own = [time for time in times if time.model == model and time.scheme != "ddp"]
            for scheme in dict.fromkeys(time.scheme for time in own):
                points = sorted((t.ranks, t.over_ddp) for t in own if t.scheme == scheme)
                axis.plot(*zip(*points, strict=True), marker="o", ms=3, label=scheme)
            axis.axhline(1, color="black", linestyle="dotted")
            axis.set_xscale("log", base=2)
            axis.set_yscale("log", base=2)
            ranks = sorted({time.ranks for time in own})
            axis.set_xticks(ranks, [str(n) for n in ranks])
            axis.set_title(model, loc="left")
            axis.set_xlabel("ranks")
        axes[0][0].set_ylabel("times faster than plain DDP")
        axes[0][-1].legend(frameon=False, fontsize="x-small")
        figure.savefig(path, dpi=80)
        plt.close(figure)
