"""An output layer that looks up the rows of its targets and of some negatives, and no others."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from common.popularity import LogUniform


class SampledSoftmax(nn.Embedding):
    """A table with a row for each word, words numbered by falling frequency."""

    def __init__(self, vocabulary: int, width: int, *, draws: int) -> None:
        super().__init__(vocabulary, width)
        self.draws = draws  # per batch, repetitions included
        self.sampler = LogUniform(vocabulary)

    def loss(self, states: Tensor, targets: Tensor, negatives: Tensor) -> Tensor:
        """Mean loss: the target of each state against the batch's negatives, which are distinct."""
        # One look-up for both, so that the backward pass makes one dense gradient and not two.
        rows = self(torch.cat([targets, negatives]))
        target_rows, negative_rows = rows.split([len(targets), len(negatives)])
        true = (states * target_rows).sum(1, keepdim=True)
        true = true - self.sampler.log_chance(targets, self.draws)[:, None]
        false = states @ negative_rows.T - self.sampler.log_chance(negatives, self.draws)
        # A negative that happens to be the right answer is none.
        false = false.masked_fill(targets[:, None] == negatives, -math.inf)
        logits = torch.cat([true, false], dim=1)
        return functional.cross_entropy(logits, torch.zeros_like(targets))

    def logits(self, states: Tensor) -> Tensor:
        """Of all words."""
        return states @ self.weight.T
