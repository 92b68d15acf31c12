"""Gradients of the model for `zensync bench --model`.

python -m zensync bench --model     # in the folder of zensync's sources
"""

from torch import Tensor

from common import recording
from language_model import workload

MODEL = "small"


def gradients(*, rank: int, ranks: int, seed: int) -> list[Tensor]:
    """Collective."""
    of_rank = workload.read(MODEL, ranks=ranks, seed=seed)
    return recording.gradients(of_rank, rank=rank, seed=seed)


def embedding_gradients(*, rank: int, ranks: int, seed: int) -> list[Tensor]:
    """Collective."""
    of_rank = workload.read(MODEL, ranks=ranks, seed=seed)
    return recording.embedding_gradients(of_rank, rank=rank, seed=seed)
