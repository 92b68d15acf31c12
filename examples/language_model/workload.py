"""The language model and its text as a workload."""

from torch import Tensor, nn

from common import corpus
from common.workload import OfRank, Workload
from language_model.batches import Batches
from language_model.model import SIZES, Batch, LanguageModel, Size


class LanguageWorkload(Workload):
    loss_unit = "nats per word (sampled softmax)"

    def __init__(self, name: str, size: Size, batches: Batches) -> None:
        self.title = f"LSTM language model, {name}"
        self._size = size
        self._batches = batches

    def model(self) -> LanguageModel:
        return LanguageModel(self._size)

    def batch(self, iteration: int) -> Batch:
        return self._batches.batch(iteration)

    def held_out_loss(self, model: nn.Module) -> float:
        assert isinstance(model, LanguageModel)
        loss: Tensor = model.held_out_loss(*self._batches.held_out())
        return float(loss)


def read(name: str, *, ranks: int, seed: int) -> OfRank:
    """Collective, if there is a process group: the workload of each rank, in one of SIZES."""
    size = SIZES[name]
    ids = corpus.from_rank_0(lambda: corpus.read(size.vocabulary))

    def of_rank(rank: int) -> Workload:
        return LanguageWorkload(name, size, Batches(ids, size, rank=rank, ranks=ranks, seed=seed))

    return of_rank
