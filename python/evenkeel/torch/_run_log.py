"""Logs two lines of a run to `evenkeel.torch`, level INFO, on rank 0: once its layers have run, and when it ends."""

from __future__ import annotations

import atexit
import logging
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch.distributed as dist

from ._last_step import numbers_of, plural

if TYPE_CHECKING:
    from .expert_parallel import ExpertParallel

logger = logging.getLogger("evenkeel.torch")


class RunLog:
    """Sums up the steps of this process's layers while level INFO is enabled."""

    def __init__(self) -> None:
        self._new: WeakKeyDictionary[ExpertParallel, None] = WeakKeyDictionary()
        """Layers after their first step, in order. When one begins its second, all layers of its model have run."""
        self._sums: defaultdict[str, float] = defaultdict(float)  # over all steps of all layers

    def note(self, layer: ExpertParallel, last: dict[str, Any]) -> None:
        """Notes a step of this layer, before it becomes `layer.last`."""
        if not logger.isEnabledFor(logging.INFO) or dist.get_rank() != 0:
            return
        if layer.last is None:
            self._new[layer] = None
        elif layer in self._new:
            self._log_new_layers()
        for name, number in {"steps": 1, "training": int(last["training"]), **numbers_of(last, None)}.items():
            self._sums[name] += number

    def end(self) -> None:
        self._log_new_layers()
        steps = int(self._sums["steps"])
        if steps == 0:
            return
        mean = {name: total / steps for name, total in self._sums.items()}
        logger.info(
            "%s of layers, %d with gradients. On average max/mean %.2f (%.2f at home), %.1f transfers, %.1f chunks; "
            "%d lacked memory to balance",
            plural(steps, "step"),
            self._sums["training"],
            mean["max_over_mean"],
            mean["max_over_mean_home"],
            mean["transfers"],
            mean["chunks"],
            self._sums["lacked_memory"],
        )
        self._sums.clear()

    def _log_new_layers(self) -> None:
        layers = [*self._new]
        self._new.clear()
        if not layers:
            return
        kinds = Counter(layer._options_in_words() for layer in layers)
        text = "; ".join(f"{plural(times, 'layer')} of {kind}" for kind, times in kinds.items())
        text += ". First steps: " + ", ".join(f"{what} {_range(layers, what)}" for what in ("chunks", "transfers"))
        least = max((layer._budget.least for layer in layers), default=0)
        if least > 0:
            text += f", least budget {least} bytes"
        costs = next((layer.costs for layer in layers if layer.costs is not None), None)
        if costs is not None:
            text += (
                f". Costs in microseconds: {1e6 * costs.per_assignment:.3g} an assignment, "
                f"{1e6 * costs.per_transfer:.3g} a transfer, {1e6 * costs.per_step:.3g} a step that moves work"
            )
        logger.info("%s", text)


def _range(layers: list[ExpertParallel], what: str) -> str:
    numbers = [layer.last[what] for layer in layers]
    least, most = min(numbers), max(numbers)
    return str(least) if least == most else f"{least} to {most}"


run_log = RunLog()
atexit.register(run_log.end)
