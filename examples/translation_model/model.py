"""A sequence-to-sequence model: two LSTMs with attention (Luong et al., EMNLP 2015), an embedding
table for each language and a sampled softmax.

A batch looks up the rows of its own words and of some negatives in three tables of separate
vocabularies; nearly all rows of their gradients are zero.
"""

import dataclasses
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from common.sampled_softmax import SampledSoftmax
from translation_model.pairs import Lengths


@dataclasses.dataclass(frozen=True)
class Size:
    source_words: int
    target_words: int
    width: int  # of all tables and LSTMs
    pairs: int  # per rank and iteration
    lengths: Lengths
    negatives: int  # drawn per rank and iteration, repetitions included


SIZES = {
    "small": Size(10_000, 16_000, width=160, pairs=16, lengths=Lengths(24, 32), negatives=512),
    "medium": Size(10_000, 16_000, width=512, pairs=64, lengths=Lengths(24, 32), negatives=512),
}


@dataclasses.dataclass(frozen=True)
class Batch:
    """Numbers as in translation_model.pairs."""

    source: Tensor  # pairs x length
    target: Tensor  # pairs x (1 + length)
    negatives: Tensor  # distinct target words, ascending


class Translator(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        self.size = size
        # Padding has a row that is never trained, a target's start one that is.
        self.source_embedding = nn.Embedding(
            size.source_words + 1, size.width, padding_idx=size.source_words
        )
        self.target_embedding = nn.Embedding(
            size.target_words + 2, size.width, padding_idx=size.target_words
        )
        self.encoder = nn.LSTM(size.width, size.width, batch_first=True)
        self.decoder = nn.LSTM(size.width, size.width, batch_first=True)
        self.combine = nn.Linear(2 * size.width, size.width)
        self.output_embedding = SampledSoftmax(size.target_words, size.width, draws=size.negatives)
        for table in (self.source_embedding, self.target_embedding, self.output_embedding):
            nn.init.uniform_(table.weight, -0.05, 0.05)

    def forward(self, batch: Batch) -> Tensor:
        """Mean loss of the sampled softmax over the targets' words, padding left out."""
        states, words = self._states_and_words(batch)
        return self.output_embedding.loss(states, words, batch.negatives)

    @torch.no_grad()
    def held_out_loss(self, batch: Batch) -> Tensor:
        """Mean loss of the full softmax, in nats per word."""
        states, words = self._states_and_words(batch)
        return functional.cross_entropy(self.output_embedding.logits(states), words)

    def _states_and_words(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """For each word of the targets the decoder's state before it, and the word."""
        padding = batch.source == self.size.source_words
        read, memory = self.encoder(self.source_embedding(batch.source))
        states, _ = self.decoder(self.target_embedding(batch.target[:, :-1]), memory)
        scores = states @ read.transpose(1, 2) / math.sqrt(self.size.width)
        attention = scores.masked_fill(padding[:, None], -math.inf).softmax(2)
        states = self.combine(torch.cat([attention @ read, states], 2)).tanh()
        words = batch.target[:, 1:]
        real = words != self.size.target_words
        return states[real], words[real]
