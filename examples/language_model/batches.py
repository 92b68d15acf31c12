"""Which rank trains on which words in which iteration.

That depends on the seed alone, so that two runs of the same seed see the same batches.
"""

import torch
from torch import Tensor

from common.popularity import LogUniform
from common.workload import generator
from language_model.model import Batch, Size

HELD_OUT_SEQUENCES = 16  # per rank


class Batches:
    """Cuts the text into sequences, shuffles them and keeps the first ones out of training."""

    def __init__(self, ids: Tensor, size: Size, *, rank: int, ranks: int, seed: int) -> None:
        self._size = size
        self._rank = rank
        self._ranks = ranks
        self._seed = seed
        self._sampler = LogUniform(size.vocabulary)
        count = len(ids) // (size.length + 1)
        sequences = ids[: count * (size.length + 1)].view(count, size.length + 1)
        order = torch.randperm(count, generator=generator(seed))
        held_out = HELD_OUT_SEQUENCES * ranks
        if count - held_out < size.sequences * ranks:
            raise ValueError(f"{len(ids)} words are too few for a batch on each of {ranks} ranks")
        mine = order[HELD_OUT_SEQUENCES * rank : HELD_OUT_SEQUENCES * (rank + 1)]
        self._sequences = sequences[order[held_out:]]
        self._held_out = sequences[mine]

    def batch(self, iteration: int) -> Batch:
        """This rank's batch. The text starts again when all of it has been used."""
        first = (iteration * self._ranks + self._rank) * self._size.sequences
        rows = (first + torch.arange(self._size.sequences)) % len(self._sequences)
        words, next_words = _shifted(self._sequences[rows])
        stream = generator(self._seed, iteration, self._rank)
        return Batch(words, next_words, self._sampler.draw(self._size.negatives, stream))

    def held_out(self) -> tuple[Tensor, Tensor]:
        """This rank's share of the sequences that nobody trains on: words, next words."""
        return _shifted(self._held_out)


def _shifted(sequences: Tensor) -> tuple[Tensor, Tensor]:
    return sequences[:, :-1], sequences[:, 1:]
