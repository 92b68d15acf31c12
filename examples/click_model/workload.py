"""DeepFM over synthetic or Criteo's clicks as a workload."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from click_model import criteo
from click_model.model import Batch, DeepFM
from click_model.synthetic import CRITEO_VALUES, SyntheticClicks
from common import corpus
from common.workload import OfRank, Workload, generator

WIDTH = 16  # of a row, as in the ZEN paper
HIDDEN = (256, 128)
EXAMPLES = 1024  # per rank and iteration, as in the ZEN paper
HELD_OUT = 4096  # per rank


class ClickWorkload(Workload):
    loss_unit = "nats per example"

    def __init__(
        self, title: str, rows: int, draw: Callable[[int], Batch], held_out: Batch
    ) -> None:
        self.title = title
        self._rows = rows
        self._draw = draw
        self._held_out = held_out

    def model(self) -> DeepFM:
        return DeepFM(self._rows, self._held_out.rows.shape[1], width=WIDTH, hidden=HIDDEN)

    def batch(self, iteration: int) -> Batch:
        return self._draw(iteration)

    @torch.no_grad()
    def held_out_loss(self, model: nn.Module) -> float:
        return float(model(self._held_out))


def synthetic(values: int, *, seed: int) -> OfRank:
    """Fields as large as Criteo's, but of at most `values` values each."""
    clicks = SyntheticClicks([min(count, values) for count in CRITEO_VALUES])

    def of_rank(rank: int) -> Workload:
        held_out = clicks.draw(HELD_OUT, generator(seed, rank))

        def draw(iteration: int) -> Batch:
            return clicks.draw(EXAMPLES, generator(seed, iteration, rank))

        return ClickWorkload("DeepFM on synthetic clicks", clicks.rows, draw, held_out)

    return of_rank


def from_criteo(path: Path, examples: int, values: int, *, ranks: int, seed: int) -> OfRank:
    """Collective, if there is a process group: rank 0 reads."""
    table = corpus.from_rank_0(lambda: criteo.read(path, examples, values))
    field_values = table[:, 1:].amax(0) + 1
    rows = table[:, 1:] + field_values.cumsum(0) - field_values
    clicked = table[:, 0].float()
    held_out = min(HELD_OUT * ranks, len(table) // 10)
    if held_out < ranks or len(table) - held_out < EXAMPLES * ranks:
        raise criteo.CriteoError(
            f"{path} has {len(table)} examples, too few for {EXAMPLES} on each of {ranks} ranks"
        )
    order = torch.randperm(len(table), generator=generator(seed))

    def take(places: torch.Tensor) -> Batch:
        return Batch(rows[places], clicked[places])

    def of_rank(rank: int) -> Workload:
        trained = order[held_out:]

        def draw(iteration: int) -> Batch:
            first = (iteration * ranks + rank) * EXAMPLES
            return take(trained[(first + torch.arange(EXAMPLES)) % len(trained)])

        own = take(order[:held_out][rank::ranks])
        return ClickWorkload(f"DeepFM on {path.name}", int(field_values.sum()), draw, own)

    return of_rank
