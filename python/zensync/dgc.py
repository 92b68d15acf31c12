"""Deep gradient compression: top-k with error feedback, for models whose gradients are dense."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from zensync import _C  # noqa: F401  (registers torch.ops.zensync)
from zensync._checks import check_choice, check_range


class DGC:
    """Sends the largest gradients now and keeps the rest for later.

    Give it to a State, `zensync.State(compressor=zensync.DGC(0.05))`, or compress single tensors
    with `compress` and `decompress`. As in "Deep Gradient Compression" (Lin et al., ICLR 2018), in
    float32 and for each rank alone:

    1. The gradient is clipped, if `clip_norm` is given, and runs through the momentum.
    2. It is added to the residual, what earlier iterations have not sent.
    3. Elements whose magnitude reaches the threshold are sent; the rest stays in the residual.
    4. Momentum-factor masking clears the momentum of what was sent.

    The mean over the ranks of what was sent is what the optimizer sees. With `momentum` here, use
    an optimizer without momentum.

    The threshold is one for the whole model. It comes from magnitudes sampled in the iteration
    before, so that no bucket waits for the others; the first iteration has a threshold for each
    bucket. It is corrected so that the mean share of what is sent is `density`; single iterations
    vary with their gradients, but never send more than 1.3 times that, lowest indices first.
    NaN and infinities are sent always and never stay in the residual.

    Args:
        density: share of the elements to send, above 0 and at most 1; 1 is plain DDP. Start with
            0.05; 0.01 needs error feedback to converge.
        error_feedback: keep what is not sent. Without, it is lost.
        momentum: momentum correction, the factor that your optimizer would have used. 0 is none.
        nesterov: Nesterov momentum.
        clip_norm: clips each rank's gradient at clip_norm / sqrt(ranks) before it is accumulated.
            The norm is that of the whole gradient, so buckets wait until backward is through.
        momentum_masking: clear the momentum of what is sent, so that it is not stale.
        warmup: iterations in which the density falls from density^(1 / (stages + 1)) to `density`,
            by the same factor in each stage. The paper takes four epochs, an epoch a stage.
        warmup_stages: how many stages the warm-up has.
        tp_group: process group of ranks that hold parts of the same model (tensor parallelism).
            Samples are gathered over a clone of it, so that its ranks use one threshold.
        replicated: parameters that all ranks of tp_group hold alike; they are counted once.
        sample_ratio: at least this share of the elements is sampled, more if that is too few.
        threshold: "global", one for the model as above, or "bucket", one for each bucket, sampled
            just before it is selected.
        residual_dtype: "float32", or "parameter" to keep residual and momentum in the gradients'
            own type.
        grad_scaler: the torch.amp.GradScaler of the training. Its scale changes; residuals are
            kept without it. Needed if losses are scaled.
        seed: of the places that are sampled.

    Raises:
        ValueError, TypeError: an option is out of range; the message says what it may be.
    """

    __slots__ = (
        "clip_norm",
        "density",
        "error_feedback",
        "grad_scaler",
        "momentum",
        "momentum_masking",
        "nesterov",
        "replicated",
        "residual_dtype",
        "sample_ratio",
        "seed",
        "threshold",
        "tp_group",
        "warmup",
        "warmup_stages",
    )

    def __init__(
        self,
        density: float = 0.05,
        *,
        error_feedback: bool = True,
        momentum: float = 0.0,
        nesterov: bool = False,
        clip_norm: float | None = None,
        momentum_masking: bool = True,
        warmup: int | None = None,
        warmup_stages: int = 4,
        tp_group: dist.ProcessGroup | None = None,
        replicated: Iterable[torch.Tensor] = (),
        sample_ratio: float = 0.01,
        threshold: str = "global",
        residual_dtype: str = "float32",
        grad_scaler: torch.amp.GradScaler | None = None,
        seed: int = 0,
    ) -> None:
        _check_number("density", density, above=0, at_most=1)
        _check_number("momentum", momentum, at_least=0, below=1)
        _check_number("sample_ratio", sample_ratio, above=0, at_most=1)
        if clip_norm is not None:
            _check_number("clip_norm", clip_norm, above=0)
        check_range("warmup", 1 if warmup is None else warmup, 1)
        check_range("warmup_stages", warmup_stages, 1)
        check_range("seed", seed, 0, 2**32 - 1)
        for name, value in (
            ("error_feedback", error_feedback),
            ("nesterov", nesterov),
            ("momentum_masking", momentum_masking),
        ):
            if not isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}: it must be True or False")
        check_choice("threshold", threshold, ("global", "bucket"))
        check_choice("residual_dtype", residual_dtype, ("float32", "parameter"))
        if momentum > 0 and not error_feedback:
            raise ValueError(
                f"momentum is {momentum} without error feedback: momentum correction accumulates "
                "in the residual, so set error_feedback=True, or momentum=0 and use the optimizer's"
            )
        if nesterov and momentum == 0:
            raise ValueError("nesterov is True and momentum is 0: give a momentum, 0.9 say")
        self.replicated = tuple(replicated)
        if self.replicated and tp_group is None:
            raise ValueError("replicated parameters are given without a tp_group: give both")
        self.density = float(density)
        self.error_feedback = error_feedback
        self.momentum = float(momentum)
        self.nesterov = nesterov
        self.clip_norm = clip_norm
        self.momentum_masking = momentum_masking
        self.warmup = warmup
        self.warmup_stages = warmup_stages
        self.tp_group = tp_group
        self.sample_ratio = float(sample_ratio)
        self.threshold = threshold
        self.residual_dtype = residual_dtype
        self.grad_scaler = grad_scaler
        self.seed = seed

    def compress(
        self, tensor: torch.Tensor, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The largest elements of a tensor: their positions in tensor.flatten() and their values.

        About `density` of the elements, at most 1.3 times that and at least one unless all are
        zero. A `residual` of the same shape, float32 or of the tensor's type, is added first and
        then holds what was not sent. Of the options only density, sample_ratio and seed count here.
        """
        indices, values = torch.ops.zensync.dgc_compress(
            tensor, residual, self.density, self.sample_ratio, self.seed
        )
        return indices, values

    @staticmethod
    def decompress(
        indices: torch.Tensor, values: torch.Tensor, shape: Sequence[int]
    ) -> torch.Tensor:
        """The tensor of that shape which holds the values at these positions, and zeros."""
        dense: torch.Tensor = torch.ops.zensync.dgc_decompress(indices, values, shape)
        return dense

    def engine_options(self, ranks: int) -> dict[str, Any]:
        """What the engine of a group of so many ranks is told."""
        return {
            "density": self.density,
            "momentum": self.momentum,
            "nesterov": self.nesterov,
            "momentum_masking": self.momentum_masking,
            "clip_norm": 0.0 if self.clip_norm is None else self.clip_norm / math.sqrt(ranks),
            "warmup": self.warmup or 0,
            "warmup_stages": self.warmup_stages,
            "sample_ratio": self.sample_ratio,
            "per_bucket": self.threshold == "bucket",
            "seed": self.seed,
        }

    def __getstate__(self) -> dict[str, Any]:
        """Without the objects of this process: groups, the scaler and the parameters."""
        return {
            name: getattr(self, name)
            for name in self.__slots__
            if name not in ("tp_group", "replicated", "grad_scaler")
        }

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.tp_group = None
        self.replicated = ()
        self.grad_scaler = None
        for name, value in saved.items():
            setattr(self, name, value)

    def __repr__(self) -> str:
        return f"zensync.DGC(density={self.density}, threshold={self.threshold!r})"


@torch.library.register_fake("zensync::dgc_compress")  # type: ignore[untyped-decorator]
def _compress_fake(
    tensor: torch.Tensor,
    residual: torch.Tensor | None,
    density: float,
    sample_ratio: float,
    seed: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    count = torch.library.get_ctx().new_dynamic_size()
    return tensor.new_empty(count, dtype=torch.int64), tensor.new_empty(count)


@torch.library.register_fake("zensync::dgc_decompress")  # type: ignore[untyped-decorator]
def _decompress_fake(
    indices: torch.Tensor, values: torch.Tensor, shape: Sequence[int]
) -> torch.Tensor:
    return values.new_empty(shape)


def _check_number(
    name: str,
    value: float,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name} is {value!r}: it must be a number")
    bounds = (
        (above, "above", above is None or value > above),
        (at_least, "at least", at_least is None or value >= at_least),
        (below, "below", below is None or value < below),
        (at_most, "at most", at_most is None or value <= at_most),
    )
    if not math.isfinite(value) or not all(holds for _, _, holds in bounds):
        wanted = " and ".join(f"{word} {bound:g}" for bound, word, _ in bounds if bound is not None)
        raise ValueError(f"{name} is {value}: it must be {wanted}")
