"""What else a model's backward pass sends over NCCL.

Two NCCL communicators of one GPU must be used in the same order on all ranks. zensync's thread and
the thread of autograd agree on no order, so a model that communicates in its backward pass has its
buckets synchronised one by one, with nothing beside them.
"""

import gc
from typing import Any

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def moves_gpu_tensors_by_nccl(group: dist.ProcessGroup | None) -> bool:
    config = dist.BackendConfig(dist.Backend(dist.get_backend_config(group)))
    return config.get_device_backend_map().get("cuda", "") not in ("", "gloo")


def reason_to_wait(state: Any) -> str:
    """Why the State's buckets must not be in flight during a backward pass; empty if they may."""
    models = _models_of(state)
    if not models:
        return "the model that uses the State was not found"
    for model in models:
        if model.find_unused_parameters:
            return "find_unused_parameters=True"
        if any(isinstance(module, nn.SyncBatchNorm) for module in model.modules()):
            return "SyncBatchNorm"
    return ""


def _models_of(state: Any) -> list[DistributedDataParallel]:
    """A hook is not told whose it is."""
    return [
        model
        for model in gc.get_objects()
        if issubclass(type(model), DistributedDataParallel)
        and any(own is state for _, own in model._comm_hooks)
    ]
