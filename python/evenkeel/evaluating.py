"""evaluate(): judges placements, usually on recordings they were not made from, and says whether one pays."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, NotRequired, TypedDict, get_args

from . import _native
from ._arguments import choice, file_path, invalid, public
from ._machine import machine_of
from ._reading import FilePath, Reading
from ._verdict import (
    Dispatch,
    TimeModel,
    VerdictFigures,
    as_list,
    named_placement,
    read_recordings,
    widest_of,
)
from .placement import Placement
from .profile import RoutingProfile, of_native


class StepFigures(TypedDict):
    """max/mean over the steps of a recording, averaged over layers."""

    median: float
    p95: float
    worst: float


class RecordingFigures(TypedDict):
    """One placement's figures on one recording. Traffic counts transitions; None if the recording has none."""

    recording: str
    layers: list[int]
    max_over_mean_mean: float
    max_over_mean_worst: float
    crossing: float | None
    crossing_between_nodes: float | None
    steps: StepFigures | None


class PlacementFigures(TypedDict):
    """One placement's figures on every recording."""

    file: str
    results: list[RecordingFigures]
    dispatch: NotRequired[str]
    """The dispatch rule by which the placement was judged, unless it is "even"."""


class Evaluation(TypedDict):
    """What `evenkeel evaluate --json` prints."""

    placements: list[PlacementFigures]
    verdict: VerdictFigures
    notes: list[str]
    axes: NotRequired[dict[str, str]]
    """By file, how arrays without a name were read."""


@public
def evaluate(
    recordings: RoutingProfile | FilePath | Sequence[RoutingProfile | FilePath],
    placements: Placement | FilePath | Sequence[Placement | FilePath],
    ranks: int | None = None,
    nodes: int = 1,
    *,
    topology: FilePath | None = None,
    from_: Placement | FilePath | None = None,
    dispatch: Dispatch | None = None,
    step_tokens: int | None = None,
    model: FilePath | None = None,
    tokens_per_step: int | None = None,
    tflops: float | None = None,
    link: float | None = None,
    horizon: int | None = None,
    expert_bytes: int | None = None,
    cost: FilePath | None = None,
    device: str | None = None,
    num_experts: int | None = None,
    axes: str | None = None,
    columns: str | None = None,
    as_: Literal["counts", "trace"] | None = None,
    layers: Sequence[int] | None = None,
) -> Evaluation:
    """Measures placements, and always contiguous homes, on recordings, and says whether the best placement pays.

    A placement is level on the data it was made from; what counts is future traffic. Step times are modelled: the
    experts of the heaviest rank, layer after layer, without communication.

    Args:
        recordings: profiles, or files that hold one, a trace or counts. One or several.
        placements: placements, or files of any readable format.
        ranks, nodes, topology: the machine, as for `place`. Without `ranks` and `topology`, the number of ranks comes
            from the placements, which must agree.
        from_: the placement in use now, from which a move starts; contiguous homes by default.
        dispatch: which copy of an expert a server sends a token to: "even", "static" or "nearest"
            (docs/servers.md#which-copy-a-token-goes-to). By default the rule that the placement was made for, if its
            file says so; else "static" for SGLang's files and "even" for others.
        step_tokens: also judge traces in steps of so many tokens. Files that contain steps are always judged by step.
        model: the model's config.json: how large an expert is, and how many each token visits.
        tokens_per_step: tokens of a step over all ranks; `step_tokens` by default.
        tflops: rate of an expert's matrix products, in 10^12 operations a second.
        link: GB/s into a rank, for the move; by default the slowest link of `topology`.
        horizon: steps that the placement will serve.
        expert_bytes: bytes of one expert's weights, if quantized; by default from the config's type.
        cost: instead of `tflops`, a file of `evenkeel bench --calibrate`. Its link is used for the move if neither
            `link` nor `topology` gives one; the model does not use its other rates.
        device: instead of `cost`, "a100", "h100", "h200", "b200" or "mi300x": assumes half of the datasheet's peaks,
            with the link within a node. `tflops`, `link` and `topology` take precedence.
        num_experts, axes, columns, as_, layers: what files do not say themselves, as for `RoutingProfile`.

    Returns:
        A dict as `evenkeel evaluate --json` prints it: `placements`, the first of them "contiguous", each with
        `results` by recording; `verdict`; and `notes` on what the readers interpreted or left out. The verdict's
        `answer` is "pays", "does not pay", "depends" or "not_enough_data". With "not_enough_data", `tokens_needed` says
        how many tokens would do. `measured_on` says whether the placement was made from these recordings. The verdict's
        `notes` say what the time model assumes.

    Raises:
        ParseError: a file has wrong content.
        InvalidArgument: recordings and placements do not fit each other.
    """
    given = as_list(placements, Placement, "placements")
    if ranks is None and topology is None:
        ranks = _ranks_of(given, from_)
    machine = machine_of(ranks, nodes, topology)
    how = Reading(num_experts, axes, columns, as_, layers, model, step_tokens)
    time = TimeModel(model, tokens_per_step, tflops, link, horizon, expert_bytes, cost, device)
    time.validate(topology is not None, how.step_tokens)
    given_recordings = as_list(recordings, RoutingProfile, "recordings")
    if all(isinstance(each, RoutingProfile) for each in given_recordings):
        how.refuse("applies only to files, but recordings has none", but=("model",))
    read = read_recordings(given_recordings, how, "recordings")
    if step_tokens is not None and not any(each.is_trace for each in read):
        raise invalid("step_tokens", "applies only to traces, but no recording is a trace", "to leave it out")
    rule = None if dispatch is None else choice(dispatch, "dispatch", get_args(Dispatch))
    named = [named_placement(each, f"placement {i}", machine.num_ranks, dispatch=rule) for i, each in enumerate(given)]
    result: Evaluation = json.loads(
        _native.evaluate(
            read,
            named,
            None if from_ is None else named_placement(from_, "from_", machine.num_ranks, "from_", rule),
            machine,
            time.step_model(machine, topology is not None, widest_of(read), how.step_tokens),
            time.steps_served(),
        )
    )
    return result


