"""How exact are the synchronised gradients? One iteration, both contenders at the same parameters.

The mean over n ranks in float32 may differ from the exact one by n * eps * sum|x| / n for the
additions and by half a unit in the last place for the final rounding. Every element has its own
bound, and where all ranks have zeros it is zero.
"""

import copy
import dataclasses
import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from common.training import CONTENDERS, Choice, synchronise

EPSILON = torch.finfo(torch.float32).eps


@dataclasses.dataclass
class Layer:
    """Shares of gradient elements that are not zero, weighted by the parameters' elements."""

    name: str
    elements: int = 0
    nonzeros: float = 0  # on one rank, the mean over the ranks
    nonzeros_summed: float = 0

    @property
    def density(self) -> float:
        return self.nonzeros / self.elements

    @property
    def density_summed(self) -> float:
        return self.nonzeros_summed / self.elements


@dataclasses.dataclass
class Exactness:
    layers: list[Layer]
    difference: float  # the largest, between plain DDP's and zensync's gradients
    share_of_bound: dict[str, float]  # per contender, the largest error over its bound


def compare_gradients(model: nn.Module, batch: Any, choice: Choice) -> Exactness:
    """Collective: the same parameters on all ranks, each with its own batch."""
    own = _gradients(model, batch)
    synchronised = {c: _synchronised(model, batch, c, choice) for c in CONTENDERS}
    layers: dict[str, Layer] = {}
    difference = 0.0
    shares = dict.fromkeys(CONTENDERS, 0.0)
    for name, gradient in own.items():
        layer = layers.setdefault(layer_of(name), Layer(layer_of(name)))
        exact, bound = exact_mean_and_bound(gradient)
        layer.elements += gradient.numel()
        layer.nonzeros += _mean_over_ranks(float(gradient.count_nonzero()))
        layer.nonzeros_summed += int(exact.count_nonzero())
        results = [synchronised[contender][name] for contender in CONTENDERS]
        difference = _worst(difference, float((results[0] - results[1]).abs().max()))
        for contender, result in zip(CONTENDERS, results, strict=True):
            shares[contender] = _worst(shares[contender], share_of_bound(result, exact, bound))
    return Exactness(list(layers.values()), difference, shares)


def layer_of(parameter: str) -> str:
    """The innermost module with a name of its own: `lstm` of `reader.lstm.weight_ih_l0`, `deep` of
    `deep.0.bias`."""
    *modules, _ = parameter.split(".")
    return [module for module in modules if not module.isdecimal()][-1]


def exact_mean_and_bound(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Collective, in float64: the mean over the ranks, and how far float32 may be from it."""
    ranks = dist.get_world_size()
    exact = gradient.double()
    magnitudes = exact.abs()
    dist.all_reduce(exact)
    dist.all_reduce(magnitudes)
    exact /= ranks
    bound = ranks * EPSILON * magnitudes / ranks + EPSILON / 2 * exact.abs()
    return exact, bound


def share_of_bound(result: Tensor, exact: Tensor, bound: Tensor) -> float:
    """The largest error over its bound, infinite for an error where none is allowed."""
    error = (result.double() - exact).abs()
    return float(torch.where(error == 0, 0.0, error / bound).max())


def _gradients(model: nn.Module, batch: Any) -> dict[str, Tensor]:
    model = copy.deepcopy(model)
    model(batch).backward()
    return _copied_gradients(model)


def _synchronised(
    model: nn.Module, batch: Any, contender: str, choice: Choice
) -> dict[str, Tensor]:
    parallel, state = synchronise(copy.deepcopy(model), contender, choice)
    parallel(batch).backward()
    gradients = _copied_gradients(parallel.module)
    if state is not None:
        state.close()
    return gradients


def _copied_gradients(model: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def _worst(one: float, other: float) -> float:
    """The larger; NaN is the worst of all and stays."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _mean_over_ranks(value: float) -> float:
    tensor = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(tensor)
    return float(tensor) / dist.get_world_size()
