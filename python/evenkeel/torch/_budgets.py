"""A layer's budget: the memory of its steps' chunks, the budgets to choose from, and how a step keeps to one."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from .. import _native
from ..errors import BudgetTooSmall, Unsupported
from ._agreement import Agreed
from ._costs import expert_work
from ._cut import Counted, Cut, Decision
from ._exchange import Exchange, SameOnEveryRank
from ._last_step import plural
from ._options import LayerOptions
from ._phase_bytes import BACKWARD_PHASES, Phases, chunk_phases, least_bytes
from ._random import preserve_random_state
from ._run_log import logger

if TYPE_CHECKING:
    from .expert_parallel import Given

_REPORTED_CHUNKS = (1, 2, 4, 8)
"""Numbers of chunks for which budgets are reported."""

_MOST_CHUNKS_TOGETHER = 2
"""A step that needs more chunks than this calls experts at home one by one, which usually needs fewer chunks."""


class Budgets(NamedTuple):
    """Bytes on the rank that needs the most; see `ExpertParallel.budgets`."""

    least: int
    """Enough for every routing, if necessary with one token of each rank at a time. What then moves: docs/torch.md."""
    step: dict[int, int]
    """By number of chunks: bytes of this step in so many chunks, each balanced."""
    even: dict[int, int]
    """The same if its tokens chose all experts equally often."""

    def __str__(self) -> str:
        return f"Balanced, this step takes {_listed(self.step)}; with even routing {_listed(self.even)}"


def _listed(by_chunks: dict[int, int]) -> str:
    return ", ".join(f"{size} bytes in {plural(n, 'chunk')}" for n, size in by_chunks.items())


class ExpertSize(NamedTuple):
    """The sizes of one expert that its predicted time depends on."""

    elements: float
    outputs: float
    weight_bytes: float
    gradient_bytes: float

    @staticmethod
    def of(weights: Sequence[torch.Tensor], hidden: torch.Tensor) -> ExpertSize:
        gradients = sum(weight[0].nbytes for weight in weights if weight.requires_grad)
        return ExpertSize(*expert_work(weights, hidden), gradients)


class CountedStep(NamedTuple):
    """A step under a budget."""

    layout: _native.StepLayout
    phases: Phases
    expert: ExpertSize
    counted: Counted
    k: int
    training: bool

    @property
    def least(self) -> int:
        return least_bytes(self.phases, self.k, len(self.counted.tokens))

    def set_budget(self, budget: int, bins: Sequence[int] | None, *, one_by_one: bool = False) -> None:
        """Sets the budget of this step's layout from now on. `one_by_one`: experts are called one by one."""
        phases = self.phases.one_by_one if one_by_one else self.phases.together
        self.layout.set_budget(phases, budget, list(bins or ()), *self.expert, training=self.training)

    def fits_one_by_one(self, budget: int) -> bool:
        """Whether the budget suffices for every routing if experts are called one by one."""
        return budget >= max(phase.of_one_token(self.k, len(self.counted.tokens)) for phase in self.phases.one_by_one)

    def equal_chunks(self, chunks: int) -> tuple[int, bool]:
        """Bytes of so many equal chunks, balanced, and whether work moves in any of them."""
        return self.layout.equal_chunk_bytes(*self.counted.counts_and_tokens(), self.k, chunks)

    def budgets(self, numbers: Sequence[int]) -> Budgets:
        step = {n: self.equal_chunks(n)[0] for n in numbers}
        return Budgets(self.least, step, {n: self.even_bytes(n) for n in numbers})

    def balancing(self, numbers: Sequence[int]) -> int:
        """The least bytes at which work moves, in one chunk or in any of these numbers of chunks."""
        taken = [self.equal_chunks(n) for n in {1, *numbers}]
        return min([size for size, moves in taken if moves] or [size for size, _ in taken])

    def even_bytes(self, chunks: int) -> int:
        """Bytes in so many chunks, if assignments went to all experts in turn."""
        tokens = self.counted.tokens.sum(axis=1, keepdims=True)
        before = np.cumsum(tokens, axis=0) - tokens  # tokens of earlier ranks
        bounds = before + tokens * np.arange(chunks + 1) // chunks  # [P, chunks + 1]
        experts = np.arange(self.counted.counts.shape[2])[::-1]
        assigned = (bounds[:, :, None] * self.k + experts) // len(experts)  # to each expert before each bound
        return self.layout.equal_chunk_bytes(np.diff(assigned, axis=1), tokens[:, 0].tolist(), self.k, chunks)[0]


