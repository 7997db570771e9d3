"""compare(): replays recorded routing under each method, step by step."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import Floats, Integers, file_path, instance, invalid, number, public, thousandths, unsupported, words
from ._machine import machine_of
from ._reading import FilePath, Reading
from ._verdict import as_list
from .profile import RoutingProfile

if TYPE_CHECKING:
    import pandas


class Spread(TypedDict):
    """Statistics of a figure over the steps."""

    mean: float
    median: float
    p95: float
    p99: float
    worst: float


RankPair = TypedDict("RankPair", {"from": int, "to": int, "bytes": float})


class MethodVerdict(TypedDict):
    """One method compared with plain EP, step by step."""

    answer: Literal["is_reference", "pays", "does_not_pay", "not_enough_data"]
    sentence: str
    break_even_tokens: float | None
    """The fewest tokens of a step, over all ranks, with which it is predicted to be faster; None if it never is."""


class MethodFigures(TypedDict):
    """One method's figures over all steps. None: not known without a model, a machine or a budget."""

    name: str
    what: str
    """The method's parts, in words."""
    max_over_mean: Spread
    """Of the ranks' loads, averaged over layers."""
    step_ms: Spread | None
    parts_ms: dict[str, float] | None
    """Of the mean step, by phase, averaged over ranks. Phase "weights" runs beside the others."""
    speedup: float | None
    """Plain EP's median step time divided by this method's; if times are not known, the ratio of max/mean."""
    share_of_ideal: float | None
    """`speedup` divided by plain EP's max/mean."""
    rows: float | None
    """Rows that forward sends to other ranks, in the mean of steps."""
    bytes_within_nodes: float | None
    """This and the following fields are means over steps."""
    bytes_between_nodes: float | None
    worst_pair: RankPair | None
    transfers: float
    """Number of times that an expert's weights are sent to a rank."""
    weight_bytes: float | None
    moved_bytes: float | None
    """Bytes of experts that moved to new homes (`place_every`)."""
    peak_bytes: int | None
    """The most bytes that a rank holds in a layer of any step."""
    steps_over_budget: int | None
    chunks: int
    """The most chunks in any step."""
    recomputed_fraction: float
    verdict: MethodVerdict


class ComparisonFigures(TypedDict):
    """What `evenkeel compare --json` prints."""

    ranks: int
    nodes: int
    ep_ranks: int
    """Ranks of one expert-parallel group; `groups` such groups run side by side."""
    groups: int
    layers: list[int]
    num_experts: int
    top_k: int | None
    steps: int
    """The number of judged steps."""
    tokens_per_step: float | None
    assignments_per_step: float
    backward: bool
    budget: int | None
    placed_on: str
    judged_on: str
    same_data: bool
    """Placements were made from the judged steps, so their figures are too good."""
    independent_parts: int
    methods: list[MethodFigures]
    notes: list[str]


