"""Gradients of the model for `zensync bench --model`.

python -m zensync bench --model     # in the folder of zensync's sources
"""

from torch import Tensor

from language_model.batches import Batches, read_text
from language_model.model import SIZES
from language_model.training import new_model, new_optimizer

MODEL = "small"
TRAINED_ITERATIONS = 20  # before the gradients are taken: the first ones are not typical


def gradients(*, rank: int, ranks: int, seed: int) -> list[Tensor]:
    """Collective. Each rank's gradients for its own batch, at parameters that all share.

    They share them because all train on rank 0's batches until then: nothing is synchronised.
    """
    size = SIZES[MODEL]
    text = read_text(size.vocabulary)
    shared = Batches(text, size, rank=0, ranks=ranks, seed=seed)
    own = Batches(text, size, rank=rank, ranks=ranks, seed=seed)
    model = new_model(size, seed)
    optimizer = new_optimizer(model)
    for iteration in range(TRAINED_ITERATIONS):
        optimizer.zero_grad()
        model(shared.batch(iteration)).backward()
        optimizer.step()
    optimizer.zero_grad()
    model(own.batch(TRAINED_ITERATIONS)).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]