@public
def read_steps(
    path: FilePath,
    step_tokens: int | None = None,
    num_experts: int | None = None,
    axes: str | None = None,
    columns: str | None = None,
) -> list[RoutingProfile]:
    """Reads the steps of a recording, each a profile without transitions, for `place` to take as several recordings.

    Args:
        path: a file that contains steps (docs/evaluate.md lists the formats), or a trace.
        step_tokens: for a trace: windows of so many tokens, instead of the steps in the file. A last window that is not
            full is left out, unless it is the only one.
        num_experts, axes, columns: about the file, as for `RoutingProfile`.

    Returns:
        Profiles; an empty list if the file has no steps.

    Raises:
        ParseError, InvalidArgument: as `RoutingProfile(path)`.
    """
    how = Reading(num_experts, axes, columns, step_tokens=step_tokens)
    return [of_native(each) for each in how.read(path, steps="kept", count="nothing").steps]


def _ranks_of(placements: list[Placement | FilePath], from_: Placement | FilePath | None) -> int:
    """The number of ranks in the placements, which must agree."""
    sources: dict[int, str] = {}
    for each in [*placements, *([] if from_ is None else [from_])]:
        argument = "from_" if each is from_ else "placements"
        name = "a placement" if isinstance(each, Placement) else file_path(each, argument)
        ranks = each.num_ranks if isinstance(each, Placement) else _native.Placement.num_ranks_in(name)
        if ranks is None or ranks in sources:
            continue
        if sources:
            [(most, first)] = sources.items()
            raise invalid(argument, f"{name} is for {ranks} ranks", f"a placement for {most} ranks, like {first}")
        sources[ranks] = name
    if not sources:
        raise invalid("ranks", "is missing, and neither topology nor a placement gives it", "the number of ranks")
    return next(iter(sources))


__all__ = ["Evaluation", "evaluate", "read_steps"]
