"""Shared by evaluate() and place(): judges placements on recordings, and whether moving to one pays."""

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


class GainFigures(TypedDict):
    """How much a step saves in max/mean, with bounds that hold 99 % of the time."""

    mean: float
    low: float
    high: float
    blocks: int


class VerdictFigures(TypedDict):
    """A placement compared with the one in use. None: not known."""

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
    gain: GainFigures | None
    tokens_needed: int | None
    measured_on: str | None
    notes: list[str]


def read_recordings(
    given: list[RoutingProfile | FilePath],
    how: Reading,
    argument: str,
    steps: Literal["if told", "kept"] = "kept",
) -> list[_native.Recording]:
    """Reads files, with their steps, and takes profiles, which have no steps and are named by their position."""
    return [
        _native.Recording(f"recording {i}", each._native, each.notes)
        if isinstance(each, RoutingProfile)
        else how.read(each, argument, steps=steps)
        for i, each in enumerate(given)
    ]


def named_placement(
    placement: Placement | FilePath | None,
    name: str,
    ranks: int,
    argument: str = "placements",
    dispatch: str | None = None,
) -> _native.NamedPlacement:
    """The placement with its name for messages and its file's facts. None means contiguous homes."""
    if placement is None:
        return _native.NamedPlacement(name, None, argument, {}, "even")
    rule = dispatch or ""
    if isinstance(placement, Placement):
        rule = rule or placement.provenance.get("dispatch", "even")  # the rule it was placed for
    else:
        name = file_path(placement, argument)
        placement = Placement.load(name, num_ranks=ranks)
        rule = _native.dispatch_for(name, rule or placement.provenance.get("dispatch", ""))
    if placement.num_ranks != ranks:
        raise invalid(argument, f"{name} is for {placement.num_ranks} ranks", f"one for {ranks} ranks")
    return _native.NamedPlacement(name, placement._native, argument, placement.provenance, rule)


@dataclass(frozen=True)
class TimeModel:
    """Facts about a step and a move; each field is named like the argument that gives it."""

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

    def validate(self, has_topology: bool, step_tokens: int | None = None) -> None:
        for name in ("tokens_per_step", "tflops", "link", "expert_bytes", "cost", "device"):
            if self.model is None and getattr(self, name) is not None:
                raise invalid(name, "needs model, which says how large an expert is", "model as well")
        for name in ("tflops", "device"):
            if self.cost is not None and getattr(self, name) is not None:
                raise invalid(name, "is already given by cost", "to leave it out")
        has_link = self.link is not None or has_topology
        if self.device is not None and self.tflops is not None and has_link:
            raise invalid("device", "has no effect when tflops and a link are given", "to leave it out")
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
                raise invalid(name, "needs tokens_per_step or step_tokens", "one of them as well")

    def steps_served(self) -> float | None:
        return None if self.horizon is None else float(self.horizon)

    def step_model(
        self,
        machine: _native.Topology,
        has_topology: bool,
        recording: _native.Recording,
        step_tokens: int | None = None,
    ) -> _native.StepModel:
        tokens = step_tokens if self.tokens_per_step is None else self.tokens_per_step
        time_model = _native.TimeModel(
            None if self.model is None else file_path(self.model, "model"),
            None if tokens is None else float(tokens),
            None if self.tflops is None else float(self.tflops),
            None if self.link is None else float(self.link),
            None if self.expert_bytes is None else float(self.expert_bytes),
            None if self.cost is None else file_path(self.cost, "cost"),
            self.device,
        )
        return time_model.step_model(machine, has_topology, recording.name, recording.profile.num_experts)


def widest_of(recordings: list[_native.Recording]) -> _native.Recording:
    """The recording with the most layers: a server's file also has rows for dense layers."""
    return max(recordings, key=lambda each: each.profile.num_layers)


def as_list(given: T | FilePath | Sequence[T | FilePath], kind: type[T], name: str) -> list[T | FilePath]:
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