class Comparison:
    """The compared methods, plain EP first. str() gives the tables that the command prints."""

    def __init__(self, native: _native.ComparedRecordings) -> None:
        self._native = native
        self.figures: ComparisonFigures = json.loads(native.json())

    @property
    def methods(self) -> list[MethodFigures]:
        """The methods' figures, in the order in which they were asked for."""
        return self.figures["methods"]

    @property
    def notes(self) -> list[str]:
        """What was assumed."""
        return self.figures["notes"]

    @cached_property
    def steps(self) -> dict[str, dict[str, Floats | Integers]]:
        """By method name and column, arrays over the judged steps: the columns of the command's `--csv`.

        "step", "max_over_mean", "seconds", "rows", "bytes_within_nodes", "bytes_between_nodes", "weight_bytes",
        "moved_bytes", "transfers", "peak_bytes", "chunks", "recomputed_fraction", "layers_as_planned",
        "layers_given_up", and the ranks' loads over their mean: "load_least", "load_median", "load_p95" and
        "load_most". Unknown values are NaN.
        """
        head, *rows = csv.reader(self._native.csv().splitlines())
        table = {name: column for name, *column in zip(head, *rows, strict=True)}
        names = np.array(table.pop("method"))
        return {
            method["name"]: {column: _numbers(values)[names == method["name"]] for column, values in table.items()}
            for method in self.methods
        }

    def to_frame(self) -> pandas.DataFrame:
        """A pandas frame with a row for each step and method, indexed by both. Raises Unsupported without pandas."""
        try:
            import pandas
        except ImportError:
            raise unsupported("to_frame() needs pandas, which is not installed: pip install pandas") from None
        frames = {name: pandas.DataFrame(columns).set_index("step") for name, columns in self.steps.items()}
        return pandas.concat(frames, names=["method"]).swaplevel().sort_index(level="step", sort_remaining=False)

    def to_json(self) -> str:
        """What `evenkeel compare --json` prints."""
        return self._native.json()

    def html(self, path: FilePath) -> None:
        """Writes a page to look at and share: one file that needs no network (docs/pages.md).

        Raises:
            Unsupported: this build has no pages.
            InvalidArgument: the file cannot be written.
        """
        self._native.write_html(file_path(path, "path"), _native.version)

    def timeline(self, path: FilePath) -> None:
        """Writes the least even layer's step under each method as trace events, for ui.perfetto.dev.

        Without a model and a machine it has no phases, since their times are not known.

        Raises:
            InvalidArgument: the file cannot be written.
        """
        self._native.write_timeline(file_path(path, "path"))

    def __str__(self) -> str:
        return self._native.text()

    def __repr__(self) -> str:
        answers = ", ".join(f"{each['name']} {each['verdict']['answer']}" for each in self.methods)
        return f"Comparison({self.figures['judged_on']}: {answers})"


def _numbers(column: list[str]) -> NDArray[Any]:
    """Integers if all values are whole numbers, else floats; an empty value becomes NaN."""
    try:
        return np.array(column, dtype=np.int64)
    except ValueError:
        return np.array([each or "nan" for each in column], dtype=np.float64)


@public
def compare(
    recordings: RoutingProfile | FilePath | Sequence[RoutingProfile | FilePath],
    ranks: int | None = None,
    *,
    nodes: int = 1,
    topology: FilePath | None = None,
    model: FilePath | None = None,
    cost: FilePath | None = None,
    device: str | None = None,
    expert_bytes: int | None = None,
    methods: str | Sequence[str] | None = None,
    budget: int | str | None = None,
    backward: bool = False,
    place_from: RoutingProfile | FilePath | Sequence[RoutingProfile | FilePath] | None = None,
    place_every: int | None = None,
    step_tokens: int | None = None,
    top_k: int | None = None,
    capacity_factor: float = 1.0,
    min_segment: int = 1024,
    imbalance_threshold: float = 1.3,
    num_experts: int | None = None,
    axes: str | None = None,
    columns: str | None = None,
    as_: Literal["counts", "trace"] | None = None,
    layers: Sequence[int] | None = None,
) -> Comparison:
    """Replays recorded routing under every method and says whether each one pays (docs/compare.md).

    Loads and transfers are always counted. Bytes need `model`. Predicted seconds also need a machine: `device`, `cost`
    or a known name as `topology`.

    Args:
        recordings: traces, loads by step, or other systems' recordings, replayed in this order. A profile is one step.
        ranks, nodes, topology: the machine, as for `place`. With more ranks than experts, several expert-parallel
            groups run side by side.
        model: the model's config.json, which says how large rows and experts are.
        cost: a file of `evenkeel bench --calibrate`: the rates of each rank. This and the next three need `model`.
        device: instead of `cost`, "a100", "h100", "h200", "b200" or "mi300x": assumes half of the datasheet's peaks.
        expert_bytes: bytes of one expert's weights, if quantized; by default from the config's type.
        budget: bytes that a rank may use for a layer's step, or a size such as "2GiB".
        methods: "ep,level,eplb:32+llep", or a list of such names; by default all that can be compared
            (docs/compare.md#methods). Plain EP is always the first.
        backward: steps include backward.
        place_from: recordings to make placements from; all steps of `recordings` are then judged. By default
            placements are made from the first half of `recordings` and judged on the second.
        place_every: make placements anew after every so many steps, from those past steps; moves are counted.
        step_tokens: for traces, tokens of a step over all ranks; by default 40 steps of whole sequences.
        top_k: for traces, use only a token's first experts; for loads, how many experts a token has.
        capacity_factor, min_segment, imbalance_threshold: of planners, as for `plan`.
        num_experts, axes, columns, as_, layers: what files do not say themselves, as for `RoutingProfile`.

    Raises:
        ParseError: a file is wrong, or has no assignments.
        InvalidArgument: recordings do not fit each other, or a method is unknown or lacks what it needs.
        BudgetTooSmall: the budget is too small for some routing of a step.
        Infeasible: a method asks for more copies than fit.
    """
    machine = _machine(ranks, nodes, topology, model, cost, device, expert_bytes, budget, backward)
    how = Reading(num_experts, axes, columns, as_, layers, model)
    given = as_list(recordings, RoutingProfile, "recordings")
    sources = [] if place_from is None else as_list(place_from, RoutingProfile, "place_from")
    if all(isinstance(each, RoutingProfile) for each in [*given, *sources]):
        how.refuse("applies only to files, but recordings has none", but=("model",))
    return Comparison(
        _native.compare(
            _read(given, how, "recordings"),
            _read(sources, how, "place_from"),
            machine,
            _names(methods),
            None if place_every is None else number(place_every, "place_every", 1),
            None if step_tokens is None else number(step_tokens, "step_tokens", 1, 2**62),
            None if top_k is None else number(top_k, "top_k", 1),
            thousandths(capacity_factor, "capacity_factor"),
            number(min_segment, "min_segment", 0, 2**63 - 1),
            thousandths(imbalance_threshold, "imbalance_threshold"),
        )
    )


