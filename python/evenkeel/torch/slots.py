"""Balance behind any dispatcher: `ExpertSlots`, for transports and kernels that are not ours.

Each rank has a few spare expert slots. A step's plan says whose weights lie in them; the ids that a router chose become
places, (rank, expert or slot), and a dispatcher that knows nothing of it carries the rows to more experts than there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist

from .. import _native
from .._arguments import invalid, public
from ..placement import Placement
from ._chunk import Experts
from ._costs import Costs
from ._cut import REASONS, Counted
from ._options import LayerOptions
from ._slots import SlotStep, places_of
from .expert_parallel import ExpertParallel, Stock, require_callables

Dispatcher = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, SlotStep], torch.Tensor]


class ExpertSlots(ExpertParallel):
    """One MoE layer on this rank, whose rows somebody else's dispatcher carries.

    Args:
        num_experts: E, over all ranks; every rank has as many.
        slots: how many experts a rank may borrow in a step. The dispatcher takes them for experts: it is one of
            `num_places` = E + P slots, of which each rank has `places_here` = E / P + slots.
        planner: "level" or "ep" (nothing moves).
        group, placement, layer, min_segment, imbalance_threshold, costs, name: as for `ExpertParallel`.
    """

    @public
    def __init__(
        self,
        num_experts: int,
        group: dist.ProcessGroup | None = None,
        *,
        slots: int = 4,
        planner: Literal["ep", "level"] = "level",
        placement: Placement | None = None,
        layer: int | None = None,
        min_segment: int = 64,
        imbalance_threshold: float | Literal["auto"] = "auto",
        costs: Costs | None = None,
        name: str = "",
    ) -> None:
        options = LayerOptions(planner, 1.0, min_segment, imbalance_threshold, None, None, costs, slots)
        self._begin(num_experts, group, options, placement, layer, name)

    def _begin(
        self,
        num_experts: int,
        group: dist.ProcessGroup | None,
        options: LayerOptions,
        placement: Placement | None,
        layer: int | None,
        name: str,
    ) -> None:
        super()._begin(num_experts, group, options, placement, layer, name)
        natives = np.bincount(self._homes, minlength=self.exchange.ranks)
        if (natives != natives[0]).any():
            raise invalid(
                "num_experts",
                f"{self.num_experts} are at home on {self.exchange.ranks} ranks as {natives.tolist()}",
                "as many on each rank, which dispatchers take for granted",
            )
        assert options.slots is not None
        self.slots = options.slots
        self.places_here = int(natives[0]) + self.slots
        self.num_places = self.exchange.ranks * self.places_here

    @torch.compiler.disable
    def __call__(  # type: ignore[override]
        self,
        hidden: torch.Tensor,
        top_k_index: torch.Tensor,
        top_k_weights: torch.Tensor,
        experts: Experts,
        weights: Mapping[str, torch.Tensor],
        dispatcher: Dispatcher,
        stock: Stock | None = None,
    ) -> torch.Tensor:
        """What the dispatcher makes of the step.

        Args:
            hidden, top_k_index, top_k_weights, experts, weights: as for `ExpertParallel`.
            dispatcher: `dispatcher(hidden, places, top_k_weights, run)`: brings rows to their places, `[tokens, k]` in
                0..num_places-1 and -1 for none, of which rank r has those from `r * places_here`; calls
                `run(rows, slots)` once on the rows that came, by source rank and those of a source by place, where `slots`
                are places less this rank's first; and gives the output of each of this rank's tokens. A row comes once
                for each of its places here. Rows that come sorted by place: `run.sorted(experts, rows, counts)`, with
                experts that take the number of rows of each place for `slots`. What more tensors a row has goes behind
                (`run(rows, slots, probs)`), and is given to experts behind their weights.
            stock: `stock(hidden, top_k_index, top_k_weights)` is what a step in which nothing moves runs instead.

        Raises:
            InvalidArgument: as `ExpertParallel` does; and on this rank, if the dispatcher brings other rows.
            CommError: as `ExpertParallel` does.
        """
        device = getattr(hidden, "device", torch.device("cpu"))
        with self.exchange.step("forward", device):
            ids = self._ids(hidden, top_k_index, top_k_weights, weights)
            require_callables(experts=experts, dispatcher=dispatcher, stock=stock)
            tables = self._tables(hidden, ids, top_k_weights, experts, weights, stock is not None)
        moves = self._layout.transfers > 0
        if stock is not None and not moves:
            return self.exchange.watch("stock", lambda: stock(hidden, top_k_index, top_k_weights), device)
        with self.exchange.step("forward", device):
            step = SlotStep(self.exchange, tables, moves, experts, list(weights), list(weights.values()))
        places = places_of(ids, tables)
        try:
            return self.exchange.watch("dispatcher", lambda: dispatcher(hidden, places, top_k_weights, step), device)
        finally:
            step.end()

    def _tables(
        self,
        hidden: torch.Tensor,
        ids: torch.Tensor,
        top_k_weights: torch.Tensor,
        experts: Experts,
        weights: Mapping[str, torch.Tensor],
        has_stock: bool,
    ) -> _native.SlotTables:
        """Where this rank's assignments go, from the counts of all ranks: all that the host reads of a step."""
        _, every, _ = self._agree(hidden, ids, top_k_weights, experts, weights, has_stock, 1, reads_ids=False)
        counts = Counted.of(0, len(ids), every, np.empty((0, ids.shape[1]), np.int64)).counts[:, 0]
        tables = self._layout.slots(np.ascontiguousarray(counts))
        at_home = np.bincount(self._homes, weights=counts.sum(axis=0), minlength=self.exchange.ranks)
        transfers = self._layout.transfers
        self._note(
            {
                "training": torch.is_grad_enabled(),
                "chunks": 1,
                "transfers": transfers,
                "reason": REASONS[transfers > 0],
                "lacked_memory": False,
                "rank_loads": self._layout.rank_loads,
                "home_loads": at_home.astype(np.int64).tolist(),
            }
        )
        return tables


def layer_with(options: LayerOptions, num_experts: int, group: dist.ProcessGroup | None, name: str) -> ExpertParallel:
    """A framework's layer, of the class that its options are for."""
    made: ExpertParallel = object.__new__(ExpertParallel if options.slots is None else ExpertSlots)
    made._begin(num_experts, group, options, None, None, name)
    return made


__all__ = ["ExpertSlots"]
