"""One cell, as one rank measures it. Everything here is collective: all ranks do the same.

1. Every contender synchronises once or more to warm up. The first result is compared with plain
   DDP's, and the extra memory is taken.
2. In every repetition all contenders have their turn, each time from another one on: what the
   machine does meanwhile, and what the one before leaves behind, hits all of them alike.
"""

import dataclasses
import hashlib
import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from zensync.bench import baselines, resources
from zensync.bench.cells import Plan
from zensync.bench.contenders import Contender, Gradients, SchemeContender, Traffic

Advance = Callable[[], None]


@dataclasses.dataclass
class Measured:
    """One contender on one rank."""

    name: str
    kind: str  # "scheme" or "baseline"
    exact: bool
    difference: float = 0  # from plain DDP's result, over that one's largest element
    checksum: int = 0
    extra_resident_bytes: int = 0
    seconds: list[float] = dataclasses.field(default_factory=list)
    busy_ticks: int = 0  # of the machine's processors, during all repetitions
    all_ticks: int = 0
    processor_seconds: float = 0  # of this rank's process
    processors: float = 1  # of the machine, over the ranks that share them
    card_bytes_out: int | None = None  # of all repetitions together
    traffic: list[Traffic] = dataclasses.field(default_factory=list)


class WrongResultError(RuntimeError):
    """A contender that should be exact is not."""


def measure(plan: Plan, gradients: Gradients, advance: Advance) -> tuple[list[Measured], Tensor]:
    """Also returns the mean gradient as plain DDP has it, flat."""
    contenders = make_contenders(plan, gradients)
    measured = [
        Measured(contender.name, _kind(contender), contender.exact) for contender in contenders
    ]
    reference = _warm_up(plan, contenders, measured, advance)
    for repetition in range(plan.repetitions):
        first = repetition % len(contenders)
        order = [*range(first, len(contenders)), *range(first)]
        for index in order:
            _repeat(contenders[index], measured[index])
            advance()
    for contender in contenders:
        contender.close()
    return measured, reference


def make_contenders(plan: Plan, gradients: Gradients) -> list[Contender]:
    """Plain DDP comes first: the others are compared with its result."""
    names = [n for n in plan.baselines if baselines.skip_reason(n, gradients) is None]
    return [
        *(baselines.make(name, gradients) for name in names),
        *(SchemeContender(spec, gradients) for spec in plan.schemes),
    ]


def synchronisations(plan: Plan, contenders: int) -> int:
    """How often `advance` is called for a cell."""
    return contenders * (plan.warm_up + plan.repetitions)


def _kind(contender: Contender) -> str:
    return "scheme" if isinstance(contender, SchemeContender) else "baseline"


def _warm_up(
    plan: Plan, contenders: Sequence[Contender], measured: Sequence[Measured], advance: Advance
) -> Tensor:
    reference: Tensor | None = None
    for contender, figures in zip(contenders, measured, strict=True):
        figures.extra_resident_bytes = _synchronise_and_watch_memory(contender)
        mean = _mean(contender)
        if reference is None:
            reference = mean
        figures.difference = _difference(mean, reference)
        figures.checksum = _checksum(contender.result())
        _check(figures, mean.dtype)
        del mean
        advance()
        for _ in range(plan.warm_up - 1):
            contender.synchronise()
            advance()
        for _ in range(contender.least_warm_up - plan.warm_up):
            contender.synchronise()
    assert reference is not None
    return reference


def _repeat(contender: Contender, figures: Measured) -> None:
    before: list[resources.Usage] = []
    figures.seconds.append(contender.synchronise(lambda: before.append(resources.usage())))
    after = resources.usage()
    figures.busy_ticks += after.busy_ticks - before[0].busy_ticks
    figures.all_ticks += after.all_ticks - before[0].all_ticks
    figures.processor_seconds += after.processor_seconds - before[0].processor_seconds
    figures.processors = resources.processors_per_rank()
    if before[0].card is not None and after.card is not None:
        sent = (after.card - before[0].card).bytes_out
        figures.card_bytes_out = (figures.card_bytes_out or 0) + sent
    figures.traffic.append(contender.traffic())


def _synchronise_and_watch_memory(contender: Contender) -> int:
    """Of the first synchronise(), so that all pools and tables are made in it."""
    before: list[int] = []

    def started() -> None:
        resources.reset_peak_memory()
        before.append(resources.resident_memory())

    contender.synchronise(started)
    return max(0, resources.peak_memory() - before[0])


def _mean(contender: Contender) -> Tensor:
    divisor = contender.divisor or dist.get_world_size()
    flat = torch.cat([part.flatten() for part in contender.result()])
    return flat if divisor != 1 else flat.div_(dist.get_world_size())


def _difference(mean: Tensor, reference: Tensor) -> float:
    largest = float(reference.abs().max())
    difference = float((mean.float() - reference.float()).abs().max())
    return difference / largest if largest > 0 else difference


def _check(figures: Measured, dtype: torch.dtype) -> None:
    """The error of n additions and a rounding in each of two ways to add, n * eps * mean|x|."""
    bound = 2 * dist.get_world_size() * torch.finfo(dtype).eps
    if figures.exact and not (figures.difference <= bound and math.isfinite(figures.difference)):
        raise WrongResultError(
            f"{figures.name} gives another result than plain DDP: it differs by "
            f"{figures.difference:.3g} of the largest element, rounding explains {bound:.3g}. "
            "This is an error in zensync: please report it with this command line"
        )


def _checksum(parts: Sequence[Tensor]) -> int:
    """Equal on two ranks iff the results are, to the bit."""
    digest = hashlib.blake2b(digest_size=7)
    for part in parts:
        digest.update(part.contiguous().view(-1).view(torch.uint8).numpy().data)
    return int.from_bytes(digest.digest(), "little")
