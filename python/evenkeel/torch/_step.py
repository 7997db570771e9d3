"""A step as one autograd node: runs chunks forward and backward. Backward recomputes chunks that were not kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from . import _kept
from ._agreement import Agreement, Known
from ._chunk import Chunk, Computed, Experts, HomeGradients, wanted_of
from ._cut import Cut
from ._exchange import Exchange
from ._random import RecomputeContext


class Chunks:
    """One step's chunks."""

    def __init__(
        self,
        exchange: Exchange,
        experts: Experts,
        names: Sequence[str],
        cut: Cut,
        agreement: Agreement,
        known: Known,
    ) -> None:
        self.exchange, self.agreement, self.agreed = exchange, agreement, known.agreed
        self.counted = hash(known.counts.tobytes())
        self.plans = cut.one_by_one, cut.plans
        self.keeps = len(cut.chunks) == 1 and torch.is_grad_enabled()  # always off within the autograd node
        self.chunks: list[tuple[int, int, Chunk]] = []
        for begin, end, routes, loan in cut.chunks:
            self.chunks.append((begin, end, Chunk(exchange, experts, names, routes, loan, cut.one_by_one)))
        # By chunk, the loan that begins with it, and the loan that ends with it.
        loans = [chunk.loan for _, _, chunk in self.chunks]
        self.begins = [None if loan in loans[:i] else loan for i, loan in enumerate(loans)]
        self.ends = [None if loan in loans[i + 1 :] else loan for i, loan in enumerate(loans)]
        self.recompute_contexts: dict[int, RecomputeContext] = {}  # by chunk, for recomputation


class Step(torch.autograd.Function):
    """A step as one autograd node, so that its collectives run in one order on every rank, forward and backward."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        step: Chunks,
        ids: torch.Tensor,
        hidden: torch.Tensor,
        top_k_weights: torch.Tensor,
        *weights: torch.Tensor,
    ) -> torch.Tensor:
        ctx.step, ctx.wants = step, ctx.needs_input_grad[4:]
        keep = step.keeps and any(ctx.needs_input_grad)
        out = hidden.new_empty(hidden.shape) if not step.chunks else None
        kept = []
        with step.exchange.step("forward", hidden.device):
            for i, (begin, end, chunk) in enumerate(step.chunks):
                if (loan := step.begins[i]) is not None:
                    loan.borrow(weights)
                at = chunk.routes.open(step.exchange, ids[begin:end])
                if any(ctx.needs_input_grad):  # kept results may be dropped before backward, or used by an earlier one
                    step.recompute_contexts[i] = RecomputeContext(hidden)
                outputs, computed = chunk.compute(at, hidden[begin:end], weights, ctx.wants, keep)
                step.agreement.require_type(step.agreed, outputs)
                if out is None:
                    out = hidden.new_empty(hidden.shape, dtype=torch.result_type(outputs, top_k_weights))
                chunk.combine(at, outputs, top_k_weights[begin:end], out[begin:end])
                kept.append(computed)
                del at, outputs, computed  # before the next chunk
                if (loan := step.ends[i]) is not None:
                    loan.release()
        ctx.save_for_backward(ids, hidden, top_k_weights, *weights, _kept.keep((step, kept)))
        assert out is not None
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        with ctx.step.exchange.step("backward", grad_output.device):
            return Step._backward(ctx, grad_output)

    @staticmethod
    def _backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        ids, hidden, top_k_weights, *weights, ticket = ctx.saved_tensors
        again: tuple[Chunks, list[Computed | None]] | None = _kept.take(ticket)
        step, kept = again or (ctx.step, [])
        if step.counted == ctx.step.counted and step.plans != ctx.step.plans:
            # A checkpoint reran the step under another budget: use the forward's chunks, whose random state is known.
            step, kept = ctx.step, []
        lacks = not kept or None in kept
        if step.chunks and step.agreement.backward(step.agreed, lacks, hidden.device):
            kept = [None] * len(step.chunks)  # on all ranks, since recomputation sends rows
        grad_hidden = torch.empty_like(hidden)
        grad_router = torch.empty_like(top_k_weights)
        homes = HomeGradients(wanted_of(weights, ctx.wants), several=len(step.chunks) > 1)

        def add(i: int) -> None:
            """Adds one chunk's gradients and frees its memory before the next chunk."""
            begin, end, chunk = step.chunks[i]
            computed, kept[i] = kept[i], None
            if computed is None and (loan := step.begins[i]) is not None:
                loan.borrow(weights)
            if computed is None:
                at = chunk.routes.open(step.exchange, ids[begin:end])
                with step.recompute_contexts[i].restored():
                    computed = chunk.compute(at, hidden[begin:end], weights, ctx.wants, keep=True)[1]
            assert computed is not None
            grad_hidden[begin:end], grad_router[begin:end] = chunk.gradients(
                computed, grad_output[begin:end], top_k_weights[begin:end], homes, step.ends[i] is not None
            )
            if (loan := step.ends[i]) is not None:
                loan.take_back(homes.sums)

        for i in range(len(step.chunks)):
            add(i)
        of_wanted = iter(homes.rounded())
        of_weights = [next(of_wanted) if want else None for want in ctx.wants]
        return (None, None, grad_hidden, grad_router, *of_weights)
