from typing import TypedDict

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from zensync.statistics import Statistics

MAX_CHUNKS: int

class BuildInfo(TypedDict):
    torch: str
    compiler: str
    cxx_standard: int
    cuda: bool
    isa: str

class Engine:
    def __init__(
        self,
        group: dist.ProcessGroup,
        *,
        scheme: str,
        chunks: int,
        pack_values: bool,
        transport: str,
    ) -> None: ...
    def hook(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]: ...
    def all_reduce(
        self, tensor: torch.Tensor, *, op: str
    ) -> torch.futures.Future[torch.Tensor]: ...
    def close(self) -> None: ...
    def statistics(self) -> Statistics: ...
    @property
    def on_own_thread(self) -> bool: ...
    @property
    def rank(self) -> int: ...
    @property
    def scheme(self) -> str: ...
    @property
    def transport(self) -> str: ...

def schemes() -> list[str]: ...
def build_info() -> BuildInfo: ...
