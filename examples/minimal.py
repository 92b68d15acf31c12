"""The smallest training script that uses zensync: a classifier of bags of words.

torchrun --nproc-per-node 2 examples/minimal.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import zensync

WORDS, CLASSES = 100_000, 10


def main() -> None:
    dist.init_process_group("gloo")
    model: nn.Module = nn.Sequential(nn.EmbeddingBag(WORDS, 64), nn.Linear(64, CLASSES))

    model = DistributedDataParallel(model)
    state = zensync.State()
    model.register_comm_hook(state, zensync.hook)

    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())  # every rank has documents of its own
    for _ in range(20):
        documents = torch.randint(WORDS, (32, 50))
        labels = documents[:, 0] % CLASSES
        optimizer.zero_grad()
        functional.cross_entropy(model(documents), labels).backward()
        optimizer.step()

    if dist.get_rank() == 0:
        print(state.summary())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
