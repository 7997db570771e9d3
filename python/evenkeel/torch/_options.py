"""How a layer is planned: checked when they are given, before any process waits for another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from .. import _native
from .._arguments import choice, instance, invalid, number, thousandths
from ..step_plan import Planner
from ._costs import SpillCosts

_MOST_CHUNKS = 64


@dataclass(frozen=True)
class LayerOptions:
    """What `ExpertParallel` takes besides shapes and placement; it says what each means.

    Raises:
        InvalidArgument: an option is out of range.
    """

    planner: Planner = "level"
    capacity_factor: float = 1.0
    min_segment: int = 64
    imbalance_threshold: float | Literal["auto"] = "auto"
    budget: int | None = None
    chunk_bins: Sequence[int] | None = None
    costs: SpillCosts | None = None

    def __post_init__(self) -> None:
        choice(self.planner, "planner", get_args(Planner))
        number(self.min_segment, "min_segment", 0, 2**63 - 1)
        if self.capacity_thousandths < 1000:
            raise invalid("capacity_factor", f"is {self.capacity_factor}", "1 or more")
        self._check_threshold()
        if self.budget is not None:
            number(self.budget, "budget", 1, 2**63 - 1)
        if self.chunk_bins is not None:
            self._check_bins(self.chunk_bins)

    def _check_threshold(self) -> None:
        threshold: object = self.imbalance_threshold
        if self.costs is not None:
            instance(self.costs, SpillCosts, "costs")
        if self.decides_by_gain:
            return
        if isinstance(threshold, bool) or not isinstance(threshold, int | float) or not threshold >= 0:
            raise invalid("imbalance_threshold", repr(threshold), '"auto", or max/mean from 0')
        thousandths(float(threshold), "imbalance_threshold")
        if self.costs is not None:
            raise invalid("costs", "decide nothing beside a threshold", 'imbalance_threshold="auto", or no costs')

    def _check_bins(self, bins: Sequence[int]) -> None:
        if self.budget is None:
            raise invalid("chunk_bins", "there is no budget that chunks must fit", "a budget, or no bins")
        if not isinstance(bins, Sequence):
            raise invalid("chunk_bins", repr(bins), "a list of numbers of chunks, like [1, 2, 4, 8]")
        for chunks in bins:
            number(chunks, "chunk_bins", 1, _MOST_CHUNKS)
        if not bins or list(bins) != sorted(set(bins)) or math.lcm(*bins) > _MOST_CHUNKS:
            raise invalid(
                "chunk_bins",
                f"{list(bins)}",
                f"ascending numbers of chunks whose least common multiple is at most {_MOST_CHUNKS}, like [1, 2, 4, 8]",
            )

    @property
    def capacity_thousandths(self) -> int:
        return thousandths(self.capacity_factor, "capacity_factor")

    @property
    def decides_by_gain(self) -> bool:
        """Whether predicted seconds decide, not max/mean alone."""
        return self.imbalance_threshold == "auto"

    @property
    def threshold_thousandths(self) -> int:
        if self.decides_by_gain:
            return 1000
        return thousandths(float(self.imbalance_threshold), "imbalance_threshold")


def budget_bytes(budget: int | str | None) -> int | None:
    """A budget as given to a framework's registration: bytes, or "4GiB"."""
    return _native.parse_bytes(budget, "budget") if isinstance(budget, str) else budget
