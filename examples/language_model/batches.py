"""Which rank trains on which words in which iteration.

That depends on the seed alone, so that two runs of the same seed see the same batches.
"""

import torch
import torch.distributed as dist
from torch import Tensor

from language_model import corpus
from language_model.model import Batch, LogUniform, Size

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
        order = torch.randperm(count, generator=_generator(seed))
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
        generator = _generator(self._seed, iteration, self._rank)
        return Batch(words, next_words, self._sampler.draw(self._size.negatives, generator))

    def held_out(self) -> tuple[Tensor, Tensor]:
        """This rank's share of the sequences that nobody trains on: words, next words."""
        return _shifted(self._held_out)


def read_text(vocabulary_size: int) -> Tensor:
    """Collective: rank 0 reads the text, the others get its numbers."""
    length = torch.zeros(1, dtype=torch.int64)
    ids = torch.empty(0, dtype=torch.int32)
    if dist.get_rank() == 0:
        ids = corpus.read(vocabulary_size).to(torch.int32)
        length.fill_(len(ids))
    dist.broadcast(length, src=0)
    if dist.get_rank() != 0:
        ids = torch.empty(int(length), dtype=torch.int32)
    dist.broadcast(ids, src=0)
    return ids.long()


def _shifted(sequences: Tensor) -> tuple[Tensor, Tensor]:
    return sequences[:, :-1], sequences[:, 1:]


def _generator(seed: int, *stream: int) -> torch.Generator:
    """Streams of one seed differ: 1,000,003 is a prime above any iteration or rank."""
    for part in stream:
        seed = seed * 1_000_003 + part + 1
    return torch.Generator().manual_seed(seed % 2**63)
