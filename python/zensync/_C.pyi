from typing import Any, TypedDict

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket, Store

from zensync.profile import Look
from zensync.statistics import BucketChoice, Statistics

AUTO: str
MAX_CHUNKS: int
PROFILE_ITERATIONS: int
REPROFILE_EVERY: int

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
        pack_values: bool | None,
        wire_dtype: str,
        transport: str,
        timeout: float,
        dgc: dict[str, Any] | None = None,
        tp_group: dist.ProcessGroup | None = None,
        profile_iterations: int = ...,
        reprofile_every: int = ...,
        deterministic: bool = ...,
        node_group: dist.ProcessGroup | None = None,
        rank: int = -1,
        store: Store | None = None,
    ) -> None: ...
    def hook(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]: ...
    def compressed_hook(
        self,
        bucket: GradBucket,
        *,
        residual: torch.Tensor | None,
        momentum: torch.Tensor | None,
        scale: float,
        segments: list[tuple[int, int, bool]],
    ) -> torch.futures.Future[torch.Tensor]: ...
    def dgc_state(self) -> dict[str, int | float]: ...
    def restore_dgc(self, state: dict[str, int | float]) -> None: ...
    def choices(self) -> list[BucketChoice]: ...
    def pinned(self) -> list[tuple[int, str, int, str, bool]]: ...
    def pin(self, decisions: list[tuple[int, str, int, str, bool]]) -> None: ...
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

class Predicted(TypedDict):
    bytes: float
    latency: float
    wire: float
    work: float
    seconds: float

class Sparsity:
    def __init__(self, looks: list[Look]) -> None: ...
    @property
    def ranks(self) -> int: ...
    @property
    def numel(self) -> int: ...
    def density(self) -> float: ...
    def density_of_sum(self) -> float: ...
    def densification(self, ranks: int) -> float: ...
    def skew(self) -> float: ...
    def packed_share(self) -> float: ...
    def predict(
        self,
        scheme: str,
        *,
        dtype: str,
        chunks: int,
        pack_values: bool,
        byte: float,
        ring_byte: float,
        work: float,
    ) -> Predicted: ...

def look(gradient: torch.Tensor) -> Look: ...
def together(looks: list[Look]) -> Look: ...
def default_chunks(bytes: int) -> int: ...
def schemes() -> list[str]: ...
def check_options(*, scheme: str, pack_values: bool | None, wire_dtype: str) -> None: ...
def build_info() -> BuildInfo: ...
