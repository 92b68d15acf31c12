"""What `State(profile="file.json")` records for `zensync advise`.

A profile has looks at this rank's gradients: counts of the non-zeros by place, and a sample of
where exactly they are. The sample is of the same places in every look, so that laying looks over
each other tells what their sum would be. Looks of different iterations stand for different ranks:
at nearly the same parameters, batch after batch of shuffled data is what many ranks would see at
once. So one process is enough to predict any number of ranks, up to that of the looks.
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any, TypedDict

import torch

from zensync import _C

VERSION = 1
SKIPPED = 2  # iterations at the beginning: DDP rebuilds its buckets after the first
DTYPES = ("float32", "float16", "bfloat16")  # others go through the backend, as they are
MAX_LOOKS = 128  # and so the most ranks that can be predicted


class Look(TypedDict):
    """Of the extension's look(): csrc/core/look.h says what its parts are."""

    numel: int
    bins: list[tuple[float, float, float, float]]  # elements, words, full words, blocks
    blocks: list[int]  # sampled ones, by hash
    masks: list[list[int]]  # of each sampled block, a bit for each non-zero
    threshold: int
    packed_share: float
    sampled_values: int


class ProfiledBucket(TypedDict):
    bucket: int
    numel: int
    dtype: str
    looks: list[Look]  # one for each recorded iteration


class Profile(TypedDict):
    version: int
    ranks: int  # of the run
    seconds_per_iteration: float | None  # of it, all included
    buckets: list[ProfiledBucket]


class ProfileError(ValueError):
    """The file is no profile, or not one that this zensync reads; says what to do."""


class Recorder:
    """Looks at the first MAX_LOOKS iterations behind the SKIPPED ones, and writes what it has after
    1, 2, 4, 8, ... of them and in the end. Then it costs nothing."""

    def __init__(self, path: Path, ranks: int) -> None:
        self._path = path
        self._ranks = ranks
        self._iteration = 0
        self._starts: list[float] = []
        self._buckets: dict[int, ProfiledBucket] = {}
        self._written = 0

    def see(self, bucket: int, gradient: torch.Tensor) -> None:
        """Called with every bucket before it is synchronised."""
        if self._iteration > SKIPPED + MAX_LOOKS:
            return
        if bucket == 0:
            self._begin_iteration()
        dtype = str(gradient.dtype).removeprefix("torch.")
        if not SKIPPED < self._iteration <= SKIPPED + MAX_LOOKS or dtype not in DTYPES:
            return
        known = self._buckets.get(bucket)
        if known is None or (known["numel"], known["dtype"]) != (gradient.numel(), dtype):
            known = {"bucket": bucket, "numel": gradient.numel(), "dtype": dtype, "looks": []}
            self._buckets[bucket] = known
            self._written = 0  # that was of other buckets
        known["looks"].append(_C.look(gradient.cpu()))

    def write(self) -> None:
        """What has been recorded since the last time, if anything."""
        looks = min((len(bucket["looks"]) for bucket in self._buckets.values()), default=0)
        if looks <= self._written:
            return
        self._written = looks
        profile: Profile = {
            "version": VERSION,
            "ranks": self._ranks,
            "seconds_per_iteration": self._seconds_per_iteration(),
            "buckets": [
                {**self._buckets[number], "looks": self._buckets[number]["looks"][:looks]}
                for number in sorted(self._buckets)
            ],
        }
        self._path.write_text(json.dumps(profile))

    def _begin_iteration(self) -> None:
        """The one before is complete."""
        recorded = self._iteration - SKIPPED
        if recorded > 0 and recorded & (recorded - 1) == 0:
            self.write()
        self._iteration += 1
        self._starts.append(time.perf_counter())

    def _seconds_per_iteration(self) -> float | None:
        pairs = zip(self._starts[SKIPPED:], self._starts[SKIPPED + 1 :], strict=False)
        seconds = [after - before for before, after in pairs]
        return statistics.median(seconds) if seconds else None


def read(path: Path) -> Profile:
    """Raises ProfileError."""
    try:
        profile: Any = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ProfileError(f"{path} cannot be read as a profile: {error}") from error
    if not isinstance(profile, dict) or profile.get("version") != VERSION:
        found = profile.get("version") if isinstance(profile, dict) else None
        raise ProfileError(
            f"{path} is a profile of version {found}, this zensync reads version {VERSION}: record "
            "it again with State(profile=...)"
        )
    if not profile["buckets"]:
        raise ProfileError(f"{path} has no buckets: train for more than {SKIPPED} iterations")
    result: Profile = profile  # type: ignore[assignment]
    return result
