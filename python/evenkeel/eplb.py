"""EPLB's call: chooses redundant experts and places all copies, with the interface of deepseek-ai/EPLB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import ArrayLike, as_given, called, floats, number, public

if TYPE_CHECKING:
    import torch

Maps = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


@overload
def rebalance_experts(
    weight: NDArray[Any], num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> Maps: ...
@overload
def rebalance_experts(
    weight: list[list[float]], num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> Maps: ...
@overload
def rebalance_experts(
    weight: torch.Tensor, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]: ...
@public
def rebalance_experts(weight: ArrayLike, num_replicas: int, num_groups: int, num_nodes: int, num_gpus: int) -> Any:
    """Copies the busiest experts and places all copies on GPUs as evenly as possible.

    A drop-in replacement for `eplb.rebalance_experts` (deepseek-ai/EPLB): arguments, shapes and meaning are the same,
    but the returned placement may differ. If `num_nodes` divides `num_groups`, the experts of a group stay on one node
    (hierarchical); otherwise groups and nodes are ignored (global).

    Args:
        weight: `[L, E]` loads of the logical experts, 0 or more, of any number type; torch, numpy or lists.
        num_replicas: physical experts of each layer, including copies; a multiple of num_gpus, at least E.
        num_groups: expert groups.
        num_nodes: nodes; GPU g is in node `g // (num_gpus // num_nodes)`.
        num_gpus: GPUs; physical expert s is on GPU `s // (num_replicas // num_gpus)`.

    Returns:
        `(phy2log, log2phy, logcnt)`, int64 in host memory; torch tensors for a tensor, else numpy arrays:
        `[L, num_replicas]`, the logical expert of each physical expert; `[L, E, X]`, the physical experts of each
        logical expert, padded with -1, where X is the largest number of copies; `[L, E]`, the copies per expert.

    Raises:
        InvalidArgument: sizes that do not divide each other, or a weight that is negative or not finite.
        Infeasible: fewer replicas than experts.
    """
    with called("weight", "loads", "experts", "num_layers"):
        maps: Maps = _native.rebalance_experts(
            floats(weight, "weight", 2, "[layers, experts]"),
            number(num_replicas, "num_replicas", 1),
            number(num_groups, "num_groups", 1),
            number(num_nodes, "num_nodes", 1),
            number(num_gpus, "num_gpus", 1),
        )
    return as_given(weight, *maps)


__all__ = ["rebalance_experts"]
