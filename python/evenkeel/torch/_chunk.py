"""One chunk of a step, forward and backward: rows out, experts, results home, and the same for gradients.

Numbering is the routes' (evenkeel/plan/step_routes.h): a position is one assignment where it is computed; positions here
are this rank's own first, then those received. `pool` holds the rows that positions read: this rank's tokens, then the
rows received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge, saved_tensors_hooks

from .. import _native
from ._exchange import Exchange

Weights = dict[str, torch.Tensor]
Experts = Callable[[torch.Tensor, torch.Tensor, Weights], torch.Tensor]

_TOKENS_AT_ONCE = 256
"""Results are weighted and summed so many tokens at a time: the k rows of all tokens are never there at once."""


class _Source(torch.autograd.Function):
    """Begins a graph at a tensor without the graph keeping the tensor."""

    @staticmethod
    def forward(ctx: object, anchor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        return value.detach()

    @staticmethod
    def backward(ctx: object, *grads: torch.Tensor) -> tuple[None, None]:
        return None, None


def as_it_is(value: torch.Tensor) -> torch.Tensor:
    return value


def _source(value: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = _Source.apply(torch.zeros((), requires_grad=True), value)
    return out


class Routes:
    """The routes of one chunk as tensors on the layer's device."""

    def __init__(self, native: _native.StepRoutes, device: torch.device, tokens: int) -> None:
        self.tokens = tokens
        self.sent_row_counts = native.sent_row_counts
        self.sent_counts = native.sent_counts
        self.received_counts = native.received_counts
        self.native_positions = native.native_positions
        self.borrowed_counts = native.borrowed_counts
        self.lent_counts = native.lent_counts
        self.borrowed = native.borrowed

        def here(array: object) -> torch.Tensor:
            return torch.from_numpy(array).to(device)  # shares memory on the host

        self.sent_rows = here(native.sent_rows)
        self.sent_positions = here(native.sent_positions)
        self.row_of = here(native.row_of)
        self.own_positions = here(native.own_positions)
        self.order = here(native.order)
        self.computed_at = here(native.computed_at)
        self.slots = here(native.slots)
        self.lent = here(native.lent)
        self.result_of = here(native.result_of)
        self.received_row_counts: list[int] = []
        self.pool_rows = self.order  # found by `find_rows`

    @property
    def own(self) -> int:
        return self.own_positions.numel()

    def find_rows(self, exchange: Exchange, k: int) -> None:
        """Which pool row each position reads, in the order in which positions are computed.

        The second and last number that the host reads of a step: how many rows each rank sends. The counts alone do not
        say it, since a token's row goes to a rank once.
        """
        self_first = [1 + count for count in self.received_counts]
        message = exchange.all_to_all("routes", self.row_of, [1 + count for count in self.sent_counts], self_first)
        heads = torch.tensor(_starts(self_first), device=message.device)
        self.received_row_counts = message[heads].tolist()
        first = torch.tensor(
            [self.tokens + start for start in _starts(self.received_row_counts)], device=message.device
        )
        counts = torch.tensor(self.received_counts, device=message.device)
        begin = first.repeat_interleave(counts, output_size=sum(self.received_counts))
        is_row = torch.ones(message.numel(), dtype=torch.bool, device=message.device)
        is_row[heads] = False
        received = message[is_row] + begin
        self.pool_rows = torch.cat([self.own_positions // k, received])[self.order]


def _starts(counts: Sequence[int]) -> list[int]:
    starts, total = [], 0
    for count in counts:
        starts.append(total)
        total += count
    return starts


@dataclass
class Part:
    """One call of the experts: on rows of experts at home, or of borrowed ones."""

    graph: GradientEdge
    inputs: list[GradientEdge]  # rows, then each weight that wants a gradient


@dataclass
class Computed:
    """What a chunk keeps for backward."""

    parts: list[Part | None]  # at home, borrowed; None where there is no position
    outputs: torch.Tensor  # [positions, hidden], before weights


class Chunk:
    """A chunk of one layer's step; `names` are those of `weights`, all `[experts at home, ...]`."""

    def __init__(self, exchange: Exchange, experts: Experts, names: Sequence[str], routes: Routes, k: int) -> None:
        self.exchange, self.experts, self.names, self.routes, self.k = exchange, experts, tuple(names), routes, k

    # Forward.

    def compute(
        self, hidden: torch.Tensor, weights: Sequence[torch.Tensor], wants: Sequence[bool], keep: bool
    ) -> tuple[torch.Tensor, Computed | None]:
        """Outputs of the positions computed here, in their order; `wants` says which weights want gradients."""
        borrowing = self._borrow(weights)
        pool = self._dispatch("dispatch", hidden)
        rows = pool.index_select(0, self.routes.pool_rows)
        del pool
        split = self.routes.native_positions
        slots = self.routes.slots
        native = self._run(rows[:split], slots[:split], list(weights), wants, keep)
        foreign = self._run(rows[split:], slots[split:] - weights[0].shape[0], list(borrowing), wants, keep)
        outputs = [part[0] for part in (native, foreign) if part is not None]
        made = torch.cat(outputs) if len(outputs) > 1 else outputs[0] if outputs else self._no_outputs(hidden, weights)
        if not keep:
            return made, None
        return made, Computed([None if part is None else part[1] for part in (native, foreign)], made)

    def combine(self, outputs: torch.Tensor, top_k_weights: torch.Tensor, out: torch.Tensor) -> None:
        """Results home; each token's are weighted and added in the order of its top-k into `out` [tokens, hidden]."""
        routes = self.routes
        sent, own = sum(routes.sent_counts), routes.own
        results = outputs.new_empty((sent + own + 1, outputs.shape[1]))
        back = outputs.index_select(0, routes.computed_at[own:])
        self.exchange.all_to_all("combine", back, routes.received_counts, routes.sent_counts, results[:sent])
        del back
        torch.index_select(outputs, 0, routes.computed_at[:own], out=results[sent : sent + own])
        results[-1].zero_()
        for begin, end in _ranges(routes.tokens, _TOKENS_AT_ONCE):
            of_tokens = results.index_select(0, routes.result_of[begin * self.k : end * self.k])
            of_tokens = of_tokens.view(end - begin, self.k, -1) * top_k_weights[begin:end].unsqueeze(-1)
            out[begin:end] = of_tokens.sum(dim=1)

    def _dispatch(self, phase: str, rows: torch.Tensor) -> torch.Tensor:
        """`[tokens + rows received, hidden]`."""
        routes = self.routes
        received = sum(routes.received_row_counts)
        pool = rows.new_empty((routes.tokens + received, rows.shape[1]))
        pool[: routes.tokens] = rows
        sent = rows.index_select(0, routes.sent_rows)
        self.exchange.all_to_all(phase, sent, routes.sent_row_counts, routes.received_row_counts, pool[routes.tokens :])
        return pool

    def _borrow(self, weights: Sequence[torch.Tensor]) -> Iterator[torch.Tensor]:
        """Posts the weights at once; each is waited for when it is taken."""
        routes = self.routes
        started = []
        for weight in weights:
            lent = weight.detach().index_select(0, routes.lent)
            started.append((lent, *self.exchange.start("weights", lent, routes.lent_counts, routes.borrowed_counts)))

        def taken() -> Iterator[torch.Tensor]:
            for _, out, pending in started:
                pending.wait()
                yield out

        return taken()

    def _no_outputs(self, hidden: torch.Tensor, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        """No row, of the type that the experts make of rows: every rank must send the same."""
        row, slot = hidden.new_zeros((1, hidden.shape[1])), self.routes.slots.new_zeros(1)
        with torch.no_grad():
            return self.experts(row, slot, dict(zip(self.names, weights, strict=True)))[:0]

    def _run(
        self,
        rows: torch.Tensor,
        slots: torch.Tensor,
        weights: Sequence[torch.Tensor],
        wants: Sequence[bool],
        keep: bool,
    ) -> tuple[torch.Tensor, Part | None] | None:
        if rows.shape[0] == 0:
            return None
        if not keep:
            with torch.no_grad():
                return self.experts(rows, slots, dict(zip(self.names, weights, strict=True))), None
        # Hooks on saved tensors are for the step's own (see _kept.py).
        with torch.enable_grad(), saved_tensors_hooks(as_it_is, as_it_is):
            inputs = [
                _source(rows),
                *(_source(w) if want else w.detach() for w, want in zip(weights, wants, strict=True)),
            ]
            made = self.experts(inputs[0], slots, dict(zip(self.names, inputs[1:], strict=True)))
        sources = [get_gradient_edge(tensor) for tensor in inputs if tensor.requires_grad]
        return made.detach(), Part(get_gradient_edge(made), sources)

    # Backward.

    def gradients(
        self,
        computed: Computed,
        grad_output: torch.Tensor,
        top_k_weights: torch.Tensor,
        weights: Sequence[torch.Tensor],
        wants: Sequence[bool],
    ) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor | None]]:
        """Gradients of hidden `[tokens, hidden]`, top-k weights `[tokens, k]`, both at least f32, and experts at home."""
        routes = self.routes
        split = routes.native_positions
        pool = self._dispatch("gradient dispatch", grad_output)
        of_rows = pool.index_select(0, routes.pool_rows)
        del pool
        router = self._to_positions(top_k_weights.reshape(-1))
        grad_router = self._to_assignments((of_rows * computed.outputs).sum(dim=-1, dtype=_wide(of_rows.dtype)))
        of_rows = of_rows.mul_(router.to(of_rows.dtype).unsqueeze(-1)).to(computed.outputs.dtype)
        computed.outputs = computed.outputs[:0]

        foreign = self._backward(computed.parts, 1, of_rows[split:])
        lent = []
        for i, weight in enumerate(_wanted(weights, wants), start=1):
            mine = weight.new_empty((0, *weight.shape[1:])) if foreign is None else foreign[i]
            lent.append(
                (mine, *self.exchange.start("weight gradients", mine, routes.borrowed_counts, routes.lent_counts))
            )
        native = self._backward(computed.parts, 0, of_rows[:split])
        del of_rows
        of_inputs = [part[0] for part in (native, foreign) if part is not None]
        grad_hidden = self._rows_home(of_inputs, grad_output)

        homes = [torch.zeros_like(weight) for weight in _wanted(weights, wants)] if native is None else native[1:]
        added = []
        for home, (_, back, pending) in zip(homes, lent, strict=True):
            pending.wait()
            added.append(_added(home, routes.lent, back))
        of_wanted = iter(added)
        return grad_hidden, grad_router.view(top_k_weights.shape), [next(of_wanted) if want else None for want in wants]

    def _backward(self, parts: list[Part | None], which: int, grads: torch.Tensor) -> list[torch.Tensor] | None:
        """Gradients of the rows and of the wanted weights of one call of the experts; its graph is gone after."""
        part, parts[which] = parts[which], None
        if part is None:
            return None
        return list(torch.autograd.grad(part.graph, part.inputs, grads, materialize_grads=True, allow_unused=True))

    def _rows_home(self, of_inputs: list[torch.Tensor], grad_output: torch.Tensor) -> torch.Tensor:
        """Gradients of rows, added for each pool row, then at the token's home, f32 or wider; rounded once to travel."""
        routes = self.routes
        received = sum(routes.received_row_counts)
        shape = (routes.tokens + received, grad_output.shape[1])
        pool = grad_output.new_zeros(shape, dtype=_wide(grad_output.dtype))
        begin = 0
        for grads in of_inputs:
            _add_rows(pool, routes.pool_rows[begin : begin + grads.shape[0]], grads)
            begin += grads.shape[0]
        away = pool[routes.tokens :].to(grad_output.dtype)
        back = self.exchange.all_to_all("gradient return", away, routes.received_row_counts, routes.sent_row_counts)
        home = pool[: routes.tokens]
        _add_rows(home, routes.sent_rows, back)
        return home

    def _to_positions(self, by_assignment: torch.Tensor) -> torch.Tensor:
        """One number of each assignment to where it is computed, in the order of computing."""
        routes = self.routes
        received = self.exchange.all_to_all(
            "router weights", by_assignment[routes.sent_positions], routes.sent_counts, routes.received_counts
        )
        return torch.cat([by_assignment[routes.own_positions], received])[routes.order]

    def _to_assignments(self, by_position: torch.Tensor) -> torch.Tensor:
        """The way back: `[tokens * k]`, zeros for assignments without an expert."""
        routes = self.routes
        numbered = by_position[routes.computed_at]
        back = self.exchange.all_to_all(
            "router gradients", numbered[routes.own :], routes.received_counts, routes.sent_counts
        )
        made = by_position.new_zeros(routes.result_of.numel())
        made[routes.sent_positions] = back
        made[routes.own_positions] = numbered[: routes.own]
        return made


def _wanted(weights: Sequence[torch.Tensor], wants: Sequence[bool]) -> list[torch.Tensor]:
    return [weight for weight, want in zip(weights, wants, strict=True) if want]


def _added(home: torch.Tensor, slots: torch.Tensor, back: torch.Tensor) -> torch.Tensor:
    """Gradients that came home are added at least in f32, one rank after the other."""
    if slots.numel() == 0:
        return home
    wide = _wide(home.dtype)
    if home.dtype == wide:
        return home.index_add(0, slots, back)
    return home.to(wide).index_add_(0, slots, back.to(wide)).to(home.dtype)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """In which sums of this type are made."""
    return torch.promote_types(dtype, torch.float32)


def _add_rows(total: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    total.scatter_add_(0, rows.unsqueeze(-1).expand(-1, total.shape[1]), values.to(total.dtype))


def _ranges(count: int, size: int) -> Iterator[tuple[int, int]]:
    for begin in range(0, count, size):
        yield begin, min(count, begin + size)
