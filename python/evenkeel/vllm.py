"""vLLM rebalances its experts with evenkeel: the entry point `evenkeel` in the group `vllm.general_plugins`.

    EVENKEEL_REBALANCE=1 vllm serve MODEL --enable-expert-parallel --enable-eplb ...

vLLM calls `register` in each of its processes. Unless EVENKEEL_REBALANCE is 1 that does nothing and imports nothing of
vLLM. Read against vLLM 0.33.0 (vllm/plugins, vllm/distributed/eplb).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ._arguments import Integers, as_numpy, integers
from ._server import is_asked_for, require_parameters
from ._versions import needs
from .eplb import rebalance_experts

if TYPE_CHECKING:
    import torch

PARAMETERS = ["weight", "num_replicas", "num_groups", "num_nodes", "num_ranks", "old_global_expert_indices"]


def register() -> None:
    """Makes EvenkeelPolicy the policy `default` of vLLM, if EVENKEEL_REBALANCE is 1.

    vLLM ends with what is raised here. It takes no policy of another name: `EPLBPolicyOption` in vllm/config/parallel.py.
    """
    if not is_asked_for():
        return
    with needs("vllm", "0.33"):
        from vllm.distributed.eplb.policy import EPLB_POLICIES, AbstractEplbPolicy

    abstract = AbstractEplbPolicy.rebalance_experts
    require_parameters(abstract, PARAMETERS, "vllm.distributed.eplb.policy.AbstractEplbPolicy.rebalance_experts")
    EPLB_POLICIES["default"] = type("EvenkeelPolicy", (EvenkeelPolicy, AbstractEplbPolicy), {})


class EvenkeelPolicy:
    """A policy as vLLM has them, but for the base class, which only vLLM has."""

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
        """`[L, num_replicas]` the expert of each physical one, int64 and in host memory.

        Args:
            weight: `[L, E]` loads of the logical experts.
            old_global_expert_indices: `[L, physical experts]` the map in use. Copies that stay on a rank keep their
                slot.
        """
        import torch

        phy2log, _, _ = rebalance_experts(as_numpy(weight, "weight"), num_replicas, num_groups, num_nodes, num_ranks)
        if old_global_expert_indices is not None:
            old = integers(old_global_expert_indices, "old_global_expert_indices", 2, "[layers, physical experts]")
            phy2log = keep_slots(phy2log, old, num_ranks)
        return torch.from_numpy(phy2log)


def keep_slots(phy2log: Integers, old: Integers, num_ranks: int) -> Integers:
    """The same experts on every rank, as many of them as possible in the slot where `old` has them.

    Args:
        phy2log: `[L, physical experts]`, a multiple of num_ranks.
        old: `[L, physical experts]`, where -1 is an empty slot. It may be of more or fewer ranks; a rank must have
            as many slots as in phy2log.
    """
    layers, slots = phy2log.shape
    space = slots // num_ranks
    before = np.full_like(phy2log, -1)
    shared = min(slots, old.shape[1])
    before[:, :shared] = old[:, :shared]

    new = phy2log.reshape(layers * num_ranks, space)
    before = before.reshape(new.shape)
    kept = np.empty_like(new)
    is_placed = np.zeros(new.shape, dtype=bool)  # of new
    is_filled = np.zeros(new.shape, dtype=bool)  # of kept
    for slot in range(space):
        stays = (new == before[:, slot, None]) & ~is_placed
        ranks = np.flatnonzero(stays.any(axis=1))
        is_placed[ranks, stays[ranks].argmax(axis=1)] = True
        is_filled[ranks, slot] = True
        kept[ranks, slot] = before[ranks, slot]
    kept[~is_filled] = new[~is_placed]  # as many in each row
    return kept.reshape(phy2log.shape)


__all__ = ["EvenkeelPolicy", "keep_slots", "register"]
