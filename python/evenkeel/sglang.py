"""SGLang rebalances its experts with evenkeel: the entry point `evenkeel` in the group `sglang.srt.plugins`.

    EVENKEEL_REBALANCE=1 python -m sglang.launch_server --enable-eplb ...

SGLang calls `register` when it starts. Unless EVENKEEL_REBALANCE is 1 that does nothing and imports nothing of SGLang.
Read against SGLang 0.5.23 (sglang/srt/plugins, sglang/srt/eplb/eplb_algorithms).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._arguments import invalid
from ._server import is_asked_for, require_parameters
from ._versions import needs
from .eplb import rebalance_experts
from .errors import Error

if TYPE_CHECKING:
    import torch

    Maps = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

TARGET = "sglang.srt.eplb.eplb_algorithms.rebalance_experts"
PARAMETERS = [
    "tokens_per_expert",
    "num_physical_experts",
    "num_local_physical_experts",
    "num_groups",
    "num_nodes",
    "algorithm",
]


def register() -> None:
    """Puts `rebalance` around SGLang's function, if EVENKEEL_REBALANCE is 1; ends the process where it cannot."""
    try:
        if is_asked_for():
            _register()
    except Error as error:
        # Of any other exception SGLang writes a log line, and serves on with its own algorithm.
        raise SystemExit(f"evenkeel: {error}") from error


def _register() -> None:
    with needs("sglang", "0.5.23"):
        from sglang.srt.eplb import eplb_algorithms
        from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    require_parameters(eplb_algorithms.rebalance_experts, PARAMETERS, TARGET)
    HookRegistry.register(TARGET, rebalance, HookType.AROUND)


def rebalance(
    original: Callable[..., Maps],
    tokens_per_expert: torch.Tensor,
    num_physical_experts: int,
    num_local_physical_experts: int,
    num_groups: int | None,
    num_nodes: int,
    algorithm: Any,
) -> Maps:
    """What SGLang's function returns, from `rebalance_experts`.

    Of the algorithm that was chosen only this counts: with a name that ends in `_hierarchical`, the experts of a group
    stay on one node. While ranks are missing under elastic EP, SGLang's own function decides, which knows them.

    Args:
        original: SGLang's function.
        tokens_per_expert: `[steps, L, E]`, which are added up.
    """
    num_gpus = num_physical_experts // num_local_physical_experts
    if algorithm.name.startswith("elasticity_aware") and _ranks_are_missing(num_gpus):
        return original(
            tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups, num_nodes, algorithm
        )
    weight = tokens_per_expert.sum(0)
    if not algorithm.name.endswith("_hierarchical"):
        return rebalance_experts(weight, num_physical_experts, 1, 1, num_gpus)
    if num_groups is None or num_groups % num_nodes != 0:
        raise invalid("num_groups", f"{num_groups} under {algorithm.name}", f"a multiple of the {num_nodes} nodes")
    return rebalance_experts(weight, num_physical_experts, num_groups, num_nodes, num_gpus)


def _ranks_are_missing(num_gpus: int) -> bool:
    from sglang.srt.elastic_ep.elastic_ep import ElasticEPStateManager

    state = ElasticEPStateManager.instance()
    return state is not None and int(state.active_ranks.sum()) < num_gpus


__all__ = ["rebalance", "register"]
