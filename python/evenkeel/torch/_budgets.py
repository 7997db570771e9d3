"""A layer's budget: what its steps' chunks take, the budgets that one can choose from, and how a step keeps to one."""

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
from ._random import undisturbed
from ._run_log import logger

if TYPE_CHECKING:
    from .expert_parallel import Given

_SHOWN = (1, 2, 4, 8)
"""Numbers of chunks that budgets are said for."""

_FEW = 2
"""Where a step needs more chunks, experts at home are called one by one, which mostly takes fewer."""


class Budgets(NamedTuple):
    """Bytes on the rank that needs the most; see `ExpertParallel.budgets`."""

    least: int
    """Runs every routing, if need be with one token of each rank at a time. See docs/torch.md for what then moves."""
    step: dict[int, int]
    """By the number of chunks: what this step takes in so many, each balanced."""
    even: dict[int, int]
    """The same if its tokens chose all experts alike."""

    def __str__(self) -> str:
        return f"Balanced, this step takes {_listed(self.step)}; with even routing {_listed(self.even)}"


def _listed(by_chunks: dict[int, int]) -> str:
    return ", ".join(f"{size} bytes in {plural(n, 'chunk')}" for n, size in by_chunks.items())


class ExpertSize(NamedTuple):
    """One expert's, as its predicted time depends on it."""

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

    def set_budget(self, budget: int, bins: Sequence[int] | None, *, apart: bool = False) -> None:
        """Of this step's layout, from now on; whether experts are called `apart`."""
        phases = self.phases.apart if apart else self.phases.together
        self.layout.set_budget(phases, budget, list(bins or ()), *self.expert, training=self.training)

    def may_be_apart(self, budget: int) -> bool:
        """Whether every routing runs with experts called apart."""
        return budget >= max(phase.of_one_token(self.k, len(self.counted.tokens)) for phase in self.phases.apart)

    def equal_chunks(self, chunks: int) -> tuple[int, bool]:
        """What so many equal ones take, balanced, and whether work moves in any."""
        return self.layout.equal_chunk_bytes(*self.counted.asked(), self.k, chunks)

    def budgets(self, numbers: Sequence[int]) -> Budgets:
        step = {n: self.equal_chunks(n)[0] for n in numbers}
        return Budgets(self.least, step, {n: self.even_bytes(n) for n in numbers})

    def balancing(self, numbers: Sequence[int]) -> int:
        """The least bytes, of these numbers of chunks and of one, in which work moves."""
        taken = [self.equal_chunks(n) for n in {1, *numbers}]
        return min([size for size, moves in taken if moves] or [size for size, _ in taken])

    def even_bytes(self, chunks: int) -> int:
        """In so many chunks, if assignments went to all experts in turn."""
        tokens = self.counted.tokens.sum(axis=1, keepdims=True)
        before = np.cumsum(tokens, axis=0) - tokens  # of the ranks before
        bounds = before + tokens * np.arange(chunks + 1) // chunks  # [P, chunks + 1]
        experts = np.arange(self.counted.counts.shape[2])[::-1]
        assigned = (bounds[:, :, None] * self.k + experts) // len(experts)  # to each expert before each bound
        return self.layout.equal_chunk_bytes(np.diff(assigned, axis=1), tokens[:, 0].tolist(), self.k, chunks)[0]


