"""Predictions as tables and a plot, each cluster with its verdict."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from zensync._network import format_rate
from zensync.advise.options import Options
from zensync.advise.prediction import DENSE, Advice, advise
from zensync.advise.verdict import verdict

WIDTH = 100
PLOTTED = 6  # schemes: the fastest


def run(options: Options) -> int:
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    all_advice = [advise(options.profile, cluster) for cluster in options.clusters]
    for advice in all_advice:
        console.print(table(advice))
        said = verdict(advice, options.profile["seconds_per_iteration"])
        console.print(said, highlight=False, soft_wrap=True)
        console.print()
    if options.plot is not None:
        write_plot(all_advice, options.plot)
        console.print(f"Written: {options.plot}", highlight=False, soft_wrap=True)
    return 0


def table(advice: Advice) -> Table:
    cluster, sparse = advice.cluster, advice.sparseness
    nodes = "" if cluster.ranks_per_node == 1 else f" on {cluster.nodes} nodes"
    result = Table(
        title=f"{cluster.ranks} ranks{nodes}, {format_rate(cluster.rate_bits_per_second)}: density "
        f"{sparse.density:.2%} on a node, {sparse.density_of_sum:.2%} in the sum; values pack to "
        f"{sparse.packed_share:.0%}",
        title_justify="left",
    )
    result.add_column("scheme")
    for name in ("MB of a node's link", "ms", "x plain DDP"):
        result.add_column(name, justify="right")
    dense = advice.dense.seconds
    for cost in advice.costs:
        result.add_row(
            f"{cost.name} (plain DDP)" if cost.scheme == DENSE else cost.name,
            f"{cost.bytes / 1e6:.3f}",
            f"{1e3 * cost.seconds:.2f}",
            f"{dense / cost.seconds:.2f}" if cost.seconds else "",
        )
    return result


def write_plot(all_advice: Sequence[Advice], path: Path) -> None:
    """Times over the number of ranks, a panel for each rate."""
    import matplotlib

    matplotlib.use("Agg")  # before pyplot: no display is needed
    import matplotlib.pyplot as plt

    rates = list(dict.fromkeys(advice.cluster.rate_bits_per_second for advice in all_advice))
    figure, axes = plt.subplots(
        1, len(rates), figsize=(5 * len(rates), 4), squeeze=False, layout="constrained"
    )
    for axis, rate in zip(axes[0], rates, strict=True):
        own = [advice for advice in all_advice if advice.cluster.rate_bits_per_second == rate]
        for name in _plotted(own):
            points = sorted(
                (advice.cluster.ranks, 1e3 * cost.seconds)
                for advice in own
                for cost in advice.costs
                if cost.name == name
            )
            look = {"color": "black", "linestyle": "dashed"} if name == DENSE else {}
            label = "plain DDP" if name == DENSE else name
            axis.plot(*zip(*points, strict=True), marker="o", ms=3, label=label, **look)
        axis.set_xscale("log", base=2)
        axis.set_yscale("log")
        ranks = sorted({advice.cluster.ranks for advice in own})
        axis.set_xticks(ranks, [str(n) for n in ranks])
        axis.set_title(format_rate(rate), loc="left")
        axis.set_xlabel("ranks")
    axes[0][0].set_ylabel("ms per synchronisation, predicted")
    axes[0][-1].legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def _plotted(own: Sequence[Advice]) -> list[str]:
    """Plain DDP and the fastest schemes at the most ranks."""
    largest = max(own, key=lambda advice: advice.cluster.ranks)
    fastest = [cost.name for cost in largest.costs if cost.scheme != DENSE]
    return [DENSE, *fastest[:PLOTTED]]
