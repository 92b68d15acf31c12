"""A word-level LSTM language model as the ZEN paper trains: two separate embedding tables over the
whole vocabulary, and a sampled softmax.

A batch looks up the rows of its own words and of some negative words, so almost all rows of the
two tables' gradients are zero, while everything else in the model is dense and small.
"""

import dataclasses

import torch
from torch import Tensor, nn
from torch.nn import functional

from common.sampled_softmax import SampledSoftmax


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


class WordLstm(nn.Module):
    """Reads words: the states after each of them, sequences x length x width."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.input_embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)

    def forward(self, words: Tensor) -> Tensor:
        states: Tensor = self.lstm(self.input_embedding(words))[0]
        return states


class LanguageModel(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.reader = WordLstm(size.vocabulary, size.width)
        self.output_embedding = SampledSoftmax(size.vocabulary, size.width, draws=size.negatives)
        for table in (self.reader.input_embedding, self.output_embedding):
            nn.init.uniform_(table.weight, -0.05, 0.05)

    def forward(self, batch: Batch) -> Tensor:
        """Mean loss of the sampled softmax: each next word against the batch's negatives."""
        states = self.reader(batch.words).flatten(0, 1)
        return self.output_embedding.loss(states, batch.next_words.flatten(), batch.negatives)

    @torch.no_grad()
    def held_out_loss(self, words: Tensor, next_words: Tensor) -> Tensor:
        """Mean loss of the full softmax, in nats per word."""
        logits = self.output_embedding.logits(self.reader(words).flatten(0, 1))
        return functional.cross_entropy(logits, next_words.flatten())
