"""Residuals and momenta of a model, kept by parameter and laid out by bucket.

DDP rebuilds its buckets after the first iteration. The memory of a bucket's parameters lies
together in the bucket's order, because one pass reads both; when a bucket with other parameters
comes, its memory is laid anew from where the parameters were.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist

from zensync import _C
from zensync.dgc import DGC

_COMPRESSED = (torch.float32, torch.float16, torch.bfloat16)

Arrays = dict[str, torch.Tensor]  # by name: "residual", "momentum"


@dataclass
class _Place:
    """Where a parameter's memory is: elements [offset, offset + numel) of flat arrays."""

    number: int  # of the parameter, in the order in which they were met: the same in every run
    parameter: torch.Tensor  # held, so that no other one gets its id()
    flat: Arrays
    offset: int

    def arrays(self) -> Arrays:
        end = self.offset + self.parameter.numel()
        return {name: array[self.offset : end] for name, array in self.flat.items()}


@dataclass
class _Bucket:
    flat: Arrays
    segments: list[tuple[int, int, bool]]  # of each parameter: elements, number, counted here


class DGCMemory:
    """What a State keeps for its compressor. Used on the thread that runs backward()."""

    def __init__(self, options: DGC) -> None:
        self._options = options
        self._names = (["residual"] if options.error_feedback else []) + (
            ["momentum"] if options.momentum > 0 else []
        )
        self._places: dict[int, _Place] = {}  # by id() of the parameter
        self._buckets: dict[tuple[int, ...], _Bucket] = {}  # by the ids of its parameters
        self._loaded: dict[int, Arrays] = {}  # by number, of parameters not met yet

    def hook(
        self,
        engine: _C.Engine,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        memory = self._bucket(bucket.parameters(), bucket.buffer())
        scaler = self._options.grad_scaler
        return engine.compressed_hook(
            bucket,
            residual=memory.flat.get("residual"),
            momentum=memory.flat.get("momentum"),
            scale=1.0 if scaler is None else scaler.get_scale(),
            segments=memory.segments,
        )

    def parameters(self) -> dict[int, Arrays]:
        """Copies of everything, by number."""
        copies = {
            place.number: {name: array.clone() for name, array in place.arrays().items()}
            for place in self._places.values()
        }
        return {**self._loaded, **copies}

    def load(self, parameters: dict[int, Arrays]) -> None:
        for number, arrays in parameters.items():
            if arrays and sorted(arrays) != sorted(self._names):
                raise ValueError(
                    f"the saved state of parameter {number} has {sorted(arrays)}, this compressor "
                    f"keeps {sorted(self._names)}: use the options that it was saved with"
                )
        self._loaded = dict(parameters)
        for place in self._places.values():
            self._fill(place)

    def clear(self) -> None:
        self._loaded = {}
        for place in self._places.values():
            for array in place.arrays().values():
                array.zero_()

    def _bucket(self, parameters: list[torch.Tensor], buffer: torch.Tensor) -> _Bucket:
        key = tuple(map(id, parameters))
        found = self._buckets.get(key)
        if found is None:
            found = self._buckets[key] = self._lay_out(parameters, buffer)
        return found

    def _lay_out(self, parameters: list[torch.Tensor], buffer: torch.Tensor) -> _Bucket:
        self._forget_buckets_of(parameters)
        # Other types go through the backend's all-reduce, uncompressed.
        names = self._names if buffer.dtype in _COMPRESSED else []
        own_type = self._options.residual_dtype == "parameter"
        dtype = buffer.dtype if own_type else torch.float32
        flat = {
            name: torch.zeros(buffer.numel(), dtype=dtype, device=buffer.device) for name in names
        }
        segments = []
        offset = 0
        for parameter in parameters:
            before = self._places.get(id(parameter))
            number = len(self._places) if before is None else before.number
            place = _Place(number, parameter, flat, offset)
            if before is None:
                self._fill(place)
            else:
                _copy(place, before.arrays())
            self._places[id(parameter)] = place
            counted = not self._is_counted_elsewhere(parameter)
            segments.append((parameter.numel(), number, counted))
            offset += parameter.numel()
        return _Bucket(flat, segments)

    def _forget_buckets_of(self, parameters: list[torch.Tensor]) -> None:
        ids = set(map(id, parameters))
        self._buckets = {key: b for key, b in self._buckets.items() if ids.isdisjoint(key)}

    def _fill(self, place: _Place) -> None:
        """From what was loaded."""
        saved = self._loaded.pop(place.number, None)
        if saved is not None:
            _copy(place, saved)

    def _is_counted_elsewhere(self, parameter: torch.Tensor) -> bool:
        group = self._options.tp_group
        if group is None or dist.get_rank(group) == 0:
            return False
        return any(parameter is other for other in self._options.replicated)


def _copy(place: _Place, source: Arrays) -> None:
    for name, array in place.arrays().items():
        if source[name].numel() != array.numel():
            raise ValueError(
                f"the saved {name} of parameter {place.number} has {source[name].numel()} elements "
                f"and the parameter {array.numel()}: load the state of the same model"
            )
        array.copy_(source[name])
