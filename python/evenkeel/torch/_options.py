"""A layer's planning options, checked when given, before any process waits for another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .. import _native
from .._arguments import choice, file_path, invalid, number, quoted, thousandths, words
from .._machine import machine_of
from .._reading import FilePath
from ..step_plan import Planner
from ._costs import Costs, Machine, SpillCosts
from ._nodes import NodesOfRanks, checked_nodes

_MOST_CHUNKS = 64


@dataclass(frozen=True)
class LayerOptions:
    """The options of `ExpertParallel` besides shapes and placement; its docstring says what each means."""

    planner: Planner = "level"
    capacity_factor: float = 1.0
    min_segment: int = 64
    imbalance_threshold: float | Literal["auto"] = "auto"
    budget: int | Literal["auto"] | None = None
    chunk_bins: Sequence[int] | None = None
    costs: Costs | None = None
    topology: FilePath | _native.Topology | None = None
    slots: int | None = None
    nodes: NodesOfRanks | None = None
    sum_in_nodes: bool = False

    def __post_init__(self) -> None:
        choice(self.planner, "planner", get_args(Planner) if self.slots is None else ("ep", "level"))
        if self.slots is not None:
            self._keep("slots", number(self.slots, "slots", 1, 2**31 - 1))
            self._refuse_beside_slots()
        self._keep("min_segment", number(self.min_segment, "min_segment", 0, 2**63 - 1))
        if self.capacity_thousandths < 1000:
            raise invalid("capacity_factor", f"is {self.capacity_factor}", "1 or more")
        self._keep("capacity_factor", self.capacity_thousandths / 1000)
        if not isinstance(self.costs, SpillCosts | Machine | None):
            self._keep("costs", Machine(file_path(self.costs, "costs")))
        if not isinstance(self.topology, _native.Topology | None):
            self._keep("topology", self._checked_links(self.topology))
        self._check_threshold()
        if self.budget is not None and self.budget != "auto":
            self._keep("budget", number(self.budget, "budget", 1, 2**63 - 1))
        if self.chunk_bins is not None:
            self._keep("chunk_bins", self._checked_bins(self.chunk_bins))
        if self.nodes is not None:
            self._keep("nodes", checked_nodes(self.nodes))
        if not isinstance(self.sum_in_nodes, bool):
            raise invalid("sum_in_nodes", quoted(self.sum_in_nodes), "True or False")
        if self.sum_in_nodes and self.nodes is None:
            raise invalid("sum_in_nodes", "needs nodes", "nodes as well, such as nodes=8, or False")

    def _keep(self, name: str, value: object) -> None:
        """Stores the value as a plain Python number, so that ranks compare equal whatever numeric type was given."""
        object.__setattr__(self, name, value)

    def _refuse_beside_slots(self) -> None:
        """Refuses options of our own exchange, which do not apply to another dispatcher."""
        for name, given in (("budget", self.budget), ("chunk_bins", self.chunk_bins)):
            if given is not None:
                why = 'cuts a step into chunks, which mode="slots" cannot do'
                raise invalid(name, why, 'mode="exchange", or to leave it out')
        if self.nodes is not None:
            why = "applies only to evenkeel's exchange; with slots the framework's dispatcher sends the rows"
            raise invalid("nodes", why, 'mode="exchange", or to leave it out')
        if self.capacity_factor != 1:
            raise invalid("capacity_factor", 'applies only to least-loaded, which mode="slots" cannot use', "1.0")

    def _checked_links(self, topology: FilePath) -> _native.Topology:
        if self.planner != "level":
            raise invalid("topology", f"planner {self.planner} does not use links", "planner level, or no topology")
        if isinstance(self.costs, SpillCosts):
            why = "are SpillCosts, which have one rate for all links of topology"
            raise invalid("costs", why, "a Machine or its file, or no topology")
        made = machine_of(None, 1, topology)
        _native.require_links(made)
        return made

    def _check_threshold(self) -> None:
        threshold: Any = self.imbalance_threshold
        if self.decides_by_gain:
            return
        allowed = "auto, or max/mean from 0"
        if isinstance(threshold, str | bool | None):
            raise invalid("imbalance_threshold", quoted(threshold), allowed)
        counted = thousandths(threshold, "imbalance_threshold")
        if counted < 0:
            raise invalid("imbalance_threshold", quoted(threshold), allowed)
        self._keep("imbalance_threshold", counted / 1000)
        if self.costs is not None and self.links is None:
            why = "have no effect if imbalance_threshold is a number"
            raise invalid("costs", why, 'imbalance_threshold="auto", or no costs')

    def _checked_bins(self, bins: Sequence[int]) -> list[int]:
        if self.budget is None:
            raise invalid("chunk_bins", "needs budget, which the chunks must fit", "budget as well, or no chunk_bins")
        if not isinstance(bins, Sequence):
            raise invalid("chunk_bins", quoted(bins), "a list of numbers of chunks, like [1, 2, 4, 8]")
        counted = [number(chunks, "chunk_bins", 1, _MOST_CHUNKS) for chunks in bins]
        if not counted or counted != sorted(set(counted)) or math.lcm(*counted) > _MOST_CHUNKS:
            right = "ascending numbers of chunks whose least common multiple is at most"
            raise invalid("chunk_bins", f"{counted}", f"{right} {_MOST_CHUNKS}, like [1, 2, 4, 8]")
        return counted

    @property
    def links(self) -> _native.Topology | None:
        """The topology, if links within and between nodes differ, so that plans depend on it; else None."""
        known = self.topology
        machine = self.costs if isinstance(self.costs, Machine) else None
        return known if isinstance(known, _native.Topology) and _native.links_differ(known, machine) else None

    @property
    def capacity_thousandths(self) -> int:
        return thousandths(self.capacity_factor, "capacity_factor")

    @property
    def decides_by_gain(self) -> bool:
        """Whether predicted seconds decide, rather than only max/mean."""
        return isinstance(self.imbalance_threshold, str) and self.imbalance_threshold == "auto"

    @property
    def threshold_thousandths(self) -> int:
        if self.decides_by_gain:
            return 1000
        return thousandths(self.imbalance_threshold, "imbalance_threshold")  # type: ignore[arg-type]


def slots_of(mode: str, slots: int | None) -> int | None:
    """The number of slots of a framework's layers; None if our own exchange sends the rows."""
    if choice(mode, "mode", ("exchange", "slots")) == "slots":
        return 4 if slots is None else slots
    if slots is not None:
        raise invalid("slots", 'applies only to mode="slots"; mode is "exchange"', 'mode="slots", or to leave it out')
    return None


def budget_bytes(budget: int | str | None) -> int | Literal["auto"] | None:
    """A budget as given to a framework's registration: bytes, "4GiB" or "auto"."""
    if budget == "auto":
        return "auto"
    return _native.parse_bytes(words(budget, "budget"), "budget") if isinstance(budget, str) else budget
