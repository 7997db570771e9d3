"""Weights that a chunk borrows, or all chunks of a step: they travel once a pass, and their gradients go home once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .. import _native
from ._chunk import add_experts, apart, wide
from ._exchange import Exchange, to_device
from ._phase_range import phase_range


class Loan:
    def __init__(self, exchange: Exchange, native: _native.Loan, several: bool = True) -> None:
        """Of `several` chunks the gradients are summed at least in f32; those of one go home as they are."""
        self.exchange, self.native, self.several = exchange, native, several
        self._pending: list[tuple[torch.Tensor, torch.Tensor, Any]] = []
        self._sums: list[torch.Tensor] = []

    def borrow(self, weights: Sequence[torch.Tensor]) -> None:
        """Posts all; `weights` are those of experts at home."""
        lent = to_device(self.native.lent, weights[0].device)
        counts = self.native.lent_counts, self.native.borrowed_counts
        for weight in weights:
            with phase_range("weights"):
                mine = weight.detach().index_select(0, lent)
                self._pending.append((mine, *self.exchange.start("weights", mine, *counts)))

    def weights(self) -> Iterator[torch.Tensor]:
        """Of the borrowed experts; each is waited for when it is first taken."""
        for i, (_, out, pending) in enumerate(self._pending):
            if pending is not None:
                with phase_range(f"wait for {pending.place.phase}"):
                    pending.wait()
                self._pending[i] = (out, out, None)  # what was lent is gone
            yield out

    def release(self) -> None:
        for _ in self.weights():  # nothing is under way when a pass ends
            pass
        self._pending.clear()

    def add(self, grads: list[torch.Tensor]) -> None:
        """A chunk's gradients of the borrowed weights that want one."""
        if not self._sums:
            self._sums = [grad.to(wide(grad.dtype)) for grad in apart(grads)] if self.several else grads
        else:
            for total, grad in zip(self._sums, grads, strict=True):
                total.add_(grad)

    def give_back(self, wanted: Sequence[torch.Tensor]) -> None:
        """Collective: posts the sums, rounded once; `wanted` are the weights that want gradients."""
        self.release()
        borrowed, sums, self._sums = len(self.native.borrowed), self._sums, []
        counts = self.native.borrowed_counts, self.native.lent_counts
        for i, weight in enumerate(wanted):
            with phase_range("weight gradients"):
                mine = sums[i].to(weight.dtype) if sums else weight.new_zeros((borrowed, *weight.shape[1:]))
                self._pending.append((mine, *self.exchange.start("weight gradients", mine, *counts)))

    def take_back(self, homes: Sequence[torch.Tensor]) -> None:
        """Adds what other ranks gave back to the gradients at home."""
        for home, came in zip(homes, self.weights(), strict=True):
            add_experts(home, self.native.lent, came)
        self._pending.clear()
