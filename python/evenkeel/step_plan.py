"""plan(): decides which rank computes how many assignments of which expert, and whose weights travel."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import (
    MOST_RANKS,
    ArrayLike,
    Floats,
    Integers,
    as_numpy,
    called,
    checked_layers,
    choice,
    file_path,
    instance,
    integers,
    invalid,
    number,
    public,
    thousandths,
    words,
)
from ._machine import machine_of
from ._reading import FilePath, Reading
from .placement import Placement
from .profile import RoutingProfile, of_native

Planner = Literal["ep", "least-loaded", "level"]


class Segment(NamedTuple):
    """Assignments `[begin, end)` of an expert, computed by `rank`."""

    rank: int
    begin: int
    end: int


class Transfer(NamedTuple):
    """The weights of an expert, sent for one step."""

    expert: int
    sender: int
    receiver: int


class PredictedStep(NamedTuple):
    """The predicted time and traffic of a step over the links of a topology."""

    seconds: float
    weight_bytes_across: float
    """Bytes of weights between nodes; in training including gradients."""
    row_bytes_across: float | None
    """Bytes of rows between nodes, one way of one pass; None if loads do not say which rank they come from."""


@dataclass(frozen=True, eq=False)
class StepPlan:
    """A plan for one step of one layer, as `evenkeel plan --json` prints it."""

    num_experts: int
    num_ranks: int
    planner: Planner
    spilled: bool
    """Whether some expert is computed away from its homes."""
    segments: list[list[Segment]]
    """`[E]` lists: each covers its expert's assignments 0..load-1 exactly, in order."""
    rank_loads: NDArray[np.int64]
    """`[P]`, the assignments that each rank computes."""
    transfers: list[Transfer]
    """The weights that are sent, each (expert, receiver) once."""
    max_over_mean: float
    mean_over_max: float
    relative_excess: float
    """(max - mean) / mean of `rank_loads`."""
    transfer_lower_bound: int
    """No plan with this worst rank takes fewer transfers."""
    plan_us: float
    """Microseconds of this one call of the planner; a planner that is kept and reused takes less."""
    predicted: PredictedStep | None = None
    """With `topology`: this plan's step."""
    predicted_under_ep: PredictedStep | None = None
    """With `topology`: the step with nothing moved."""
    predicted_without_links: PredictedStep | None = None
    """With `topology`: the step as "level" would plan it if all links were alike."""


