"""Trains one variant with simulated ranks."""

import math
import statistics
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import zensync
from convergence.models import Task

RANKS = 4
EVALUATIONS = 20
LAST = 5  # evaluations whose mean is the result
WARM_UP = 0.2  # of the iterations


@dataclass(frozen=True)
class Variant:
    density: float  # 1: plain data parallelism
    error_feedback: bool = True


VARIANTS = {
    "plain": Variant(1.0),
    "dgc 5%": Variant(0.05),
    "dgc 1%": Variant(0.01),
    "1%, no error feedback": Variant(0.01, error_feedback=False),
}


@dataclass(frozen=True)
class Curve:
    model: str
    variant: str
    seed: int
    iterations: list[int]
    losses: list[float]  # held out
    share: float  # of the elements that a rank sent, mean over the iterations after the warm-up

    @property
    def final(self) -> float:
        return statistics.fmean(self.losses[-LAST:])


class Rank:
    """What one rank keeps between iterations."""

    def __init__(self, numel: int, task: Task, variant: Variant) -> None:
        self._task = task
        self._residual = torch.zeros(numel) if variant.error_feedback else None

    def send(self, gradient: Tensor, density: float) -> tuple[Tensor, Tensor]:
        """Positions and values."""
        gradient = _clipped(gradient, self._task)
        return zensync.DGC(density).compress(gradient, self._residual)


def train(task: Task, names: tuple[str, str], seed: int, iterations: int) -> Curve:
    """`names` are those of the task and of one of VARIANTS."""
    variant = VARIANTS[names[1]]
    torch.manual_seed(seed)
    model = task.model()
    parameters = list(model.parameters())
    numel = sum(p.numel() for p in parameters)
    ranks = [Rank(numel, task, variant) for _ in range(RANKS)]
    optimizer = torch.optim.SGD(parameters, lr=task.learning_rate, momentum=task.momentum)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, iterations)
    warmup = int(iterations * WARM_UP)
    at, losses, sent = [], [], []
    for iteration in range(iterations):
        density = _density(variant, iteration, warmup)
        mean = torch.zeros(numel)
        for number, rank in enumerate(ranks):
            gradient = _gradient(task, model, seed, iteration, number)
            if variant.density == 1:
                mean += _clipped(gradient, task) / RANKS
                continue
            indices, values = rank.send(gradient, density)
            mean.index_add_(0, indices, values / RANKS)
            if iteration >= warmup:
                sent.append(len(indices) / numel)
        _set_gradients(parameters, mean)
        optimizer.step()
        schedule.step()
        if (iteration + 1) % max(1, iterations // EVALUATIONS) == 0:
            at.append(iteration + 1)
            with torch.no_grad():
                losses.append(task.held_out_loss(model))
    share = statistics.fmean(sent) if sent else 1.0
    return Curve(*names, seed, at, losses, share)


def _density(variant: Variant, iteration: int, warmup: int) -> float:
    """As zensync.DGC(warmup=...) lets it fall, in four stages."""
    stage = 4 if iteration >= warmup else iteration * 4 // warmup
    result: float = variant.density ** ((stage + 1) / 5)
    return result


def _gradient(task: Task, model: nn.Module, seed: int, iteration: int, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed((seed * 1_000_003 + iteration) * 101 + rank)
    model.zero_grad()
    task.loss(model, generator).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def _clipped(gradient: Tensor, task: Task) -> Tensor:
    """As the compressed variants clip, so that nothing but compression differs."""
    if task.clip_norm is None:
        return gradient
    limit = task.clip_norm / math.sqrt(RANKS)
    clipped: Tensor = gradient * min(1.0, limit / (float(gradient.norm()) + 1e-6))
    return clipped


def _set_gradients(parameters: list[nn.Parameter], flat: Tensor) -> None:
    parts = flat.split([p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter)
