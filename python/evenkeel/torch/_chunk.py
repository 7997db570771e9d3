"""One chunk of a step, forward and backward: sends rows, runs experts, returns results, and the same for gradients.

_routes.py defines positions, rows and the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks

from .._arguments import invalid
from ._exchange import Exchange, Rows, add_rows
from ._phase_range import phase_range
from ._routes import Indices, Routes

if TYPE_CHECKING:
    from ._loan import Loan

Weights = dict[str, torch.Tensor]
Experts = Callable[..., torch.Tensor]
"""experts(rows, slots, weights)"""

AT_HOME, BORROWED = 0, 1
"""Which experts a call runs."""
_PARTS = ("experts at home", "borrowed experts")

PIECES = 8
"""Results are weighted and summed in so many pieces, so that the k weighted rows of all tokens never exist at once."""


class _Source(torch.autograd.Function):
    """Starts a graph at a tensor without keeping the tensor alive."""

    @staticmethod
    def forward(ctx: object, anchor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.detach()

    @staticmethod
    def backward(ctx: object, *grads: torch.Tensor) -> tuple[None, None]:
        return None, None


def identity(value: torch.Tensor) -> torch.Tensor:
    return value


def source(value: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = _Source.apply(torch.zeros((), requires_grad=True), value)
    return out


@dataclass
class Part:
    """One call of the experts, either at home or borrowed."""

    graph: GradientEdge
    inputs: list[GradientEdge]  # rows, further inputs by row, then each weight that wants a gradient
    like: list[tuple[torch.Size, torch.dtype]]  # shape and type of each input


@dataclass
class Computed:
    """What a chunk keeps for backward."""

    at: Indices
    calls: list[Call]
    parts: list[Part | None]  # one for each call, then one for borrowed experts; None without positions
    outputs: torch.Tensor  # [positions, hidden], before weights


class HomeGradients:
    """Gradients of the weights at home that want one. If an expert has `several`, they are added at least in f32."""

    def __init__(self, wanted: list[torch.Tensor], several: bool) -> None:
        self.wanted, self.several = wanted, several
        self._sums: list[torch.Tensor] | None = None

    def add(self, experts: slice, grads: list[torch.Tensor]) -> None:
        if self._sums is None and all(
            len(grad) == len(weight) for grad, weight in zip(grads, self.wanted, strict=True)
        ):
            self._sums = [grad.to(self._type(grad)) for grad in unaliased(grads)]
            return
        for total, grad in zip(self.sums, grads, strict=True):
            total[experts].add_(grad)

    @property
    def sums(self) -> list[torch.Tensor]:
        """The current sums; loans add to them."""
        if self._sums is None:
            self._sums = [weight.new_zeros(weight.shape, dtype=self._type(weight)) for weight in self.wanted]
        return self._sums

    def rounded(self) -> list[torch.Tensor]:
        """The sums, rounded to the weights' types. Called once, at the end."""
        sums, self._sums = self.sums, None
        for i, weight in enumerate(self.wanted):
            sums[i] = sums[i].to(weight.dtype)
        return sums

    def _type(self, grad: torch.Tensor) -> torch.dtype:
        return wide(grad.dtype) if self.several else grad.dtype


class Call(NamedTuple):
    """One call of experts at home."""

    experts: slice
    rows: slice


