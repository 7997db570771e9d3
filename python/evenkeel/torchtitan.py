"""Balanced expert parallelism for torchtitan models (torchtitan 0.3): an override of their routed experts.

    config.override.imports.append(("evenkeel.torchtitan.balanced_experts", {"planner": "level", "budget": "4GiB"}))

or on the command line

    --override.imports 'evenkeel.torchtitan.balanced_experts={"planner": "level", "budget": "4GiB"}'

The model's own grouped experts compute every row, with their own kernels. Without a budget, a step in which nothing
moves is torchtitan's own all-to-all, to the bit. With mode="slots", the model's own token dispatcher carries the rows,
to experts and to borrow slots.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch.distributed.tensor import DTensor
from torch.nn.utils.parametrize import is_parametrized

from ._arguments import invalid, public
from ._reading import FilePath
from ._versions import needs
from .step_plan import Planner
from .torch import ExpertParallel
from .torch._chunk import Weights
from .torch._costs import Costs
from .torch._cut import count_values
from .torch._module import weights_of, with_weights
from .torch._names import name_at_first_forward
from .torch._nodes import NodesOfRanks
from .torch._options import LayerOptions, budget_bytes, slots_of
from .torch._slots import SlotStep
from .torch.slots import ExpertSlots, layer_with

with needs("torchtitan", "0.3"):
    from torchtitan.config.override import derive, override
    from torchtitan.distributed.spmd_types import maybe_set_sparse_mesh
    from torchtitan.models.common.moe import RoutedExperts
    from torchtitan.models.common.token_dispatcher import (
        AllToAllTokenDispatcher,
        BaseEPTokenDispatcher,
        DeepEPTokenDispatcher,
        HybridEPTokenDispatcher,
        LocalTokenDispatcher,
        MinimalAsyncEPTokenDispatcher,
    )

_made = itertools.count()
"""Numbers the routed experts of this process as they are parallelized. Errors use the number until the model runs."""


class BalancedExperts(RoutedExperts):  # type: ignore[misc]
    """torchtitan's routed experts, with our expert parallelism between dispatch and combine."""

    @dataclass(kw_only=True, slots=True)
    class Config(RoutedExperts.Config):  # type: ignore[misc]
        layer_options: LayerOptions = field(default_factory=LayerOptions)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.layer_options, self.dispatcher = config.layer_options, config.token_dispatcher
        self.layer: ExpertParallel | None = None

    def parallelize(self, parallel_dims: Any) -> None:
        experts, mesh = self.inner_experts.num_experts, parallel_dims.get_optional_mesh("ep")
        if mesh is not None and experts % mesh.size() != 0:
            raise invalid(
                "expert_parallel_degree", f"is {mesh.size()}", f"a divisor of {experts}, the number of experts"
            )
        super().parallelize(parallel_dims)
        if mesh is not None:
            self.layer = layer_with(self.layer_options, experts, mesh.get_group(), name=str(next(_made)))
            name_at_first_forward(self, self.layer.exchange)
            if isinstance(self.layer, ExpertSlots):
                self.with_slots = replace(self.dispatcher, num_experts=self.layer.num_places).build()
                self.with_slots.wire_meshes(ep_mesh=mesh)

    # Arguments have torchtitan's names, since its sharding uses them.
    def forward(
        self,
        x_BLD: torch.Tensor,
        topk_scores_BLK: torch.Tensor,
        topk_expert_ids_BLK: torch.Tensor,
        num_local_tokens_per_expert_E: torch.Tensor,
    ) -> torch.Tensor:
        def stock(*_: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = RoutedExperts.forward(
                self, x_BLD, topk_scores_BLK, topk_expert_ids_BLK, num_local_tokens_per_expert_E
            )
            return out

        if self.layer is None:
            if not torch.compiler.is_compiling():  # Python shows the warning once
                warnings.warn(
                    "evenkeel.torchtitan.balanced_experts has nothing to balance: expert_parallel_degree is 1, so "
                    "every rank has all experts, and no budget holds",
                    stacklevel=1,
                )
            return stock()
        hidden, scores, ids = (
            tensor.flatten(0, 1).contiguous() for tensor in (x_BLD, topk_scores_BLK, topk_expert_ids_BLK)
        )
        if is_parametrized(self.inner_experts):
            raise invalid("inner_experts", "have parametrized weights", "plain parameters: merge them first")
        weights = {name: _local(weight) for name, weight in weights_of(self.inner_experts).items()}
        if isinstance(self.layer, ExpertSlots):
            out = self.layer(hidden, ids, scores, self._run, weights, self._carry, stock)
        else:
            out = self.layer(hidden, ids, scores, self._run, weights, stock)
        return out.type_as(x_BLD).view(x_BLD.shape)

    def _carry(self, hidden: torch.Tensor, places: torch.Tensor, scores: torch.Tensor, run: SlotStep) -> torch.Tensor:
        """Sends rows with the model's own dispatcher, which treats borrow slots as further experts."""
        counts = count_values(places.flatten(), self.with_slots.num_experts)
        rows, counts_here, metadata = self.with_slots.dispatch(hidden, scores, places, counts)
        out: torch.Tensor = self.with_slots.combine(run.sorted(self._run_sorted, rows, counts_here), metadata, hidden)
        return out

    def _run(self, rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
        """Runs the grouped experts' own forward on these rows, sorted by expert, with these weights."""
        order = slots.argsort(stable=True)
        counts = count_values(slots, len(next(iter(weights.values()))))
        sorted_rows = self._run_sorted(rows[order], counts, weights)
        return torch.empty_like(sorted_rows).index_copy(0, order, sorted_rows)

    def _run_sorted(self, rows: torch.Tensor, counts: torch.Tensor, weights: Weights) -> torch.Tensor:
        experts = with_weights(self.inner_experts, weights)
        with maybe_set_sparse_mesh():
            made: torch.Tensor = type(self.inner_experts).forward(experts, rows, counts)
        return made


@override(target=RoutedExperts.Config, description="Expert parallelism that stays balanced and within a budget.")
@public
def balanced_experts(
    config: RoutedExperts.Config,
    *,
    planner: Planner = "level",
    capacity_factor: float = 1.0,
    min_segment: int = 64,
    imbalance_threshold: float | Literal["auto"] = "auto",
    budget: int | str | None = None,
    chunk_bins: Sequence[int] | None = None,
    costs: Costs | None = None,
    topology: FilePath | None = None,
    nodes: NodesOfRanks | None = None,
    sum_in_nodes: bool = False,
    mode: Literal["exchange", "slots"] = "exchange",
    slots: int | None = None,
) -> BalancedExperts.Config:
    """The override to name in `override.imports`, with these options in its dict; most are as for `ExpertParallel`.

    Args:
        mode: "exchange": our own exchange sends rows, instead of torchtitan's all-to-all. "slots": the model's token
            dispatcher sends them, to experts and borrow slots (`evenkeel.torch.ExpertSlots`); refuses budget,
            chunk_bins, nodes, capacity_factor and "least-loaded".
        slots: with mode="slots", how many experts a rank may borrow in a step; 4 if None.

    Raises:
        InvalidArgument: an option is out of range or of the other mode, or the mode does not support the dispatcher.
    """
    if config._owner is not RoutedExperts:  # not isinstance(): torchtitan's LoRA may have frozen the configuration
        raise invalid(
            "routed_experts",
            f"is {type(config).__qualname__}, whose forward this would replace",
            "torchtitan's RoutedExperts",
        )
    borrow_slots = slots_of(mode, slots)
    if borrow_slots is None:
        _check_exchanged(config.token_dispatcher)
    else:
        _check_carrying(config.token_dispatcher)
    limit = budget_bytes(budget)
    decided = planner, capacity_factor, min_segment, imbalance_threshold
    options = LayerOptions(*decided, limit, chunk_bins, costs, topology, borrow_slots, nodes, sum_in_nodes)
    made: BalancedExperts.Config = derive(config, BalancedExperts.Config, layer_options=options)
    return made


def _check_exchanged(dispatcher: LocalTokenDispatcher.Config) -> None:
    if type(dispatcher) not in (AllToAllTokenDispatcher.Config, LocalTokenDispatcher.Config):
        raise invalid(
            "token_dispatcher",
            f'is {type(dispatcher).__qualname__}, which mode="exchange" would replace',
            'torchtitan\'s own all-to-all (moe_comm_backend="standard"), or mode="slots", which keeps the dispatcher',
        )


def _check_carrying(dispatcher: LocalTokenDispatcher.Config) -> None:
    """Refuses dispatchers that cannot treat borrow slots as experts, or that hide how many rows they dropped."""
    name = type(dispatcher).__qualname__
    if not isinstance(dispatcher, BaseEPTokenDispatcher.Config) and type(dispatcher) is not LocalTokenDispatcher.Config:
        raise invalid("token_dispatcher", f"is {name}", "a configuration of torchtitan's BaseEPTokenDispatcher")
    if isinstance(dispatcher, MinimalAsyncEPTokenDispatcher.Config):
        raise invalid(
            "token_dispatcher",
            f"is {name}, whose one buffer in a process is for one number of experts, so not for slots too",
            'another moe_comm_backend, such as "standard"',
        )
    if isinstance(dispatcher, DeepEPTokenDispatcher.Config) and dispatcher.cudagraphable:
        raise invalid("cudagraphable", "keeps counts from the host, which needs them to plan", "False")
    if isinstance(dispatcher, HybridEPTokenDispatcher.Config) and dispatcher.non_blocking_capacity_factor is not None:
        raise invalid("non_blocking_capacity_factor", "keeps counts from the host, which needs them to plan", "None")


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
