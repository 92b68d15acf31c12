"""Synthetic clicks that look like Criteo's.

Each example has a value for every field. A field's values are numbered by falling popularity and
drawn by Zipf's law, independently of the other fields'. Whether the example was clicked is drawn
from a truth of the form that a factorisation machine has, so there is something to learn and a loss
that cannot be beaten:

    log odds = -1.2 + sum_i w_i + sum_{i<j} <v_i, v_j>

over the example's values i, w of standard deviation 0.25, v of 4 numbers of 0.12 each: about a
quarter of the examples are clicked. Real clicks differ: their fields depend on each other, and what
is popular changes with time.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from click_model.model import Batch
from common import popularity

# Distinct values of the 26 categorical fields in Criteo's Kaggle data (Display Advertising
# Challenge, 2014), in the order of its columns.
CRITEO_VALUES = (
    *(1_460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5_683, 8_351_593, 3_194),
    *(27, 14_992, 5_461_306, 10, 5_652, 2_173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572),
)


class SyntheticClicks:
    """The truth depends on the fields alone."""

    def __init__(self, field_values: Sequence[int]) -> None:
        truth = torch.Generator().manual_seed(0)
        self.rows = sum(field_values)
        self._weights = torch.randn(self.rows, generator=truth) * 0.25
        self._vectors = torch.randn(self.rows, 4, generator=truth) * 0.12
        self._values = torch.tensor(field_values)
        self._log_counts = torch.tensor([popularity.log_count(v) for v in field_values])
        self._first_rows = self._values.cumsum(0) - self._values

    def draw(self, examples: int, generator: torch.Generator) -> Batch:
        uniform = torch.rand(examples, len(self._values), generator=generator)
        values = popularity.numbers(uniform, self._log_counts).minimum(self._values - 1)
        rows = values + self._first_rows
        chance = torch.sigmoid(self.log_odds(rows))
        return Batch(rows, (torch.rand(examples, generator=generator) < chance).float())

    def log_odds(self, rows: Tensor) -> Tensor:
        """The truth."""
        vectors = self._vectors[rows]
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        return self._weights[rows].sum(1) + pairs - 1.2
