"""A word-level LSTM language model as the ZEN paper trains: two separate embedding tables over the
whole vocabulary, and a sampled softmax.

A batch looks up the rows of its own words and of some negative words, so almost all rows of the
two tables' gradients are zero, while everything else in the model is dense and small.
"""

import dataclasses
import math

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Size:
    vocabulary: int  # rows of each embedding table
    width: int  # columns of each table, and the LSTM's hidden units
    sequences: int  # per rank and iteration
    length: int  # words of a sequence
    negatives: int  # drawn per rank and iteration, repetitions included


SIZES = {
    "small": Size(vocabulary=32_000, width=160, sequences=16, length=32, negatives=512),
    "medium": Size(vocabulary=32_000, width=512, sequences=16, length=32, negatives=512),
}


@dataclasses.dataclass(frozen=True)
class Batch:
    words: Tensor  # sequences x length
    next_words: Tensor  # the same shape
    negatives: Tensor  # distinct, ascending


class LogUniform:
    """Draws word w with probability (log(w + 2) - log(w + 1)) / log(vocabulary + 1).

    That is close to how often words occur when they are numbered by falling frequency (Zipf).
    """

    def __init__(self, vocabulary: int) -> None:
        self.vocabulary = vocabulary

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """The distinct words of `count` draws, ascending."""
        uniform = torch.rand(count, generator=generator, dtype=torch.float64)
        words = (uniform * math.log(self.vocabulary + 1)).exp().long() - 1
        return words.clamp(0, self.vocabulary - 1).bincount().nonzero().flatten()

    def log_chance(self, words: Tensor, count: int) -> Tensor:
        """Logarithm of the chance that a word is among the distinct words of `count` draws."""
        once = (1 / (words.double() + 1)).log1p() / math.log(self.vocabulary + 1)
        return (-(count * (-once).log1p()).expm1()).log().float()


class LanguageModel(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        self.sampler = LogUniform(size.vocabulary)
        self.input_embedding = nn.Embedding(size.vocabulary, size.width)
        self.lstm = nn.LSTM(size.width, size.width, batch_first=True)
        self.output_embedding = nn.Embedding(size.vocabulary, size.width)
        for table in (self.input_embedding, self.output_embedding):
            nn.init.uniform_(table.weight, -0.05, 0.05)

    def forward(self, batch: Batch) -> Tensor:
        """Mean loss of the sampled softmax: each next word against the batch's negatives."""
        states, _ = self.lstm(self.input_embedding(batch.words))
        states = states.flatten(0, 1)
        targets = batch.next_words.flatten()
        # One look-up for both, so that the backward pass makes one dense gradient and not two.
        rows = self.output_embedding(torch.cat([targets, batch.negatives]))
        target_rows, negative_rows = rows.split([len(targets), len(batch.negatives)])
        drawn = self.size.negatives
        true = (states * target_rows).sum(1, keepdim=True)
        true = true - self.sampler.log_chance(targets, drawn)[:, None]
        false = states @ negative_rows.T - self.sampler.log_chance(batch.negatives, drawn)
        # A negative that happens to be the right answer is none.
        false = false.masked_fill(targets[:, None] == batch.negatives, -math.inf)
        logits = torch.cat([true, false], dim=1)
        return functional.cross_entropy(logits, torch.zeros_like(targets))

    @torch.no_grad()
    def held_out_loss(self, words: Tensor, next_words: Tensor) -> Tensor:
        """Mean loss of the full softmax, in nats per word."""
        states, _ = self.lstm(self.input_embedding(words))
        logits = states.flatten(0, 1) @ self.output_embedding.weight.T
        return functional.cross_entropy(logits, next_words.flatten())
