"""Both trainings, one after the other, and what is compared between them."""

import dataclasses
import statistics
from functools import partial

import torch
import torch.distributed as dist
from rich.console import Console

from common import progress
from common.exactness import Exactness, compare_gradients
from common.training import (
    CONTENDERS,
    Choice,
    Run,
    same_on_all_ranks,
    seconds_computing,
    train,
)
from common.workload import Workload
from zensync._network import format_rate

MAX_PARAMETER_DIFFERENCE = 1e-3
COMPUTING_ITERATIONS = 12  # each time; enough for a median
NAMES = {"ddp": "plain DDP", "zensync": "zensync"}


@dataclasses.dataclass(frozen=True)
class Comparison:
    title: str  # the workload's, as the next
    loss_unit: str
    seed: int
    ranks: int
    rate_bits_per_second: int | None  # None: the loopback, as fast as it goes
    runs: dict[str, Run]  # "ddp", "zensync"
    seconds_computing: float  # per iteration without any synchronisation
    exactness: Exactness
    max_parameter_difference: float
    same_on_all_ranks: bool
    density: float | None = None  # of DGC; None: nothing is lost

    @property
    def iterations(self) -> int:
        return len(self.runs["ddp"].losses)

    @property
    def scheme(self) -> str | None:
        return self.runs["zensync"].scheme

    @property
    def network(self) -> str:
        if self.rate_bits_per_second is None:
            return "the loopback"
        return f"a network of {format_rate(self.rate_bits_per_second)} per rank"

    def failures(self) -> list[str]:
        """What should have been equal and is not, in words."""
        found = []
        # What compression keeps back arrives later: then the parameters do differ.
        lossless = self.density is None
        if lossless and not self.max_parameter_difference < MAX_PARAMETER_DIFFERENCE:  # or NaN
            found.append(
                f"the parameters differ by {self.max_parameter_difference:.3g} after "
                f"{self.iterations} iterations; less than {MAX_PARAMETER_DIFFERENCE:g} was expected"
            )
        if not self.same_on_all_ranks:
            found.append("zensync left the ranks with parameters that are not identical")
        for contender, share in self.exactness.share_of_bound.items():
            if not share <= 1:
                found.append(
                    f"{NAMES[contender]}'s gradients are {share:.3g} times as far from the exact "
                    "mean as rounding explains"
                )
        return found


def compare(
    console: Console,
    workload: Workload,
    choice: Choice,
    *,
    iterations: int,
    seed: int,
    rate_bits_per_second: int | None,
) -> Comparison:
    """Collective. Every rank gets the same comparison; `console` is used on rank 0."""
    few = min(iterations, COMPUTING_ITERATIONS)
    time_computing = partial(seconds_computing, workload, iterations=few, seed=seed)
    runs = {}
    computing = [time_computing()]
    for contender in CONTENDERS:
        name, rank = NAMES[contender], dist.get_rank()
        with progress.shown(console, name, iterations, rank=rank) as shown:
            runs[contender] = train(
                workload, contender, choice, iterations=iterations, seed=seed, progress=shown
            )
        computing.append(time_computing())
    return Comparison(
        title=workload.title,
        loss_unit=workload.loss_unit,
        seed=seed,
        ranks=dist.get_world_size(),
        rate_bits_per_second=rate_bits_per_second,
        runs=runs,
        # Before, between and after the trainings: a machine is not equally busy all the time.
        seconds_computing=statistics.median(computing),
        exactness=_exactness(workload, runs["zensync"], choice.scheme, iterations),
        max_parameter_difference=max_difference(runs["ddp"], runs["zensync"]),
        same_on_all_ranks=same_on_all_ranks(runs["zensync"].parameters),
        density=choice.density,
    )


def max_difference(one: Run, other: Run) -> float:
    """Collective: of any parameter on any rank. NaN if there is a NaN anywhere."""
    pairs = zip(one.parameters, other.parameters, strict=True)
    # torch's maximum hands NaN on, Python's and the group's MAX may not: infinity stands for it.
    largest = torch.stack([(a - b).abs().max() for a, b in pairs]).max().nan_to_num(torch.inf)
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    return float(largest)


def _exactness(workload: Workload, run: Run, scheme: str | None, iterations: int) -> Exactness:
    """At the trained parameters, on the batch after the last, without a compressor."""
    model = workload.new_model(seed=0)
    with torch.no_grad():
        for parameter, trained in zip(model.parameters(), run.parameters, strict=True):
            parameter.copy_(trained)
    return compare_gradients(model, workload.batch(iterations), Choice(scheme))
