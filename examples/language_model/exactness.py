"""How exact are the synchronised gradients? One iteration, all schemes at the same parameters.

The mean over n ranks in float32 may differ from the exact one by n * eps * sum|x| / n for the
additions and by half a unit in the last place for the final rounding. Every element has its own
bound, and where all ranks have zeros it is zero.
"""

import copy
import dataclasses
import math

import torch
import torch.distributed as dist
from torch import Tensor

from language_model.model import Batch, LanguageModel
from language_model.training import SCHEMES, synchronise

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
    share_of_bound: dict[str, float]  # per scheme, the largest error over its bound


def compare_gradients(model: LanguageModel, batch: Batch) -> Exactness:
    """Collective: the same parameters on all ranks, each with its own batch."""
    own = _gradients(model, batch)
    synchronised = {scheme: _synchronised(model, batch, scheme) for scheme in SCHEMES}
    layers: dict[str, Layer] = {}
    difference = 0.0
    shares = dict.fromkeys(SCHEMES, 0.0)
    for name, gradient in own.items():
        layer = layers.setdefault(name.split(".")[0], Layer(name.split(".")[0]))
        exact, bound = exact_mean_and_bound(gradient)
        layer.elements += gradient.numel()
        layer.nonzeros += _mean_over_ranks(float(gradient.count_nonzero()))
        layer.nonzeros_summed += int(exact.count_nonzero())
        by_scheme = [synchronised[scheme][name] for scheme in SCHEMES]
        difference = _worst(difference, float((by_scheme[0] - by_scheme[1]).abs().max()))
        for scheme, result in zip(SCHEMES, by_scheme, strict=True):
            shares[scheme] = _worst(shares[scheme], share_of_bound(result, exact, bound))
    return Exactness(list(layers.values()), difference, shares)


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


def _gradients(model: LanguageModel, batch: Batch) -> dict[str, Tensor]:
    model = copy.deepcopy(model)
    model(batch).backward()
    return _copied_gradients(model)


def _synchronised(model: LanguageModel, batch: Batch, scheme: str) -> dict[str, Tensor]:
    parallel, state = synchronise(copy.deepcopy(model), scheme)
    parallel(batch).backward()
    gradients = _copied_gradients(parallel.module)
    if state is not None:
        state.close()
    return gradients


def _copied_gradients(model: torch.nn.Module) -> dict[str, Tensor]:
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
