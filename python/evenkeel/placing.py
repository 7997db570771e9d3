"""place(): from a routing profile to the home of every expert, with a proof of how good it is."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import MOST_RANKS, ArrayLike, choice, file_path, floats, instance, invalid, number, real
from .placement import Placement
from .profile import RoutingProfile

Solver = Literal["fast", "exact"]
Sizes = Literal["equal", "free"]
Objective = Literal["two-stage", "joint"]
Traffic = Literal["layer-to-layer", "dispatch-combine"]
Pairs = Literal["worst", "total"]
Across = Literal["worst", "sum"]


@dataclass(frozen=True)
class PlacementQuality:
    """How good a placement is on a profile. Ratios are of the ranks' loads, 1 is even.

    Traffic is in transitions of the profile (layer-to-layer) or in assignments sent one way (dispatch-combine),
    summed over all layers; None where the profile has no transitions.
    """

    max_over_mean: NDArray[np.float64]
    """`[L]`, by layer."""
    max_over_mean_mean: float
    """Mean over layers."""
    max_over_mean_worst: float
    """The worst layer's."""
    mean_over_max_mean: float
    relative_excess_mean: float
    crossing: float | None
    """All that leaves its rank."""
    crossing_within_nodes: float | None
    crossing_between_nodes: float | None
    total: float | None
    """With what stays."""
    worst_pair: float | None
    """Of each layer, what its busiest pair of ranks sends; summed."""
    traffic: NDArray[np.float64] | None
    """`[P, P]`, row by sender; the diagonal is what stays."""


class CopiesTried(NamedTuple):
    """A number of redundant experts that was tried."""

    redundant_experts: int
    max_over_mean: float
    """Mean of layers; of several recordings the worst one's."""
    slots: float
    """Of what experts take without copies: 1.125 is an eighth more memory."""


