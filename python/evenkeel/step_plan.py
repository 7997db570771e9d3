"""One step's plan: who computes how many assignments of which expert, and whose weights travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import (
    MOST_RANKS,
    ArrayLike,
    as_numpy,
    choice,
    instance,
    integers,
    invalid,
    number,
    public,
    thousandths,
)
from .placement import Placement
from .profile import RoutingProfile

Planner = Literal["ep", "least-loaded", "level"]


class Segment(NamedTuple):
    """Assignments `[begin, end)` of an expert, which `rank` computes."""

    rank: int
    begin: int
    end: int


class Transfer(NamedTuple):
    """The weights of an expert, sent for one step."""

    expert: int
    sender: int
    receiver: int


@dataclass(frozen=True, eq=False)
class StepPlan:
    """A plan for one step of one layer, as `evenkeel plan --json` prints it."""

    num_experts: int
    num_ranks: int
    planner: Planner
    spilled: bool
    """Some expert is computed away from its homes."""
    segments: list[list[Segment]]
    """`[E]` lists: each covers its expert's assignments 0..load-1 exactly, in order."""
    rank_loads: NDArray[np.int64]
    """`[P]`, the assignments that each rank computes."""
    transfers: list[Transfer]
    """The weights that travel, each (expert, receiver) once."""
    max_over_mean: float
    mean_over_max: float
    relative_excess: float
    """(max - mean) / mean of `rank_loads`."""
    transfer_lower_bound: int
    """No plan with this worst rank takes fewer transfers."""
    plan_us: float
    """What this one call of the planner took, in microseconds; a planner that is kept and reused takes less."""


@public
def plan(
    loads: ArrayLike | RoutingProfile,
    ranks: int | None = None,
    *,
    planner: Planner = "level",
    placement: Placement | None = None,
    layer: int | None = None,
    capacity_factor: float = 1.0,
    min_segment: int = 1024,
    imbalance_threshold: float = 1.3,
    base_load: ArrayLike | None = None,
    borrow_slots: int | None = None,
) -> StepPlan:
    """Plans one step of one layer.

    Args:
        loads: `[E]` the loads of the experts, or `[P, E]` how many of them come from each rank's tokens (which lets
            planners move few rows), or a profile, of which `layer` is taken. numpy, torch or lists.
        ranks: P; needed unless counts by rank or the placement say it.
        planner: "ep" (nothing moves), "least-loaded" (LLEP) or "level" (the lowest possible worst rank, then few
            transfers).
        placement: the experts' homes; without one, rank r has the r-th part of the experts.
        layer: which layer of the placement and of the profile, by the model's number where they know it; needed where
            they have several.
        capacity_factor: least-loaded: a rank holds at most this times the mean (alpha), 1 or more.
        min_segment: a rank borrows an expert for no fewer assignments than this, but for its last piece (m).
        imbalance_threshold: below this max/mean nothing is moved (lambda), of experts for least-loaded, of ranks for
            level; 0 always plans.
        base_load: `[P]` work that each rank has anyway, counted in assignments.
        borrow_slots: level: the most experts that a rank borrows; without it there is no limit. least-loaded refuses one.

    Raises:
        InvalidArgument: a load is negative or the total above 2^63 - 1, shapes do not fit, or a parameter is out
            of range. Ratios have at most three decimals, since planners count in thousandths.
    """
    chosen = choice(planner, "planner", get_args(Planner))
    if placement is not None:
        instance(placement, Placement, "placement")
    layer = None if layer is None else number(layer, "layer", 0)
    ranks = None if ranks is None else number(ranks, "ranks", 1, MOST_RANKS)
    _require_layers(loads, placement, layer)
    counts, experts, num_ranks = _counts(loads, ranks, placement, layer)
    if placement is not None and (placement.num_experts, placement.num_ranks) != (experts, num_ranks):
        raise invalid(
            "placement",
            f"is for {placement.num_experts} experts on {placement.num_ranks} ranks",
            f"one for {experts} experts on {num_ranks} ranks",
        )
    base = [] if base_load is None else integers(base_load, "base_load", 1, "[ranks]").tolist()
    if base_load is not None and not base:
        raise invalid("base_load", "is empty", f"[{num_ranks}], or to leave it out")
    made = _native.plan(
        counts,
        None if placement is None else placement._native,
        0 if placement is None else _placement_row(placement, loads, layer),
        chosen,
        thousandths(capacity_factor, "capacity_factor"),
        number(min_segment, "min_segment", 0, 2**63 - 1),
        thousandths(imbalance_threshold, "imbalance_threshold"),
        base,
        None if borrow_slots is None else number(borrow_slots, "borrow_slots", 0, 2**63 - 1),
    )
    return StepPlan(
        num_experts=made.num_experts,
        num_ranks=made.num_ranks,
        planner=planner,
        spilled=made.spilled,
        segments=[[Segment(*segment) for segment in of_expert] for of_expert in made.segments()],
        rank_loads=made.rank_loads(),
        transfers=[Transfer(*transfer) for transfer in made.transfers()],
        max_over_mean=made.max_over_mean,
        mean_over_max=made.mean_over_max,
        relative_excess=made.relative_excess,
        transfer_lower_bound=made.transfer_lower_bound,
        plan_us=made.plan_us,
    )


