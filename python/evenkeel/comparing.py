"""compare(): what each method would do on recorded routing, replayed step by step."""

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
from ._verdict import several
from .profile import RoutingProfile

if TYPE_CHECKING:
    import pandas


class Spread(TypedDict):
    """Of a figure over the steps."""

    mean: float
    median: float
    p95: float
    p99: float
    worst: float


RankPair = TypedDict("RankPair", {"from": int, "to": int, "bytes": float})


class MethodVerdict(TypedDict):
    """A method against plain EP, step by step."""

    answer: Literal["is_reference", "pays", "does_not_pay", "not_enough_data"]
    sentence: str
    break_even_tokens: float | None
    """Tokens of a step over all ranks from which on it is predicted to be faster; None where it never is."""


class MethodFigures(TypedDict):
    """A method over all steps. None: not known without a model, a machine or a budget."""

    name: str
    what: str
    """Its parts in words."""
    max_over_mean: Spread
    """Of the ranks' loads, in the mean of layers."""
    step_ms: Spread | None
    parts_ms: dict[str, float] | None
    """Of the mean step, by phase: in the mean of ranks, where weights travel beside the others."""
    speedup: float | None
    """Of the median step over plain EP's: of its time, or where that is not known of max/mean."""
    share_of_ideal: float | None
    """`speedup` as a part of plain EP's max/mean."""
    rows: float | None
    """That forward sends to other ranks, in the mean of steps."""
    bytes_within_nodes: float | None
    """This and the next ones: in a step, mean."""
    bytes_between_nodes: float | None
    worst_pair: RankPair | None
    transfers: float
    """Of an expert's weights to a rank."""
    weight_bytes: float | None
    moved_bytes: float | None
    """Of experts that moved to new homes (`place_every`)."""
    peak_bytes: int | None
    """The most that a rank holds in a layer of any step."""
    steps_over_budget: int | None
    chunks: int
    """The most in any step."""
    recomputed_fraction: float
    verdict: MethodVerdict


class ComparisonFigures(TypedDict):
    """What `evenkeel compare --json` prints."""

    ranks: int
    nodes: int
    ep_ranks: int
    """Of one group of expert parallelism, of which there are `groups` side by side."""
    groups: int
    layers: list[int]
    num_experts: int
    top_k: int | None
    steps: int
    """That are judged."""
    tokens_per_step: float | None
    assignments_per_step: float
    backward: bool
    budget: int | None
    placed_on: str
    judged_on: str
    same_data: bool
    """Placements were made from the steps that are judged, so their figures flatter them."""
    independent_parts: int
    methods: list[MethodFigures]
    notes: list[str]


class Comparison:
    """The methods that were compared, plain EP first. As a text it is the tables that the command prints."""

    def __init__(self, native: _native.ComparedRecordings) -> None:
        self._native = native
        self.figures: ComparisonFigures = json.loads(native.json())

    @property
    def methods(self) -> list[MethodFigures]:
        """In the order that they were asked for."""
        return self.figures["methods"]

    @property
    def notes(self) -> list[str]:
        """What was assumed."""
        return self.figures["notes"]

    @cached_property
    def steps(self) -> dict[str, dict[str, Floats | Integers]]:
        """By method's name and column, arrays over the steps that are judged: the columns of the command's `--csv`.

        "step", "max_over_mean", "seconds", "rows", "bytes_within_nodes", "bytes_between_nodes", "weight_bytes", "moved_bytes",
        "transfers", "peak_bytes", "chunks", "recomputed_fraction", "layers_as_planned", "layers_given_up", and of the
        ranks' loads over their mean "load_least", "load_median", "load_p95" and "load_most". What is not known is NaN.
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
        """Writes a page to look at and to send: one file that needs no network (docs/pages.md).

        Raises:
            Unsupported: this build has no pages.
            InvalidArgument: no file can be written there.
        """
        self._native.write_html(file_path(path, "path"), _native.version)

    def timeline(self, path: FilePath) -> None:
        """Writes the least even layer's step under each method as trace events, for ui.perfetto.dev.

        Without a model and a machine there are no phases in it, since nothing says what they take.

        Raises:
            InvalidArgument: no file can be written there.
        """
        self._native.write_timeline(file_path(path, "path"))

    def __str__(self) -> str:
        return self._native.text()

    def __repr__(self) -> str:
        said = ", ".join(f"{each['name']} {each['verdict']['answer']}" for each in self.methods)
        return f"Comparison({self.figures['judged_on']}: {said})"


def _numbers(column: list[str]) -> NDArray[Any]:
    """Whole numbers stay as they are."""
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
    """Replays recorded routing under every method, and says of each whether it pays (docs/compare.md).

    Loads and transfers are counted; bytes need `model`, and seconds, which are predicted, also a machine: `topology`
    with a known name, `device` or `cost`.

    Args:
        recordings: traces, loads by step, or other systems' recordings, one behind the other. A profile is one step.
        ranks, nodes, topology: the machine, as for `place`. More ranks than experts are groups side by side.
        model: the model's config.json: how large rows and experts are.
        cost: a file that `evenkeel bench --calibrate` wrote, whose rates the ranks have. This and the next three need `model`.
        device: instead, "a100", "h100", "h200", "b200" or "mi300x": half of the datasheet's peaks, an assumption.
        expert_bytes: one expert's weights, where they are quantized; else by the config's type.
        budget: bytes of a rank for a layer's step, or a size such as "2GiB".
        methods: "ep,level,eplb:32+llep", or a list of such names; by default all that can be compared
            (docs/compare.md#methods). Plain EP is always the first.
        backward: the steps train.
        place_from: what placements are made from; all steps of `recordings` are then judged. By default the first half
            of them places, and the second is judged.
        place_every: placements are made anew after so many steps, from these; what moves is counted.
        step_tokens: of a trace, tokens of a step over all ranks; by default 40 steps of whole sequences.
        top_k: of a trace, only a token's first experts; of loads, how many experts a token has.
        capacity_factor, min_segment, imbalance_threshold: of planners, as for `plan`.
        num_experts, axes, columns, as_, layers: of files, what they do not say of themselves, as for `RoutingProfile`.

    Raises:
        ParseError: a file is not what it should be, or has no assignments.
        InvalidArgument: recordings do not fit each other, or a method is none or lacks what it needs.
        BudgetTooSmall: in so few bytes not every routing of a step can be carried out.
        Infeasible: so many copies do not fit.
    """
    machine = _machine(ranks, nodes, topology, model, cost, device, expert_bytes, budget, backward)
    how = Reading(num_experts, axes, columns, as_, layers, model)
    given = several(recordings, RoutingProfile, "recordings")
    sources = [] if place_from is None else several(place_from, RoutingProfile, "place_from")
    if all(isinstance(each, RoutingProfile) for each in [*given, *sources]):
        how.refuse("is about files, and recordings has none", but=("model",))
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
            raise invalid(name, "needs model, which says how large experts and rows are", "model beside it")
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
    """Files with the tokens or steps that they have; a profile is one step."""
    return [
        _native.Recording(f"{argument.removesuffix('s')} {i}", each._native, each.notes)
        if isinstance(each, RoutingProfile)
        else how.read(each, argument, steps="if told", count="nothing")
        for i, each in enumerate(given)
    ]


def _names(methods: str | Sequence[str] | None) -> str:
    """As the command takes them; empty for the usual ones."""
    if methods is None:
        return ""
    names = [methods] if isinstance(methods, str) else methods
    try:
        joined = ",".join(words(name, "methods") for name in names)
    except TypeError as error:
        raise invalid("methods", f"is a {type(methods).__name__}", "names, or a text of them") from error
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
