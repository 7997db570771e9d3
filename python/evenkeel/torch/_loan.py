"""Weights that a chunk borrows, or all chunks of a step: they travel once a pass, and their gradients go home once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from .. import _native
from ._chunk import add_experts, unaliased, wide
from ._exchange import Exchange, Rows, to_device
from ._faults import Pending
from ._levels import Lending, lending_of
from ._phase_range import phase_range


class Loan:
    def __init__(
        self, exchange: Exchange, native: _native.Loan, transfers: np.ndarray | None = None, several: bool = True
    ) -> None:
        """With `several` chunks, gradients are summed at least in f32; those of one chunk are sent home as they are.

        `transfers` `[T, 3]` are the transfers of all ranks behind the loan: expert, home and borrower.
        """
        self.exchange, self.native, self.several = exchange, native, several
        self.lending = None
        """How weights are sent in two levels, if the layer has nodes."""
        if exchange.nodes is not None and transfers is not None:
            self.lending = lending_of(exchange.nodes, native, transfers)
        self._pending: list[tuple[torch.Tensor, torch.Tensor, Pending | None]] = []
        self._sums: list[torch.Tensor] = []

    def borrow(self, weights: Sequence[torch.Tensor]) -> None:
        """Starts all transfers; `weights` are those of experts at home."""
        slots, counts = self.native.lent, Rows(self.native.lent_counts, self.native.borrowed_counts)
        if self.lending is not None:
            slots, counts = self.lending.lent, self.lending.levels.first
        lent = to_device(slots, weights[0].device)
        for weight in weights:
            with phase_range("weights"):
                mine = weight.detach().index_select(0, lent)
                out = mine.new_empty((len(self.native.borrowed), *mine.shape[1:]))
                direct = out[: sum(counts.received)]
                self._pending.append((mine, out, self.exchange.start("weights", mine, *counts, direct)[1]))

    def weights(self) -> Iterator[torch.Tensor]:
        """The borrowed experts' weights; waits for each when it is first taken."""
        for i, (_, out, pending) in enumerate(self._pending):
            if pending is not None:
                self._wait(i)  # it also frees the lent copy
                if self.lending is not None:
                    out = self._passed_on(out, self.lending)
                    self._pending[i] = (out, out, None)
            yield out

    def _wait(self, i: int) -> torch.Tensor:
        _, out, pending = self._pending[i]
        if pending is not None:
            with phase_range(f"wait for {pending.place.phase}"):
                pending.wait()
            self._pending[i] = (out, out, None)
        return out

    def _passed_on(self, out: torch.Tensor, lending: Lending) -> torch.Tensor:
        """Passes on weights within nodes. Returns all borrowed weights in order; `out` has those sent from home."""
        passed, arrives_at = to_device(lending.passed, out.device), to_device(lending.arrives_at, out.device)
        direct, forwarded = out.split(lending.levels.arrival_counts)
        self.exchange.pass_on("weights", direct, passed, lending.levels.passed, forwarded)
        return out.index_select(0, arrives_at) if len(forwarded) > 0 else out

    def release(self) -> None:
        for _ in self.weights():  # no transfer may be in flight when a pass ends
            pass
        self._pending.clear()

    def add(self, grads: list[torch.Tensor]) -> None:
        """Adds a chunk's gradients of the borrowed weights that want one."""
        if not self._sums:
            self._sums = [grad.to(wide(grad.dtype)) for grad in unaliased(grads)] if self.several else grads
        else:
            for total, grad in zip(self._sums, grads, strict=True):
                total.add_(grad)

    def give_back(self, wanted: Sequence[torch.Tensor]) -> None:
        """Collective: starts sending the sums home, rounded once; `wanted` are the weights that want gradients."""
        self.release()
        borrowed, sums, self._sums = len(self.native.borrowed), self._sums, []
        counts = self.native.borrowed_counts, self.native.lent_counts
        for i, weight in enumerate(wanted):
            with phase_range("weight gradients"):
                mine = sums[i].to(weight.dtype) if sums else weight.new_zeros((borrowed, *weight.shape[1:]))
                self._pending.append((mine, *self.exchange.start("weight gradients", mine, *counts)))

    def take_back(self, homes: Sequence[torch.Tensor]) -> None:
        """Adds the gradients that other ranks send back to those at home."""
        for i, home in enumerate(homes):
            add_experts(home, self.native.lent, self._wait(i))
        self._pending.clear()
