"""Whether zensync helps, said plainly."""

from zensync.advise.prediction import Advice

LEAST_GAIN = 1.05  # times faster; less is within what a prediction errs
LEAST_SHARE = 0.05  # of an iteration that synchronising must take to be worth a thought


def verdict(advice: Advice, seconds_per_iteration: float | None) -> str:
    """One or two sentences. `seconds_per_iteration` is that of the profiled run."""
    best, dense = advice.costs[0], advice.dense
    if dense.seconds < LEAST_GAIN * best.seconds:
        return f"zensync will not help here: {_reason(advice)}."
    gain = (
        f"zensync ({best.name}) synchronises {dense.seconds / best.seconds:.1f} times faster than "
        f"plain DDP: {_ms(best.seconds)} instead of {_ms(dense.seconds)}"
    )
    if seconds_per_iteration and dense.seconds < LEAST_SHARE * seconds_per_iteration:
        return (
            f"{gain}. But plain DDP needs only {dense.seconds / seconds_per_iteration:.1%} of the "
            f"profiled iteration ({_ms(seconds_per_iteration)}): zensync will hardly help."
        )
    return f"{gain}."


def _reason(advice: Advice) -> str:
    best, dense = advice.costs[0], advice.dense
    if best is dense:
        best = next(cost for cost in advice.costs if cost is not dense)
    density = (
        f"{advice.sparseness.density:.1%} of the gradient is not zero on a node and "
        f"{advice.sparseness.density_of_sum:.1%} in the sum"
    )
    if best.bytes > 0.9 * dense.bytes:
        return (
            f"{density}, so {best.name}, the best, moves {best.bytes / 1e6:.1f} MB where plain DDP "
            f"moves {dense.bytes / 1e6:.1f} MB"
        )
    return (
        f"{density}, but the link is too fast for finding and adding them to pay: "
        f"{_ms(best.seconds)} with {best.name}, {_ms(dense.seconds)} with plain DDP"
    )


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
