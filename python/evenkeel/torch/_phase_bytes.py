"""Upper bounds of a chunk's bytes in each phase of a step. The experts' share is measured by calling them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks

from .. import _native
from ._chunk import PIECES, Experts, call_experts, identity, source
from ._live_bytes import LiveBytes
from ._nodes import Nodes

_MOST_ROWS = 8192
"""The most rows to measure with, so that a first call stays short, even if experts' weights outweigh these rows."""

_NUMBERS = 48
"""Bytes of index numbers for each row that a phase holds."""

_INDICES = {"assignment": 16, "sent": 8, "position": 32}
"""Bytes of indices that a chunk holds in all phases (_routes.py)."""

_BY_NODES = {"token": 56, "sent": 16, "received": 64}
"""Bytes of numbers while routes by node are made: per token for each place of every node, per position sent or received
for each place of one node."""

BACKWARD_PHASES = 7
"""The number of phases that `chunk_phases` adds for training."""


class Line(NamedTuple):
    """A bound of `fixed + per_row * rows` bytes; each borrowed expert adds `each` bytes."""

    per_row: int
    fixed: int
    each: int = 0


class ExpertBytes(NamedTuple):
    """Bytes that calls of the experts hold, without their arguments and the gradient passed to backward."""

    forward: Line
    between: Line
    backward: Line
    out_size: int
    """Bytes of one number of their output."""