def _placement_row(placement: Placement, loads: ArrayLike | RoutingProfile, layer: int | None) -> int:
    of_profile = isinstance(loads, RoutingProfile)
    return placement._native.row_for(
        loads.layers if of_profile else None,
        loads.num_layers if of_profile else 1,
        layer,
        "profile" if of_profile else "loads",
    )


def _counts(
    loads: ArrayLike | RoutingProfile, ranks: int | None, placement: Placement | None, layer: int | None
) -> tuple[_native.Counts, int, int]:
    """The counts, and how many experts and ranks they are for."""
    if isinstance(loads, RoutingProfile):
        loads = loads.loads[_row_of(loads, layer)]
    array = as_numpy(loads, "loads")
    if array.ndim == 2:
        counts = integers(array, "loads", 2, "")
        if ranks is not None and ranks != counts.shape[0]:
            raise invalid("ranks", f"{ranks} ranks, but there are counts of {counts.shape[0]}", "as many as rows")
        return _native.Counts.of_sources(counts), counts.shape[1], counts.shape[0]
    if ranks is None and placement is None:
        raise invalid("ranks", "loads by expert do not say how many there are", "1 or more")
    by_expert = integers(array, "loads", 1, "[experts], or counts [ranks, experts]")
    num_ranks = ranks if ranks is not None else placement.num_ranks if placement else 0
    return _native.Counts.of_loads(by_expert, num_ranks), by_expert.shape[0], num_ranks


def _require_layers(loads: ArrayLike | RoutingProfile, placement: Placement | None, layer: int | None) -> None:
    """Where neither loads nor placement have several layers, or know their number, there is none but 0."""
    several = [each for each in (loads, placement) if isinstance(each, RoutingProfile | Placement)]
    if layer not in (None, 0) and all(each.num_layers == 1 and each.layers is None for each in several):
        raise invalid("layer", f"{layer}, but there is one layer", "0, or leave it out")


def _row_of(profile: RoutingProfile, layer: int | None) -> int:
    """The row of the layer asked for, by the model's number where the profile knows it; one that is alone is it."""
    layers = profile.layers or list(range(profile.num_layers))
    if layer is None:
        if len(layers) == 1:
            return 0
        raise invalid("layer", f"the profile has {len(layers)} layers", _ranges(layers))
    if layer in layers:
        return layers.index(layer)
    if len(layers) == 1 and profile.layers is None:
        return 0  # which serves any layer of the placement
    raise invalid("layer", f"{layer}, but the profile has no such layer", _ranges(layers))


def _ranges(layers: list[int]) -> str:
    whole = layers == list(range(layers[0], layers[-1] + 1))
    return f"{layers[0]}..{layers[-1]}" if whole else ", ".join(map(str, layers))


__all__ = ["Segment", "StepPlan", "Transfer", "plan"]
