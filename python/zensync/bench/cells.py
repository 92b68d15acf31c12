"""What is measured, as plain data that travels to the ranks as JSON."""

import dataclasses
from typing import Any

from zensync._network import format_rate


@dataclasses.dataclass(frozen=True)
class Network:
    """So many ranks, each behind a card of its own."""

    ranks: int
    rate_bits_per_second: int | None  # None: as fast as the network goes

    def __str__(self) -> str:
        if self.rate_bits_per_second is None:
            return f"{self.ranks} ranks, unshaped"
        return f"{self.ranks} ranks, {format_rate(self.rate_bits_per_second)}"


@dataclasses.dataclass(frozen=True)
class Cell:
    """One gradient per rank."""

    dtype: str  # torch's name of it
    numel: int  # of a recorded gradient: 0, the recording says
    density: float  # the share of non-zeros on a rank; of a recorded gradient: 0
    pattern: str

    def __str__(self) -> str:
        if self.pattern == RECORDED:
            return f"recorded, {self.dtype}"
        return f"{self.pattern} {100 * self.density:g}%, {self.numel:,} {self.dtype}"


RECORDED = "recorded"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What all networks have in common."""

    cells: list[Cell]
    schemes: list[str]  # specifications: contenders.parse() reads them
    baselines: list[str]
    warm_up: int
    repetitions: int
    buckets: int
    seed: int
    model: str | None  # MODULE:FUNCTION
    recordings: str  # the folder where recorded gradients are kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(Settings):
    """All that a rank needs to know."""

    network: Network

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(plan: dict[str, Any]) -> "Plan":
        fields = dict(plan)
        fields["network"] = Network(**fields["network"])
        fields["cells"] = [Cell(**cell) for cell in fields["cells"]]
        return Plan(**fields)