class Chunk:
    """A chunk of one layer's step; `names` are the names of `weights`, all `[experts at home, ...]`.

    Calls all experts at home at once; if `one_by_one`, calls each of them that has rows, one after another.
    """

    def __init__(
        self,
        exchange: Exchange,
        experts: Experts,
        names: Sequence[str],
        routes: Routes,
        loan: Loan | None,
        one_by_one: bool,
    ) -> None:
        self.exchange, self.experts, self.names, self.routes = exchange, experts, tuple(names), routes
        self.loan, self.one_by_one = loan, one_by_one  # loan is None if no rank borrows weights

    # Forward.

    def compute(
        self, at: Indices, hidden: torch.Tensor, weights: Sequence[torch.Tensor], wants: Sequence[bool], keep: bool
    ) -> tuple[torch.Tensor, Computed | None]:
        """Outputs of the positions computed here, in their order; `wants` says which weights want gradients."""
        pool = self._dispatch("dispatch", at, hidden)
        rows = pool.index_select(0, at.arrived_rows)
        del pool
        split, slots, natives = self.routes.native_positions, at.slots, len(weights[0])
        run = partial(run_part, self.experts, self.names, wants=wants, keep=keep)
        calls, ran = self._calls(natives), []
        for of, part in calls:
            ran.append(run(AT_HOME, rows[part], slots[part] - of.start, [weight.detach()[of] for weight in weights]))
        borrowed = list(self.loan.weights() if self.loan is not None else weights)  # without a loan, none is read
        ran.append(run(BORROWED, rows[split:], slots[split:] - natives, borrowed))
        outputs = [part[0] for part in ran if part is not None]
        made = torch.cat(outputs) if len(outputs) > 1 else outputs[0] if outputs else self._no_outputs(hidden, weights)
        if not keep:
            return made, None
        return made, Computed(at, calls, [None if part is None else part[1] for part in ran], made)

    def _calls(self, natives: int) -> list[Call]:
        if not self.one_by_one:
            return [Call(slice(0, natives), slice(0, self.routes.native_positions))]
        counts = self.routes.rows_at_home(natives)
        return [
            Call(slice(i, i + 1), slice(end - count, end))
            for i, (count, end) in enumerate(zip(counts, np.cumsum(counts).tolist(), strict=True))
            if count > 0
        ]

    def combine(self, at: Indices, outputs: torch.Tensor, top_k_weights: torch.Tensor, out: torch.Tensor) -> None:
        """Returns results home; each token's are weighted and added into `out` [tokens, hidden].

        They are added in top-k order, or with `sum_in_nodes` first on the ranks that compute them.
        """
        if self.exchange.sums_in_nodes:
            out.copy_(self._sums_home("combine", at, self._weighted(at, outputs, top_k_weights), out))
            return
        routes, computed_at = self.routes, at.computed_at
        sent, own, k = sum(routes.sent_counts), routes.own, top_k_weights.shape[1]
        results = outputs.new_empty((sent + own + 1, outputs.shape[1]))
        back = outputs.index_select(0, computed_at[own:])
        self.exchange.all_to_all("combine", back, routes.received_counts, routes.sent_counts, results[:sent])
        del back
        torch.index_select(outputs, 0, computed_at[:own], out=results[sent : sent + own])
        results[-1].zero_()
        size = max(1, -(-routes.tokens // PIECES))
        for begin in range(0, routes.tokens, size):
            end = min(routes.tokens, begin + size)
            of_tokens = results.index_select(0, at.result_of[begin * k : end * k])
            of_tokens = of_tokens.view(end - begin, k, -1) * top_k_weights[begin:end].unsqueeze(-1)
            out[begin:end] = of_tokens.sum(dim=1)

    def _weighted(self, at: Indices, outputs: torch.Tensor, top_k_weights: torch.Tensor) -> Iterator[torch.Tensor]:
        """Yields the results of the positions here times their router weights, a piece at a time."""
        router = self._to_positions(at, top_k_weights.reshape(-1))
        router = router.to(torch.promote_types(router.dtype, wide(outputs.dtype)))
        for begin in range(0, len(outputs), size := max(1, -(-len(outputs) // PIECES))):
            yield outputs[begin : begin + size] * router[begin : begin + size].unsqueeze(-1)

    @property
    def _rows(self) -> Rows:
        assert self.routes.rows is not None  # known once its indices are made
        return self.routes.rows

    def _dispatch(self, phase: str, at: Indices, rows: torch.Tensor) -> torch.Tensor:
        """Sends rows. Returns the pool `[tokens + rows received, hidden]`, received rows as they arrive."""
        pool = rows.new_empty((len(rows) + sum(self._rows.received), rows.shape[1]))
        pool[: len(rows)] = rows
        levels, arrived = self.routes.levels, pool[len(rows) :]
        if levels is None:
            self.exchange.all_to_all(phase, rows.index_select(0, at.sent_rows), *self._rows, arrived)
            return pool
        direct, forwarded = arrived.split(levels.arrival_counts)
        self.exchange.all_to_all(phase, rows.index_select(0, at.sent_first), *levels.first, direct)
        self.exchange.pass_on(phase, direct, at.passed, levels.passed, forwarded)
        return pool

    def _no_outputs(self, hidden: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        """An empty output in the type of the experts' outputs, since every rank must send the same type."""
        row, slot = hidden.new_zeros((1, hidden.shape[1])), torch.zeros(1, dtype=torch.int64, device=hidden.device)
        with torch.no_grad():
            return call_experts(self.experts, self.names, row, slot, [weight[:1] for weight in weights])[:0]

    # Backward.

    def gradients(
        self,
        computed: Computed,
        grad_output: torch.Tensor,
        top_k_weights: torch.Tensor,
        homes: HomeGradients,
        ends_loan: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Gradients of hidden `[tokens, hidden]` and top-k weights `[tokens, k]`, both at least f32.

        Gradients of weights at home are added to `homes`. Those of borrowed weights are added to the loan, which sends
        them home if `ends_loan`.
        """
        at, split = computed.at, self.routes.native_positions
        pool = self._dispatch("gradient dispatch", at, grad_output)
        of_rows = pool.index_select(0, at.arrived_rows)
        del pool
        outputs, computed.outputs = computed.outputs, computed.outputs.new_empty(0)
        router = self._to_positions(at, top_k_weights.reshape(-1))
        grad_router = self._to_assignments(at, (of_rows * outputs).sum(dim=-1, dtype=wide(of_rows.dtype)))
        of_rows = of_rows.mul_(router.to(of_rows.dtype).unsqueeze(-1)).to(outputs.dtype)
        del outputs

        foreign = part_gradients(computed.parts, len(computed.calls), BORROWED, of_rows[split:])
        if self.loan is not None and foreign is not None:
            self.loan.add(foreign[1:])
            del foreign[1:]
        if self.loan is not None and ends_loan:
            self.loan.give_back(homes.wanted)
        of_inputs = []
        for i, (experts, part) in enumerate(computed.calls):
            native = part_gradients(computed.parts, i, AT_HOME, of_rows[part])
            if native is not None:
                of_inputs.append(native[0])
                homes.add(experts, native[1:])
            del native
        del of_rows
        if foreign is not None:
            of_inputs.append(foreign[0])
        return self._sums_home("gradient return", at, of_inputs, grad_output), grad_router.view(top_k_weights.shape)

    def _sums_home(
        self, phase: str, at: Indices, of_positions: Iterable[torch.Tensor], like: torch.Tensor
    ) -> torch.Tensor:
        """Sums the positions' rows, given in the order of computing: first for each pool row, then at the token's home.

        With `sum_in_nodes` they are also added at the gateway that passed the pool row on. Sums are f32 or wider, and
        rounded to the type of `like` [tokens, hidden] for sending.
        """
        tokens, levels = len(like), self.routes.levels
        in_nodes = levels is not None and self.exchange.sums_in_nodes
        pool = like.new_zeros((tokens + sum(self._rows.received), like.shape[1]), dtype=wide(like.dtype))
        rows, begin = at.arrived_rows if in_nodes else at.pool_rows, 0
        for each in of_positions:
            add_rows(pool, rows[begin : begin + len(each)], each)
            begin += len(each)
        home, away = pool[:tokens], pool[tokens:]
        if levels is None or not in_nodes:
            back = self.exchange.all_to_all(phase, away.to(like.dtype), self._rows.received, self._rows.sent)
            add_rows(home, at.sent_rows, back)
            return home
        away, forwarded = away.split(levels.arrival_counts)
        self.exchange.pass_back(phase, forwarded.to(like.dtype), levels.passed, at.passed, away)
        back = self.exchange.all_to_all(phase, away.to(like.dtype), levels.first.received, levels.first.sent)
        add_rows(home, at.sent_first, back)
        return home

    def _to_positions(self, at: Indices, by_assignment: torch.Tensor) -> torch.Tensor:
        """Sends one number of each assignment to its computing rank. Returns them in the order of computing."""
        routes = self.routes
        received = self.exchange.all_to_all(
            "router weights", by_assignment[at.sent_positions], routes.sent_counts, routes.received_counts
        )
        return torch.cat([by_assignment[at.own_positions], received])[at.order]

    def _to_assignments(self, at: Indices, by_position: torch.Tensor) -> torch.Tensor:
        """Sends one number of each position back to its assignment: `[tokens * k]`, zero where there is no expert."""
        routes = self.routes
        numbered = by_position[at.computed_at]
        back = self.exchange.all_to_all(
            "router gradients", numbered[routes.own :], routes.received_counts, routes.sent_counts
        )
        made = by_position.new_zeros(at.result_of.numel())
        made[at.sent_positions] = back
        made[at.own_positions] = numbered[: routes.own]
        return made


def run_part(
    experts: Experts,
    names: Sequence[str],
    which: int,
    rows: torch.Tensor,
    slots: torch.Tensor,
    weights: Sequence[torch.Tensor],
    wants: Sequence[bool],
    keep: bool,
    hooks: saved_tensors_hooks | None = None,
    beside: Sequence[torch.Tensor] = (),
) -> tuple[torch.Tensor, Part | None] | None:
    """The experts' outputs and, with `keep`, their graph; None without rows. `beside` are further inputs by row."""
    if rows.shape[0] == 0:
        return None

    def call(rows: torch.Tensor, beside: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]) -> torch.Tensor:
        with phase_range(_PARTS[which]):
            return call_experts(lambda *given: experts(*given, *beside), names, rows, slots, weights)

    if not keep:
        with torch.no_grad():
            return call(rows, beside, weights), None
    # Users' hooks on saved tensors apply only to the step's own tensors (_kept.py).
    with torch.enable_grad(), hooks or saved_tensors_hooks(identity, identity):
        of_rows = [source(each) for each in (rows, *beside)]
        given = [source(w) if want else w.detach() for w, want in zip(weights, wants, strict=True)]
        made = call(of_rows[0], of_rows[1:], given)
        inputs = [*of_rows, *given]
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    like = [(tensor.shape, tensor.dtype) for tensor in wanted]
    return made.detach(), Part(get_gradient_edge(made), [get_gradient_edge(tensor) for tensor in wanted], like)


def part_gradients(parts: list[Part | None], number: int, which: int, grads: torch.Tensor) -> list[torch.Tensor] | None:
    """Gradients of the inputs of one call of the experts; frees the call's graph."""
    part, parts[number] = parts[number], None
    if part is None:
        return None
    with phase_range(f"gradients of {_PARTS[which]}"):
        made = torch.autograd.grad(part.graph, part.inputs, grads, allow_unused=True)
    return [
        grads.new_zeros(shape, dtype=dtype) if grad is None else grad
        for grad, (shape, dtype) in zip(made, part.like, strict=True)
    ]


def wanted_of(weights: Sequence[torch.Tensor], wants: Sequence[bool]) -> list[torch.Tensor]:
    return [weight for weight, want in zip(weights, wants, strict=True) if want]


def call_experts(
    experts: Experts, names: Sequence[str], rows: torch.Tensor, slots: torch.Tensor, weights: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Calls the experts. Their output must be as wide as their rows.

    Raises:
        InvalidArgument: the output is not such a tensor, or the experts changed rows or weights in place. With
            gradients, also if the experts use other tensors that want a gradient.
    """
    before = [_version(tensor) for tensor in (rows, *weights)]
    made: object = experts(rows, slots, dict(zip(names, weights, strict=True)))
    if not isinstance(made, torch.Tensor):
        raise invalid("experts", f"returned a {type(made).__name__}", "one tensor, of the shape of the rows")
    if made.shape != rows.shape:
        raise invalid(
            "experts", f"returned shape {tuple(made.shape)} for rows {tuple(rows.shape)}", "the shape of the rows"
        )
    for name, tensor, version in zip(("rows", *names), (rows, *weights), before, strict=True):
        if _version(tensor) != version:
            raise invalid("experts", f"changed their {name} in place", "operations that make new tensors")
    if torch.is_grad_enabled():
        _require_own_inputs(made)
    return made


def _version(tensor: torch.Tensor) -> int:
    """A number that grows when a tensor is changed in place; 0 for tensors of inference mode, which have none."""
    return 0 if tensor.is_inference() else tensor._version


def _require_own_inputs(made: torch.Tensor) -> None:
    """Checks that only rows and weights want gradients. Any other tensor would silently get none."""
    if made.grad_fn is None:
        raise invalid("experts", "returned an output without a grad_fn", "operations that autograd can differentiate")
    found, ahead = {made.grad_fn}, [made.grad_fn]
    while ahead:
        node = ahead.pop()
        if node.name() == _Source.__name__ + "Backward":
            continue
        variable = getattr(node, "variable", None)
        if variable is not None:
            raise invalid(
                "experts",
                f"use a tensor {tuple(variable.shape)} that requires a gradient but is not in weights",
                "to pass it in weights, [experts at home, ...], or to detach it",
            )
        for other, _ in node.next_functions:
            if other is not None and other not in found:
                found.add(other)
                ahead.append(other)


def unaliased(grads: list[torch.Tensor]) -> list[torch.Tensor]:
    """Makes gradients safe for adding in place: none is an expanded view, and no two share memory."""
    made: list[torch.Tensor] = []
    for grad in grads:
        shared = any(grad.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for other in made)
        made.append(grad.clone() if shared or not grad.is_contiguous() else grad)
    return made


def add_experts(home: torch.Tensor, slots: Sequence[int], back: torch.Tensor) -> None:
    """Adds returned gradients to those at home, rank by rank, at least in f32, and rounds once."""
    for slot in dict.fromkeys(slots):
        total = home[slot].to(wide(home.dtype))
        for i, other in enumerate(slots):
            if other == slot:
                total.add_(back[i])
        home[slot].copy_(total)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type in which sums of this type are computed."""
    return torch.promote_types(dtype, torch.float32)
