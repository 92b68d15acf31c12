"""DeepFM (Guo et al., IJCAI 2017): a factorisation machine and a deep part over one embedding.

All fields share one table for each order, as one field's values follow another's in it. A batch
looks up one row per field and example, so nearly all rows of the tables' gradients are zero.
"""

import dataclasses

from torch import Tensor, nn
from torch.nn import functional


@dataclasses.dataclass(frozen=True)
class Batch:
    rows: Tensor  # examples x fields, int64: the row of each field's value
    clicked: Tensor  # examples, 0 or 1, float32


class DeepFM(nn.Module):
    def __init__(self, rows: int, fields: int, *, width: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.first_order = nn.Embedding(rows, 1)
        self.table = nn.Embedding(rows, width)
        nn.init.normal_(self.table.weight, std=0.05)
        nn.init.zeros_(self.first_order.weight)
        self.deep = nn.Sequential(
            nn.Linear(fields * width, hidden[0]),
            nn.ReLU(),
            nn.Linear(hidden[0], hidden[1]),
            nn.ReLU(),
            nn.Linear(hidden[1], 1),
        )

    def forward(self, batch: Batch) -> Tensor:
        """Mean log loss, in nats per example."""
        odds = self.log_odds(batch.rows)
        return functional.binary_cross_entropy_with_logits(odds, batch.clicked)

    def log_odds(self, rows: Tensor) -> Tensor:
        """Of a click, for each example."""
        vectors = self.table(rows)
        squares = vectors.sum(1).square() - vectors.square().sum(1)
        result: Tensor = (
            self.first_order(rows).sum((1, 2))
            + squares.sum(1) / 2
            + self.deep(vectors.flatten(1)).squeeze(1)
        )
        return result
