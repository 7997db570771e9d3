"""Lets SGLang rebalance its experts with evenkeel: the entry point `evenkeel` in the group `sglang.srt.plugins`.

    EVENKEEL_REBALANCE=1 python -m sglang.launch_server --enable-eplb ...

SGLang calls `register` when it starts. Unless EVENKEEL_REBALANCE is 1, it does nothing and imports nothing of SGLang.
Written for SGLang 0.5.23 (sglang/srt/plugins, sglang/srt/eplb/eplb_algorithms).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ._arguments import Integers, as_given, floats, integers, invalid
from ._live import Options, Sizes, Windows, list_copies, next_map, why_unusable
from ._server import is_enabled, require_parameters
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


logger = logging.getLogger(__name__)
windows = Windows()


def register() -> None:
    """Wraps SGLang's function in `rebalance`, if EVENKEEL_REBALANCE is 1. Ends the process if that fails."""
    try:
        if is_enabled():
            _register()
    except Error as error:
        # SGLang only logs any other exception and serves on with its own algorithm.
        raise SystemExit(f"evenkeel: {error}") from error


def _register() -> None:
    Options.from_environment()  # a wrong value shall fail at the start, not at the first rebalancing
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
    """Returns the maps that SGLang's function returns: the map in use with the moves that pay, and its inverse.

    The map in use is not passed; it is read from SGLang's process state (`_live_map`). If there is none, as at the
    start, everything is placed anew on these loads alone. Of the chosen algorithm only the name matters: if it ends in
    `_hierarchical`, the experts of a group stay on one node. While ranks are missing under elastic EP, SGLang's own
    function decides, since it knows which ranks are missing.

    Args:
        original: SGLang's function.
        tokens_per_expert: `[steps, L, E]`, which are added up.
    """

    def original_result() -> Maps:
        return original(
            tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups, num_nodes, algorithm
        )

    num_gpus = num_physical_experts // num_local_physical_experts
    elastic = _elastic_state()
    if algorithm.name.startswith("elasticity_aware") and _ranks_are_missing(elastic, num_gpus):
        return original_result()
    groups, nodes = _kept_groups(num_groups, num_nodes, algorithm)
    weight = tokens_per_expert.sum(0)
    loads = floats(weight, "tokens_per_expert", 2, "[steps, layers, experts]")
    live = _live_map()
    if live is not None:
        options = Options.from_environment()
        if elastic is not None:  # a rank that comes back lacks the earlier windows
            options = replace(options, windows=1)
        sizes = Sizes(num_physical_experts, groups, nodes, num_gpus)
        phy2log = next_map(loads, live, sizes, windows, options, logger)
        maps: Maps = as_given(weight, phy2log, *list_copies(phy2log, loads.shape[1]))
        return maps
    why = why_unusable(loads)
    if why:
        logger.warning("evenkeel: %s; SGLang's own algorithm decides", why)
        return original_result()
    return rebalance_experts(weight, num_physical_experts, groups, nodes, num_gpus)


def _kept_groups(num_groups: int | None, num_nodes: int, algorithm: Any) -> tuple[int, int]:
    """The numbers of groups and of nodes that keep groups whole; 1 and 1 if copies may go anywhere."""
    if not algorithm.name.endswith("_hierarchical"):
        return 1, 1
    if num_groups is None or num_groups % num_nodes != 0:
        right = f"a multiple of {num_nodes}, the number of nodes"
        raise invalid("num_groups", f"{num_groups} under {algorithm.name}", right)
    return num_groups, num_nodes


def _live_map() -> Integers | None:
    """SGLang's map in use `[L, physical experts]`, equal on all ranks; None before SGLang has set one."""
    module = sys.modules.get("sglang.srt.eplb.expert_location")  # imported by any process that rebalances
    metadata = module and module.get_global_expert_location_metadata()
    if metadata is None:
        return None
    return integers(metadata.physical_to_logical_map, "physical_to_logical_map", 2, "[layers, physical experts]")


def _ranks_are_missing(elastic: Any, num_gpus: int) -> bool:
    return elastic is not None and int(elastic.active_ranks.sum()) < num_gpus


def _elastic_state() -> Any:
    """SGLang's state of joining and leaving ranks; None without elastic EP."""
    module = sys.modules.get("sglang.srt.elastic_ep.elastic_ep")
    return module and module.ElasticEPStateManager.instance()


__all__ = ["rebalance", "register"]
