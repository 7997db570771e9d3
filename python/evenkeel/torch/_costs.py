"""What a step costs on this machine: measured once, at the first call, in well under a second; alike on all ranks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from .._arguments import public, real
from ._chunk import Experts, call_experts
from ._exchange import Exchange

_ROWS = 128


@dataclass(frozen=True)
class SpillCosts:
    """Seconds by which a step is judged: it moves work where the predicted gain exceeds the predicted cost."""

    per_assignment: float
    """One assignment's products, and its row's way there and back."""
    per_transfer: float
    """One expert's weights to another rank and, in training, its gradients home."""
    per_step: float
    """What any step pays that moves work."""

    def __post_init__(self) -> None:
        for name in ("per_assignment", "per_transfer", "per_step"):
            seconds = real(getattr(self, name), name, 0, sys.float_info.max)
            object.__setattr__(self, name, seconds)


SpillCosts.__init__ = public(SpillCosts.__init__)  # type: ignore[method-assign]


def measure_costs(
    exchange: Exchange, experts: Experts, names: Sequence[str], weights: Sequence[torch.Tensor], hidden: torch.Tensor
) -> SpillCosts:
    """Times the experts on a few rows and the group's own all-to-all; the slowest rank's seconds count.

    Collective. One expert's rows and weights are sent round; backward passes are taken to be in proportion.
    """
    rows = hidden.new_ones((_ROWS, hidden.shape[1]))
    slots = torch.zeros(_ROWS, dtype=torch.int64, device=hidden.device)
    given = [weight.detach() for weight in weights]

    def compute() -> None:
        with torch.no_grad():
            call_experts(experts, names, rows, slots, given)

    even = [_ROWS // exchange.ranks] * exchange.ranks
    ends = rows[: sum(even)]
    one = [1] * exchange.ranks

    def send() -> None:
        exchange.all_to_all("costs", ends, even, even)

    def ping() -> None:
        exchange.all_to_all("costs", ends[: exchange.ranks], one, one)

    products = _seconds(compute, hidden.device) / _ROWS
    latency = _seconds(ping, hidden.device)
    sent = ends.numel() * ends.element_size()
    per_byte = max(_seconds(send, hidden.device) - latency, latency / 10) / max(sent, 1)
    row = hidden.shape[1] * hidden.element_size()
    expert = sum(weight[0].numel() * weight.element_size() for weight in weights)
    mine = torch.tensor(
        [products + 2 * row * per_byte, expert * per_byte, 6 * latency], dtype=torch.float64, device=hidden.device
    )
    slowest = exchange.all_gather("costs", mine).amax(dim=0).tolist()
    return SpillCosts(*slowest)


def _seconds(work: Callable[[], None], device: torch.device) -> float:
    """The quickest of three calls after a first one."""
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
