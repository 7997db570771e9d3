"""place(): chooses the home of every expert from a routing profile, with a bound that shows how good it is."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import MOST_RANKS, ArrayLike, choice, file_path, floats, instance, invalid, number, public, real
from ._machine import machine_of
from ._reading import FilePath, Reading
from ._verdict import Dispatch, TimeModel, VerdictFigures, as_list, named_placement, read_recordings
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
    """How good a placement is on a profile. Ratios are of the ranks' loads; 1 is even.

    Traffic is counted in transitions of the profile (layer-to-layer) or in assignments sent one way (dispatch-combine),
    summed over all layers. It is None if the profile has no transitions.
    """

    max_over_mean: NDArray[np.float64]
    """`[L]`, of each layer."""
    max_over_mean_mean: float
    """Mean over layers."""
    max_over_mean_worst: float
    """The worst layer's."""
    mean_over_max_mean: float
    relative_excess_mean: float
    crossing: float | None
    """Traffic that leaves its rank."""
    crossing_within_nodes: float | None
    crossing_between_nodes: float | None
    total: float | None
    """All traffic, including that which stays on its rank."""
    worst_pair: float | None
    """Traffic of each layer's busiest pair of ranks, summed over layers."""
    traffic: NDArray[np.float64] | None
    """`[P, P]`, row by sender; the diagonal stays on its rank."""


PlaceVerdict = VerdictFigures


class HeldOut(TypedDict):
    """max/mean of ten placements, each measured on a held-out block of the recordings and made from the others."""

    max_over_mean_before: float
    max_over_mean_after: float
    blocks: int
    folds: int


class CopiesTried(NamedTuple):
    """One number of redundant experts that was tried."""

    redundant_experts: int
    max_over_mean: float
    """Mean over layers; of several recordings, that of the worst one."""
    slots: float
    """Memory of all experts relative to no copies: 1.125 is an eighth more."""


class StepLevels(NamedTuple):
    """max/mean of the ranks' loads over the steps of a recording, averaged over layers, before and after."""

    recording: str
    before: tuple[float, float, float]
    """Median, 95th percentile and worst step."""
    after: tuple[float, float, float]


class PlaceResult(Placement):
    """A placement, with its solver's figures."""

    __slots__ = ("_held_out", "_judged", "_judging_notes", "_read_notes", "_result", "_tried")
    _result: _native.PlaceResult
    _tried: list[CopiesTried]
    _held_out: _native.HeldOut | None
    _judged: _native.JudgedPlacing
    _read_notes: list[str]
    _judging_notes: list[str]

    @property
    def copies_tried(self) -> list[CopiesTried]:
        """With `redundant_experts="auto"`: the numbers that were tried. Otherwise empty."""
        return list(self._tried)

    @property
    def objective(self) -> dict[str, float]:
        """The value reached for each objective, by name. Two-stage: "balance" (sum over layers and ranks of |load -
        mean|) and "traffic" (worst or all pairs of ranks, over GB/s); with redundant experts instead "max_over_mean".
        Joint: "joint_ms"."""
        return dict(self._result.objective)

    @property
    def bound(self) -> dict[str, float]:
        """A lower bound of each objective, by the same names; `bound_of` says for which placements it holds."""
        return dict(self._result.bound)

    @property
    def bound_of(self) -> dict[str, str]:
        """By the same names: for which placements each bound holds, in words."""
        return dict(self._result.bound_of)

    @property
    def proven_optimal(self) -> bool:
        """Whether every objective is within the requested gap of its bound."""
        return self._result.proven_optimal

    @property
    def solver(self) -> str:
        """The solver used: "fast" also if the problem is too large for "exact" (`notes` says so)."""
        return "exact" if self._result.is_exact else "fast"

    @property
    def solve_ms(self) -> float:
        """Milliseconds that the solver took."""
        return self._result.solve_ms

    @property
    def before(self) -> PlacementQuality:
        """The quality of contiguous homes, or of `from_`."""
        return _quality(self._result.before, self.num_ranks)

    @property
    def after(self) -> PlacementQuality:
        """The quality of this placement."""
        return _quality(self._result.after, self.num_ranks)

    @property
    def per_recording(self) -> list[tuple[PlacementQuality, PlacementQuality]]:
        """For each of several recordings, in order: the qualities before and after. Empty for one recording."""
        return [
            (_quality(before, self.num_ranks), _quality(after, self.num_ranks))
            for before, after in self._result.per_recording
        ]

    @property
    def steps(self) -> list[StepLevels]:
        """Figures by step of each file that contains steps. A placement that is level over a recording need not
        be level in each step."""
        return [StepLevels(each.name, _levels(each.before), _levels(each.after)) for each in self._judged.steps]

    @property
    def held_out(self) -> HeldOut | None:
        """What these options achieve on traffic that the placement was not made from. None if the recordings are too
        few to hold blocks out: that takes 20 sequences of a trace, 20 steps, or 20 recordings."""
        if self._held_out is None:
            return None
        return {
            "max_over_mean_before": self._held_out.max_over_mean_before,
            "max_over_mean_after": self._held_out.max_over_mean_after,
            "blocks": self._held_out.blocks,
            "folds": self._held_out.folds,
        }

    @property
    def judged(self) -> list[tuple[PlacementQuality, PlacementQuality]]:
        """For each recording of `judge`, in order: the qualities before and after."""
        return [
            (_quality(before, self.num_ranks), _quality(after, self.num_ranks)) for before, after in self._judged.judged
        ]

    @property
    def verdict(self) -> PlaceVerdict | None:
        """Whether the placement pays on the data it was made from, judged on held-out parts. None if no argument gives
        the time of a step or a move. Its `notes` say what the time model assumes."""
        return _verdict(self._judged.verdict)

    @property
    def judged_verdict(self) -> PlaceVerdict | None:
        """Whether the placement pays on the recordings of `judge`."""
        return _verdict(self._judged.judged_verdict)

    @property
    def notes(self) -> list[str]:
        """What a reader of the figures must know, one sentence each."""
        return [*self._read_notes, *self._result.notes, *self._judging_notes]

    def __repr__(self) -> str:
        before, after = self._result.before.max_over_mean_mean, self._result.after.max_over_mean_mean
        proven = ""
        if self.proven_optimal:
            proven = ", proven optimal" if self.objective == self.bound else ", proven within the gap asked for"
        return f"{super().__repr__()[:-1]}, max/mean {before:.3f} -> {after:.3f}{proven})"


