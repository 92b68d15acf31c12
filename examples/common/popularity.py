"""Zipf's law: number w of things numbered by falling popularity has about 1 / (w + 1) of it all."""

import math

import torch
from torch import Tensor


def log_count(count: int) -> float:
    """What `numbers` needs to know of `count` things."""
    return math.log(count + 1)


def numbers(uniform: Tensor, log_counts: Tensor | float) -> Tensor:
    """Number w with the chance (log(w + 2) - log(w + 1)) / log(count + 1), from random numbers in
    [0, 1). Rounding may give `count` itself, as rarely as it rounds: clamp the result."""
    return (uniform * log_counts).exp().long() - 1


class LogUniform:
    """Draws from `count` things by Zipf's law."""

    def __init__(self, count: int) -> None:
        self.count = count

    def draw(self, draws: int, generator: torch.Generator) -> Tensor:
        """The distinct numbers of so many draws, ascending."""
        uniform = torch.rand(draws, generator=generator, dtype=torch.float64)
        drawn = numbers(uniform, log_count(self.count)).clamp(0, self.count - 1)
        return drawn.bincount().nonzero().flatten()

    def log_chance(self, number: Tensor, draws: int) -> Tensor:
        """Logarithm of the chance that a number is among the distinct ones of so many draws."""
        once = (1 / (number.double() + 1)).log1p() / log_count(self.count)
        return (-(draws * (-once).log1p()).expm1()).log().float()
