"""The rules of the DGC paper in plain PyTorch, for one rank and a whole gradient."""

import math
from dataclasses import dataclass, field

import torch


@dataclass
class Reference:
    """Algorithms 3 and 4 of "Deep Gradient Compression", with the exact threshold of topk."""

    density: float
    momentum: float = 0.0
    nesterov: bool = False
    momentum_masking: bool = True
    error_feedback: bool = True
    clip_norm: float | None = None  # already divided by sqrt(ranks)
    warmup: int = 0
    residual: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    velocity: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    iteration: int = 0

    def send(self, gradient: torch.Tensor) -> torch.Tensor:
        """What this rank sends of a flat gradient: zeros elsewhere."""
        if self.iteration == 0:
            self.residual = torch.zeros_like(gradient)
            self.velocity = torch.zeros_like(gradient)
        if self.clip_norm is not None:
            norm = float(gradient.double().norm())
            gradient = gradient * min(1.0, self.clip_norm / (norm + 1e-6))
        if self.nesterov:
            self.velocity = self.momentum * (self.velocity + gradient)
            self.residual = self.residual + (self.velocity + gradient)
        elif self.momentum > 0:
            self.velocity = self.momentum * self.velocity + gradient
            self.residual = self.residual + self.velocity
        else:
            self.residual = self.residual + gradient
        density = self._density()
        self.iteration += 1
        count = max(1, math.ceil(density * gradient.numel()))
        threshold = self.residual.abs().topk(count).values[-1]
        mask = self.residual.abs() >= threshold
        sent = torch.where(mask, self.residual, 0.0)
        self.residual = torch.where(mask, 0.0, self.residual)
        if self.momentum_masking:
            self.velocity = torch.where(mask, 0.0, self.velocity)
        if not self.error_feedback:
            self.residual = torch.zeros_like(gradient)
        return sent

    def _density(self) -> float:
        """Four stages before the last, the same factor from each to the next."""
        stage = 4 if self.iteration >= self.warmup else self.iteration * 4 // self.warmup
        ratio: float = self.density ** ((stage + 1) / 5)
        return ratio
