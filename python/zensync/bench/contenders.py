"""Who synchronises: what all contenders have in common, and zensync's schemes.

A scheme is named as on the command line: `balanced_parallelism`, or with options of the State
behind colons, `balanced_parallelism:packed:chunks=4`.
"""

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import zensync
import zensync.statistics
from zensync import _C
from zensync.bench.replay import Replay

OPTIONS = "packed, chunks=N, exact, wire=bfloat16, dgc=DENSITY"


@dataclasses.dataclass(frozen=True)
class Gradients:
    """One rank's gradient, cut into the buckets that are synchronised."""

    parts: list[Tensor]  # matrices
    density: float
    by_rows: bool  # whole rows are zero or not


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Of one iteration on this rank: bytes, and what the scheme knows of its own work."""

    bytes_out: float
    bytes_in: float
    chunks: int = 0
    imbalance: float | None = None
    used: str = ""  # the schemes that "auto" has chosen
    seconds_by_stage: dict[str, float] = dataclasses.field(default_factory=dict)


class Contender(ABC):
    """Made on all ranks at once. Its methods are collective but for result() and traffic()."""

    name: str
    exact: bool  # the result is the mean, up to rounding
    least_warm_up: int = 1  # turns before it works as it will work on
    divisor: int = 0  # the result is the sum divided by it; 0 is the number of ranks

    @abstractmethod
    def synchronise(self, started: Callable[[], None] = lambda: None) -> float:
        """Seconds on this rank. `started` is called when all ranks are ready."""

    @abstractmethod
    def result(self) -> list[Tensor]:
        """Of the last synchronise(), part by part."""

    @abstractmethod
    def traffic(self) -> Traffic:
        """Of the last synchronise()."""

    def close(self) -> None:
        return None


class SchemeContender(Contender):
    """DDP with zensync's hook."""

    def __init__(self, spec: str, gradients: Gradients) -> None:
        scheme, options = parse(spec)
        self.name = spec
        self.exact = not {"wire_dtype", "compressor"} & set(options)
        if scheme == _C.AUTO:  # each trial, and the decision
            self.least_warm_up = _C.PROFILE_ITERATIONS + 1
        self._state = zensync.State(scheme=scheme, **options)
        self._replay = Replay(gradients.parts, zensync.hook, self._state)

    def synchronise(self, started: Callable[[], None] = lambda: None) -> float:
        return self._replay.synchronise(started)

    def result(self) -> list[Tensor]:
        return self._replay.result()

    def traffic(self) -> Traffic:
        stats = self._state.stats()
        last, buckets = stats["last"], stats["buckets"]
        imbalances = [b["imbalance"] for b in buckets if b["imbalance"] is not None]
        seconds: dict[str, Any] = dict(last["seconds"])
        return Traffic(
            bytes_out=last["bytes_out"],
            bytes_in=last["bytes_in"],
            chunks=max(bucket["chunks"] for bucket in buckets),
            imbalance=max(imbalances, default=None),
            used=" + ".join(sorted({_used(bucket) for bucket in buckets})),
            seconds_by_stage=seconds,
        )

    def close(self) -> None:
        self._state.close()


def _used(bucket: zensync.statistics.BucketStats) -> str:
    return bucket["scheme"] + (":packed" if bucket["packed"] else "")


def parse(spec: str) -> tuple[str, dict[str, Any]]:
    """The scheme and the State's options. Raises ValueError that names the wrong part."""
    scheme, *options = spec.split(":")
    known_schemes = [_C.AUTO, *_C.schemes()]
    if scheme not in known_schemes:
        raise ValueError(f"scheme {scheme!r} is not known: choose of {', '.join(known_schemes)}")
    arguments = dict(_option(spec, option) for option in options)
    known = inspect.signature(zensync.State).parameters
    for argument in arguments:
        if argument not in known:
            raise ValueError(f"{spec!r}: this zensync has no option {argument!r}")
    return scheme, arguments


def _option(spec: str, option: str) -> tuple[str, Any]:
    if option == "packed":
        return "pack_values", True
    if option == "exact":
        return "transport", "exact"
    if option == "wire=bfloat16":
        return "wire_dtype", torch.bfloat16
    name, _, value = option.partition("=")
    if name == "dgc":
        try:
            return "compressor", zensync.DGC(float(value))
        except ValueError as error:
            raise ValueError(f"{spec!r}: option {option!r} is wrong: {error}") from error
    if name == "chunks" and value.isdecimal() and 1 <= int(value) <= _C.MAX_CHUNKS:
        return "chunks", int(value)
    raise ValueError(
        f"{spec!r}: option {option!r} is not known: choose of {OPTIONS}, "
        f"with N from 1 to {_C.MAX_CHUNKS}"
    )
