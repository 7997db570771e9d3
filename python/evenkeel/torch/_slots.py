"""A step whose rows another dispatcher carries. Borrowed experts are in slots, which it treats as further experts.

The dispatcher gets places instead of expert ids (evenkeel/plan/slot_tables.h) and calls the step on the rows that it
delivers. Weights at home are not copied: rows of experts at home and rows of slots are computed separately. Borrowed
weights exist only during forward and again during backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from .. import _native
from .._arguments import invalid
from . import _kept
from ._chunk import AT_HOME, BORROWED, Experts, Part, call_experts, part_gradients, run_part, unaliased, wanted_of
from ._exchange import Exchange, to_device
from ._loan import Loan
from ._random import RecomputeContext
from ._routes import in_order

Which: TypeAlias = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""What names each row's expert (slots or counts): for rows at home, rows of slots, and one row of the first expert."""


def places_of(ids: torch.Tensor, tables: _native.SlotTables) -> torch.Tensor:
    """The place of each of this rank's assignments `[tokens, k]`; -1 stays -1. Runs only on the ids' device."""
    order, places = in_order(ids, tables.rule(ids.numel()))
    return torch.empty_like(order).scatter_(0, order, places).view_as(ids)


class _Borrowed:
    """Weights in slots. The graph of a call keeps only their numbers, until backward has borrowed them again."""

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        self.weights = list(weights)

    def hooks(self) -> saved_tensors_hooks:
        numbers = {w.untyped_storage().data_ptr(): i for i, w in enumerate(self.weights) if w.nbytes > 0}

        def pack(value: torch.Tensor) -> Any:
            number = numbers.get(value.untyped_storage().data_ptr())
            if number is None or value.dtype != self.weights[number].dtype:
                return value
            return number, value.size(), value.stride(), value.storage_offset()

        def unpack(kept: Any) -> torch.Tensor:
            if isinstance(kept, torch.Tensor):
                return kept
            number, *view = kept
            return self.weights[number].as_strided(*view)

        return saved_tensors_hooks(pack, unpack)


class _Rows:
    """Which of the delivered rows are for experts at home and which for slots, in alternating pieces."""

    def __init__(self, at_home: Sequence[int], in_slots: Sequence[int]) -> None:
        self.pieces = [count for pair in zip(at_home, in_slots, strict=True) for count in pair]
        self.all = sum(self.pieces)
        self.none_moved = not any(in_slots)

    def split(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.none_moved:
            return rows, rows[:0]
        pieces = rows.split(self.pieces)
        return _joined(pieces[::2]), _joined(pieces[1::2])

    def join(self, native: torch.Tensor | None, foreign: torch.Tensor | None) -> torch.Tensor:
        if native is None or foreign is None:
            whole = foreign if native is None else native
            assert whole is not None
            return whole
        parts = native.split(self.pieces[::2]), foreign.split(self.pieces[1::2])
        return torch.cat([piece for pair in zip(*parts, strict=True) for piece in pair])


class _PaddedRows:
    """Rows sorted by place, with padding behind the rows of each place or behind all rows.

    Only the device knows where the rows of slots begin. So rows that may belong to either go to both calls of the
    experts. Each call gets the other call's rows behind the rows that its own counts cover.
    """

    def __init__(self, rows: int, at_home: int, in_slots: int, ends: tuple[torch.Tensor, torch.Tensor]) -> None:
        own = rows - in_slots if at_home > 0 else 0
        foreign = rows - at_home if in_slots > 0 else 0
        self.own, self.foreign = own, foreign
        at_slots, end = ends
        at = torch.arange(rows, device=end.device)
        self.slot_rows = (at_slots + at[:foreign]).clamp(max=rows - 1)
        of_slots = (at >= at_slots) & (at < end) & (foreign > 0)
        zeros = own + foreign
        self.joined = torch.where(at < at_slots.clamp(max=own), at, zeros)
        self.joined = torch.where(of_slots, own + at - at_slots, self.joined)

    def split(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return rows[: self.own], rows.index_select(0, self.slot_rows)

    def join(self, native: torch.Tensor | None, foreign: torch.Tensor | None) -> torch.Tensor:
        made = [part for part in (native, foreign) if part is not None]
        return torch.cat([*made, made[0].new_zeros((1, *made[0].shape[1:]))]).index_select(0, self.joined)


def _joined(pieces: Sequence[torch.Tensor]) -> torch.Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))


