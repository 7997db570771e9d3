"""What a step costs on this machine: measured once, at the first call, in well under a second; alike on all ranks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch.autograd.graph import saved_tensors_hooks

from .. import _native
from ._chunk import Experts, as_it_is
from ._exchange import Exchange
from ._live_bytes import LiveBytes

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


def measure_costs(
    exchange: Exchange, experts: Experts, names: Sequence[str], weights: Sequence[torch.Tensor], hidden: torch.Tensor
) -> SpillCosts:
    """Times the experts on a few rows and the group's own all-to-all; the slowest rank's seconds count.

    Collective. One expert's rows and weights are sent round; backward passes are taken to be in proportion.
    """
    rows = hidden.new_ones((_ROWS, hidden.shape[1]))
    slots = torch.zeros(_ROWS, dtype=torch.int64, device=hidden.device)
    given = dict(zip(names, (weight.detach() for weight in weights), strict=True))

    def compute() -> None:
        with torch.no_grad():
            experts(rows, slots, given)

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


def measure_bytes(
    experts: Experts, names: Sequence[str], weights: Sequence[torch.Tensor], hidden: torch.Tensor, training: bool
) -> tuple[int, int]:
    """Bytes that the experts hold at most: for each row, and besides; counted, not computed, on a few rows.

    The worse of all rows at one expert and rows spread over all of them.
    """
    count = weights[0].shape[0]
    device = hidden.device

    def peak(rows: int, spread: bool) -> int:
        slots = (
            torch.arange(rows, device=device) % count if spread else torch.zeros(rows, dtype=torch.int64, device=device)
        )
        given = [weight.detach().requires_grad_(training and weight.requires_grad) for weight in weights]
        x = hidden.new_ones((rows, hidden.shape[1])).requires_grad_(training)
        # Hooks of ours, since a checkpoint's would compute its whole region again in the backward pass below.
        with torch.set_grad_enabled(training), saved_tensors_hooks(as_it_is, as_it_is), LiveBytes() as live:
            made = experts(x, slots.sort().values, dict(zip(names, given, strict=True)))
            if training:
                wanted = [x, *(weight for weight in given if weight.requires_grad)]
                grads = torch.autograd.grad(made, wanted, torch.ones_like(made), allow_unused=True)
                del grads
        return live.peak

    few, many = 4 * count, 12 * count
    slope, rest = 0, 0
    for spread in (False, True):
        low, high = peak(few, spread), peak(many, spread)
        each = -(-max(high - low, 0) // (many - few))
        slope, rest = max(slope, each), max(rest, low - each * few, 0)
    return slope, rest


def chunk_bytes(
    experts: Experts,
    names: Sequence[str],
    weights: Sequence[torch.Tensor],
    hidden: torch.Tensor,
    k: int,
    training: bool,
) -> _native.ChunkBytes:
    """What a chunk takes, forward or recomputed and backward, whichever is more; an upper bound."""
    per_row, fixed = measure_bytes(experts, names, weights, hidden, training)
    row = hidden.shape[1] * max(hidden.element_size(), 4 if training else 0)
    expert = sum(weight[0].numel() * weight.element_size() for weight in weights)
    native = sum(weight.numel() * weight.element_size() for weight in weights if weight.requires_grad and training)
    index = 96  # of index arrays and numbers that travel with each
    both = 2 if training else 1
    made = _native.ChunkBytes()
    made.per_token = row * (both + (1 if training else 0))
    made.per_assignment = row + index
    made.per_sent = row * both + index
    made.per_received = row * (2 * both + 1) + index
    made.per_position = per_row + row * (2 + (2 if training else 0)) + index
    made.per_borrowed = expert * both
    made.per_lent = expert * both
    made.fixed = fixed + native + 3 * 256 * k * row
    return made
