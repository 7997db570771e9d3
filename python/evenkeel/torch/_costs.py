"""Costs of a step on this machine, measured once, at the first call, in well under a second; equal on all ranks."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from .. import _native
from .._arguments import public, real
from .._native import Machine as Machine
from ._chunk import Experts, call_experts
from ._exchange import Exchange

_ROWS = (128, 512)  # rows of one expert: the larger number if starting the products takes most of the time
_EXPERTS = 8  # at most so many experts' weights are read


@dataclass(frozen=True)
class SpillCosts:
    """Seconds by which a step decides: it moves work if the predicted gain exceeds the predicted cost."""

    per_assignment: float
    """One assignment's products, and sending its row there and back."""
    per_transfer: float
    """Sending one expert's weights to another rank and, in training, its gradients home."""
    per_step: float
    """Fixed cost of a step that moves work."""

    def __post_init__(self) -> None:
        for name in ("per_assignment", "per_transfer", "per_step"):
            seconds = real(getattr(self, name), name, 0, sys.float_info.max)
            object.__setattr__(self, name, seconds)


SpillCosts.__init__ = public(SpillCosts.__init__)  # type: ignore[method-assign]

Costs: TypeAlias = SpillCosts | Machine | str | os.PathLike[str]


def measure_machine(
    exchange: Exchange, experts: Experts, names: Sequence[str], weights: Sequence[torch.Tensor], hidden: torch.Tensor
) -> Machine:
    """Times the experts on a few rows and the group's all-to-all; takes the slowest rank's numbers. Collective."""
    device, width = hidden.device, hidden.shape[1]
    given = [weight.detach() for weight in weights]

    def products(count: int, rows: int) -> tuple[float, float, float]:
        inputs = hidden.new_ones((count * rows, width))
        slots = torch.arange(count, device=device).repeat_interleave(rows)
        with torch.no_grad():
            return count, rows, _seconds(lambda: call_experts(experts, names, inputs, slots, given), device)

    def message(rows: int) -> tuple[float, float]:
        each = [rows] * exchange.ranks
        sent = hidden.new_ones((sum(each), width))
        seconds = _seconds(lambda: exchange.all_to_all("costs", sent, each, each), device)
        return (exchange.ranks - 1) * rows * width * hidden.element_size(), seconds

    one, some = products(1, 1), products(min(len(given[0]), _EXPERTS), 1)
    for rows in _ROWS:
        experts_used, rows_each, seconds = products(1, rows)
        if seconds > 2 * one[-1]:
            break
    # The larger of two sizes takes longer, whatever the clock says.
    many = (experts_used, rows_each, max(seconds, 1.1 * one[-1]))
    short, (sent, seconds) = message(1), message(max(_ROWS[0] // exchange.ranks, 2))
    long = (sent, max(seconds, 1.1 * short[1]))
    numbers = _native.fitted_numbers(expert_work(weights, hidden), [one, some, many], [short, long])
    mine = torch.tensor(numbers, dtype=torch.float64, device=device)
    cpu = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    layer = f"experts of {[list(weight.shape[1:]) for weight in weights]}"
    return Machine.slowest(exchange.all_gather("costs", mine).tolist(), cpu, torch.get_num_threads(), layer)


def expert_work(weights: Sequence[torch.Tensor], hidden: torch.Tensor) -> tuple[float, float, float]:
    """One expert's weight elements, the outputs of its products for a row, and bytes. The last matrix outputs a row."""
    sizes = [weight[0].numel() for weight in weights]
    matrices = [size for size, weight in zip(sizes, weights, strict=True) if weight.dim() > 2] or sizes
    outputs = hidden.shape[1] + sum(matrices[:-1]) / hidden.shape[1]
    return sum(matrices), outputs, sum(weight[0].nbytes for weight in weights)


def row_bytes(hidden: torch.Tensor) -> int:
    return hidden.shape[1] * hidden.element_size()


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Seconds of the quickest of three calls, after a warm-up call."""
    wait = torch.cuda.synchronize if device.type == "cuda" else (lambda: None)
    best = float("inf")
    for i in range(4):
        wait()
        start = time.perf_counter()
        work()
        wait()
        if i > 0:
            best = min(best, time.perf_counter() - start)
    return best