class PlaceResult(Placement):
    """A placement, with what its solver says of it."""

    __slots__ = ("_result", "_tried")
    _result: _native.PlaceResult
    _tried: list[CopiesTried]

    @property
    def copies_tried(self) -> list[CopiesTried]:
        """With `redundant_experts="auto"`: the numbers that were tried. Else empty."""
        return list(self._tried)

    @property
    def objective(self) -> dict[str, float]:
        """What was reached, by name: "balance" (sum over layers and ranks of |load - mean|) and "traffic" (worst or
        all pairs of ranks, over GB/s) for two-stage; "joint_ms" for joint; "max_over_mean" with redundant experts."""
        return dict(self._result.objective)

    @property
    def bound(self) -> dict[str, float]:
        """By the same names, what nobody goes below; `bound_of` says of what problem."""
        return dict(self._result.bound)

    @property
    def bound_of(self) -> dict[str, str]:
        """By the same names, the placements that the bound holds for, in words."""
        return dict(self._result.bound_of)

    @property
    def proven_optimal(self) -> bool:
        """Every objective is at its bound, within the gap that was asked for."""
        return self._result.proven_optimal

    @property
    def solver(self) -> str:
        """Whose answer and bounds these are: "fast" also where "exact" has too many variables (`notes` says so)."""
        return "exact" if self._result.is_exact else "fast"

    @property
    def solve_ms(self) -> float:
        """Milliseconds that the solver took."""
        return self._result.solve_ms

    @property
    def before(self) -> PlacementQuality:
        """Of contiguous homes, or of `from_`."""
        return _quality(self._result.before, self.num_ranks)

    @property
    def after(self) -> PlacementQuality:
        """Of this placement."""
        return _quality(self._result.after, self.num_ranks)

    @property
    def per_recording(self) -> list[tuple[PlacementQuality, PlacementQuality]]:
        """Of several recordings, in order: before and after. Empty for one."""
        return [
            (_quality(before, self.num_ranks), _quality(after, self.num_ranks))
            for before, after in self._result.per_recording
        ]

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know, a sentence each."""
        return list(self._result.notes)

    def __repr__(self) -> str:
        before, after = self._result.before.max_over_mean_mean, self._result.after.max_over_mean_mean
        proven = ", proven optimal" if self.proven_optimal else ""
        return f"{super().__repr__()[:-1]}, max/mean {before:.3f} -> {after:.3f}{proven})"


def place(
    profile: RoutingProfile | Sequence[RoutingProfile],
    ranks: int | None = None,
    nodes: int = 1,
    *,
    topology: str | os.PathLike[str] | None = None,
    redundant_experts: int | Literal["auto"] = 0,
    num_groups: int = 1,
    solver: Solver = "fast",
    sizes: Sizes = "equal",
    objective: Objective = "two-stage",
    traffic: Traffic = "layer-to-layer",
    pairs: Pairs = "worst",
    gap: float = 0.0,
    time_limit: float = 60.0,
    from_: Placement | None = None,
    max_moves: int | None = None,
    sources: ArrayLike | None = None,
    assignment_us: float = 0.1,
    assignment_bytes: float = 8192.0,
    across: Across = "worst",
) -> PlaceResult:
    """Chooses a home for every expert of every layer.

    Args:
        profile: the routing to place for. Of a list, every recording is to be level, each by shares of its own load.
        ranks: P; needed unless `topology` says it.
        nodes: nodes, which the ranks fill in order, with links all alike.
        topology: the machine instead: a file (format evenkeel.topology.v1), or a name: 8xh100, 8xh200, 2x8xh100,
            2x8xh200, gb200-nvl72.
        redundant_experts: copies beyond one of each, in each layer; "auto": as many as pay for their memory, where
            more begin to buy little. What was tried is then in `copies_tried`.
        num_groups: expert groups, each of which stays in one node.
        solver: "fast" (milliseconds, seconds for a large "joint"; with a bound) or "exact" (integer programs; needs a
            build with HiGHS).
        sizes: "equal" (as many experts on each rank, as servers need) or "free".
        objective: "two-stage" (first balance, then traffic) or "joint" (both in predicted milliseconds).
        traffic: what is sent: "layer-to-layer" (from the rank of a token's expert to that of its next) or
            "dispatch-combine" (in each layer from the rank where the token lives, and back).
        pairs: the "worst" pair of ranks of each layer counts, or the "total" of all.
        gap: good enough: this far from the bound, as a fraction of the objective.
        time_limit: seconds for all stages; the best so far is kept.
        from_: start at this placement, and give at most `max_moves` experts (over all layers) another home.
        max_moves: beside `from_`.
        sources: dispatch-combine: `[L, P, E]`, how the assignments of each layer come from the tokens of each rank,
            as `source_counts` counts them in a trace; without them, evenly, and `notes` says so.
        assignment_us: joint: microseconds to compute one assignment.
        assignment_bytes: joint: bytes sent with one assignment, one way.
        across: of several recordings, "worst": all are to be level, the worst first; "sum": what they add up to.

    Returns:
        A Placement that also has `objective`, `bound`, `proven_optimal`, `solver`, `solve_ms`, `before` and `after`.

    Raises:
        InvalidArgument: options contradict each other or the profile.
        Infeasible: there is no such placement: fewer places than experts, groups that do not fit nodes.
        Unsupported: "exact" in a build without HiGHS.
        KeyboardInterrupt: Ctrl-C ends a long solve; what it had is dropped.
    """
    options = _native.PlaceOptions()
    options.set_solver(choice(solver, "solver", get_args(Solver)) == "exact")
    options.set_sizes(choice(sizes, "sizes", get_args(Sizes)) == "free")
    options.set_objective(choice(objective, "objective", get_args(Objective)) == "joint")
    options.set_traffic(choice(traffic, "traffic", get_args(Traffic)) == "dispatch-combine")
    options.set_pairs(choice(pairs, "pairs", get_args(Pairs)) == "total")
    options.set_cost(real(assignment_us, "assignment_us", 0, 1e9), real(assignment_bytes, "assignment_bytes", 0, 1e12))
    options.set_limits(real(time_limit, "time_limit", 0), real(gap, "gap", 0, 1))
    if redundant_experts != "auto":
        options.redundant_experts = number(redundant_experts, "redundant_experts", 0)
    options.num_groups = number(num_groups, "num_groups", 1)
    if (from_ is None) != (max_moves is None):
        raise invalid("from_", "goes with max_moves", "both: a placement, and how many experts may move")
    if from_ is not None and max_moves is not None:
        options.start_from(instance(from_, Placement, "from_")._native, number(max_moves, "max_moves", 0))
    if sources is not None:
        if traffic != "dispatch-combine":
            raise invalid("sources", "are for dispatch-combine", 'to leave them out, or traffic="dispatch-combine"')
        options.set_sources(floats(sources, "sources", 3, "[layers, ranks, experts]"))
    options.set_across(choice(across, "across", get_args(Across)) == "sum")
    if not isinstance(profile, Iterable) and not isinstance(profile, RoutingProfile):
        raise invalid("profile", f"is a {type(profile).__name__}", "a RoutingProfile, or several of them")
    recordings = [profile] if isinstance(profile, RoutingProfile) else list(profile)
    if not recordings:
        raise invalid("profile", "is an empty list", "one profile or more")
    natives = [instance(each, RoutingProfile, "profile")._native for each in recordings]
    machine = machine_of(ranks, nodes, topology)
    tried: list[CopiesTried] = []
    if redundant_experts == "auto":
        options.redundant_experts, all_tried = _native.choose_copies(natives, machine, options)
        tried = [CopiesTried(each.redundant_experts, each.max_over_mean, each.slots) for each in all_tried]
    placed = _with_provenance(_native.place(natives, machine, options))
    placed._tried = tried
    return placed


def source_counts(path: str | os.PathLike[str], ranks: int, num_experts: int | None = None) -> NDArray[np.float64]:
    """`[L, P, E]`: how the assignments of a trace come from ranks, if its sequences are dealt to ranks in turn.

    Sequence i lives on rank i mod P; the tokens of a trace without sequences in P equal blocks.

    Raises:
        ParseError: the file is not a trace.
    """
    experts = None if num_experts is None else number(num_experts, "num_experts", 1)
    return _native.source_counts(file_path(path, "path"), number(ranks, "ranks", 1, MOST_RANKS), experts)


def has_exact_solver() -> bool:
    """Whether this build has HiGHS, for `solver="exact"`."""
    return _native.has_exact_solver()


def machine_of(ranks: int | None, nodes: int, topology: str | os.PathLike[str] | None) -> _native.Topology:
    if topology is None:
        if ranks is None:
            raise invalid("ranks", "is not given, nor is topology", "how many ranks there are")
        return _native.Topology.uniform(number(ranks, "ranks", 1, MOST_RANKS), number(nodes, "nodes", 1, MOST_RANKS))
    if nodes != 1:
        raise invalid("nodes", "is what topology says", "to leave it out")
    name = file_path(topology, "topology")
    file_like = Path(name).exists() or "/" in name or name.endswith(".json")
    machine = _native.Topology.read(name) if file_like else _native.Topology.preset(name)
    if ranks is not None and ranks != machine.num_ranks:
        raise invalid("ranks", f"{ranks}, but {name} has {machine.num_ranks}", "to leave it out")
    return machine


def _with_provenance(result: _native.PlaceResult) -> PlaceResult:
    names = result.objective.keys()
    main = "traffic" if "traffic" in names else next(iter(names))
    placed = PlaceResult.__new__(PlaceResult)
    placed._result = result
    placed._take(
        result.placement,
        result.objective[main],
        result.bound[main],
        {
            "program": "evenkeel for Python",
            "objective": main,
            "solver": placed.solver,
            "max_over_mean": f"{result.after.max_over_mean_mean:.6f}",
        },
    )
    return placed


def _quality(quality: _native.PlacementQuality, num_ranks: int) -> PlacementQuality:
    known = quality.traffic_known
    return PlacementQuality(
        max_over_mean=quality.max_over_mean(),
        max_over_mean_mean=quality.max_over_mean_mean,
        max_over_mean_worst=quality.max_over_mean_worst,
        mean_over_max_mean=quality.mean_over_max_mean,
        relative_excess_mean=quality.relative_excess_mean,
        crossing=quality.crossing if known else None,
        crossing_within_nodes=quality.crossing_within_nodes if known else None,
        crossing_between_nodes=quality.crossing_between_nodes if known else None,
        total=quality.total if known else None,
        worst_pair=quality.worst_pair if known else None,
        traffic=quality.traffic(num_ranks) if known else None,
    )


__all__ = ["CopiesTried", "PlaceResult", "PlacementQuality", "has_exact_solver", "place", "source_counts"]