class SlotStep:
    """One step. `sends`: whether any weight is sent; `held`: weights in slots that are kept between steps."""

    def __init__(
        self,
        exchange: Exchange,
        tables: _native.SlotTables,
        sends: bool,
        experts: Experts,
        names: Sequence[str],
        weights: Sequence[torch.Tensor],
        held: Sequence[torch.Tensor] | None = None,
    ) -> None:
        self.exchange, self.experts, self.names, self.weights = exchange, experts, names, weights
        self.native, self.sends = tables.loan, sends
        self.held, self.borrowed_slots = held, tables.borrowed_slots
        self.at_home, self.in_slots = tables.at_home, tables.in_slots
        self.homes = len(weights[0])
        self.loan = self.borrow(weights)
        self._has_run = False

    def borrow(self, weights: Sequence[torch.Tensor]) -> Loan:
        loan = Loan(self.exchange, self.native, several=False)
        if self.sends:
            loan.borrow(weights)
        return loan

    def in_slots_of(self, loan: Loan) -> list[torch.Tensor]:
        """The weights in slots; waits for those on their way."""
        arrived = list(loan.weights())
        if self.held is None:
            return arrived
        for held, new in zip(self.held, arrived, strict=False):  # `arrived` is empty if nothing was sent
            held.index_copy_(0, to_device(self.borrowed_slots, held.device), new)
        return list(self.held)

    def require_run(self) -> None:
        if not self._has_run:
            raise invalid("dispatcher", f"did not call run on rank {self.exchange.rank}", "one call of run in a step")

    def __call__(self, rows: torch.Tensor, slots: torch.Tensor, *beside: torch.Tensor) -> torch.Tensor:
        """The experts' unweighted outputs for rows sorted by source rank, then by place.

        `slots` `[rows]` are the rows' places on this rank. `beside`, one or more numbers for each row, is passed to the
        experts after their weights and gets gradients.
        """
        cut = self._cut(rows, self.at_home, self.in_slots)
        own, foreign = cut.split(slots)
        return self._run(cut, self.experts, (own, foreign - self.homes, slots.new_zeros(1)), rows, beside)

    def sorted(self, experts: Experts, rows: torch.Tensor, counts: torch.Tensor, *beside: torch.Tensor) -> torch.Tensor:
        """The same for rows sorted by place, with experts for sorted rows: `experts(rows, counts, weights, *beside)`.

        `counts` `[places here]` are the rows of each place, on any device that the experts accept. For kernels of fixed
        sizes, places may have more rows than assignments, and more rows may follow the last place. Experts then get
        more rows than their counts say; outputs of the excess rows are not used.
        """
        filled = len(self.native.borrowed) if self.held is None else len(self.held[0])
        if counts.dim() != 1 or len(counts) < self.homes + filled:
            right = f"[{self.homes + filled} or more], the rows of each expert and slot"
            raise invalid("dispatcher", f"gave counts {tuple(counts.shape)}", right)
        own, foreign = counts[: self.homes], counts[self.homes : self.homes + filled]
        at_home, in_slots = sum(self.at_home), sum(self.in_slots)
        cut: _Rows | _PaddedRows
        if len(rows) > at_home + in_slots:
            at_slots = own.sum().to(rows.device, non_blocking=True)
            end = at_slots + foreign.sum().to(rows.device, non_blocking=True)
            cut = _PaddedRows(len(rows), at_home, in_slots, (at_slots, end))
        else:
            cut = self._cut(rows, [at_home], [in_slots])
        one = torch.zeros_like(own)
        one[0] = 1
        return self._run(cut, experts, (own, foreign, one), rows, beside)

    def _cut(self, rows: torch.Tensor, at_home: Sequence[int], in_slots: Sequence[int]) -> _Rows:
        cut = _Rows(at_home, in_slots)
        if len(rows) != cut.all and (cut.all > 0 or len(rows) > 1):  # a dispatcher may deliver one row instead of none
            why = f"brought {len(rows)} rows to rank {self.exchange.rank}"
            raise invalid("dispatcher", why, f"{cut.all}, one for each assignment to this rank's experts and slots")
        return cut

    def _run(
        self, cut: _Rows | _PaddedRows, experts: Experts, which: Which, rows: torch.Tensor, beside: Any
    ) -> torch.Tensor:
        if self._has_run:
            why = f"calls run a second time in one step on rank {self.exchange.rank}"
            raise invalid("dispatcher", why, "one call of run in a step")
        self._has_run = True
        self.keeps = torch.is_grad_enabled()  # read here, since it is always off within an autograd node
        made: torch.Tensor = _Compute.apply(self, cut, experts, which, len(beside), rows, *beside, *self.weights)
        return made