@public
def place(
    profile: RoutingProfile | FilePath | Sequence[RoutingProfile | FilePath],
    ranks: int | None = None,
    nodes: int = 1,
    *,
    topology: str | os.PathLike[str] | None = None,
    redundant_experts: int | Literal["auto"] = 0,
    num_groups: int | None = None,
    dispatch: Dispatch = "even",
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
    assignment_us: float | None = None,
    assignment_bytes: float | None = None,
    across: Across | None = None,
    judge: RoutingProfile | FilePath | Sequence[RoutingProfile | FilePath] | None = None,
    num_experts: int | None = None,
    axes: str | None = None,
    columns: str | None = None,
    layers: Sequence[int] | None = None,
    model: FilePath | None = None,
    tokens_per_step: int | None = None,
    tflops: float | None = None,
    link: float | None = None,
    horizon: int | None = None,
    expert_bytes: int | None = None,
    cost: FilePath | None = None,
    device: str | None = None,
) -> PlaceResult:
    """Chooses a home for every expert of every layer.

    Args:
        profile: the routing to place for, or a file that holds it. With a list, the placement shall be level on every
            recording; a recording's loads count as shares of its total.
        ranks: P; needed unless `topology` gives it.
        nodes: the number of nodes, which the ranks fill in order. All links count as equally fast.
        topology: instead of `ranks` and `nodes`, a file (format evenkeel.topology.v1), or a name: 8xh100, 2x8xh100,
            any NxMxh100 or NxMxh200 (N nodes of M), gb200-nvl72.
        redundant_experts: copies per layer, beyond one of each expert. "auto": as many as pay for their memory, up to
            the point where more gain little; `copies_tried` lists the numbers tried.
        num_groups: expert groups, each of which stays in one node; 1 by default. But if the router of `model` chooses
            groups of experts first, these groups stay whole by default, so that `evenkeel permute` takes the placement
            (docs/checkpoints.md); `notes` says so.
        dispatch: which copy of an expert the server sends a token to: "even", or SGLang's "static" or "nearest"
            (docs/servers.md#which-copy-a-token-goes-to). The placement is made for this rule and all figures use it.
        solver: "fast" (milliseconds, seconds for a large "joint"; with a bound) or "exact" (integer programs; needs a
            build with HiGHS).
        sizes: "equal" (equally many experts on each rank, as servers need) or "free".
        objective: "two-stage" (first balance, then traffic; redundant experts are chosen by balance alone) or "joint"
            (both in predicted milliseconds, also for redundant experts).
        traffic: what is sent: "layer-to-layer" (from the rank of a token's expert to the rank of its next expert) or
            "dispatch-combine" (in each layer from the token's rank, and back).
        pairs: minimise the traffic of the "worst" pair of ranks in each layer, or the "total" over all pairs.
        gap: stop at this distance from the bound, as a fraction of the objective; below 1.
        time_limit: seconds for all stages; the best so far is kept.
        from_: start at this placement and give at most `max_moves` experts (over all layers) another home. With 0, this
            placement itself is judged.
        max_moves: needed with `from_`.
        sources: for dispatch-combine: `[L, P, E]`, how many assignments of each layer come from each rank's tokens, as
            `source_counts` counts them in a trace. By default they come evenly, and `notes` says so.
        assignment_us: for joint: microseconds to compute one assignment; 0.1 by default.
        assignment_bytes: for joint: bytes sent with one assignment, one way; 8192 by default.
        across: for several recordings: "worst" (default) levels all, the worst first; "sum" levels their sum.
        judge: more profiles or files to measure the placement on; it is not made from them. See `judged`.
        num_experts, axes, columns, layers: about all files, as for `RoutingProfile`.
        model: the model's config.json. It says which layers the recordings in files have. The other layers keep their
            experts in order, or at their homes in `from_`, and `notes` names them.
        tokens_per_step, tflops, link, horizon, expert_bytes, cost, device: with `model`, the time of a step and of a
            move, as for `evaluate`. If any of them is given, `verdict`, and with `judge` also `judged_verdict`, say
            whether the placement pays. They do not change the placement.

    Returns:
        A Placement that also has `objective`, `bound`, `proven_optimal`, `solver`, `solve_ms`, `before` and `after`.

    Raises:
        InvalidArgument: options contradict each other or the profile.
        Infeasible: there is no such placement: fewer expert slots than experts, or groups that do not fit nodes.
        Unsupported: "exact" in a build without HiGHS.
        KeyboardInterrupt: Ctrl-C ends a long solve without a result.
    """
    options = _native.PlaceOptions()
    options.set_solver(choice(solver, "solver", get_args(Solver)) == "exact")
    options.set_sizes(choice(sizes, "sizes", get_args(Sizes)) == "free")
    options.set_objective(choice(objective, "objective", get_args(Objective)) == "joint")
    options.set_traffic(choice(traffic, "traffic", get_args(Traffic)) == "dispatch-combine")
    options.set_dispatch(choice(dispatch, "dispatch", get_args(Dispatch)))
    options.set_pairs(choice(pairs, "pairs", get_args(Pairs)) == "total")
    for name, value in [("assignment_us", assignment_us), ("assignment_bytes", assignment_bytes)]:
        if value is not None and objective != "joint":
            raise invalid(name, 'applies only to objective="joint"', 'to leave it out, or objective="joint"')
    options.set_cost(
        0.1 if assignment_us is None else real(assignment_us, "assignment_us", 0, 1e9),
        8192.0 if assignment_bytes is None else real(assignment_bytes, "assignment_bytes", 0, 1e12),
    )
    options.set_limits(real(time_limit, "time_limit", 0), real(gap, "gap", 0))
    as_many_as_pay = isinstance(redundant_experts, str)
    if isinstance(redundant_experts, str):
        if redundant_experts != "auto":
            raise invalid("redundant_experts", f"'{redundant_experts}'", "auto, or a whole number")
    else:
        options.redundant_experts = number(redundant_experts, "redundant_experts", 0)
    options.num_groups = 1 if num_groups is None else number(num_groups, "num_groups", 1)
    if (from_ is None) != (max_moves is None):
        raise invalid("from_", "must be given together with max_moves", "both, or neither")
    if from_ is not None and max_moves is not None:
        options.start_from(instance(from_, Placement, "from_")._native, number(max_moves, "max_moves", 0))
    if sources is not None:
        if traffic != "dispatch-combine":
            raise invalid("sources", 'apply only to traffic="dispatch-combine"', "to leave them out, or that traffic")
        counts = floats(sources, "sources", 3, "[layers, ranks, experts]")
        if counts.size == 0:
            raise invalid("sources", f"shape {list(counts.shape)}", "[layers, ranks, experts], each 1 or more")
        options.set_sources(counts)
    recordings = as_list(profile, RoutingProfile, "profile")
    if across is not None:
        if len(recordings) == 1:
            raise invalid("across", "applies only to several recordings", "to leave it out, or several recordings")
        options.set_across(choice(across, "across", get_args(Across)) == "sum")
    machine = machine_of(ranks, nodes, topology)
    time = TimeModel(model, tokens_per_step, tflops, link, horizon, expert_bytes, cost, device)
    time.validate(topology is not None)
    has_files = not all(isinstance(each, RoutingProfile) for each in recordings)
    how = Reading(num_experts, axes, columns, layers=layers, model=model)
    given_judges = [] if judge is None else as_list(judge, RoutingProfile, "judge")
    if all(isinstance(each, RoutingProfile) for each in [*recordings, *given_judges]):
        how.refuse("applies only to files, but profile and judge have none", but=("model",))
    own = read_recordings(recordings, how, "profile", "if told")
    of_groups = ""
    if model is not None and num_groups is None and redundant_experts == 0:
        config = file_path(model, "model")
        of_groups = options.keep_groups_of_model(config, own[0].profile.num_experts, machine.num_ranks)
    if model is not None and not time.is_given() and judge is None and not has_files and not of_groups:
        right = "files, or tokens_per_step, tflops or link as well"
        raise invalid("model", "has no effect on RoutingProfile objects alone", right)
    natives = [each.profile for each in own]
    judges = _judges(given_judges, how, own[0])
    step = time.step_model(machine, topology is not None, own[0]) if time.is_given() else None
    tried: list[CopiesTried] = []
    if as_many_as_pay:
        native, all_tried, options.redundant_experts = _native.choose_copies(natives, machine, options)
        tried = [CopiesTried(each.redundant_experts, each.max_over_mean, each.slots) for each in all_tried]
    else:
        native = _native.place(natives, machine, options)
    held_out = _native.hold_out(own, machine, options, native.solve_ms)
    placed = _with_provenance(native, _native.provenance_of(own, held_out), dispatch)
    placed._tried, placed._held_out = tried, held_out
    placed._read_notes = [
        f"{read.name}: {note}"
        for given, read in zip(recordings, own, strict=True)
        if not isinstance(given, RoutingProfile)
        for note in read.notes
    ]
    placed._read_notes += [of_groups] if of_groups else []
    placed._native, unplaced = placed._native.of_all_layers(
        natives,
        None if from_ is None else from_._native,
        file_path(model, "model") if model is not None and has_files else None,
    )
    placed._read_notes += unplaced
    placed._judging_notes = [] if held_out is None else held_out.notes
    if of_one := _native.note_of_one_recording(len(own), len(judges)):
        placed._judging_notes = [*placed._judging_notes, of_one]
    placed._judged = _native.judge_placed(
        named_placement(from_, "contiguous" if from_ is None else "from_", machine.num_ranks, "from_", dispatch),
        named_placement(placed, "the placement", machine.num_ranks, "judge", dispatch),
        own,
        judges,
        held_out,
        machine,
        step,
        time.steps_served(),
    )
    return placed


