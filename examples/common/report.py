"""The comparison as a table for people and as results.json for machines."""

import json
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import zensync
from common.comparison import MAX_PARAMETER_DIFFERENCE, NAMES, Comparison
from common.training import FINAL, Run

WIDTH = 100


def tables(comparison: Comparison) -> list[Table]:
    return [_runs_table(comparison), _layers_table(comparison)]


def print_report(console: Console, comparison: Comparison, folder: Path) -> None:
    for table in tables(comparison):
        console.print()
        console.print(table)
    exactness = comparison.exactness
    shares = ", ".join(f"{NAMES[c]} {v:.2f}" for c, v in exactness.share_of_bound.items())
    same = "identical to the bit" if comparison.same_on_all_ranks else "NOT identical"
    for name, value in (
        (
            "Largest parameter difference",
            f"{comparison.max_parameter_difference:.2g} after {comparison.iterations} iterations "
            f"(allowed: {_allowed(comparison)})",
        ),
        ("Parameters across ranks", f"{same} with zensync"),
        ("Largest gradient difference", f"{exactness.difference:.2g} at identical parameters"),
        ("Largest error / its bound", f"{shares} (float64 is exact; allowed: 1)"),
        ("Written", f"{folder / 'plot.png'}, {folder / 'results.json'}"),
    ):
        console.print(f"{name:<28} {value}", highlight=False, soft_wrap=True)


def results(comparison: Comparison) -> dict[str, Any]:
    return {
        "ranks": comparison.ranks,
        "rate_bits_per_second": comparison.rate_bits_per_second,
        "dgc_density": comparison.density,
        "max_parameter_difference": comparison.max_parameter_difference,
        "schemes": {name: _run_results(run) for name, run in comparison.runs.items()},
        "scheme": comparison.scheme,
        "model": comparison.title,
        "parameters": sum(layer.elements for layer in comparison.exactness.layers),
        "iterations": comparison.iterations,
        "seed": comparison.seed,
        "seconds_per_iteration_computing": comparison.seconds_computing,
        "parameters_same_on_all_ranks": comparison.same_on_all_ranks,
        "gradient_difference": comparison.exactness.difference,
        "gradient_error_over_bound": comparison.exactness.share_of_bound,
        "layers": [
            {
                "name": layer.name,
                "elements": layer.elements,
                "density": layer.density,
                "density_summed": layer.density_summed,
            }
            for layer in comparison.exactness.layers
        ],
        "versions": {"zensync": zensync.__version__, "torch": torch.__version__},
    }


def _allowed(comparison: Comparison) -> str:
    if comparison.density is None:
        return f"{MAX_PARAMETER_DIFFERENCE:g}"
    return f"any, with DGC at {comparison.density:.3g}"


def write_results(comparison: Comparison, path: Path) -> None:
    path.write_text(json.dumps(results(comparison), indent=2) + "\n")


def _choice(comparison: Comparison) -> str:
    compressed = "" if comparison.density is None else f", DGC at {comparison.density:.1%}"
    return f"zensync: {comparison.scheme}{compressed}"


def _run_results(run: Run) -> dict[str, Any]:
    return {
        "seconds_per_iteration": run.seconds_per_iteration,
        "bytes_sent_per_rank_per_iteration": run.bytes_sent,
        "card_bytes_sent_per_rank_per_iteration": run.card_bytes_sent,
        "final_loss": run.final_loss,
        "held_out_loss": run.held_out_loss,
        "losses": run.losses,
    }


def _runs_table(comparison: Comparison) -> Table:
    dense, sparse = comparison.runs["ddp"], comparison.runs["zensync"]
    table = Table(
        title=f"{comparison.title}; {_choice(comparison)}\n{comparison.ranks} ranks on "
        f"{comparison.network}, {comparison.iterations} iterations",
        title_justify="left",
    )
    table.add_column("per rank and iteration")
    for name in ("plain DDP", "zensync", "ratio"):
        table.add_column(name, justify="right")
    computing = comparison.seconds_computing
    times = (dense.seconds_per_iteration, sparse.seconds_per_iteration)
    _add_figures(table, "time (median)", "ms", *times)
    _add_figures(table, "  without synchronising", "ms", computing, computing)
    _add_figures(table, "bytes sent", "MB", dense.bytes_sent, sparse.bytes_sent)
    if dense.card_bytes_sent is not None and sparse.card_bytes_sent is not None:
        card = (dense.card_bytes_sent, sparse.card_bytes_sent)
        _add_figures(table, "  as the network card counts", "MB", *card)
    table.add_section()
    losses = f"training loss (mean of the last {min(FINAL, comparison.iterations)})"
    table.add_row(losses, f"{dense.final_loss:.5f}", f"{sparse.final_loss:.5f}", "")
    table.add_row("held-out loss", f"{dense.held_out_loss:.5f}", f"{sparse.held_out_loss:.5f}", "")
    return table


def _add_figures(table: Table, name: str, unit: str, dense: float, sparse: float) -> None:
    scale = {"ms": 1e3, "MB": 1e-6}[unit]
    ratio = f"{dense / sparse:.2f}" if sparse and dense != sparse else ""
    table.add_row(name, f"{dense * scale:.2f} {unit}", f"{sparse * scale:.2f} {unit}", ratio)


def _layers_table(comparison: Comparison) -> Table:
    table = Table(title="Gradient elements that are not zero", title_justify="left")
    table.add_column("layer")
    ranks = comparison.ranks
    for name in ("elements", "on one rank", f"summed over {ranks} ranks"):
        table.add_column(name, justify="right")
    layers = comparison.exactness.layers
    for layer in layers:
        table.add_row(
            layer.name,
            f"{layer.elements:,}",
            f"{layer.density:.2%}",
            f"{layer.density_summed:.2%}",
        )
    elements = sum(layer.elements for layer in layers)
    table.add_section()
    table.add_row(
        "all",
        f"{elements:,}",
        f"{sum(layer.nonzeros for layer in layers) / elements:.2%}",
        f"{sum(layer.nonzeros_summed for layer in layers) / elements:.2%}",
    )
    return table
