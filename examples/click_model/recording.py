"""Gradients of the model for `zensync bench --model click_model.recording:gradients`."""

from torch import Tensor

from click_model import workload
from common import recording

VALUES = 65_536  # of a field, at most


def gradients(*, rank: int, ranks: int, seed: int) -> list[Tensor]:
    return recording.gradients(workload.synthetic(VALUES, seed=seed), rank=rank, seed=seed)


def embedding_gradients(*, rank: int, ranks: int, seed: int) -> list[Tensor]:
    of_rank = workload.synthetic(VALUES, seed=seed)
    return recording.embedding_gradients(of_rank, rank=rank, seed=seed)