class _Compute(torch.autograd.Function):
    """Runs the experts on delivered rows. Its backward sends the gradients of borrowed weights home."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        step: SlotStep,
        cut: _Rows | _PaddedRows,
        experts: Experts,
        which: Which,
        beside: int,
        *tensors: torch.Tensor,
    ) -> torch.Tensor:
        ctx.step, ctx.cut, ctx.experts, ctx.which, ctx.of_rows = step, cut, experts, which, 1 + beside
        ctx.wants = ctx.needs_input_grad[5 + ctx.of_rows :]
        keep = step.keeps and any(ctx.needs_input_grad)
        ctx.recompute_context = RecomputeContext(tensors[0]) if keep else None
        made, kept = _forward(ctx, tensors, step.loan, keep)
        step.loan.release()
        if keep:
            ctx.save_for_backward(*tensors, _kept.keep(kept))
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        step: SlotStep = ctx.step
        with step.exchange.step("backward", grad.device):
            *tensors, ticket = ctx.saved_tensors
            loan = step.borrow(tensors[ctx.of_rows :])
            kept = _kept.take(ticket)
            if kept is None:  # hooks moved the ticket, or another backward pass took its objects
                with ctx.recompute_context.restored():
                    kept = _forward(ctx, tensors, loan, keep=True)[1]
            parts, borrowed = kept
            borrowed.weights = list(loan.weights())
            grads = _gradients(ctx, parts, grad, tensors, loan)
            borrowed.weights = []
            loan.release()
            return None, None, None, None, None, *grads


def _forward(
    ctx: Any, tensors: Sequence[torch.Tensor], loan: Loan, keep: bool
) -> tuple[torch.Tensor, tuple[list[Part | None], _Borrowed]]:
    """Runs experts at home first, while weights are on their way."""
    names, weights = ctx.step.names, tensors[ctx.of_rows :]
    (own, *own_beside), (foreign, *foreign_beside) = zip(*map(ctx.cut.split, tensors[: ctx.of_rows]), strict=True)
    own_which, foreign_which, one = ctx.which
    run = partial(run_part, ctx.experts, names, wants=ctx.wants, keep=keep)
    native = run(AT_HOME, own, own_which, weights, beside=own_beside)
    borrowed = _Borrowed(ctx.step.in_slots_of(loan))
    moved = run(BORROWED, foreign, foreign_which, borrowed.weights, hooks=borrowed.hooks(), beside=foreign_beside)
    borrowed.weights = []
    made, parts = zip(*(part or (None, None) for part in (native, moved)), strict=True)
    if native is None and moved is None:  # no rows, but in the type of the experts' outputs
        rows = [each.new_zeros((1, *each.shape[1:])) for each in tensors[: ctx.of_rows]]
        with torch.no_grad():
            none = call_experts(lambda *given: ctx.experts(*given, *rows[1:]), names, rows[0], one, weights)[:0]
        made = none, None
    return ctx.cut.join(*made), ([*parts], borrowed)


def _gradients(
    ctx: Any, parts: list[Part | None], grad: torch.Tensor, tensors: Sequence[torch.Tensor], loan: Loan
) -> list[torch.Tensor | None]:
    """Gradients of rows, `beside` and weights. Borrowed experts go first: theirs are sent while others are computed."""
    step: SlotStep = ctx.step
    own, foreign = ctx.cut.split(grad)
    moved = part_gradients(parts, 1, BORROWED, foreign)
    wanted = wanted_of(tensors[ctx.of_rows :], ctx.wants)
    if step.sends:
        loan.add([] if moved is None else moved[ctx.of_rows :])
        loan.give_back(wanted)
    native = part_gradients(parts, 0, AT_HOME, own)
    homes = unaliased([torch.zeros_like(weight) for weight in wanted] if native is None else native[ctx.of_rows :])
    if step.sends:
        loan.take_back(homes)
    of_wanted = iter(homes)
    if native is None and moved is None:
        of_rows = [torch.zeros_like(each) for each in tensors[: ctx.of_rows]]
    else:
        without: list[Any] = [None] * ctx.of_rows
        parts_of_rows = [(without if part is None else part)[: ctx.of_rows] for part in (native, moved)]
        of_rows = [ctx.cut.join(*both) for both in zip(*parts_of_rows, strict=True)]
    return [*of_rows, *(next(of_wanted) if want else None for want in ctx.wants)]
