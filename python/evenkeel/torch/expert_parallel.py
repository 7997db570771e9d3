"""Expert parallelism that stays balanced: `ExpertParallel`, an object per MoE layer over any process group.

In a step, every rank counts its tokens' choices, the counts are gathered, and one call makes the same plan on every
rank. If routing is uneven, rows of overloaded experts are sent to other ranks together with the weights (LLEP, arXiv
2601.17111). Results equal plain expert parallelism: outputs to the bit if the experts' products of a row do not depend
on other rows, gradients up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from typing import Any, Literal, NamedTuple, NoReturn

import numpy as np
import torch
import torch.distributed as dist

from .. import _native
from .._arguments import instance, invalid, number, public, quoted, unsupported
from .._reading import FilePath
from ..placement import Placement
from ..step_plan import Planner
from ._agreement import Agreement, Known
from ._ahead import LayerAhead
from ._budgets import Budgets, LayerBudget
from ._chunk import Experts, Weights
from ._costs import Costs, Machine, SpillCosts, expert_work, measure_machine, row_bytes
from ._cut import Counted, Cut, Decision, blocks_of, count, decide_together
from ._exchange import Exchange, SameOnEveryRank, invalid_on_all
from ._last_step import step_in_words
from ._nodes import NodesOfRanks, find_nodes, members_of
from ._options import LayerOptions, budget_bytes
from ._phase_range import phase_range
from ._random import preserve_random_state
from ._run_log import run_log
from ._step import Chunks, Step
from .checkpointing import within

Stock = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class ExpertParallel:
    """One MoE layer's expert parallelism on this rank.

    Args:
        num_experts: E, over all ranks.
        group: the process group of the ranks that share the experts; the default group if None.
        planner: "level" (the lowest load of the fullest rank, then few transfers), "least-loaded" (LLEP) or "ep"
            (nothing moves).
        placement: homes of experts; by default rank r has the r-th part of them. `weights` of a rank are those of the
            experts at home there, ascending. Copies (redundant experts) are refused: each would need its own gradient.
        layer: the layer of the placement, by its number in the model.
        capacity_factor, min_segment: as for `evenkeel.plan`.
        imbalance_threshold: nothing moves below this max/mean. "auto": work moves if the predicted gain exceeds the
            predicted cost, by `costs` or by what the first call measures.
        budget: bytes, or "4GiB", that the layer may hold at once for one step, whatever the routing. With more than one
            chunk, backward recomputes. "auto": as much as even routing takes in 2 chunks, for the largest step so far,
            and at least enough for every routing. None: no bound. Not counted are outputs, weights at home and the
            gradients that backward returns; counted are each chunk's gradients of weights at home.
        chunk_bins: under a budget, numbers of chunks, ascending: the least that fits is used, in equal chunks
            (MemFine's MACT, Eq. 9). By default, or if none of them fits, docs/decisions.md says how chunks are chosen:
            balanced ones first; work stays at home if moving it does not fit.
        costs: for "auto" and `topology`: seconds, or the machine to predict them with: a `Machine` or the path of its
            cost file (`evenkeel bench --calibrate`, `layer.machine.save()`). They must be equal on all ranks.
        topology: the links between the group's ranks, in their order: a file or a name, as for `evenkeel.place`. If
            links within and between nodes differ, "level" plans for the least predicted time, with the machine of
            `costs` or the measured one; `SpillCosts` are refused.
        nodes: which of the group's ranks share a node: the number of ranks per node, in order (8); the ranks of each
            node ([[0, 1], [2, 3]]); or "hosts", by the hosts of their processes. A token's row, or a borrowed weight,
            then crosses only once to each other node that needs it; docs/torch.md says when that pays.
        sum_in_nodes: with `nodes`, whether a token's results, and in backward its gradients, are added within each
            node, so that only one row crosses back. The order of these sums, and so their last bits, depend on the
            plan.
        name: the layer's name in errors.

    Every rank of the group must make the same calls in the same order, with equal options.
    """

    @public
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
        budget: int | str | None = None,
        chunk_bins: Sequence[int] | None = None,
        costs: Costs | None = None,
        topology: FilePath | None = None,
        nodes: NodesOfRanks | None = None,
        sum_in_nodes: bool = False,
        name: str = "",
    ) -> None:
        limit = budget_bytes(budget)
        options = LayerOptions(
            planner,
            capacity_factor,
            min_segment,
            imbalance_threshold,
            limit,
            chunk_bins,
            costs,
            topology,
            nodes=nodes,
            sum_in_nodes=sum_in_nodes,
        )
        self._begin(num_experts, group, options, placement, layer, name)

    def _begin(
        self,
        num_experts: int,
        group: dist.ProcessGroup | None,
        options: LayerOptions,
        placement: Placement | None,
        layer: int | None,
        name: str,
    ) -> None:
        self.exchange = Exchange(_checked_group(group), name)
        self.exchange.is_frugal, self.exchange.sums_in_nodes = options.budget is not None, options.sum_in_nodes
        num_experts = self.num_experts = number(num_experts, "num_experts", 1)
        if num_experts < self.exchange.ranks:
            raise invalid("num_experts", f"{num_experts} on {self.exchange.ranks} ranks", "one or more on each rank")
        self.planner, given = options.planner, options.costs
        self.costs = given if isinstance(given, SpillCosts) else None
        """The seconds by which "auto" decides; None before the first step that predicts them, and if links decide."""
        self.machine = given if isinstance(given, Machine) else None
        """The machine with which costs are predicted: given, or measured by the first step."""
        by_gain = options.decides_by_gain and options.planner != "ep"
        self._links = options.links
        self._predicts = (by_gain or self._links is not None) and self.costs is None and self.exchange.ranks > 1
        self._predicted: bool | None = None  # whether the costs are for steps with gradients; None before the first
        self._sizes: tuple[tuple[float, float, float], int] | None = (
            None  # `expert_work`, `row_bytes` that were predicted with
        )
        if isinstance(options.topology, _native.Topology) and options.topology.num_ranks != self.exchange.ranks:
            has = f"has {options.topology.num_ranks} ranks"
            raise invalid("topology", has, f"one of {self.exchange.ranks} ranks, as in the group")
        if placement is None and layer is not None:
            raise invalid("layer", "needs placement", "placement as well, or no layer")
        if placement is None:
            placement, layer = Placement.contiguous(1, num_experts, self.exchange.ranks), None
        if layer is not None:
            layer = number(layer, "layer", 0)
        native = instance(placement, Placement, "placement")._native
        row = native.row_for(None, 1, layer, "the layer")
        if (placement.num_experts, placement.num_ranks) != (num_experts, self.exchange.ranks):
            why = f"is for {placement.num_experts} experts on {placement.num_ranks} ranks"
            raise invalid("placement", why, f"one for {num_experts} experts on {self.exchange.ranks} ranks")
        if any(len(placement.homes(row, expert)) != 1 for expert in range(num_experts)):
            raise invalid("placement", "has copies of experts", "one home for each expert")
        if len(set(placement.owners[row])) < self.exchange.ranks:
            raise invalid("placement", "leaves a rank without an expert", "an expert at home on every rank")
        self._homes = placement.owners[row]
        if options.nodes is not None and options.nodes != "hosts":
            members_of(options.nodes, self.exchange.ranks)  # raises if they do not fit
        self.nodes = options.nodes
        """Which ranks share a node, as given."""
        alike = {"num_experts": num_experts, **vars(options), "placement": self._homes.tolist()}
        self._agreement = Agreement(self.exchange, alike)
        self._layout = _native.StepLayout(
            native,
            row,
            self.exchange.rank,
            options.planner,
            options.capacity_thousandths,
            options.min_segment,
            options.threshold_thousandths,
            options.slots,
        )
        if self.costs is not None and by_gain:
            self._layout.set_costs(*astuple(self.costs))
        self._budget = LayerBudget(self.exchange, self._layout, options)
        self.ahead: LayerAhead | None = None  # this step's routes, within `routes_ahead`
        self.ran_forced = False
        """Whether a `routes_ahead` block that has ended forced the router of the last step."""
        self.last: Any = None
        """The last step as a dict; None before the first step. `training` (whether gradients were enabled), `chunks`,
        `transfers`, `reason` (of the decision: docs/decisions.md), `lacked_memory` (whether work stayed at home that
        would have moved without the budget), and the assignments of each rank: as computed (`rank_loads`) and as if
        nothing had moved (`home_loads`). With nodes also the rows that forward sent, over all ranks:
        `rows_between_nodes`, `rows_within_nodes`, and the same as `weights_...` for borrowed experts."""
        self.last_training: Any = None
        """The same for the last step with gradients enabled; evaluation steps do not change it."""

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
        """Runs a step. Returns the weighted output of each of this rank's tokens, `[tokens, hidden]`.

        Args:
            hidden: `[tokens, hidden]`; ranks may have different numbers of tokens, even none.
            top_k_index: `[tokens, k]` expert ids over all ranks; -1 for none.
            top_k_weights: `[tokens, k]`.
            experts: `experts(rows, slots, weights)` returns each row's output, without its top-k weight, from the
                expert in `slots`, whose weights are `weights[name][slot]`. It is called on rows of experts at home, and
                on rows of borrowed experts with their weights. A row's output must not depend on other rows. Experts
                may draw random numbers (dropout): a recomputed chunk draws the same.
            weights: this rank's weights by name, each `[experts at home, ...]`. Those that require gradients get them.
            stock: called instead of a step in which nothing moves, if given and there is no budget.

        Raises:
            InvalidArgument: on every rank, if an expert id of any rank is outside -1..E-1, or if ranks differ in
                options, types, weights or autocast; on this rank, if its own arguments do not fit.
            BudgetTooSmall: one token of each rank does not fit. `data` has the values of `budgets`.
            CommError: on every remaining rank, forward or backward, if a rank fails, does not answer in time or is at
                another call; see docs/errors.md.
        """
        with self.exchange.step("forward", getattr(hidden, "device", torch.device("cpu"))):
            given = self._given(hidden, top_k_index, top_k_weights, experts, weights, stock)
            known, cut = self._plan(given)
        runs_stock = self.budget is None and self.exchange.nodes is None and not cut.last["transfers"]
        if (stock := given.stock) is not None and runs_stock:
            return self.exchange.watch("stock", lambda: stock(hidden, top_k_index, top_k_weights), hidden.device)
        step = Chunks(self.exchange, experts, list(weights), cut, self._agreement, known)
        try:
            made: torch.Tensor = Step.apply(step, cut.ids, hidden, top_k_weights, *weights.values())
        finally:  # a checkpoint that has recomputed enough leaves by an exception
            if self.exchange.nodes is not None:
                cut.note_nodes()
        return made

    def _plan(self, given: Given) -> tuple[Known, Cut]:
        """A step's chunks, equal on every rank."""
        ids = given.ids
        known = self._counts(given, given.facts())
        find_nodes(self.exchange, self._agreement, self.nodes, ids.device)
        if known.cut is not None:
            cut = known.cut
            cut.ids = ids if known.ids is None else known.ids
            cut.last["training"] = torch.is_grad_enabled()
        else:
            cut = known.cut = self._cut(ids, known.counts)
            with phase_range("plan"):
                decide_together(self.exchange, [self._budget.cut(cut, self._budget.kind_of(known.agreed, given))])
        self._budget.carry_out(cut)
        self._note(cut.last)
        return known, cut

    def _cut(self, ids: torch.Tensor, counts: np.ndarray) -> Cut:
        counted = Counted.of(0, len(ids), counts, self.num_experts)
        return Cut(self.exchange, self._layout, self._homes, ids, counted)

    def count(self, ids: torch.Tensor) -> torch.Tensor:
        """The counts of the ids, for the step's message."""
        return count(ids, self._blocks, self.num_experts, self._homes if self.sends_rows else None)

    def plan_ahead(self, ahead: LayerAhead) -> Decision:
        """Decides on a step that is known ahead, with the sizes of the last step, if there was one."""
        training = torch.is_grad_enabled()
        kind = self._budget.last_kind(training)
        unknown = (self._predicts and self._predicted is None) or (self.budget is not None and kind is None)
        if ahead.counts is None or unknown or not self.sends_rows:
            return
        if self._predicts:
            self._predict(training)
        cut = self._cut(ahead.ids(), ahead.counts)
        try:
            yield from self._budget.cut(cut, kind, ahead=True)
        except SameOnEveryRank:  # too small for the last step's kind, but this step's kind may differ
            return
        ahead.cut, ahead.kind = cut, kind

    def own_tokens(self, tokens: int) -> slice:
        """Which of the model's tokens on this rank this layer gets."""
        return slice(tokens)

    sends_rows = True
    """Whether the layer sends rows itself."""
    allows_missing = True
    """Whether a token may have fewer experts than others."""

    _fixed = 0  # the number of active `weights_fixed` blocks

    @property
    def keeps_slots(self) -> bool:
        """Whether borrowed weights stay for the following steps."""
        return self._fixed > 0

    def _note(self, last: dict[str, Any]) -> None:
        run_log.note(self, last)
        self.last = last
        if last["training"]:
            self.last_training = last

    @property
    def _blocks(self) -> int:
        """The number of blocks in which a step's tokens are counted."""
        return blocks_of(self.budget, self._budget.bins)

    def _counts(self, given: Given, facts: dict[str, str], beside: torch.Tensor | None = None) -> Known:
        """Gathers the counts of all ranks, with another number `beside` them."""
        wants, known, plans = given.wants(), None, within()
        facts["checkpoint"] = "no keep_plans" if plans is None else "keep_plans"
        if plans is not None and plans.again:
            return plans.take(self)
        if self.ahead is not None and beside is None:
            known = self.ahead.known(self._agreement, facts, wants)
        if known is None:
            counts = self.count(given.ids)
            message = counts if beside is None else torch.cat([counts.view(-1), beside])
            known = self._agreement.forward(facts, wants, message)
        if plans is not None:
            known.ids = given.ids.clone()
            plans.keep(self, known)
        if self._predicts:
            self._predict(any(known.agreed.training), given)
        return known

    def _predict(self, training: bool, given: Given | None = None) -> None:
        """Predicts the costs of a step; once a step had gradients, costs are for steps with gradients. Collective:
        `training` must be equal on all ranks.

        Without `given`, before a step, uses the sizes of an earlier one.
        """
        if self._predicted or self._predicted == training:
            return
        if given is not None:
            hidden, names, weights = given.hidden, list(given.weights), list(given.weights.values())
            self._sizes = expert_work(weights, hidden), row_bytes(hidden)
            if self.machine is None:
                with preserve_random_state(hidden):
                    self.machine = measure_machine(self.exchange, given.experts, names, weights, hidden)
        assert self.machine is not None and self._sizes is not None
        self._layout.set_machine(self.machine.numbers)
        if self._links is None:
            self.costs = SpillCosts(*self.machine.spill_costs(*self._sizes, training))
            self._layout.set_costs(*astuple(self.costs))
        else:
            self._layout.set_links(self._links, *self._sizes, training)
        self._predicted = training

    @property
    def budget(self) -> int | None:
        """The budget in bytes. With "auto", 0 before the first step, then as much as the largest step has needed."""
        return self._budget.bytes

    @public
    def budgets(self) -> Budgets:
        """Bytes of steps in 1, 2, 4 and 8 chunks (or in those of `chunk_bins`), on the rank that needs the most.

        Every rank returns the same, without communication. The figures are for the last step with gradients (the last
        step at all if none had gradients), with its own routing and with even routing, and with one call for all
        experts at home. A step uses 1 or 2 chunks if they fit the budget. Otherwise it calls experts at home one by one
        and uses no more chunks than these figures say. If not even 8 chunks fit, work may stay at home.

        Raises:
            Unsupported: no step has run under a budget. Budget "auto" runs any step, so use it to find a budget.
        """
        return self._budget.budgets()

    def _options_in_words(self) -> str:
        """The layer's experts and options, for the log."""
        text = f"{self.num_experts} experts on {self.exchange.ranks} ranks, {self.planner}"
        if self.budget is None:
            return text
        return f"{text}, budget {'auto, now ' if self._budget.is_auto else ''}{self.budget} bytes"

    def __repr__(self) -> str:
        name = f"{self.exchange.layer}: " if self.exchange.layer else ""
        last = "no step yet" if self.last is None else f"last step {step_in_words(self.last)}"
        return f"{type(self).__name__}({name}{self._options_in_words()}; {last})"

    def __deepcopy__(self, memo: object) -> ExpertParallel:
        """Returns itself, since a copy of a model uses the same ranks."""
        return self

    def __reduce__(self) -> NoReturn:
        raise unsupported(
            "a layer is tied to its process group and cannot be pickled, nor can its model: save state_dict()"
        )

    def _given(
        self,
        hidden: torch.Tensor,
        index: torch.Tensor,
        top_k_weights: torch.Tensor,
        experts: Experts,
        weights: Mapping[str, torch.Tensor],
        stock: Stock | None,
    ) -> Given:
        """The checked arguments. Drops `stock` if routes known ahead contain "no expert", which it may not support."""
        for name, tensor in (("hidden", hidden), ("top_k_index", index), ("top_k_weights", top_k_weights)):
            instance(tensor, torch.Tensor, name)
        for name, tensor in (("hidden", hidden), ("top_k_weights", top_k_weights)):
            if not tensor.is_floating_point():
                raise invalid(name, f"is of {tensor.dtype}", _COMPUTED)
            _require_computed(tensor, name)
        if hidden.dim() != 2 or index.dim() != 2 or index.shape != top_k_weights.shape or len(index) != len(hidden):
            beside = f"with top_k_weights {tuple(top_k_weights.shape)} and hidden {tuple(hidden.shape)}"
            right = "[tokens, k], with [tokens, k] and [tokens, hidden]"
            raise invalid("top_k_index", f"{tuple(index.shape)}, {beside}", right)
        if index.shape[1] == 0 or index.is_floating_point() or index.dtype == torch.bool or index.numel() >= 2**31:
            why = f"{tuple(index.shape)} of {index.dtype}"
            raise invalid("top_k_index", why, "whole numbers [tokens, k], k from 1, fewer than 2^31")
        if not instance(weights, Mapping, "weights"):
            raise invalid("weights", "is empty", "at least one tensor, [experts at home, ...]")
        for name, weight in weights.items():
            self._check_weight(f"weights[{quoted(name)}]", weight)
        require_callables(experts=experts, stock=stock)
        ids = index.detach().to(torch.int64)
        again = torch._C._current_graph_task_id() >= 0  # a checkpoint, within backward
        if again and self.ran_forced and self.ahead is None:
            layer = f"layer {self.exchange.layer}".strip()
            why = f"the block has ended, but backward runs {layer} again, whose ids the block forced"
            raise invalid_on_all("routes_ahead", why, "backward within the block")
        self.ran_forced = self.ran_forced and (again or not torch.is_grad_enabled())
        if self.ahead is not None:
            ids = self.ahead.carried_out(ids, hidden, again)
            stock = stock if self.ahead.is_whole else None
        return Given(hidden, ids, top_k_weights, experts, weights, stock)

    def _check_weight(self, name: str, weight: torch.Tensor) -> None:
        instance(weight, torch.Tensor, name)
        if weight.requires_grad:
            _require_computed(weight, name)
        if weight.dim() == 0 or weight.shape[0] != self._layout.natives:
            found = f"{weight.shape[0]} experts" if weight.dim() > 0 else "a single number"
            why = f"{found}, but {self._layout.natives} are at home on rank {self.exchange.rank}"
            raise invalid(name, why, f"[{self._layout.natives}, ...]")


class Given(NamedTuple):
    """A step's arguments on this rank."""

    hidden: torch.Tensor
    ids: torch.Tensor
    top_k_weights: torch.Tensor
    experts: Experts
    weights: Mapping[str, torch.Tensor]
    stock: Stock | None

    def facts(self) -> dict[str, str]:
        """The facts that must be equal in every rank's call."""
        kind, weights = self.hidden.device.type, self.weights.items()
        return {
            "hidden": f"[tokens, {self.hidden.shape[1]}] of {self.hidden.dtype}",
            "top_k_index": f"[tokens, {self.ids.shape[1]}]",
            "top_k_weights": str(self.top_k_weights.dtype),
            "weights": ", ".join(f"{name} {list(weight.shape[1:])} of {weight.dtype}" for name, weight in weights),
            "autocast": str(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else "off",
            "stock": "None" if self.stock is None else "a callable",
        }

    def wants_gradients(self) -> bool:
        tensors = (self.hidden, self.top_k_weights, *self.weights.values())
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)

    def wants(self) -> str | None:
        """Which weights want gradients; None if the step runs without gradients."""
        if not self.wants_gradients():
            return None
        return ", ".join(name for name, weight in self.weights.items() if weight.requires_grad) or "none"


def require_callables(**calls: object) -> None:
    for name, call in calls.items():
        if not callable(call) and (name, call) != ("stock", None):
            raise invalid(name, f"is a {type(call).__name__}", "a callable")


_COMPUTED = "float16, bfloat16, float32 or float64"


def _require_computed(tensor: torch.Tensor, name: str) -> None:
    """Refuses float8 and narrower types, which torch cannot add. Weights without gradients may have them."""
    if tensor.is_floating_point() and tensor.element_size() < 2:
        raise invalid(name, f"is of {tensor.dtype}", _COMPUTED)


def _checked_group(group: object) -> dist.ProcessGroup | None:
    if group is None:
        return None
    found: dist.ProcessGroup = instance(group, dist.ProcessGroup, "group")  # of a DeviceMesh: mesh.get_group()
    if dist.get_rank(found) < 0:
        raise invalid("group", "this process is not in it", "a group of which every caller is a member")
    return found


__all__ = ["Budgets", "ExpertParallel", "Machine", "SpillCosts", "Weights"]
