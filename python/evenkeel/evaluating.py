"""evaluate(): placements judged on recordings that they need not have been made from, and whether one pays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, TypeVar

from . import _native
from ._arguments import choice, file_path, instance, invalid, layer_list, number, real
from .placement import Placement
from .placing import machine_of
from .profile import RoutingProfile

Path = str | os.PathLike[str]
T = TypeVar("T")


class StepFigures(TypedDict):
    """Over the steps of a recording, max/mean in the mean of layers."""

    median: float
    p95: float
    worst: float


class RecordingFigures(TypedDict):
    """A placement on a recording. Traffic is in transitions, None where the recording has none."""

    recording: str
    layers: list[int]
    max_over_mean_mean: float
    max_over_mean_worst: float
    crossing: float | None
    crossing_between_nodes: float | None
    steps: StepFigures | None


class PlacementFigures(TypedDict):
    """A placement on every recording."""

    file: str
    results: list[RecordingFigures]


class VerdictFigures(TypedDict):
    """The most level placement against what runs now. None: not known."""

    placement: str
    against: str
    answer: str
    sentence: str
    max_over_mean_before: float
    max_over_mean_after: float
    better_on: int
    recordings: int
    step_ms_before: float | None
    step_ms_after: float | None
    moved_experts: int
    moved_bytes: float | None
    move_ms: float | None
    break_even_steps: float | None


class Evaluation(TypedDict):
    """What `evenkeel evaluate --json` prints."""

    placements: list[PlacementFigures]
    verdict: VerdictFigures


@dataclass(frozen=True)
class _Reading:
    """How files of recordings are read."""

    num_experts: int | None
    as_: Literal["counts", "trace"] | None
    layers: Sequence[int] | None
    model: Path | None
    step_tokens: int | None

    def require_files(self, recordings: Iterable[RoutingProfile | Path]) -> None:
        if not all(isinstance(each, RoutingProfile) for each in recordings):
            return
        for name in ("num_experts", "as_", "layers", "step_tokens"):
            if getattr(self, name) is not None:
                raise invalid(name, "is about files, and recordings has none", "to leave it out")


class _Recording:
    def __init__(self, recording: RoutingProfile | Path, index: int, how: _Reading) -> None:
        if isinstance(recording, RoutingProfile):
            self.name = f"recording {index}"
            self.profile = recording._native
            self.steps: list[_native.RoutingProfile] = []
            return
        if not isinstance(recording, (str, os.PathLike)):
            raise invalid("recordings", f"has a {type(recording).__name__}", "profiles and paths")
        self.name = file_path(recording, "recordings")
        self.profile = RoutingProfile(
            self.name, num_experts=how.num_experts, as_=how.as_, layers=how.layers, model=how.model
        )._native
        self.steps = _native.read_steps(
            self.name,
            how.num_experts,
            how.step_tokens,
            how.as_ or "",
            layer_list(how.layers),
            None if how.model is None else file_path(how.model, "model"),
        )


class _Candidate:
    def __init__(self, placement: Placement | Path | None, name: str, ranks: int, argument: str = "placements") -> None:
        self.name = name
        self.argument = argument
        self.native: _native.Placement | None = None
        if isinstance(placement, Placement):
            self.native = placement._native
        elif placement is not None:
            self.name = file_path(placement, argument)
            self.native = Placement.load(self.name, num_ranks=ranks)._native
        if self.native is not None and self.native.num_ranks != ranks:
            raise invalid(argument, f"{self.name} is for {self.native.num_ranks} ranks", f"one for {ranks} ranks")

    def on(self, recording: _Recording, machine: _native.Topology) -> _native.Placement:
        experts = recording.profile.num_experts
        if self.native is not None and self.native.num_experts != experts:
            raise invalid(
                self.argument,
                f"{self.name} is for {self.native.num_experts} experts",
                f"one for {experts} experts, as {recording.name} has",
            )
        return _native.homes_for(recording.profile, recording.name, machine, self.native, self.name, self.argument)

    def judged(self, recordings: list[_Recording], machine: _native.Topology) -> list[_native.RecordingJudgement]:
        return [_native.judge(each.profile, each.steps, machine, self.on(each, machine)) for each in recordings]


def evaluate(
    recordings: RoutingProfile | Path | Sequence[RoutingProfile | Path],
    placements: Placement | Path | Sequence[Placement | Path],
    ranks: int | None = None,
    nodes: int = 1,
    *,
    topology: Path | None = None,
    from_: Placement | Path | None = None,
    step_tokens: int | None = None,
    model: Path | None = None,
    tokens_per_step: int | None = None,
    tflops: float | None = None,
    link: float | None = None,
    horizon: int | None = None,
    expert_bytes: int | None = None,
    cost: Path | None = None,
    device: str | None = None,
    num_experts: int | None = None,
    as_: Literal["counts", "trace"] | None = None,
    layers: Sequence[int] | None = None,
) -> Evaluation:
    """Measures placements on recordings, contiguous homes always beside them, and says whether the best one pays.

    A placement is level on what it was made from; what counts is the traffic that comes. Time is a model: the experts
    of the heaviest rank, layer after layer, without what is sent.

    Args:
        recordings: profiles, or files that hold one, a trace or counts. One or several.
        placements: placements, or files of any format that is read.
        ranks, nodes, topology: the machine, as for `place`.
        from_: what runs now, which a move starts from; contiguous homes by default.
        step_tokens: files of traces are also judged in steps of so many tokens. Files of counts by step always are.
        model: the model's config.json: how large an expert is, and how many each token visits.
        tokens_per_step: tokens of a step over all ranks; `step_tokens` by default.
        tflops: 10^12 operations a second that an expert's products reach.
        link: GB/s into a rank, for the move; by default the slowest link of `topology`.
        horizon: steps that the placement will serve.
        expert_bytes: one expert's weights, where they are quantized; else by the config's type.
        cost: instead of `tflops`, a file that `evenkeel bench --calibrate` wrote. Its link is that of the move where
            neither `link` nor `topology` says one; its other rates have no part in the model.
        device: instead, "a100", "h100", "h200", "b200" or "mi300x": half of the datasheet's peaks, an assumption. What
            `tflops`, `link` and `topology` say goes before it; its link is that within a node.
        num_experts, as_, layers: of files, what they do not say of themselves, as for `RoutingProfile`.

    Returns:
        A dict as `evenkeel evaluate --json` prints it: `placements`, the first of them "contiguous", each with
        `results` by recording, and `verdict`, whose `answer` is "pays", "does not pay" or "depends".

    Raises:
        ParseError: a file is not what it should be.
        InvalidArgument: recordings and placements do not fit each other.
    """
    machine = machine_of(ranks, nodes, topology)
    how = _Reading(
        None if num_experts is None else number(num_experts, "num_experts", 1),
        None if as_ is None else choice(as_, "as_", ("counts", "trace")),  # type: ignore[arg-type]
        layers,
        model,
        None if step_tokens is None else number(step_tokens, "step_tokens", 1),
    )
    if model is not None and layers is not None:
        raise invalid("layers", "is what model says", "to leave it out")
    tokens = how.step_tokens if tokens_per_step is None else tokens_per_step
    _require_model(
        model,
        tokens_per_step=tokens_per_step,
        tflops=tflops,
        link=link,
        expert_bytes=expert_bytes,
        cost=cost,
        device=device,
    )
    rates = _rates(machine, topology is not None, nodes, tflops, link, cost, device)
    if tokens is None:
        for name, value in (("tflops", tflops), ("cost", cost)):
            if value is not None:
                raise invalid(name, "needs tokens_per_step, or step_tokens", "one of them beside it")
    several = _several(recordings, RoutingProfile, "recordings")
    how.require_files(several)
    read = [_Recording(each, i, how) for i, each in enumerate(several)]
    given = _several(placements, Placement, "placements")
    candidates = [_Candidate(None, "contiguous", machine.num_ranks)]
    candidates += [_Candidate(each, f"placement {i}", machine.num_ranks) for i, each in enumerate(given)]
    before = candidates[0] if from_ is None else _Candidate(from_, "from_", machine.num_ranks, "from_")
    judged = [each.judged(read, machine) for each in candidates]
    judged_before = judged[0] if from_ is None else before.judged(read, machine)
    best = min(range(1, len(candidates)), key=lambda i: sum(_ratio(each) for each in judged[i]))
    widest = max(read, key=lambda each: each.profile.num_layers)  # a server's file has rows for dense layers too
    step = _step_model(model, tokens, rates, expert_bytes, widest.profile.num_experts)
    move = _native.move_between(before.on(widest, machine), candidates[best].on(widest, machine), step)
    verdict = _native.verdict_of(
        judged_before,
        judged[best],
        move,
        step,
        widest.profile.num_layers,
        machine.num_ranks,
        None if horizon is None else float(number(horizon, "horizon", 1)),
    )
    return {
        "placements": [
            {"file": each.name, "results": [_figures(r, j) for r, j in zip(read, judged[i], strict=True)]}
            for i, each in enumerate(candidates)
        ],
        "verdict": {
            "placement": candidates[best].name,
            "against": before.name,
            "answer": verdict.answer,
            "sentence": verdict.sentence,
            "max_over_mean_before": verdict.max_over_mean_before,
            "max_over_mean_after": verdict.max_over_mean_after,
            "better_on": verdict.better_on,
            "recordings": verdict.recordings,
            "step_ms_before": verdict.step_ms_before,
            "step_ms_after": verdict.step_ms_after,
            "moved_experts": move.experts,
            "moved_bytes": move.bytes,
            "move_ms": move.ms,
            "break_even_steps": verdict.break_even_steps,
        },
    }


def read_steps(path: Path, step_tokens: int | None = None, num_experts: int | None = None) -> list[RoutingProfile]:
    """The steps of a recording, each a profile without transitions: what `place` takes as several recordings.

    Args:
        path: counts `[steps, L, E]` in any container, or a trace.
        step_tokens: of a trace: windows of so many tokens, of which a last one that is not full is left out.
        num_experts: E, for a file that does not say it.

    Returns:
        Profiles; none where the file does not say its steps.

    Raises:
        ParseError, InvalidArgument: as `RoutingProfile(path)`.
    """
    window = None if step_tokens is None else number(step_tokens, "step_tokens", 1)
    experts = None if num_experts is None else number(num_experts, "num_experts", 1)
    return [_of_native(each) for each in _native.read_steps(file_path(path, "path"), experts, window, "", None, None)]


def _of_native(native: _native.RoutingProfile) -> RoutingProfile:
    profile = RoutingProfile.__new__(RoutingProfile)
    profile._native = native
    profile._notes = []
    return profile


def _several(given: T | Path | Sequence[T | Path], kind: type[T], name: str) -> list[T | Path]:
    single = isinstance(given, (kind, str, os.PathLike))
    if not single and not isinstance(given, Iterable):
        raise invalid(name, f"is a {type(given).__name__}", f"a {kind.__name__}, a path, or several of them")
    several = [given] if single else list(given)  # type: ignore[arg-type]
    if not several:
        raise invalid(name, "is an empty list", "one or more")
    for each in several:
        if not isinstance(each, (str, os.PathLike)):
            instance(each, kind, name)
    return several  # type: ignore[return-value]


def _require_model(model: Path | None, **given: object) -> None:
    for name, value in given.items():
        if model is None and value is not None:
            raise invalid(name, "needs model, which says how large an expert is", "model beside it")


def _ratio(judgement: _native.RecordingJudgement) -> float:
    return judgement.steps.mean if judgement.steps else judgement.quality.max_over_mean_mean


@dataclass(frozen=True)
class _Rates:
    flops: float | None = None
    link: float | None = None


def _rates(
    machine: _native.Topology,
    has_topology: bool,
    nodes: int,
    tflops: float | None,
    link: float | None,
    cost: Path | None,
    device: str | None,
) -> _Rates:
    """What is said outright goes before the topology, and that before a file of costs or a device."""
    if cost is not None:
        for name, value in (("tflops", tflops), ("device", device)):
            if value is not None:
                raise invalid(name, "is what cost says", "to leave it out")
    if device is not None and tflops is not None and (link is not None or has_topology):
        raise invalid("device", "has nothing left to say beside tflops and a link", "to leave it out")
    flops: float | None = None
    rate: float | None = None
    if cost is not None:
        flops, rate = _native.rates_of_cost(file_path(cost, "cost"))
    if device is not None:
        flops, within_node = _native.rates_of_device(instance(device, str, "device"))
        rate = within_node if nodes == 1 else None
    if tflops is not None:
        flops = real(tflops, "tflops", 1e-6, 1e9) * 1e12
    if has_topology:
        rate = _native.slowest_link(machine) or rate
    if link is not None:
        rate = real(link, "link", 1e-6, 1e9)
    return _Rates(flops, rate)


def _step_model(
    model: Path | None, tokens: int | None, rates: _Rates, expert_bytes: int | None, experts: int
) -> _native.StepModel:
    step = _native.StepModel()
    if model is None:
        return step
    step.link_gigabytes_per_s = rates.link
    by_config, weights, top_k, count = _native.sizes_of_model(file_path(model, "model"))
    if expert_bytes is not None:
        step.expert_bytes = float(number(expert_bytes, "expert_bytes", 1, 2**62))
    elif by_config > 0:
        step.expert_bytes = by_config
    if tokens is not None:
        step.assignments_per_step = float(number(tokens, "tokens_per_step", 1) * top_k)
    if rates.flops is not None:
        step.assignment_us = 2 * weights / rates.flops * 1e6
    if count != experts:
        raise invalid("model", f"has {count} experts, but the recordings have {experts}", "the recorded model's config")
    return step


def _figures(recording: _Recording, judgement: _native.RecordingJudgement) -> RecordingFigures:
    quality = judgement.quality
    steps = judgement.steps
    known = quality.traffic_known
    return {
        "recording": recording.name,
        "layers": list(recording.profile.layers or range(recording.profile.num_layers)),
        "max_over_mean_mean": quality.max_over_mean_mean,
        "max_over_mean_worst": quality.max_over_mean_worst,
        "crossing": quality.crossing if known else None,
        "crossing_between_nodes": quality.crossing_between_nodes if known else None,
        "steps": None if steps is None else {"median": steps.median, "p95": steps.p95, "worst": steps.worst},
    }


__all__ = ["Evaluation", "evaluate", "read_steps"]
