"""What the hook keeps between calls: options, the engine, statistics."""

import logging
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from zensync import _C
from zensync._checks import check_choice, check_keys, check_range
from zensync._dgc_state import DGCState
from zensync._explain import explanation
from zensync._groups import check_group, check_options, close_engine, make_engine
from zensync._nccl import moves_gpu_tensors_by_nccl, reason_to_wait
from zensync._report import no_statistics, summary_line, summary_table
from zensync._topology import check_topology, find_nodes
from zensync.dgc import DGC
from zensync.profile import Recorder
from zensync.statistics import Statistics

logger = logging.getLogger("zensync")

_STATE_VERSION = 1
_OPTIONS = (
    "process_group",
    "scheme",
    "chunks",
    "pack_values",
    "wire_dtype",
    "compressor",
    "transport",
    "topology",
    "intra_group",
    "inter_group",
    "profile",
    "log_every",
    "profile_iterations",
    "reprofile_every",
    "deterministic",
)
# Of a process: no other one can have them.
_GROUPS = ("process_group", "intra_group", "inter_group")


class State:
    """The state of one model's `zensync.hook`. Give every model its own.

    Making a State is collective over `process_group`, as `new_group` is: all its ranks do it, in
    the same order, with the same options. If there is no default process group yet, the collective
    part happens at the first gradient bucket.

    Args:
        process_group: the group that DDP averages over; None is the default group.
        scheme: how gradients travel: "auto" tries what suits each bucket and keeps the fastest; or
            one of `zensync.schemes()`, of which "allreduce" is what plain DDP does.
        chunks: word ranges that a bucket is cut into, so that one is added up while another is on
            the wire: 1 to 16, the same on all ranks. None chooses 1 for small buckets and 4 for
            large ones; try 1 if the network is fast and the processors are busy.
        pack_values: squeeze the values without loss, where that makes a message smaller: fewer
            bytes for more work. None leaves it to "auto", and is False with other schemes. It is
            up to each rank, except with "auto". Schemes "auto", "balanced_parallelism" and
            "hierarchical".
        wire_dtype: torch.bfloat16 sends float32 gradients in half the bytes, which is lossy: each
            value is rounded when a rank sends it and once more when the sum is sent back; sums are
            float32. Gradients of other dtypes travel as they are. None is lossless. Schemes whose
            ranks own parts of a gradient: all but "allreduce", "agsparse", "sparcml", "sparcml_coo"
            and "hierarchical". The same on all ranks.
        compressor: a `zensync.DGC`, for models whose gradients are dense. None sends every
            non-zero, without loss.
        transport: "capacity" sends point-to-point without asking for sizes (gloo only), "exact"
            uses collectives of exact sizes. None takes the one that suits the backend.
        topology: "auto" for several ranks per node: gradients are added up inside a node first, and
            the scheme works between nodes, on a part for each rank of a node. Ranks per node are
            torchrun's LOCAL_WORLD_SIZE. None treats all ranks alike. Not with a compressor.
        intra_group, inter_group: the same with groups of your own: the ranks of this rank's node,
            and the ranks with the same place in their nodes. All nodes have as many ranks.
        profile: a file to record for `zensync advise` what the gradients of some iterations look
            like, on rank 0. None records nothing. Not together with a compressor.
        log_every: log one INFO line, on rank 0, every so many iterations; 0 is never.
        profile_iterations: with "auto", in how many iterations it may try schemes before it keeps
            to the fastest; at least 1. None is 6.
        reprofile_every: with "auto", after how many iterations it looks again; at least 1. None is
            500.
        deterministic: with "auto", decide by the first look at the gradients alone, not by
            measured times, and for good: the same gradients then give the same bits in every run.
            The other schemes always do.

    Options can be read as attributes and not be changed. Memory for messages is kept for reuse: up
    to 1 GiB, without what eight iterations in a row did not need; close() gives it back.
    """

    __slots__ = (
        "__weakref__",
        "_dgc",
        "_engine",
        "_iterations_before",
        "_logged",
        "_pinned",
        "_recorder",
        "_waits",
        *_OPTIONS,
    )

    def __init__(
        self,
        process_group: dist.ProcessGroup | None = None,
        *,
        scheme: str = "auto",
        chunks: int | None = None,
        pack_values: bool | None = None,
        wire_dtype: torch.dtype | None = None,
        compressor: DGC | None = None,
        transport: str | None = None,
        topology: str | None = None,
        intra_group: dist.ProcessGroup | None = None,
        inter_group: dist.ProcessGroup | None = None,
        profile: str | os.PathLike[str] | None = None,
        log_every: int = 0,
        profile_iterations: int | None = None,
        reprofile_every: int | None = None,
        deterministic: bool = False,
    ) -> None:
        check_choice("scheme", scheme, [_C.AUTO, *_C.schemes()])
        if chunks is not None:
            check_range("chunks", chunks, 1, _C.MAX_CHUNKS)
        if pack_values is not None and not isinstance(pack_values, bool):
            raise TypeError(f"pack_values is {pack_values!r}: it must be True, False or None")
        check_options(scheme=scheme, pack_values=pack_values, wire_dtype=wire_dtype)
        _check_compressor(compressor, scheme)
        _check_profile_file(profile, compressor)
        if transport is not None:
            check_choice("transport", transport, ["capacity", "exact"])
        check_topology(topology, intra_group, inter_group)
        if compressor is not None and (topology is not None or intra_group is not None):
            raise ValueError(
                "a compressor compresses each rank's own gradient, and with a topology only the "
                "sums of nodes travel: leave one of them out"
            )
        check_range("log_every", log_every, 0)
        _check_profile(scheme, profile_iterations, reprofile_every, deterministic)
        for group in (process_group, intra_group, inter_group):
            check_group(group)
        self.process_group = process_group
        self.scheme = scheme
        self.chunks = chunks
        self.pack_values = pack_values
        self.wire_dtype = wire_dtype
        self.compressor = compressor
        self.transport = transport
        self.topology = topology
        self.intra_group = intra_group
        self.inter_group = inter_group
        self.profile = profile
        self.log_every = log_every
        self.profile_iterations = profile_iterations
        self.reprofile_every = reprofile_every
        self.deterministic = deterministic
        self._pinned: list[tuple[int, str, int, str, bool]] = []
        self._dgc = None if compressor is None else DGCState(compressor)
        self._iterations_before = 0  # of the run that this State was loaded from
        self._logged = 0
        self._waits: bool | None = None  # unknown before the first bucket on a GPU
        self._recorder: Recorder | None = None
        self._engine: _C.Engine | None = None
        if dist.is_initialized():
            self._start()

    def __setattr__(self, name: str, value: Any) -> None:
        """Options are set once: the engine, and the other ranks, hold on to the first value."""
        if name in _OPTIONS and hasattr(self, name):
            raise AttributeError(
                f"{name} of a State cannot be changed: make another one, State({name}=...), on "
                "every rank, and register it with another DistributedDataParallel"
            )
        super().__setattr__(name, value)

    def reduce(
        self,
        bucket: dist.GradBucket,  # type: ignore[name-defined]
    ) -> torch.futures.Future[torch.Tensor]:
        """What `zensync.hook` does with a bucket."""
        engine = self._engine or self._start()
        if self.log_every > 0 and bucket.index() == 0 and engine.rank == 0:
            self._log()
        if self._recorder is not None:
            self._recorder.see(bucket.index(), bucket.buffer())
        future = engine.hook(bucket) if self._dgc is None else self._dgc.hook(engine, bucket)
        if bucket.buffer().is_cuda and self._waits_for_each_bucket():
            future.wait()
        return future

    def stats(self) -> Statistics:
        """What was sent and how long it took.

        `total` and `iterations` cover this State's life, `last` the last finished iteration and
        `buckets` each of its buckets. Sizes are bytes, times seconds on the engine's thread (push
        and pull include waiting for the peers). `dense_bytes` is what a ring all-reduce sends.
        Densities are shares of non-zeros, before on this rank and after in the sum over all ranks;
        None where the scheme does not look at the elements.
        """
        if self._engine is None:
            return no_statistics(self._iterations_before)
        statistics = self._engine.statistics()
        statistics["iterations"] += self._iterations_before
        return statistics

    def summary(self) -> str:
        """The last iteration as a table, a line per bucket."""
        return summary_table(self.stats())

    def explain(self) -> str:
        """Why each bucket is synchronised the way it is: with scheme "auto", for every bucket, a
        table of the schemes with the predicted and the measured time of each, and the numbers they
        come from."""
        choices = [] if self._engine is None else self._engine.choices()
        return explanation(self.scheme, choices)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, between two iterations: with a compressor, what this rank has
        not sent yet; what `deterministic` has decided. The former differs between ranks, so each
        of them saves its own."""
        state: dict[str, Any] = {
            "version": _STATE_VERSION,
            "iterations": self.stats()["iterations"],
        }
        if self.deterministic:
            state["choices"] = self._decisions()
        return state if self._dgc is None else {**state, "dgc": self._dgc.saved()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on as the State that was saved would have: bit for bit, for the same model, options,
        rank and number of ranks. On another rank or number of ranks a compressor starts with
        nothing left to send, and logs a warning: what was not sent is lost once."""
        _check_saved(state_dict)
        done_here = self.stats()["iterations"] - self._iterations_before
        self._pinned = list(state_dict.get("choices", []))
        if self._engine is not None:
            self._engine.pin(self._pinned)
        if self._dgc is not None and "dgc" in state_dict:
            self._dgc.load(state_dict["dgc"])
        elif self._dgc is not None or "dgc" in state_dict:
            here, there = ("a", "none") if self._dgc is not None else ("no", "one")
            logger.warning(
                "this State has %s compressor and the saved one had %s: what a compressor has not "
                "sent is not loaded",
                here,
                there,
            )
        self._iterations_before = state_dict["iterations"] - done_here

    def close(self) -> None:
        """Ends the engine now instead of when the State dies. The State is of no use afterwards."""
        if self._recorder is not None:
            self._recorder.write()
        if self._engine is not None:
            close_engine(self._engine)

    def __getstate__(self) -> dict[str, Any]:
        logger.warning("a process group cannot be saved: it is left out of the saved State")
        options = {name: getattr(self, name) for name in _OPTIONS if name not in _GROUPS}
        return {**options, "state_dict": self.state_dict()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        logger.warning("the loaded State uses the default process group")
        for name in _OPTIONS:
            setattr(self, name, saved.get(name))
        self._pinned = []
        self._dgc = None if self.compressor is None else DGCState(self.compressor)
        self._iterations_before = 0
        self._logged = 0
        self._waits = None
        self._recorder = None
        self._engine = None
        self.load_state_dict(saved["state_dict"])

    def _start(self) -> _C.Engine:
        self._engine = make_engine(
            self.process_group,
            scheme=self.scheme,
            chunks=self.chunks or 0,
            pack_values=self.pack_values,
            wire_dtype=self.wire_dtype,
            transport=self.transport or "",
            compressor=self.compressor,
            profile_iterations=self.profile_iterations or _C.PROFILE_ITERATIONS,
            reprofile_every=self.reprofile_every or _C.REPROFILE_EVERY,
            deterministic=self.deterministic,
            nodes=find_nodes(self.process_group, self.topology, self.intra_group, self.inter_group),
        )
        self._engine.pin(self._pinned)
        ranks = dist.get_world_size(self.process_group)
        if self._dgc is not None:
            self._dgc.start(self._engine, ranks=ranks)
        if self.profile is not None and self._engine.rank == 0:
            self._recorder = Recorder(Path(self.profile), ranks)
        return self._engine

    def _waits_for_each_bucket(self) -> bool:
        if self._waits is None:
            reason = ""
            if moves_gpu_tensors_by_nccl(self.process_group):
                reason = reason_to_wait(self)
            if reason:
                logger.warning("buckets are synchronised one by one, beside NCCL: %s", reason)
            self._waits = bool(reason)
        return self._waits

    def _decisions(self) -> list[tuple[int, str, int, str, bool]]:
        """What `deterministic` has decided, here or in the run that this State was loaded from."""
        if self._engine is None:
            return self._pinned
        return self._engine.pinned()

    def _log(self) -> None:
        """Called when an iteration begins: everything earlier is finished."""
        statistics = self.stats()
        iterations = statistics["iterations"]
        if iterations != self._logged and iterations % self.log_every == 0:
            self._logged = iterations
            logger.info("%s", summary_line(statistics))


def _check_saved(state_dict: dict[str, Any]) -> None:
    """Raises ValueError if it is not what state_dict() returns."""
    version = state_dict.get("version")
    if version != _STATE_VERSION:
        raise ValueError(
            f"the state has version {version}, this zensync reads version {_STATE_VERSION}"
        )
    check_keys("the state", state_dict, ["version", "iterations"], optional=["dgc", "choices"])
    iterations = state_dict["iterations"]
    if not isinstance(iterations, int) or isinstance(iterations, bool) or iterations < 0:
        raise ValueError(f"the state has done {iterations!r} iterations: it is not one of a State")


def _check_profile(
    scheme: str, profile_iterations: int | None, reprofile_every: int | None, deterministic: bool
) -> None:
    given = {"profile_iterations": profile_iterations, "reprofile_every": reprofile_every}
    for name, value in given.items():
        if value is None:
            continue
        check_range(name, value, 1)
        if scheme != _C.AUTO or deterministic:
            raise ValueError(
                f"{name} has no effect on scheme {scheme!r}"
                f"{' if deterministic' if deterministic else ''}: leave it out"
            )
    if not isinstance(deterministic, bool):
        raise TypeError(f"deterministic is {deterministic!r}: it must be True or False")


def _check_compressor(compressor: DGC | None, scheme: str) -> None:
    if compressor is not None and not isinstance(compressor, DGC):
        raise TypeError(f"compressor is {compressor!r}: it must be a zensync.DGC or None")
    if compressor is not None and scheme == "allreduce":
        raise ValueError(
            "scheme 'allreduce' sends every element, so a compressor would lose accuracy and save "
            "nothing: choose another scheme, or compressor=None"
        )


def _check_profile_file(profile: object, compressor: DGC | None) -> None:
    if profile is None:
        return
    if not isinstance(profile, str | os.PathLike):
        raise TypeError(f"profile is {profile!r}: it must be the path of a file to write")
    if compressor is not None:
        raise ValueError(
            "profile records gradients as they are, not what a compressor sends of them: leave out "
            "one of the two"
        )
