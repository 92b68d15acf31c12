"""The table, the figure and the rows of runs/dgc.json."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from convergence.training import VARIANTS, Curve

WITHIN = 0.01  # of the plain loss


def rows(curves: list[Curve]) -> list[dict[str, Any]]:
    """One for each model and variant. `converged` is None for plain and without error feedback."""
    result = []
    for model in dict.fromkeys(curve.model for curve in curves):
        plain = _finals(curves, model, "plain")
        for variant in VARIANTS:
            finals = _finals(curves, model, variant)
            differences = [finals[seed] - plain[seed] for seed in finals]
            error = _standard_error(differences)
            allowed = max(WITHIN * statistics.fmean(plain.values()), 2 * error)
            mean = statistics.fmean(differences)
            compares = VARIANTS[variant].density < 1 and VARIANTS[variant].error_feedback
            result.append(
                {
                    "operation": "convergence",
                    "model": model,
                    "variant": variant,
                    "loss": statistics.fmean(finals.values()),
                    "spread": _standard_error(list(finals.values())),
                    "difference": mean,
                    "standard_error": error,
                    "allowed": allowed,
                    "converged": mean <= allowed if compares else None,
                    "share_sent": statistics.fmean(
                        c.share for c in curves if (c.model, c.variant) == (model, variant)
                    ),
                    "finals": finals,
                }
            )
    return result


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | variant | held-out loss | to plain | standard error | allowed | share sent |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['model']} | {row['variant']} | {row['loss']:.4f} ± {row['spread']:.4f} | "
            f"{row['difference']:+.4f} | {row['standard_error']:.4f} | {row['allowed']:.4f} | "
            f"{100 * row['share_sent']:.3g}% |"
        )
    return "\n".join(lines)


def save(rows: list[dict[str, Any]], path: Path) -> None:
    """Replaces the rows of this study and keeps the file's others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    others = json.loads(path.read_text()) if path.exists() else []
    kept = [row for row in others if row.get("operation") != "convergence"]
    lines = [json.dumps(row) for row in kept + rows]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def draw(curves: list[Curve], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    models = list(dict.fromkeys(curve.model for curve in curves))
    figure, axes = pyplot.subplots(1, len(models), figsize=(4 * len(models), 3), squeeze=False)
    for axis, model in zip(axes[0], models, strict=True):
        for variant in VARIANTS:
            of_seeds = [c for c in curves if (c.model, c.variant) == (model, variant)]
            by_evaluation = zip(*(c.losses for c in of_seeds), strict=True)
            mean = [statistics.fmean(losses) for losses in by_evaluation]
            axis.plot(of_seeds[0].iterations, mean, label=variant, linewidth=1.2)
        axis.set_title(model)
        axis.set_xlabel("iteration")
    axes[0][0].set_ylabel("held-out loss, mean of the seeds")
    axes[0][-1].legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=80)


def _finals(curves: list[Curve], model: str, variant: str) -> dict[int, float]:
    return {c.seed: c.final for c in curves if (c.model, c.variant) == (model, variant)}


def _standard_error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
