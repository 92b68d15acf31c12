"""Gradients of a workload for `zensync bench --model`."""

from torch import Tensor

from common.workload import OfRank

TRAINED_ITERATIONS = 20  # before the gradients are taken: the first ones are not typical


def gradients(of_rank: OfRank, *, rank: int, seed: int) -> list[Tensor]:
    """This rank's gradients for its own batch, at parameters that all ranks share.

    They share them because all train on rank 0's batches until then: nothing is synchronised.
    """
    shared, own = of_rank(0), of_rank(rank)
    model = shared.new_model(seed)
    optimizer = shared.optimizer(model)
    for iteration in range(TRAINED_ITERATIONS):
        optimizer.zero_grad()
        model(shared.batch(iteration)).backward()
        optimizer.step()
    optimizer.zero_grad()
    model(own.batch(TRAINED_ITERATIONS)).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]