def _verdict(text: str | None) -> PlaceVerdict | None:
    figures: PlaceVerdict | None = None if text is None else json.loads(text)
    return figures


def _levels(steps: _native.StepSpread) -> tuple[float, float, float]:
    return steps.median, steps.p95, steps.worst


def _judges(given: list[RoutingProfile | FilePath], how: Reading, own: _native.Recording) -> list[_native.Recording]:
    read = read_recordings(given, how, "judge")
    for each in read:
        if each.profile.num_experts != own.profile.num_experts:
            raise invalid(
                "judge",
                f"{each.name} has {each.profile.num_experts} experts",
                f"{own.profile.num_experts}, as {own.name} has",
            )
    return read


@public
def source_counts(
    path: str | os.PathLike[str],
    ranks: int,
    num_experts: int | None = None,
    axes: str | None = None,
    columns: str | None = None,
) -> NDArray[np.float64]:
    """Counts the assignments `[L, P, E]` of a trace by source rank, with sequences dealt to ranks in turn.

    Sequence i is on rank i mod P. The tokens of a trace without sequences are split into P equal blocks.

    Raises:
        ParseError: the file is not a trace.
    """
    ranks = number(ranks, "ranks", 1, MOST_RANKS)
    return Reading(num_experts, axes, columns).read(path, count="nothing").sources(ranks)


def has_exact_solver() -> bool:
    """Whether this build has HiGHS, for `solver="exact"`."""
    return _native.has_exact_solver()


def _with_provenance(result: _native.PlaceResult, provenance: dict[str, str], dispatch: str) -> PlaceResult:
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
            **({} if dispatch == "even" else {"dispatch": dispatch}),
            **provenance,
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


__all__ = [
    "CopiesTried",
    "HeldOut",
    "PlaceResult",
    "PlaceVerdict",
    "PlacementQuality",
    "has_exact_solver",
    "place",
    "source_counts",
]
