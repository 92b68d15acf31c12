"""What an example trains."""

import abc
from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Workload(abc.ABC):
    """A model, this rank's batches and how it is optimised."""

    title: str  # of reports
    loss_unit: str  # of the training loss

    @abc.abstractmethod
    def model(self) -> nn.Module:
        """With random parameters. Called with a batch it returns the mean loss."""

    @abc.abstractmethod
    def batch(self, iteration: int) -> Any:
        """This rank's. It depends on the seed, the rank and the iteration alone, so that two runs
        of the same seed see the same batches."""

    @abc.abstractmethod
    def held_out_loss(self, model: nn.Module) -> float:
        """On this rank's share of what nobody trains on."""

    def new_model(self, seed: int) -> nn.Module:
        torch.manual_seed(seed)
        return self.model()

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adagrad, as usual for models with large embeddings, from a sum of squares above zero.

        Two ways to add the same gradients differ in the last bit, and the comparison of the trained
        parameters is meant to show that and no more. A step must then change little when its
        gradient does. Without the start value (and with Adam) the first step of a row is its
        learning rate times the gradient's sign, however small the gradient: a difference of one bit
        around zero would become one of two learning rates.
        """
        return torch.optim.Adagrad(
            model.parameters(), lr=0.1, initial_accumulator_value=1e-3, fused=True
        )


OfRank = Callable[[int], Workload]  # rank r's, all of the same data


def generator(seed: int, *stream: int) -> torch.Generator:
    """Streams of one seed differ: 1,000,003 is a prime above any iteration or rank."""
    for part in stream:
        seed = seed * 1_000_003 + part + 1
    return torch.Generator().manual_seed(seed % 2**63)
