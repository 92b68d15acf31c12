"""Gradients of a workload for `zensync bench --model`: those of each rank for its own batch, at
parameters that all ranks share because all train on rank 0's batches until then. Nothing is
synchronised."""

from torch import Tensor, nn

from common.workload import OfRank, Workload

TRAINED_ITERATIONS = 20  # before the gradients are taken: the first ones are not typical


def gradients(of_rank: OfRank, *, rank: int, seed: int) -> list[Tensor]:
    """Rank `rank`'s, of all parameters."""
    model = _with_gradients(of_rank, rank, seed)
    return [p.grad for p in model.parameters() if p.grad is not None]


def embedding_gradients(of_rank: OfRank, *, rank: int, seed: int) -> list[Tensor]:
    """Rank `rank`'s, of the embedding tables alone: what the ZEN paper synchronises sparsely."""
    tables = embeddings(_with_gradients(of_rank, rank, seed)).values()
    return [table.grad for table in tables if table.grad is not None]


def embeddings(model: nn.Module) -> dict[str, Tensor]:
    """The embedding tables, by the names of their modules."""
    return {
        name: module.weight
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding)
    }


def trained(workload: Workload, seed: int) -> nn.Module:
    """Parameters after TRAINED_ITERATIONS of the workload's own batches."""
    model = workload.new_model(seed)
    optimizer = workload.optimizer(model)
    for iteration in range(TRAINED_ITERATIONS):
        optimizer.zero_grad()
        model(workload.batch(iteration)).backward()
        optimizer.step()
    return model


def _with_gradients(of_rank: OfRank, rank: int, seed: int) -> nn.Module:
    model = trained(of_rank(0), seed)
    model.zero_grad()
    model(of_rank(rank).batch(TRAINED_ITERATIONS)).backward()
    return model