class LayerPlans(list[StepPlan]):
    """The plans of several layers, in order, and their figures as arrays."""

    def __init__(self, plans: Iterable[StepPlan], layers: list[int]) -> None:
        super().__init__(plans)
        self.layers = layers
        """`[L]`, each layer's number in the model if the profile knows it, else its row."""

    @property
    def max_over_mean(self) -> Floats:
        """`[L]`, max/mean of the ranks' loads."""
        return np.array([plan.max_over_mean for plan in self])

    @property
    def transfers(self) -> Integers:
        """`[L]`, the number of weight transfers."""
        return np.array([len(plan.transfers) for plan in self])

    @property
    def plan_us(self) -> Floats:
        """`[L]`, microseconds of planning."""
        return np.array([plan.plan_us for plan in self])

    @property
    def predicted_seconds(self) -> Floats | None:
        """`[L]`, the predicted seconds; None without `topology`."""
        steps = [plan.predicted.seconds for plan in self if plan.predicted]
        return np.array(steps) if steps else None

    def __repr__(self) -> str:
        return (
            f"LayerPlans({len(self)} layers, worst rank {self.max_over_mean.max():.3g}x the mean, "
            f"{self.transfers.mean():.3g} transfers a layer)"
        )


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
    topology: FilePath | None = None,
    model: FilePath | None = None,
    cost: FilePath | None = None,
    device: str | None = None,
    expert_bytes: int | None = None,
    backward: bool = False,
) -> StepPlan:
    """Plans one step of one layer.

    Args:
        loads: `[E]`, the loads of the experts; or `[P, E]`, how many come from each rank's tokens, which lets planners
            move fewer rows; or a profile, of which `layer` is planned. numpy, torch or lists.
        ranks: P; needed unless counts by rank, the placement or the topology give it.
        planner: "ep" (nothing moves), "least-loaded" (LLEP) or "level" (the lowest possible load of the fullest rank,
            then few transfers).
        placement: the experts' homes; by default rank r has the r-th part of the experts.
        layer: the layer of the placement and of the profile, by its number in the model if they know it; needed if
            they have several.
        capacity_factor: least-loaded (alpha): a rank's load is at most this factor times the mean; 1 or more.
        min_segment: the fewest assignments for which a rank borrows an expert (m). The last piece of an expert may be
            smaller.
        imbalance_threshold: nothing moves while max/mean is below this (lambda): max/mean of the experts' loads for
            least-loaded, of the ranks' loads for level. With 0, every step is planned.
        base_load: `[P]`, work that each rank has anyway, counted in assignments. Loads in the result exclude it.
        borrow_slots: level: the most experts that a rank borrows; no limit by default. Other planners refuse it.
        topology: the ranks' links, as for `place`. The step is predicted on them, and if they differ, level plans for
            the least time (docs/command-line.md#plan). The arguments below need it.
        model: the model's config.json, which says how large an expert is; needed with `topology`.
        cost: time of matrix products: a file of `evenkeel bench --calibrate`. Exactly one of cost and device is needed.
        device: "a100", "h100", "h200", "b200" or "mi300x": assumes half of the datasheet's peaks.
        expert_bytes: bytes of one expert's weights, if quantized; by default from the config's type.
        backward: the step includes backward.

    Raises:
        InvalidArgument: a load is negative or the total above 2^63 - 1, shapes do not fit, or a parameter is out
            of range. Ratios have at most three decimals, since planners count in thousandths.
    """
    chosen = choice(planner, "planner", get_args(Planner))
    if placement is not None:
        instance(placement, Placement, "placement")
    layer = None if layer is None else number(layer, "layer", 0)
    ranks = None if ranks is None else number(ranks, "ranks", 1, MOST_RANKS)
    machine = None if topology is None else machine_of(ranks, 1, topology)
    _require_layers(loads, placement, layer)
    with called("loads", "counts"):
        counts, experts, num_ranks = _counts(loads, ranks, placement or machine, layer)
    if placement is not None and (placement.num_experts, placement.num_ranks) != (experts, num_ranks):
        raise invalid(
            "placement",
            f"is for {placement.num_experts} experts on {placement.num_ranks} ranks",
            f"one for {experts} experts on {num_ranks} ranks",
        )
    base = [] if base_load is None else integers(base_load, "base_load", 1, "[ranks]").tolist()
    if base_load is not None and not base:
        raise invalid("base_load", "is empty", f"a number for each of the {num_ranks} ranks, or to leave it out")
    if machine is not None and machine.num_ranks != num_ranks:
        raise invalid("topology", f"has {machine.num_ranks} ranks", f"a topology of {num_ranks} ranks")
    if chosen == "ep" and borrow_slots is not None:
        raise invalid("borrow_slots", "planner ep borrows nothing", "planner level, or to leave it out")
    links = _links(machine, experts, model, cost, device, expert_bytes, backward)
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
        links,
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
        predicted=_predicted(made.predicted),
        predicted_under_ep=_predicted(made.predicted_under_ep),
        predicted_without_links=_predicted(made.predicted_without_links),
    )


@public
def plan_layers(
    loads: ArrayLike | RoutingProfile | FilePath,
    ranks: int | None = None,
    *,
    layers: Sequence[int] | None = None,
    planner: Planner = "level",
    placement: Placement | None = None,
    capacity_factor: float = 1.0,
    min_segment: int = 1024,
    imbalance_threshold: float = 1.3,
    base_load: ArrayLike | None = None,
    borrow_slots: int | None = None,
    topology: FilePath | None = None,
    model: FilePath | None = None,
    cost: FilePath | None = None,
    device: str | None = None,
    expert_bytes: int | None = None,
    backward: bool = False,
) -> LayerPlans:
    """Plans one step of each layer: `plan` for all of them, with the figures as arrays `[L]`.

    Args:
        loads: a profile; `[L, E]`, the loads of each layer's experts; or a file that `RoutingProfile` reads.
        layers: the layers to plan, by their numbers in the model if the profile knows them; all by default.
        ranks, planner, placement, ...: as for `plan`, the same for every layer.

    Raises:
        ParseError, InvalidArgument: as `RoutingProfile(path)` and `plan`.
    """
    with called("loads", "path"):
        profile = _profile_of(loads)
    numbers = profile.layers or list(range(profile.num_layers)) if layers is None else checked_layers(layers)
    is_single = layers is None and profile.num_layers == 1
    with called("layers", "layer"):
        plans = [
            plan(
                profile,
                ranks,
                layer=None if is_single else layer,
                planner=planner,
                placement=placement,
                capacity_factor=capacity_factor,
                min_segment=min_segment,
                imbalance_threshold=imbalance_threshold,
                base_load=base_load,
                borrow_slots=borrow_slots,
                topology=topology,
                model=model,
                cost=cost,
                device=device,
                expert_bytes=expert_bytes,
                backward=backward,
            )
            for layer in numbers
        ]
    return LayerPlans(plans, numbers)


def _profile_of(loads: ArrayLike | RoutingProfile | FilePath) -> RoutingProfile:
    if isinstance(loads, RoutingProfile):
        return loads
    if isinstance(loads, str | os.PathLike):
        return of_native(Reading().read(loads, count="loads").profile)
    return RoutingProfile(loads=loads)


