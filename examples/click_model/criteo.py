"""Criteo's own clicks: train.txt of the Display Advertising Challenge, or a file laid out like it.

A line is an example: 0 or 1 for clicked, 13 counts and 26 categories, separated by tabulators,
empty where nothing is known. The counts are left out: the model takes categories.

    0	1	1	5	...	2	68fd1e64	80e26c9b	...
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

COUNTS, FIELDS = 13, 26


class CriteoError(ValueError):
    """The file is not laid out as expected; says where."""


def read(path: Path, examples: int, values: int) -> Tensor:
    """The file's first examples, int64, examples x (1 + FIELDS): clicked, then each field's value.

    A field's values are numbered by falling frequency, equally frequent ones by spelling; at most
    `values` of them: the last stands for all that are rarer.
    """
    with path.open() as file:
        first = itertools.islice(file, examples)
        lines = [_parse(path, number, line) for number, line in enumerate(first, start=1)]
    if not lines:
        raise CriteoError(f"{path} is empty")
    labels, *fields = zip(*lines, strict=True)
    columns = [[int(label) for label in labels], *(_number(field, values) for field in fields)]
    return torch.tensor(columns).T.contiguous()


def _parse(path: Path, number: int, line: str) -> list[str]:
    parts = line.rstrip("\n").split("\t")
    if len(parts) != 1 + COUNTS + FIELDS or parts[0] not in ("0", "1"):
        raise CriteoError(
            f"{path}, line {number}: {len(parts)} columns, the first is {parts[0][:20]!r}; "
            f"expected {1 + COUNTS + FIELDS} columns separated by tabulators, the first 0 or 1"
        )
    return [parts[0], *parts[1 + COUNTS :]]


def _number(field: Sequence[str], values: int) -> list[int]:
    counts = Counter(field)
    by_frequency = sorted(counts, key=lambda value: (-counts[value], value))
    rare = values - 1
    numbers = {value: number for number, value in enumerate(by_frequency[:rare])}
    return [numbers.get(value, rare) for value in field]
