"""Records gradients of the demo's language model, for the micro benchmarks to work on.

    python benchmarks/record_gradients.py --index-sets rows.txt --gradient lstm.f32
    build/release/imbalance_benchmark --index-sets rows.txt 16 160
    build/release/packing_benchmark --gradient lstm=lstm.f32

One process plays all ranks: each iteration every rank computes its gradient of the same parameters,
and their mean takes a step. Index sets are the rows of the input embedding whose gradient is not
zero, a line for each iteration and rank. The gradient is all of rank 0's in the last iteration, as
float32 values.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from common.workload import Workload
from language_model import workload
from language_model.model import SIZES


def main() -> None:
    options = parse_options()
    of_rank = workload.read(options.model, ranks=options.ranks, seed=1)
    ranks = [of_rank(rank) for rank in range(options.ranks)]
    model = ranks[0].new_model(seed=1)
    optimizer = ranks[0].optimizer(model)
    lines = []
    first = torch.empty(0)
    for iteration in range(options.iterations):
        optimizer.zero_grad(set_to_none=False)
        for rank, own in enumerate(ranks):
            gradients = gradients_of(model, own, iteration)
            rows = gradients[0].count_nonzero(dim=1).nonzero().flatten().tolist()
            lines.append(" ".join(map(str, [iteration, rank, *rows])))
            if rank == 0:
                first = torch.cat([gradient.flatten() for gradient in gradients])
            accumulate(model, gradients, len(ranks))
        optimizer.step()
    if options.index_sets:
        options.index_sets.write_text("\n".join(lines) + "\n")
    if options.gradient:
        options.gradient.write_bytes(first.numpy().tobytes())


def gradients_of(model: nn.Module, own: Workload, iteration: int) -> list[Tensor]:
    """One rank's, the input embedding's first."""
    loss = model(own.batch(iteration))
    return list(torch.autograd.grad(loss, list(model.parameters())))


def accumulate(model: nn.Module, gradients: list[Tensor], ranks: int) -> None:
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
        parameter.grad.add_(gradient, alpha=1 / ranks)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", choices=sorted(SIZES), default="small")
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--index-sets", type=Path, metavar="FILE")
    parser.add_argument("--gradient", type=Path, metavar="FILE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