def _links(
    topology: _native.Topology | None,
    num_experts: int,
    model: FilePath | None,
    cost: FilePath | None,
    device: str | None,
    expert_bytes: int | None,
    backward: bool,
) -> _native.StepLinks | None:
    """The topology's links, with the costs of a step of the model; None without a topology."""
    instance(backward, bool, "backward")
    if topology is None:
        about_links = {"model": model, "cost": cost, "device": device, "expert_bytes": expert_bytes}
        for name, value in (about_links | {"backward": backward or None}).items():
            if value is not None:
                raise invalid(name, "needs topology", "topology as well, or to leave it out")
        return None
    if model is None:
        raise invalid("topology", "needs model", "model, which says how large an expert is")
    if cost is not None and device is not None:
        raise invalid("device", "is already given by cost", "to leave it out")
    if cost is None and device is None:
        raise invalid("topology", "needs cost or device, which say how fast a rank is", "one of them as well")
    return _native.StepLinks.of_model(
        topology,
        file_path(model, "model"),
        None if expert_bytes is None else float(number(expert_bytes, "expert_bytes", 1, 2**62)),
        None if cost is None else file_path(cost, "cost"),
        None if device is None else words(device, "device"),
        num_experts,
        backward,
    )


def _predicted(step: _native.PredictedStep | None) -> PredictedStep | None:
    return PredictedStep(step.seconds, step.weight_bytes_across, step.row_bytes_across) if step else None


def _placement_row(placement: Placement, loads: ArrayLike | RoutingProfile, layer: int | None) -> int:
    of_profile = isinstance(loads, RoutingProfile)
    return placement._native.row_for(
        loads.layers if of_profile else None,
        loads.num_layers if of_profile else 1,
        layer,
        "profile" if of_profile else "loads",
    )


def _counts(
    loads: ArrayLike | RoutingProfile,
    ranks: int | None,
    where: Placement | _native.Topology | None,
    layer: int | None,
) -> tuple[_native.Counts, int, int]:
    """The counts, and their numbers of experts and ranks. `where` gives the ranks if nothing else does."""
    if isinstance(loads, RoutingProfile):
        loads = loads.loads[_row_of(loads, layer)]
    array = as_numpy(loads, "loads")
    if 0 in array.shape:
        raise invalid("loads", f"shape {list(array.shape)}", "[experts], or counts [ranks, experts], each 1 or more")
    if array.ndim == 2:
        counts = integers(array, "loads", 2, "")
        if ranks is not None and ranks != counts.shape[0]:
            why = f"{ranks} ranks, but loads has counts of {counts.shape[0]}"
            raise invalid("ranks", why, f"{counts.shape[0]}, or to leave it out")
        return _native.Counts.of_sources(counts), counts.shape[1], counts.shape[0]
    if ranks is None and where is None:
        raise invalid("ranks", "is missing, and loads by expert do not give it", "the number of ranks")
    by_expert = integers(array, "loads", 1, "[experts], or counts [ranks, experts]")
    num_ranks = ranks if ranks is not None else where.num_ranks if where else 0
    return _native.Counts.of_loads(by_expert, num_ranks), by_expert.shape[0], num_ranks


def _require_layers(loads: ArrayLike | RoutingProfile, placement: Placement | None, layer: int | None) -> None:
    """If neither loads nor placement have several layers or a layer number, only layer 0 is valid."""
    several = [each for each in (loads, placement) if isinstance(each, RoutingProfile | Placement)]
    if layer not in (None, 0) and all(each.num_layers == 1 and each.layers is None for each in several):
        raise invalid("layer", f"{layer}, but there is one layer", "0, or to leave it out")


def _row_of(profile: RoutingProfile, layer: int | None) -> int:
    """The row of the requested layer, by its number in the model if the profile knows it; or the only row."""
    layers = profile.layers or list(range(profile.num_layers))
    if layer is None:
        if len(layers) == 1:
            return 0
        why = f"is missing, but the profile has {len(layers)} layers"
        raise invalid("layer", why, f"{_ranges(layers)}, or plan_layers()")
    if layer in layers:
        return layers.index(layer)
    if len(layers) == 1 and profile.layers is None:
        return 0  # the only row serves for any layer of the placement
    raise invalid("layer", f"{layer}, but the profile has no such layer", _ranges(layers))


def _ranges(layers: list[int]) -> str:
    whole = layers == list(range(layers[0], layers[-1] + 1))
    return f"{layers[0]}..{layers[-1]}" if whole else ", ".join(map(str, layers))


__all__ = ["LayerPlans", "PredictedStep", "Segment", "StepPlan", "Transfer", "plan", "plan_layers"]
