"""What a State does for its compressor: memory, progress, saving and loading."""

import logging
from typing import Any

import torch
import torch.distributed as dist

from zensync import _C
from zensync._checks import check_keys
from zensync._dgc_memory import DGCMemory
from zensync.dgc import DGC

logger = logging.getLogger("zensync")


class DGCState:
    """Progress is what the engine knows from iteration to iteration: thresholds, mainly."""

    def __init__(self, options: DGC) -> None:
        self._memory = DGCMemory(options)
        self._engine: _C.Engine | None = None
        self._ranks = 0
        self._to_load: dict[str, Any] | None = None  # until the engine starts

    def start(self, engine: _C.Engine, ranks: int) -> None:
        self._engine = engine
        self._ranks = ranks
        if self._to_load is not None:
            saved, self._to_load = self._to_load, None
            self.load(saved)

    def hook(
        self,
        engine: _C.Engine,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        return self._memory.hook(engine, bucket)

    def saved(self) -> dict[str, Any]:
        if self._engine is None:
            return self._to_load or {}
        return {
            "rank": self._engine.rank,
            "ranks": self._ranks,
            "progress": self._engine.dgc_state(),
            "parameters": self._memory.parameters(),
        }

    def load(self, saved: dict[str, Any]) -> None:
        if saved:
            check_keys("the state of DGC", saved, ["rank", "ranks", "progress", "parameters"])
        if self._engine is None:
            self._to_load = saved
            return
        if not saved:
            return
        here = (self._engine.rank, self._ranks)
        if (saved["rank"], saved["ranks"]) == here:
            self._memory.load(saved["parameters"])
            self._engine.restore_dgc(saved["progress"])
            return
        logger.warning(
            "the state of DGC was saved on rank %d of %d and is loaded on rank %d of %d: residuals "
            "and momenta belong to a rank, so they start from zero",
            saved["rank"],
            saved["ranks"],
            *here,
        )
        self._memory.clear()
        self._engine.restore_dgc({"iteration": saved["progress"]["iteration"]})
