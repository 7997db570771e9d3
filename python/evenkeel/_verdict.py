"""What evaluate() and place() share: placements judged on recordings, and whether moving to one pays."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, TypeVar

from . import _native
from ._arguments import file_path, instance, invalid, number, real, words
from ._reading import FilePath, Reading
from .placement import Placement
from .profile import RoutingProfile

T = TypeVar("T")
Dispatch = Literal["even", "static", "nearest"]


class VerdictFigures(TypedDict):
    """A placement against what runs now. None: not known."""

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
    notes: list[str]


class Recording:
    """A profile, or a file with the steps that it has."""

    def __init__(
        self,
        recording: RoutingProfile | FilePath,
        index: int,
        how: Reading,
        argument: str = "recordings",
        steps: Literal["if told", "kept"] = "kept",
    ) -> None:
        self.is_trace = False
        self.axes = ""
        self.is_file = not isinstance(recording, RoutingProfile)
        if isinstance(recording, RoutingProfile):
            self.name = f"recording {index}"
            self.profile = recording._native
            self.steps: list[_native.RoutingProfile] = []
            self.notes = recording.notes
            return
        if not isinstance(recording, (str, os.PathLike)):
            raise invalid(argument, f"has a {type(recording).__name__}", "profiles and paths")
        self.name = file_path(recording, argument)
        read = how.read(recording, argument, steps=steps)
        self.profile, self.steps, self.notes, self.is_trace = read.profile, read.steps, read.notes, read.is_trace
        self.axes = read.axes


class Candidate:
    """A placement, or contiguous homes, on recordings of some of its layers."""

    def __init__(
        self,
        placement: Placement | FilePath | None,
        name: str,
        ranks: int,
        argument: str = "placements",
        dispatch: str | None = None,
    ) -> None:
        self.name = name
        self.argument = argument
        self.dispatch = dispatch or "even"
        self.native: _native.Placement | None = None
        self.judgements: list[_native.RecordingJudgement] = []
        if isinstance(placement, Placement):
            self.native = placement._native
        elif placement is not None:
            self.name = file_path(placement, argument)
            self.native = Placement.load(self.name, num_ranks=ranks)._native
            self.dispatch = _native.dispatch_for(self.name, dispatch or "")
        if self.native is not None and self.native.num_ranks != ranks:
            raise invalid(argument, f"{self.name} is for {self.native.num_ranks} ranks", f"one for {ranks} ranks")

    def on(self, recording: Recording, machine: _native.Topology) -> _native.Placement:
        experts = recording.profile.num_experts
        if self.native is not None and self.native.num_experts != experts:
            raise invalid(
                self.argument,
                f"{self.name} is for {self.native.num_experts} experts",
                f"one for {experts} experts, as {recording.name} has",
            )
        return _native.homes_for(recording.profile, recording.name, machine, self.native, self.name, self.argument)

    def judge_on(self, recordings: list[Recording], machine: _native.Topology) -> None:
        for each in recordings:
            self.on(each, machine)  # whose errors come first
        self.judgements = [
            _native.judge(
                each.profile, each.name, each.steps, machine, self.native, self.name, self.argument, self.dispatch
            )
            for each in recordings
        ]


@dataclass(frozen=True)
class TimeModel:
    """What is said of a step and of a move, by the names of the arguments that say it."""

    model: FilePath | None
    tokens_per_step: int | None
    tflops: float | None
    link: float | None
    horizon: int | None
    expert_bytes: int | None
    cost: FilePath | None
    device: str | None

    def is_given(self) -> bool:
        return any(value is not None for name, value in vars(self).items() if name != "model")

    def require_sense(self, has_topology: bool, step_tokens: int | None = None) -> None:
        for name in ("tokens_per_step", "tflops", "link", "expert_bytes", "cost", "device"):
            if self.model is None and getattr(self, name) is not None:
                raise invalid(name, "needs model, which says how large an expert is", "model beside it")
        for name in ("tflops", "device"):
            if self.cost is not None and getattr(self, name) is not None:
                raise invalid(name, "is what cost says", "to leave it out")
        has_link = self.link is not None or has_topology
        if self.device is not None and self.tflops is not None and has_link:
            raise invalid("device", "has nothing left to say beside tflops and a link", "to leave it out")
        if self.device is not None:
            _native.require_device(words(self.device, "device"))
        for name in ("tflops", "link"):
            if getattr(self, name) is not None:
                real(getattr(self, name), name, 1e-6, 1e9)
        for name in ("tokens_per_step", "expert_bytes", "horizon"):
            if getattr(self, name) is not None:
                number(getattr(self, name), name, 1, 2**62)
        for name in ("tflops", "cost"):
            if self.tokens_per_step is None and step_tokens is None and getattr(self, name) is not None:
                raise invalid(name, "needs tokens_per_step, or step_tokens", "one of them beside it")

    def steps_served(self) -> float | None:
        return None if self.horizon is None else float(self.horizon)

    def step_model(
        self,
        machine: _native.Topology,
        has_topology: bool,
        recording: Recording,
        step_tokens: int | None = None,
    ) -> _native.StepModel:
        tokens = step_tokens if self.tokens_per_step is None else self.tokens_per_step
        said = _native.TimeModel(
            None if self.model is None else file_path(self.model, "model"),
            None if tokens is None else float(tokens),
            None if self.tflops is None else float(self.tflops),
            None if self.link is None else float(self.link),
            None if self.expert_bytes is None else float(self.expert_bytes),
            None if self.cost is None else file_path(self.cost, "cost"),
            self.device,
        )
        return said.step_model(machine, has_topology, recording.name, recording.profile.num_experts)


def widest_of(recordings: list[Recording]) -> Recording:
    """A server's file has rows for dense layers too; those of a recording have experts."""
    return max(recordings, key=lambda each: each.profile.num_layers)


def verdict_on(
    recordings: list[Recording],
    before: Candidate,
    after: Candidate,
    machine: _native.Topology,
    step: _native.StepModel,
    horizon: float | None,
) -> VerdictFigures:
    """Of candidates that were judged on the recordings."""
    widest = widest_of(recordings)
    move = _native.move_between(before.on(widest, machine), after.on(widest, machine), step)
    verdict = _native.verdict_of(
        before.judgements,
        after.judgements,
        move,
        step,
        widest.profile.num_layers,
        machine.num_ranks,
        horizon,
    )
    return {
        "placement": after.name,
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
        "notes": verdict.notes,
    }


def several(given: T | FilePath | Sequence[T | FilePath], kind: type[T], name: str) -> list[T | FilePath]:
    single = isinstance(given, (kind, str, os.PathLike))
    try:
        all_given = [given] if single else list(given)  # type: ignore[arg-type]
    except TypeError as error:  # an array without dimensions
        raise invalid(name, f"is a {type(given).__name__}", f"a {kind.__name__}, a path, or several of them") from error
    if not all_given:
        raise invalid(name, "is an empty list", "one or more")
    for each in all_given:
        if not isinstance(each, (str, os.PathLike)):
            instance(each, kind, name)
    return all_given  # type: ignore[return-value]