def measure_experts(
    experts: Experts, names: Sequence[str], weights: Sequence[torch.Tensor], hidden: torch.Tensor, training: bool
) -> tuple[ExpertBytes, ExpertBytes]:
    """Measures calls of all experts at once, then calls of one expert at a time. In calls of all experts, rows are at
    one expert or spread over all; the larger measurement counts.

    Bytes grow faster with many rows, where activations dominate, than with few, where weight gradients do. Growth is
    measured with one expert, with so many rows that activations outweigh its weights.
    """
    count, device = weights[0].shape[0], hidden.device
    sizes: set[int] = set()

    def held(rows: int, used: int, of: int) -> tuple[int, int, int]:
        """Bytes held (forward, between, backward) with rows spread over `used` of `of` experts."""
        slots = (torch.arange(rows, device=device) % used).sort().values
        given = [weight[:of].detach() for weight in weights]
        given = [
            source(w) if training and weight.requires_grad else w for w, weight in zip(given, weights, strict=True)
        ]
        x = hidden.new_ones((rows, hidden.shape[1]))
        x = source(x) if training else x
        # Our own hooks, since a checkpoint's would recompute its whole region in the backward pass below.
        with torch.set_grad_enabled(training), saved_tensors_hooks(identity, identity), LiveBytes() as live:
            made = call_experts(experts, names, x, slots, given)
            forward, between = live.peak, 0
            sizes.add(made.element_size())
            if training:
                edge, ones = get_gradient_edge(made), torch.ones_like(made)
                del made
                between = live.now - ones.nbytes
                live.peak = live.now
                wanted = [x, *(weight for weight in given if weight.requires_grad)]
                grads = torch.autograd.grad(edge, wanted, ones, allow_unused=True)
                del grads
                return forward, between, live.peak - ones.nbytes
        return forward, 0, 0

    def slope(samples: Sequence[tuple[int, tuple[int, int, int]]], phase: int) -> int:
        (few, low), (many, high) = samples[-2:]
        return max(0, -(-(high[phase] - low[phase]) // (many - few)))

    def measured(of: int) -> list[list[tuple[int, tuple[int, int, int]]]]:
        few = sorted({1, 2, of, 4 * of, 12 * of})  # two experts with a row each may take as much as all experts
        return [[(n, held(n, used, of)) for n in few] for used in sorted({1, of})]

    together, one = measured(count), measured(1)
    activation = max(
        hidden.shape[1] * hidden.element_size(), *(slope(samples, phase) for samples in together for phase in (0, 1))
    )
    first = min(12 + 2 * sum(weight[0].nbytes for weight in weights) // max(activation, 1), _MOST_ROWS)
    alone = [(n, held(n, 1, 1)) for n in (first, 3 * first // 2)]

    def line(phase: int, all_samples: Sequence[Sequence[tuple[int, tuple[int, int, int]]]], of: int) -> Line:
        """A line above all measurements. Few rows may take more than the slope of many rows says, since gradients are
        allocated anew."""
        per_row = max(slope(samples, phase) for samples in (*all_samples, alone))
        fixed = max(0, *(at[phase] - per_row * n for samples in all_samples for n, at in samples))
        return Line(per_row, fixed, -(-fixed // of))

    of_one = [line(phase, one, 1) for phase in range(3)]
    others = (count - 1) * of_one[1].fixed  # memory kept for backward adds up over calls
    forward, between, backward = (each._replace(fixed=each.fixed + others) for each in of_one)
    at_once = line(0, together, count), line(1, together, count), line(2, together, count)
    return ExpertBytes(*at_once, max(sizes)), ExpertBytes(forward, between, backward, max(sizes))


class Phases(NamedTuple):
    """A chunk's bytes in each phase: with all experts at home in one call, and with one call for each."""

    together: list[_native.PhaseBytes]
    one_by_one: list[_native.PhaseBytes]


def chunk_phases(
    experts: Experts,
    names: Sequence[str],
    weights: Sequence[torch.Tensor],
    hidden: torch.Tensor,
    routed: torch.dtype,
    k: int,
    ranks: int,
    training: bool,
    nodes: Nodes | None = None,
    sums_in_nodes: bool = False,
) -> Phases:
    """The phases of `Routes.open`, `Chunk.compute`, `combine` and `gradients`, in order, with all live bytes."""
    given = weights, hidden, routed, k, ranks, training, nodes, sums_in_nodes
    gradients = sum(weight.nbytes for weight in weights if weight.requires_grad)
    taken, of_one = measure_experts(experts, names, weights, hidden, training)
    together = _phases(taken, gradients, *given)
    return Phases(together, _phases(of_one, 0, *given) if len(weights[0]) > 1 else together)


def _phases(
    taken: ExpertBytes,
    gradients: int,
    weights: Sequence[torch.Tensor],
    hidden: torch.Tensor,
    routed: torch.dtype,
    k: int,
    ranks: int,
    training: bool,
    nodes: Nodes | None = None,
    sums_in_nodes: bool = False,
) -> list[_native.PhaseBytes]:
    """The phases, if calls of the experts at home leave `gradients` bytes of weight gradients."""
    row = hidden.shape[1] * max(hidden.element_size(), taken.out_size)
    # Sums, or results times router weights.
    wide = hidden.shape[1] * max(hidden.element_size(), taken.out_size, routed.itemsize, 4)
    cast = wide if wide > row else 0
    grad = max(row, hidden.shape[1] * routed.itemsize)  # a row of the output's type
    expert = sum(weight[0].numel() * weight.element_size() for weight in weights)
    kept = taken.between
    indices, numbered = _INDICES, {"token": 8 * ranks, "assignment": 16, "sent": 36, "received": 12, "position": 8}
    passing = 1 if nodes is None or nodes.copies == 0 else 2  # each row or weight, and its copy to be passed on
    if nodes is not None:
        indices = {"assignment": 16, "sent": 16, "received": 8 * nodes.copies, "position": 40}
        places = {"token": len(nodes.members) * nodes.size, "sent": nodes.size, "received": nodes.size}
        numbered |= {name: numbered[name] + 64 + _BY_NODES[name] * of for name, of in places.items()}

    def phase(experts_hold: Line, **each: int) -> _native.PhaseBytes:
        """A phase with borrowed and lent weights; a borrowed expert takes as much as one at home, and its weights."""
        borrowed = expert * passing + experts_hold.each
        fixed = experts_hold.fixed + each.pop("fixed", 0)
        each = {name: size + _NUMBERS for name, size in ({"position": 0} | each).items()}
        each = {name: each.get(name, 0) + indices.get(name, 0) for name in {*each, *indices}}
        each["position"] += experts_hold.per_row
        return _native.PhaseBytes(**{"borrowed": borrowed, "lent": expert, "fixed": fixed} | each)

    nothing = Line(0, 0)
    forward = [
        phase(nothing, **numbered),
        phase(nothing, token=row, sent=row, received=row * passing),
        phase(nothing, token=row, received=row, position=row),
        phase(taken.forward, position=row),
        phase(kept, position=3 * row),  # rows, the parts' results and their concatenation
        phase(
            kept, position=2 * row, received=row, assignment=row, token=4 * k * wide // PIECES, fixed=4 * k * wide + row
        ),
    ]
    sums_home = {"token": wide, "received": wide + grad, "sent": grad + cast}
    if sums_in_nodes:
        sums_home["received"] += (passing - 1) * grad + cast
        piece = {"position": row + 2 * wide // PIECES, "fixed": 2 * wide}
        forward[-1] = phase(kept, **sums_home, **piece)
    if not training:
        return forward
    widened = sum(weight[0].numel() * max(weight.element_size(), 4) for weight in weights)  # an expert's sums
    totals = sum(weight.numel() * 4 for weight in weights if weight.requires_grad and weight.element_size() < 4)
    of_one = sum(weight[0].nbytes for weight in weights if weight.requires_grad)
    grads = Line(0, gradients + totals, of_one - (-totals // len(weights[0])))
    summed = widened + (expert if widened > expert else 0)  # sums, and a copy rounded for sending

    def in_backward(experts_hold: Line, **each: int) -> _native.PhaseBytes:
        return phase(experts_hold, summed=summed, **each)

    backward = [
        in_backward(kept, position=2 * row, token=grad, received=grad * passing, sent=grad, fixed=totals),
        in_backward(kept, position=2 * row + grad, token=grad, received=grad, fixed=totals),
        in_backward(kept, position=2 * row + 2 * max(wide, grad), fixed=totals),
        in_backward(taken.backward, position=row + grad, fixed=totals),
        in_backward(grads, position=row + cast, token=wide, received=wide),
        in_backward(grads, position=row, **sums_home),
        in_backward(grads, token=wide, received=wide),  # returned gradients are added in f32, at most as wide as totals
    ]
    assert len(backward) == BACKWARD_PHASES
    return forward + backward


def least_bytes(phases: Phases, k: int, ranks: int) -> int:
    """The fewest bytes that run every routing, one token of each rank at a time.

    Assumes an expert lent to all ranks, unless fewer bytes are enough without lending.
    """
    without = max(phase.of_one_token(k, ranks) for phase in phases.together)
    return min(without, max(phase.of_one_token(k, ranks, borrowed=int(ranks > 1)) for phase in phases.one_by_one))
