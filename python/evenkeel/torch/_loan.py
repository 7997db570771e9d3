"""Weights that the chunks of a step borrow together: they travel once a pass, and their gradients go home once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .. import _native
from ._chunk import add_experts, apart, wide
from ._exchange import Exchange


class Loan:
    def __init__(self, exchange: Exchange, native: _native.Loan) -> None:
        self.exchange, self.native = exchange, native
        self._pending: list[tuple[torch.Tensor, torch.Tensor, Any]] = []
        self._sums: list[torch.Tensor] = []

    def borrow(self, weights: Sequence[torch.Tensor]) -> None:
        """Posts all; `weights` are those of experts at home."""
        lent = torch.tensor(self.native.lent, dtype=torch.int64, device=weights[0].device)
        counts = self.native.lent_counts, self.native.borrowed_counts
        for weight in weights:
            mine = weight.detach().index_select(0, lent)
            self._pending.append((mine, *self.exchange.start("weights", mine, *counts)))

    def weights(self) -> Iterator[torch.Tensor]:
        """Of the borrowed experts; each is waited for when it is first taken."""
        for i, (_, out, pending) in enumerate(self._pending):
            if pending is not None:
                pending.wait()
                self._pending[i] = (out, out, None)  # what was lent is gone
            yield out

    def release(self) -> None:
        for _ in self.weights():  # nothing is under way when a pass ends
            pass
        self._pending.clear()

    def add(self, grads: list[torch.Tensor]) -> None:
        """A chunk's gradients of the borrowed weights that want one; summed at least in f32."""
        if not self._sums:
            self._sums = [grad.to(wide(grad.dtype)) for grad in apart(grads)]
        else:
            for total, grad in zip(self._sums, grads, strict=True):
                total.add_(grad)

    def give_back(self, wanted: Sequence[torch.Tensor], homes: Sequence[torch.Tensor]) -> None:
        """Collective: sends the sums home, rounded once, and adds to `homes` what comes from other ranks.

        Both are of the weights that want gradients.
        """
        borrowed, sums, self._sums = len(self.native.borrowed), self._sums, []
        back = []
        for i, weight in enumerate(wanted):
            mine = sums[i].to(weight.dtype) if sums else weight.new_zeros((borrowed, *weight.shape[1:]))
            counts = self.native.borrowed_counts, self.native.lent_counts
            back.append((mine, *self.exchange.start("weight gradients", mine, *counts)))
        for home, (_, came, pending) in zip(homes, back, strict=True):
            pending.wait()
            add_experts(home, self.native.lent, came)