class LayerBudget:
    """One layer's budget on this rank; all that it decides follows from what ranks have agreed on."""

    def __init__(self, exchange: Exchange, layout: _native.StepLayout, options: LayerOptions) -> None:
        self.exchange, self.layout, self.bins = exchange, layout, options.chunk_bins
        self.is_auto = options.budget == "auto"
        self.bytes: int | None = 0 if options.budget == "auto" else options.budget
        self._kinds: dict[Agreed, tuple[Phases, ExpertSize]] = {}
        """What chunks take, by the kind of step, that of the last step behind the others."""
        self._logged: set[Agreed] = set()
        self._warned = False
        self._step: CountedStep | None = None
        """The last step with gradients, or the last one while there was none with."""

    def kind_of(self, agreed: Agreed, given: Given) -> Agreed | None:
        """The step's kind, whose chunks are measured at its first step, collectively; None without a budget.

        A training step takes more than one without gradients, and autocast changes what experts hold.
        """
        if self.bytes is None:
            return None
        kind = agreed.like
        if kind not in self._kinds:
            hidden, ids, top_k_weights, experts, weights, _ = given
            names, tensors = list(weights), list(weights.values())
            with undisturbed(hidden):
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
                nothing = [_native.PhaseBytes()] * BACKWARD_PHASES  # other ranks have them
                own = Phases(*(phases + nothing for phases in own))
            self._kinds[kind] = self._most_of_ranks(own, hidden.device), ExpertSize.of(tensors, hidden)
        return kind

    def last_kind(self, training: bool) -> Agreed | None:
        """The kind of the last step under a budget, of those with gradients or of the others."""
        return next((kind for kind in reversed(self._kinds) if any(kind.training) == training), None)

    def cut(self, cut: Cut, kind: Agreed | None, *, ahead: bool = False) -> Decision:
        """The step's chunks, of a kind that has been measured, or `ahead` is taken for the next; one without a budget.

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
            finer=lambda: step.set_budget(limit, None, apart=cut.apart),
            few=max(self.bins or (_FEW,)) if step.may_be_apart(limit) else math.inf,
            set_apart=lambda apart: step.set_budget(limit, self.bins, apart=apart),
        )
        cut.budgeted = kind, step, limit

    def carry_out(self, cut: Cut) -> None:
        """A step's chunks are taken: a cut that was made ahead may be of a kind of step that never comes."""
        if cut.budgeted is None:
            return
        kind, step, self.bytes = cut.budgeted
        self._kinds[kind] = self._kinds.pop(kind)
        self._remember(step)
        if self.exchange.rank == 0:
            self._say(step, cut.last, kind not in self._logged)
            self._logged.add(kind)

    @property
    def least(self) -> int:
        """Of the step that `budgets` is about; 0 before any."""
        return 0 if self._step is None else self._step.least

    def budgets(self) -> Budgets:
        if self._step is None:
            why = 'budgets: this layer has run no step under a budget yet; set one, such as budget="auto"'
            raise Unsupported(why, {"why": why})
        self._step.set_budget(0, None)
        return self._step.budgets(self._shown)

    @property
    def _shown(self) -> Sequence[int]:
        return self.bins or _SHOWN

    def _most_of_ranks(self, own: Phases, device: torch.device) -> Phases:
        mine = torch.tensor([[phase.to_list() for phase in phases] for phases in own], device=device)
        most = self.exchange.all_gather("budget", mine).amax(dim=0).tolist()
        return Phases(*([_native.PhaseBytes(*phase) for phase in phases] for phases in most))

    def _remember(self, step: CountedStep) -> None:
        if step.training or self._step is None or not self._step.training:
            self._step = step

    def _bytes_of(self, step: CountedStep) -> int:
        """The budget of a step; "auto" is that of the largest so far."""
        limit = self.bytes or 0
        step.set_budget(limit, self.bins)
        if self.is_auto:
            limit = max(limit, step.least, step.even_bytes(2))
        elif limit < step.least:
            found = step.budgets(self._shown)
            error = BudgetTooSmall(
                f"a budget of {limit} bytes is below the least that runs every routing of this layer: {found.least}. "
                f"With that budget a step may run one token of each rank at a time. {found}",
                {"given": limit, **found._asdict()},
            )
            raise SameOnEveryRank(error)
        step.set_budget(limit, self.bins)
        return limit

    def _say(self, step: CountedStep, last: dict[str, Any], first: bool) -> None:
        """The first step of each kind in a detailed log; a warning, once, where a step could not be balanced."""
        warns = last["lacked_memory"] and not self._warned
        if not warns and not (first and logger.isEnabledFor(logging.DEBUG)):
            return
        size = step.balancing(self._shown)
        step.set_budget(0, None)
        found = step.budgets(self._shown)
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