class LayerBudget:
    """One layer's budget on this rank. All its decisions follow from values that ranks have agreed on."""

    def __init__(self, exchange: Exchange, layout: _native.StepLayout, options: LayerOptions) -> None:
        self.exchange, self.layout, self.bins = exchange, layout, options.chunk_bins
        self.is_auto = options.budget == "auto"
        self.bytes: int | None = 0 if options.budget == "auto" else options.budget
        self._kinds: dict[Agreed, tuple[Phases, ExpertSize]] = {}
        """Sizes of chunks by kind of step; the kind of the last step comes last."""
        self._logged: set[Agreed] = set()
        self._warned = False
        self._step: CountedStep | None = None
        """The last step with gradients; the last step at all while none had gradients."""

    def kind_of(self, agreed: Agreed, given: Given) -> Agreed | None:
        """The step's kind; None without a budget. Chunks are measured at a kind's first step, collectively.

        A training step takes more than a step without gradients, and autocast changes what experts hold.
        """
        if self.bytes is None:
            return None
        kind = agreed.without_step
        if kind not in self._kinds:
            hidden, ids, top_k_weights, experts, weights, _ = given
            names, tensors = list(weights), list(weights.values())
            with preserve_random_state(hidden):
                here = agreed.training[self.exchange.rank]
                of_rows = hidden, top_k_weights.dtype, ids.shape[1], self.exchange.ranks
                own = chunk_phases(
                    experts,
                    names,
                    tensors,
                    *of_rows,
                    training=here,
                    nodes=self.exchange.nodes,
                    sums_in_nodes=self.exchange.sums_in_nodes,
                )
            if any(agreed.training) and not here:
                nothing = [_native.PhaseBytes()] * BACKWARD_PHASES  # phases that other ranks have
                own = Phases(*(phases + nothing for phases in own))
            self._kinds[kind] = self._most_of_ranks(own, hidden.device), ExpertSize.of(tensors, hidden)
        return kind

    def last_kind(self, training: bool) -> Agreed | None:
        """The kind of the last step under a budget, among steps with gradients (`training`) or without."""
        return next((kind for kind in reversed(self._kinds) if any(kind.training) == training), None)

    def cut(self, cut: Cut, kind: Agreed | None, *, ahead: bool = False) -> Decision:
        """Cuts a step of a measured kind into chunks; one chunk without a budget. `ahead`: before the step itself.

        Raises:
            BudgetTooSmall: on every rank.
        """
        if kind is None:
            cut.whole()
            return
        step = CountedStep(self.layout, *self._kinds[kind], cut.counted, cut.ids.shape[1], any(kind.training))
        if not ahead:
            self._remember(step)
        limit = self._bytes_of(step)
        yield from cut.decide(
            finer=lambda: step.set_budget(limit, None, one_by_one=cut.one_by_one),
            most_together=max(self.bins or (_MOST_CHUNKS_TOGETHER,)) if step.fits_one_by_one(limit) else math.inf,
            set_one_by_one=lambda one_by_one: step.set_budget(limit, self.bins, one_by_one=one_by_one),
        )
        cut.budgeted = kind, step, limit

    def carry_out(self, cut: Cut) -> None:
        """Records that a step uses these chunks. A cut made ahead may be for a kind of step that never comes."""
        if cut.budgeted is None:
            return
        kind, step, self.bytes = cut.budgeted
        self._kinds[kind] = self._kinds.pop(kind)
        self._remember(step)
        if self.exchange.rank == 0:
            self._log_step(step, cut.last, kind not in self._logged)
            self._logged.add(kind)

    @property
    def least(self) -> int:
        """The least budget of the step that `budgets` is about; 0 before any step."""
        return 0 if self._step is None else self._step.least

    def budgets(self) -> Budgets:
        if self._step is None:
            why = 'budgets: this layer has run no step under a budget yet; set one, such as budget="auto"'
            raise Unsupported(why, {"why": why})
        self._step.set_budget(0, None)
        return self._step.budgets(self._reported_chunks)

    @property
    def _reported_chunks(self) -> Sequence[int]:
        return self.bins or _REPORTED_CHUNKS

    def _most_of_ranks(self, own: Phases, device: torch.device) -> Phases:
        mine = torch.tensor([[phase.to_list() for phase in phases] for phases in own], device=device)
        most = self.exchange.all_gather("budget", mine).amax(dim=0).tolist()
        return Phases(*([_native.PhaseBytes(*phase) for phase in phases] for phases in most))

    def _remember(self, step: CountedStep) -> None:
        if step.training or self._step is None or not self._step.training:
            self._step = step

    def _bytes_of(self, step: CountedStep) -> int:
        """The budget of a step. With "auto", the most that any step so far has needed."""
        limit = self.bytes or 0
        step.set_budget(limit, self.bins)
        if self.is_auto:
            limit = max(limit, step.least, step.even_bytes(2))
        elif limit < step.least:
            found = step.budgets(self._reported_chunks)
            error = BudgetTooSmall(
                f"a budget of {limit} bytes is below the least that runs every routing of this layer: {found.least}. "
                f"With that budget a step may run one token of each rank at a time. {found}",
                {"given": limit, **found._asdict()},
            )
            raise SameOnEveryRank(error)
        step.set_budget(limit, self.bins)
        return limit

    def _log_step(self, step: CountedStep, last: dict[str, Any], first: bool) -> None:
        """Logs the first step of each kind at level DEBUG. Warns, once, of a step that could not be balanced."""
        warns = last["lacked_memory"] and not self._warned
        if not warns and not (first and logger.isEnabledFor(logging.DEBUG)):
            return
        size = step.balancing(self._reported_chunks)
        step.set_budget(0, None)
        found = step.budgets(self._reported_chunks)
        layer = f"layer {self.exchange.layer}" if self.exchange.layer else "a layer"
        of_step = (
            f"{layer}, a step {'with' if step.training else 'without'} gradients in {plural(last['chunks'], 'chunk')}"
        )
        if first:
            logger.debug("%s: a budget of %d bytes; the least is %d. %s", of_step, self.bytes, found.least, found)
        if warns:
            self._warned = True
            warnings.warn(
                f"{of_step}: a budget of {self.bytes} bytes is too small to balance it; {size} bytes would do. {found}",
                stacklevel=2,
            )
