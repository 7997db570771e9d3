"""Balanced expert parallelism for torchtitan models (torchtitan 0.3): an override of their routed experts.

    config.override.imports.append(("evenkeel.torchtitan.balanced_experts", {"planner": "level", "budget": "4GiB"}))

or on the command line

    --override.imports 'evenkeel.torchtitan.balanced_experts={"planner": "level", "budget": "4GiB"}'

The model's own grouped experts run on every row, with whatever kernels they use. Without a budget, a step in which
nothing moves is torchtitan's own all-to-all, to the bit.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch.distributed.tensor import DTensor

from ._arguments import invalid, public
from ._versions import needs
from .step_plan import Planner
from .torch import ExpertParallel
from .torch._chunk import Weights
from .torch._costs import Costs
from .torch._module import with_weights
from .torch._names import name_at_first_forward
from .torch._options import LayerOptions, budget_bytes
from .torch.slots import layer_with

with needs("torchtitan", "0.3"):
    from torchtitan.config.override import derive, override
    from torchtitan.distributed.spmd_types import maybe_set_sparse_mesh
    from torchtitan.models.common.moe import RoutedExperts
    from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher, LocalTokenDispatcher

_made = itertools.count()
"""Numbers the routed experts of this process, as they are spread: what errors call a layer until its model runs."""


class BalancedExperts(RoutedExperts):  # type: ignore[misc]
    """torchtitan's routed experts, with our expert parallelism between dispatch and combine."""

    @dataclass(kw_only=True, slots=True)
    class Config(RoutedExperts.Config):  # type: ignore[misc]
        layer_options: LayerOptions = field(default_factory=LayerOptions)

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.layer_options = config.layer_options
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

    # Arguments are named as in torchtitan, whose sharding goes by these names.
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
            if not torch.compiler.is_compiling():  # Python says it once
                warnings.warn(
                    "evenkeel.torchtitan.balanced_experts has nothing to balance: expert_parallel_degree is 1, so "
                    "every rank has all experts, and no budget holds",
                    stacklevel=1,
                )
            return stock()
        hidden, scores, ids = (
            tensor.flatten(0, 1).contiguous() for tensor in (x_BLD, topk_scores_BLK, topk_expert_ids_BLK)
        )
        weights = {name: _local(parameter) for name, parameter in self.inner_experts.named_parameters(recurse=False)}
        return self.layer(hidden, ids, scores, self._run, weights, stock).type_as(x_BLD).view(x_BLD.shape)

    def _run(self, rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
        """The grouped experts' own forward on these rows and weights, which it takes sorted by expert."""
        experts = with_weights(self.inner_experts, weights)
        order = slots.argsort(stable=True)
        counts = slots.bincount(minlength=len(next(iter(weights.values()))))
        with maybe_set_sparse_mesh():
            sorted_rows = type(self.inner_experts).forward(experts, rows[order], counts)
        return torch.empty_like(sorted_rows).index_copy(0, order, sorted_rows)


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
) -> BalancedExperts.Config:
    """What `override.imports` names, with these options in its dict; they mean what they do for `ExpertParallel`.

    Raises:
        InvalidArgument: an option is out of range, or the experts are dispatched by something else than torchtitan's
            own all-to-all.
    """
    if type(config) is not RoutedExperts.Config:
        raise invalid(
            "routed_experts",
            f"is {type(config).__qualname__}, whose forward would be lost",
            "torchtitan's RoutedExperts",
        )
    if type(config.token_dispatcher) not in (AllToAllTokenDispatcher.Config, LocalTokenDispatcher.Config):
        raise invalid(
            "token_dispatcher",
            f"is {type(config.token_dispatcher).__qualname__}, whose place ours takes",
            'torchtitan\'s own all-to-all (moe_comm_backend="standard")',
        )
    options = LayerOptions(
        planner=planner,
        capacity_factor=capacity_factor,
        min_segment=min_segment,
        imbalance_threshold=imbalance_threshold,
        budget=budget_bytes(budget),
        chunk_bins=chunk_bins,
        costs=costs,
    )
    made: BalancedExperts.Config = derive(config, BalancedExperts.Config, layer_options=options)
    return made


def _local(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
