"""The sequence-to-sequence model and its pairs as a workload."""

import torch
from torch import Tensor, nn

from common import corpus
from common.popularity import LogUniform
from common.workload import OfRank, Workload, generator
from translation_model import pairs
from translation_model.model import SIZES, Batch, Size, Translator

HELD_OUT = 16  # pairs per rank


class TranslationWorkload(Workload):
    loss_unit = "nats per word (sampled softmax)"

    def __init__(self, name: str, table: Tensor, *, rank: int, ranks: int, seed: int) -> None:
        """`table` is what pairs.read() returns."""
        self.title = f"Sequence-to-sequence model, {name}"
        self._size = SIZES[name]
        self._rank, self._ranks, self._seed = rank, ranks, seed
        self._sampler = LogUniform(self._size.target_words)
        order = torch.randperm(len(table), generator=generator(seed))
        held_out = HELD_OUT * ranks
        if len(table) - held_out < self._size.pairs * ranks:
            raise ValueError(f"{len(table)} pairs are too few for a batch on each of {ranks} ranks")
        self._pairs = table[order[held_out:]]
        self._held_out = table[order[HELD_OUT * rank : HELD_OUT * (rank + 1)]]

    def model(self) -> Translator:
        return Translator(self._size)

    def batch(self, iteration: int) -> Batch:
        first = (iteration * self._ranks + self._rank) * self._size.pairs
        rows = (first + torch.arange(self._size.pairs)) % len(self._pairs)
        stream = generator(self._seed, iteration, self._rank)
        return _batch(
            self._pairs[rows], self._size, self._sampler.draw(self._size.negatives, stream)
        )

    def held_out_loss(self, model: nn.Module) -> float:
        assert isinstance(model, Translator)
        nothing = torch.empty(0, dtype=torch.int64)
        return float(model.held_out_loss(_batch(self._held_out, self._size, nothing)))


def _batch(table: Tensor, size: Size, negatives: Tensor) -> Batch:
    source, target = table.split([size.lengths.source, 1 + size.lengths.target], dim=1)
    return Batch(source, target, negatives)


def read(name: str, *, ranks: int, seed: int) -> OfRank:
    """Collective, if there is a process group: the workload of each rank, in one of SIZES."""
    size = SIZES[name]
    table = corpus.from_rank_0(
        lambda: pairs.read(size.source_words, size.target_words, size.lengths)
    )

    def of_rank(rank: int) -> Workload:
        return TranslationWorkload(name, table, rank=rank, ranks=ranks, seed=seed)

    return of_rank
