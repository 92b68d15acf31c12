"""Which rows of its embedding tables each rank's batch touches, from the example models.

One process plays all ranks. They share the parameters of a training on rank 0's batches, as for
`zensync bench --model`, and each computes the gradient of its own batch there.
"""

import dataclasses
from collections.abc import Callable

import torch
from torch import Tensor

from click_model import recording as click_recording
from click_model import workload as click_workload
from common.recording import TRAINED_ITERATIONS, embeddings, trained
from common.workload import OfRank
from language_model import workload as language_workload
from translation_model import workload as translation_workload

SEED = 1


@dataclasses.dataclass(frozen=True)
class Table:
    """One embedding table's gradients."""

    model: str
    name: str
    width: int
    touched: Tensor  # ranks x rows, bool: a row with a non-zero
    filled: float  # share of the touched rows' elements that are not zero


def tables(model: str, ranks: int) -> list[Table]:
    """Of `model`, one of MODELS. A table of width 1 beside another is touched as that one is."""
    of_rank = MODELS[model](ranks)
    module = trained(of_rank(0), SEED)
    weights = {n: w for n, w in embeddings(module).items() if w.shape[1] > 1}
    touched: dict[str, list[Tensor]] = {name: [] for name in weights}
    nonzeros = dict.fromkeys(weights, 0)
    for rank in range(ranks):
        module.zero_grad()
        module(of_rank(rank).batch(TRAINED_ITERATIONS)).backward()
        for name, weight in weights.items():
            assert weight.grad is not None
            touched[name].append(weight.grad.any(dim=1))
            nonzeros[name] += int(weight.grad.count_nonzero())
    return [_table(model, name, weights[name], touched[name], nonzeros[name]) for name in weights]


def _table(model: str, name: str, weight: Tensor, touched: list[Tensor], nonzeros: int) -> Table:
    rows = torch.stack(touched)
    width = weight.shape[1]
    return Table(
        model, name.rpartition(".")[2], width, rows, nonzeros / max(1, int(rows.sum()) * width)
    )


MODELS: dict[str, Callable[[int], OfRank]] = {
    "LSTM": lambda ranks: language_workload.read("small", ranks=ranks, seed=SEED),
    "DeepFM": lambda ranks: click_workload.synthetic(click_recording.VALUES, seed=SEED),
    "NMT": lambda ranks: translation_workload.read("small", ranks=ranks, seed=SEED),
}
