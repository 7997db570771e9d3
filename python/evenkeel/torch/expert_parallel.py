"""Expert parallelism that stays balanced: `ExpertParallel`, an object per MoE layer over any process group.

One step: every rank counts its tokens' choices, the counts are gathered, and one call makes the same plan on every rank.
Where routing is uneven, rows of overloaded experts go to other ranks and their weights with them (LLEP, arXiv
2601.17111). Outputs and gradients are those of plain expert parallelism: outputs to the bit where the experts' products
of a row do not depend on the other rows, gradients to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from .. import _native
from .._arguments import instance, invalid, number
from ..errors import BudgetTooSmall
from ..placement import Placement
from ..step_plan import Planner
from . import _kept
from ._chunk import Chunk, Computed, Experts, Routes, Weights
from ._costs import SpillCosts, measure_costs
from ._exchange import Exchange
from ._options import LayerOptions
from ._phase_bytes import chunk_phases, least_bytes

Stock = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

_BLOCKS = 32
"""Under a budget tokens are counted in so many blocks, of which chunks are made."""


class ExpertParallel:
    """One MoE layer's expert parallelism on this rank.

    Args:
        num_experts: E, over all ranks.
        group: the process group of the ranks that share the experts; the default group if None.
        planner: "level" (the lowest worst rank, then few transfers), "least-loaded" (LLEP) or "ep" (nothing moves).
        placement: homes of experts; without one, rank r has the r-th part of them. This rank's weights are those of its
            homes, ascending. Copies (redundant experts) are refused: each would need its own gradient.
        layer: which layer of the placement, by the model's number.
        capacity_factor, min_segment: as for `evenkeel.plan`.
        imbalance_threshold: below this max/mean nothing moves. "auto": work moves where the predicted gain exceeds the
            predicted cost, by `costs` or by what the first call measures.
        budget: bytes that the layer may hold at once for one step, whatever the routing; more than one chunk is
            computed again in backward. None: no bound. Outputs, gradients of the arguments and weights at home are not
            counted.
        chunk_bins: under a budget, numbers of chunks, ascending: the least that fits is taken, in equal chunks (MemFine's
            MACT, Eq. 9). Where none fits, and by default, the step is cut into as few chunks as fit.
        costs: seconds for "auto".
        name: what errors call this layer.

    Every rank of the group makes the same calls in the same order, with equal options.
    """

    def __init__(
        self,
        num_experts: int,
        group: dist.ProcessGroup | None = None,
        *,
        planner: Planner = "level",
        placement: Placement | None = None,
        layer: int | None = None,
        capacity_factor: float = 1.0,
        min_segment: int = 64,
        imbalance_threshold: float | Literal["auto"] = "auto",
        budget: int | None = None,
        chunk_bins: Sequence[int] | None = None,
        costs: SpillCosts | None = None,
        name: str = "",
    ) -> None:
        self.exchange = Exchange(group, name)
        self.num_experts = number(num_experts, "num_experts", 1)
        options = LayerOptions(planner, capacity_factor, min_segment, imbalance_threshold, budget, chunk_bins, costs)
        self.budget, self.chunk_bins, self.costs = budget, chunk_bins, costs
        by_gain = options.decides_by_gain and planner != "ep"
        self._measures = by_gain and costs is None and self.exchange.ranks > 1
        if placement is None:
            placement, layer = Placement.contiguous(1, num_experts, self.exchange.ranks), None
        native = instance(placement, Placement, "placement")._native
        row = native.row_for(None, 1, layer, "the layer")
        if (placement.num_experts, placement.num_ranks) != (num_experts, self.exchange.ranks):
            raise invalid(
                "placement",
                f"is for {placement.num_experts} experts on {placement.num_ranks} ranks",
                f"one for {num_experts} experts on {self.exchange.ranks} ranks",
            )
        if any(len(placement.homes(row, expert)) != 1 for expert in range(num_experts)):
            raise invalid("placement", "has copies of experts", "one home for each expert")
        self._homes = placement.owners[row]
        self._layout = _native.StepLayout(
            native,
            row,
            self.exchange.rank,
            planner,
            options.capacity_thousandths,
            min_segment,
            options.threshold_thousandths,
        )
        if costs is not None and by_gain:
            self._layout.set_costs(costs.per_assignment, costs.per_transfer, costs.per_step)
        self._phases: dict[tuple[Any, ...], list[_native.PhaseBytes]] = {}
        """What chunks take, by all that it depends on besides the layer."""
        self.last: dict[str, Any] = {}
        """The last step: `chunks`, `transfers`, and the assignments of each rank: as they were computed
        (`rank_loads`) and as they would have been with nothing moved (`home_loads`)."""

    @torch.compiler.disable
    def __call__(
        self,
        hidden: torch.Tensor,
        top_k_index: torch.Tensor,
        top_k_weights: torch.Tensor,
        experts: Experts,
        weights: Mapping[str, torch.Tensor],
        stock: Stock | None = None,
    ) -> torch.Tensor:
        """The weighted output of each of this rank's tokens, `[tokens, hidden]`.

        Args:
            hidden: `[tokens, hidden]`; ranks may hold different numbers of tokens, and none.
            top_k_index: `[tokens, k]` expert ids over all ranks; -1 for none.
            top_k_weights: `[tokens, k]`.
            experts: `experts(rows, slots, weights)`: the unweighted output of each row, by the expert `slots` says, whose
                weights are `weights[name][slot]`. Called on rows of experts at home, and on rows of borrowed ones with
                their weights. A row's output must not depend on the other rows.
            weights: this rank's weights by name, each `[experts at home, ...]`. Those that require gradients get them.
            stock: what a step in which nothing moves runs instead, if it is given and there is no budget.

        Raises:
            InvalidArgument: on every rank, if an expert id of any rank is outside -1..E-1; on this rank alone, if its
                shapes do not fit.
            BudgetTooSmall: one token of each rank does not fit.
            CommError: on every rank that is left, forward or backward, if one fails or does not answer in time; see
                docs/errors.md.
        """
        ids = self._ids(hidden, top_k_index, top_k_weights, weights)
        names, tensors = list(weights), list(weights.values())
        if self._measures:
            self.costs = measure_costs(self.exchange, experts, names, tensors, hidden)
            self._layout.set_costs(self.costs.per_assignment, self.costs.per_transfer, self.costs.per_step)
            self._measures = False
        if self.budget is not None:
            self._set_budget(self.budget, experts, names, tensors, hidden, ids.shape[1])
        self.last = {
            "chunks": 0,
            "transfers": 0,
            "rank_loads": [0] * self.exchange.ranks,
            "home_loads": [0] * self.exchange.ranks,
        }
        pieces = self._cut(ids, also_if_nothing_moves=stock is None)
        if pieces is None:
            assert stock is not None
            return self.exchange.watch("stock", lambda: stock(hidden, top_k_index, top_k_weights), hidden.device)
        step = _Chunks(self.exchange, experts, names, pieces, ids.shape[1])
        made: torch.Tensor = _Step.apply(step, hidden, top_k_weights, *tensors)
        return made

    def _ids(
        self,
        hidden: torch.Tensor,
        index: torch.Tensor,
        top_k_weights: torch.Tensor,
        weights: Mapping[str, torch.Tensor],
    ) -> torch.Tensor:
        if hidden.dim() != 2 or index.dim() != 2 or index.shape != top_k_weights.shape or len(index) != len(hidden):
            raise invalid(
                "top_k_index",
                f"{tuple(index.shape)}, with weights {tuple(top_k_weights.shape)} and hidden {tuple(hidden.shape)}",
                "[tokens, k], [tokens, k] and [tokens, hidden]",
            )
        for name, weight in weights.items():
            if weight.shape[0] != self._layout.natives:
                raise invalid(
                    f"weights[{name!r}]",
                    f"{weight.shape[0]} experts, but {self._layout.natives} are at home on rank {self.exchange.rank}",
                    f"[{self._layout.natives}, ...]",
                )
        return index.detach().to(torch.int64)

    def _set_budget(
        self,
        budget: int,
        experts: Experts,
        names: Sequence[str],
        weights: Sequence[torch.Tensor],
        hidden: torch.Tensor,
        k: int,
    ) -> None:
        """A training step takes more than one without gradients, and autocast changes what experts hold."""
        training, kind = torch.is_grad_enabled(), hidden.device.type
        autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        wants = tuple(weight.requires_grad for weight in weights)
        key = (training, wants, hidden.dtype, hidden.shape[1], k, autocast)
        if key not in self._phases:
            own = chunk_phases(experts, names, weights, hidden, k, training)
            self._phases[key] = self._most_of_ranks(own, hidden.device)
        phases = self._phases[key]
        least = least_bytes(phases, k, self.exchange.ranks)
        if budget < least:
            raise BudgetTooSmall(
                f"a budget of {budget} bytes is below the least that runs every routing of this layer: {least}",
                {"given": budget, "least": least},
            )
        self._layout.set_budget(phases, budget)

    def _most_of_ranks(self, own: list[_native.PhaseBytes], device: torch.device) -> list[_native.PhaseBytes]:
        mine = torch.tensor([phase.to_list() for phase in own], dtype=torch.int64, device=device)
        return [_native.PhaseBytes(*most) for most in self.exchange.all_gather("budget", mine).amax(dim=0).tolist()]

    def _counts(
        self, ids: torch.Tensor, begin: int, end: int, blocks: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Counts `[P, blocks, E]` and tokens `[P, blocks]` of all ranks, and this rank's ids: one read of the host."""
        part, width = ids[begin:end], self.num_experts
        tokens = len(part)
        bounds = torch.tensor([tokens * b // blocks for b in range(blocks + 1)], device=ids.device)
        flat = part.reshape(-1)
        wrong = (flat < -1) | (flat >= width)
        column = flat.masked_fill(wrong, width).masked_fill(flat == -1, width + 1)
        if blocks > 1:
            of_token = torch.bucketize(torch.arange(tokens, device=ids.device), bounds[1:], right=True)
            column = column + of_token.repeat_interleave(part.shape[1]) * (width + 2)
        mine = torch.bincount(column, minlength=blocks * (width + 2)).view(blocks, width + 2)
        mine[:, -1] = bounds.diff()
        every = self.exchange.all_gather("counts", mine)
        host = torch.cat([every.reshape(-1), flat]).cpu().numpy() if ids.device.type != "cpu" else None
        counts = every.numpy() if host is None else host[: every.numel()].reshape(every.shape)
        own = part.contiguous().numpy() if host is None else host[every.numel() :].reshape(part.shape)
        bad = counts[:, :, width].sum(axis=1)
        if bad.any():
            rank = int(bad.argmax())
            raise invalid(
                "top_k_index",
                f"{int(bad[rank])} expert ids of rank {rank} are outside -1..{width - 1}",
                "ids over all ranks",
            )
        return np.ascontiguousarray(counts[:, :, :width]), np.ascontiguousarray(counts[:, :, -1]), own

    def _cut(self, ids: torch.Tensor, also_if_nothing_moves: bool) -> list[tuple[int, int, Routes]] | None:
        """Chunks of this rank's tokens with their routes; None where there is one that moves nothing."""
        if self.budget is None:
            counts, tokens, own = self._counts(ids, 0, len(ids), 1)
            native = self._layout.step(own, counts[:, 0], tokens[:, 0].tolist(), also_if_nothing_moves)
            self._add_to_last(counts[:, 0])
            return None if native is None else [(0, len(ids), Routes(native, ids.device, len(ids)))]
        cut = _Cut(self, ids)
        if self.chunk_bins is None or not cut.equal(self.chunk_bins):
            cut.fewest(0, len(ids))
        return cut.chunks

    def _add_to_last(self, counts: np.ndarray) -> None:
        """A chunk as it has been planned; `counts` are its assignments `[P, E]`."""
        last, ranks = self.last, self.exchange.ranks
        at_home = np.bincount(self._homes, weights=counts.sum(axis=0), minlength=ranks).astype(np.int64).tolist()
        last["chunks"] += 1
        last["transfers"] += self._layout.transfers
        for name, loads in (("rank_loads", self._layout.rank_loads), ("home_loads", at_home)):
            last[name] = [total + load for total, load in zip(last[name], loads, strict=True)]


class _Cut:
    """How one step's tokens are cut so that every chunk fits the budget, alike on every rank."""

    def __init__(self, layer: ExpertParallel, ids: torch.Tensor) -> None:
        self.layer, self.ids = layer, ids
        self.chunks: list[tuple[int, int, Routes]] = []

    def equal(self, bins: Sequence[int]) -> bool:
        """As many equal chunks as the least bin that fits; false if none does."""
        blocks = math.lcm(*bins)
        counted = self.layer._counts(self.ids, 0, len(self.ids), blocks)
        budget = self.layer.budget
        assert budget is not None
        for chunks in bins:
            if self.layer._layout.equal_chunk_bytes(*counted[:2], chunks) <= budget:
                each = blocks // chunks
                for first in range(0, blocks, each):
                    self._add(counted, 0, len(self.ids), first, first + each)
                return True
        return False

    def fewest(self, begin: int, end: int) -> None:
        """A block that does not fit is counted again in blocks of its own, down to one token of each rank."""
        counted = self.layer._counts(self.ids, begin, end, _BLOCKS)
        first = 0
        while first < _BLOCKS:
            last = self.layer._layout.longest_chunk(*counted[:2], first)
            if last > first:
                self._add(counted, begin, end, first, last)
                first = last
            else:  # this ends: one token of each rank fits, with nothing moved (_set_budget)
                self.fewest(*_bounds(begin, end, _BLOCKS, first, first + 1))
                first += 1

    def _add(
        self, counted: tuple[np.ndarray, np.ndarray, np.ndarray], begin: int, end: int, first: int, last: int
    ) -> None:
        """The chunk of these blocks of tokens begin..end."""
        counts, tokens, own = counted
        start, stop = _bounds(begin, end, counts.shape[1], first, last)
        run = slice(first, last)
        of_chunk = np.ascontiguousarray(own[start - begin : stop - begin])
        counts_of_chunk = np.ascontiguousarray(counts[:, run].sum(axis=1))
        native = self.layer._layout.step(of_chunk, counts_of_chunk, tokens[:, run].sum(axis=1).tolist(), True)
        if native is not None and tokens[:, run].any():
            self.chunks.append((start, stop, Routes(native, self.ids.device, stop - start)))
            self.layer._add_to_last(counts_of_chunk)


def _bounds(begin: int, end: int, blocks: int, first: int, last: int) -> tuple[int, int]:
    return begin + (end - begin) * first // blocks, begin + (end - begin) * last // blocks


class _Chunks:
    """One step's chunks."""

    def __init__(
        self,
        exchange: Exchange,
        experts: Experts,
        names: Sequence[str],
        pieces: list[tuple[int, int, Routes]],
        k: int,
    ) -> None:
        self.exchange = exchange
        self.keeps = len(pieces) == 1 and torch.is_grad_enabled()  # within a node it never is
        self.chunks = [(begin, end, Chunk(exchange, experts, names, routes, k)) for begin, end, routes in pieces]
        self.k = k
        self.autocast: tuple[str, bool, torch.dtype] = ("cpu", False, torch.bfloat16)


class _Step(torch.autograd.Function):
    """A step as one node: its collectives run in one order on every rank, forward and backward."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any, step: _Chunks, hidden: torch.Tensor, top_k_weights: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        with step.exchange.step("forward"):
            return _Step._forward(ctx, step, hidden, top_k_weights, *weights)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:  # type: ignore[override]
        with ctx.step.exchange.step("backward"):
            return _Step._backward(ctx, grad_output)

    @staticmethod
    def _forward(
        ctx: Any, step: _Chunks, hidden: torch.Tensor, top_k_weights: torch.Tensor, *weights: torch.Tensor
    ) -> torch.Tensor:
        ctx.step, ctx.wants = step, ctx.needs_input_grad[3:]
        keep = step.keeps and any(ctx.needs_input_grad)
        kind = hidden.device.type
        step.autocast = (kind, torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind))
        out = hidden.new_empty(hidden.shape) if not step.chunks else None
        kept = []
        for begin, end, chunk in step.chunks:
            chunk.routes.find_rows(step.exchange, step.k)
            outputs, computed = chunk.compute(hidden[begin:end], weights, ctx.wants, keep)
            if out is None:
                out = hidden.new_empty(hidden.shape, dtype=torch.result_type(outputs, top_k_weights))
            chunk.combine(outputs, top_k_weights[begin:end], out[begin:end])
            kept.append(computed)
        ctx.save_for_backward(hidden, top_k_weights, *weights, _kept.keep(kept))
        assert out is not None
        return out

    @staticmethod
    def _backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        step: _Chunks = ctx.step
        hidden, top_k_weights, *weights, ticket = ctx.saved_tensors
        kept: list[Computed | None] = _kept.take(ticket) or [None] * len(step.chunks)
        grad_hidden = torch.empty_like(hidden)
        grad_router = torch.empty_like(top_k_weights)
        of_weights: list[torch.Tensor | None] = [None] * len(weights)
        kind, enabled, dtype = step.autocast

        def add(i: int) -> None:
            """One chunk's; nothing of it lives when the next one begins."""
            begin, end, chunk = step.chunks[i]
            computed, kept[i] = kept[i], None
            if computed is None:
                with torch.autocast(kind, dtype, enabled):
                    computed = chunk.compute(hidden[begin:end], weights, ctx.wants, keep=True)[1]
            assert computed is not None
            of_hidden, of_router, made = chunk.gradients(
                computed, grad_output[begin:end], top_k_weights[begin:end], weights, ctx.wants
            )
            grad_hidden[begin:end] = of_hidden
            grad_router[begin:end] = of_router
            for j, grad in enumerate(made):
                total = of_weights[j]
                of_weights[j] = grad if total is None or grad is None else total.add_(grad)

        for i in range(len(step.chunks)):
            add(i)
        if not step.chunks:
            of_weights = [torch.zeros_like(w) if want else None for w, want in zip(weights, ctx.wants, strict=True)]
        return (None, grad_hidden, grad_router, *of_weights)


__all__ = ["ExpertParallel", "SpillCosts", "Weights"]