def _machine(
    ranks: int | None,
    nodes: int,
    topology: FilePath | None,
    model: FilePath | None,
    cost: FilePath | None,
    device: str | None,
    expert_bytes: int | None,
    budget: int | str | None,
    backward: bool,
) -> _native.SimRequest:
    instance(backward, bool, "backward")
    needs_model = {"cost": cost, "device": device, "expert_bytes": expert_bytes, "budget": budget}
    for name, value in needs_model.items():
        if model is None and value is not None:
            raise invalid(name, "needs model, which says how large experts and rows are", "model as well")
    if cost is not None and device is not None:
        raise invalid("device", "is already given by cost", "to leave it out")
    if isinstance(budget, str):
        budget = _native.parse_bytes(words(budget, "budget"), "budget")
    return _native.SimRequest.of_files(
        machine_of(ranks, nodes, topology),
        "" if topology is None else file_path(topology, "topology"),
        None if model is None else file_path(model, "model"),
        None if expert_bytes is None else float(number(expert_bytes, "expert_bytes", 1, 2**62)),
        None if cost is None else file_path(cost, "cost"),
        "" if device is None else words(device, "device"),
        backward,
        None if budget is None else number(budget, "budget", 0, 2**63 - 1),
    )


def _read(given: list[RoutingProfile | FilePath], how: Reading, argument: str) -> list[_native.Recording]:
    """Reads files, with their tokens or steps; a profile is one step."""
    return [
        _native.Recording(f"{argument.removesuffix('s')} {i}", each._native, each.notes)
        if isinstance(each, RoutingProfile)
        else how.read(each, argument, steps="if told", count="nothing")
        for i, each in enumerate(given)
    ]


def _names(methods: str | Sequence[str] | None) -> str:
    """The names in the command's form; empty for the default methods."""
    if methods is None:
        return ""
    names = [methods] if isinstance(methods, str) else methods
    try:
        joined = ",".join(words(name, "methods") for name in names)
    except TypeError as error:
        raise invalid("methods", f"is a {type(methods).__name__}", "names in a list or a text") from error
    if not joined:
        raise invalid("methods", "is empty", "names of methods, or to leave it out")
    return joined


__all__ = [
    "Comparison",
    "ComparisonFigures",
    "MethodFigures",
    "MethodVerdict",
    "RankPair",
    "Spread",
    "compare",
]
