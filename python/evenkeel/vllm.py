"""Lets vLLM rebalance its experts with evenkeel: the entry point `evenkeel` in the group `vllm.general_plugins`.

    EVENKEEL_REBALANCE=1 vllm serve MODEL --enable-expert-parallel --enable-eplb ...

vLLM calls `register` in each of its processes. Unless EVENKEEL_REBALANCE is 1, it does nothing and imports nothing of
vLLM. Written for vLLM 0.33.0 (vllm/plugins, vllm/distributed/eplb).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ._arguments import floats, integers
from ._live import Options, Sizes, Windows, next_map
from ._server import is_enabled, require_parameters
from ._versions import needs
from .eplb import rebalance_experts

if TYPE_CHECKING:
    import torch

PARAMETERS = ["weight", "num_replicas", "num_groups", "num_nodes", "num_ranks", "old_global_expert_indices"]


def register() -> None:
    """Makes EvenkeelPolicy the policy `default` of vLLM, if EVENKEEL_REBALANCE is 1.

    An exception here ends vLLM. vLLM accepts no other policy name (`EPLBPolicyOption` in vllm/config/parallel.py).
    """
    if not is_enabled():
        return
    Options.from_environment()  # a wrong value shall fail at the start, not at the first rebalancing
    with needs("vllm", "0.33"):
        from vllm.distributed.eplb.policy import EPLB_POLICIES, AbstractEplbPolicy

    abstract = AbstractEplbPolicy.rebalance_experts
    require_parameters(abstract, PARAMETERS, "vllm.distributed.eplb.policy.AbstractEplbPolicy.rebalance_experts")
    EPLB_POLICIES["default"] = type("EvenkeelPolicy", (EvenkeelPolicy, AbstractEplbPolicy), {})


class EvenkeelPolicy:
    """A vLLM policy; register() adds the base class, which only vLLM has.

    Each vLLM rank calls it separately, with loads and a map that are equal on all ranks, from the main thread or from
    the thread that rebalances asynchronously.
    """

    windows = Windows()
    logger = logging.getLogger("vllm.evenkeel")  # a child of "vllm", so that vLLM's log handlers print it

    @classmethod
    def rebalance_experts(
        cls,
        weight: torch.Tensor,
        num_replicas: int,
        num_groups: int,
        num_nodes: int,
        num_ranks: int,
        old_global_expert_indices: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns `[L, num_replicas]`, the expert of each physical expert, int64 in host memory.

        Args:
            weight: `[L, E]` loads of the logical experts.
            old_global_expert_indices: `[L, physical experts]`, the map in use, from which few experts move. Copies that
                stay on a rank keep their slot. Without it everything is placed anew, on these loads alone.
        """
        import torch

        loads = floats(weight, "weight", 2, "[layers, experts]")
        sizes = Sizes(num_replicas, num_groups, num_nodes, num_ranks)
        if old_global_expert_indices is None:
            return torch.from_numpy(rebalance_experts(loads, *sizes)[0])
        live = integers(old_global_expert_indices, "old_global_expert_indices", 2, "[layers, physical experts]")
        return torch.from_numpy(next_map(loads, live, sizes, cls.windows, Options.from_environment(), cls.logger))


__all__ = ["EvenkeelPolicy", "register"]
