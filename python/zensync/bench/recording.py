"""Gradients of a real model: asked for once, kept in a file for each rank, then replayed.

A model is given as MODULE:FUNCTION. The function is called on every rank, within an initialised
process group, as function(rank=..., ranks=..., seed=...), and returns the rank's gradients, one
tensor for each parameter.
"""

import importlib
import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

from zensync.bench.cells import Plan
from zensync.bench.patterns import ROW_ELEMENTS, Gradient, Region

DEMO = "language_model.recording:gradients"
DEMO_FOLDER = Path("examples")  # of the sources, which is where `make` works


class ModelError(ValueError):
    """The model cannot be found, or does not give what it should."""


def load(plan: Plan, *, rank: int) -> Gradient:
    """Collective."""
    assert plan.model is not None
    path = recording_path(plan, rank)
    there = torch.tensor(float(path.exists()))
    dist.all_reduce(there, dist.ReduceOp.MIN)
    if there == 0:
        _record(plan, path, rank)
    parts: list[Tensor] = torch.load(path, weights_only=True)
    return _flat(parts)


def recording_path(plan: Plan, rank: int) -> Path:
    model = re.sub(r"\W+", "-", plan.model or "")
    name = f"{model}-seed{plan.seed}-rank{rank}of{plan.network.ranks}.pt"
    return Path(plan.recordings) / name


def find_model(model: str) -> object:
    """The function. Raises ModelError that says what to do."""
    module, colon, function = model.partition(":")
    if not (module and colon and function):
        raise ModelError(f"{model!r} is not MODULE:FUNCTION, for example {DEMO}")
    for folder in (DEMO_FOLDER, Path()):
        if str(folder.resolve()) not in sys.path:
            sys.path.append(str(folder.resolve()))
    try:
        found: object = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ModelError(
            f"{model!r} cannot be loaded: {error}. The demo's model needs the folder examples of "
            "zensync's sources in the current folder; for one of your own give MODULE:FUNCTION"
        ) from error
    if not callable(found):
        raise ModelError(f"{model!r} is not a function")
    return found


def _record(plan: Plan, path: Path, rank: int) -> None:
    assert plan.model is not None
    function = find_model(plan.model)
    gradients = function(rank=rank, ranks=plan.network.ranks, seed=plan.seed)  # type: ignore[operator]
    if not all(isinstance(gradient, Tensor) for gradient in gradients):
        raise ModelError(f"{plan.model!r} did not return a list of tensors")
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save([gradient.detach().cpu().float() for gradient in gradients], path)


def _flat(parts: list[Tensor]) -> Gradient:
    """All parameters after each other. Rows of matrices are units, elements of others."""
    regions, start = [], 0
    for part in parts:
        rows = part.shape[0] if part.dim() == 2 else part.numel()
        regions.append(Region(start, rows, part.numel() // max(1, rows)))
        start += part.numel()
    return Gradient(torch.cat([part.flatten() for part in parts]), regions, ROW_ELEMENTS)
