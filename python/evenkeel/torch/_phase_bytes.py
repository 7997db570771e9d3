"""What a chunk takes in each phase of a step, as an upper bound: the experts' share is counted in calls of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge, saved_tensors_hooks

from .. import _native
from ._chunk import PIECES, Experts, as_it_is, call_experts, source
from ._live_bytes import LiveBytes
from ._nodes import Nodes

_MOST_ROWS = 8192
"""A cap, so that a first call stays short; experts that need more rows to outweigh their weights are counted on these."""

_NUMBERS = 48
"""Bytes of numbers that go with each row that a phase holds."""

_INDICES = {"assignment": 16, "sent": 8, "position": 32}
"""Bytes of indices, which a chunk holds in all phases (_routes.py)."""

_BY_NODES = {"token": 56, "sent": 16, "received": 64}
"""Bytes of numbers while a chunk's rows find their ways by nodes: of a token for each place of every node, of a position
sent or received for each place of one node."""

BACKWARD_PHASES = 7
"""How many phases `chunk_phases` adds for training."""


class Line(NamedTuple):
    """No more than `fixed + per_row * rows` bytes; `each` more borrowed expert adds as much."""

    per_row: int
    fixed: int
    each: int = 0


class ExpertBytes(NamedTuple):
    """What calls of the experts hold besides their arguments, and besides the gradient they are given."""

    forward: Line
    between: Line
    backward: Line
    out_size: int
    """Bytes of a number that they give."""


def measure_experts(
    experts: Experts, names: Sequence[str], weights: Sequence[torch.Tensor], hidden: torch.Tensor, training: bool
) -> tuple[ExpertBytes, ExpertBytes]:
    """Counted in calls of all experts at once, the worse of rows at one and rows spread over all; and of one at a time.

    Bytes grow faster with many rows, where activations are most, than with few, where weights' gradients are. How fast
    is found at one expert alone, with so many rows that activations outweigh it.
    """
    count, device = weights[0].shape[0], hidden.device
    sizes: set[int] = set()

    def held(rows: int, used: int, of: int) -> tuple[int, int, int]:
        """Rows that are spread over so many experts, of so many that are there."""
        slots = (torch.arange(rows, device=device) % used).sort().values
        given = [weight[:of].detach() for weight in weights]
        given = [
            source(w) if training and weight.requires_grad else w for w, weight in zip(given, weights, strict=True)
        ]
        x = hidden.new_ones((rows, hidden.shape[1]))
        x = source(x) if training else x
        # Hooks of ours, since a checkpoint's would compute its whole region again in the backward pass below.
        with torch.set_grad_enabled(training), saved_tensors_hooks(as_it_is, as_it_is), LiveBytes() as live:
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

    def slope(way: Sequence[tuple[int, tuple[int, int, int]]], phase: int) -> int:
        (few, low), (many, high) = way[-2:]
        return max(0, -(-(high[phase] - low[phase]) // (many - few)))

    def measured(of: int) -> list[list[tuple[int, tuple[int, int, int]]]]:
        few = sorted({1, 2, of, 4 * of, 12 * of})  # two experts may take as much as all, a row each
        return [[(n, held(n, used, of)) for n in few] for used in sorted({1, of})]

    together, one = measured(count), measured(1)
    activation = max(
        hidden.shape[1] * hidden.element_size(), *(slope(way, phase) for way in together for phase in (0, 1))
    )
    first = min(12 + 2 * sum(weight[0].nbytes for weight in weights) // max(activation, 1), _MOST_ROWS)
    alone = [(n, held(n, 1, 1)) for n in (first, 3 * first // 2)]

    def line(phase: int, ways: Sequence[Sequence[tuple[int, tuple[int, int, int]]]], of: int) -> Line:
        """Above all of them: few rows may take more than many would say, since each expert's gradients are made anew."""
        per_row = max(slope(way, phase) for way in (*ways, alone))
        fixed = max(0, *(at[phase] - per_row * n for way in ways for n, at in way))
        return Line(per_row, fixed, -(-fixed // of))

    of_one = [line(phase, one, 1) for phase in range(3)]
    others = (count - 1) * of_one[1].fixed  # what calls keep for backward adds up
    forward, between, backward = (each._replace(fixed=each.fixed + others) for each in of_one)
    at_once = line(0, together, count), line(1, together, count), line(2, together, count)
    return ExpertBytes(*at_once, max(sizes)), ExpertBytes(forward, between, backward, max(sizes))


class Phases(NamedTuple):
    """What a chunk takes in each of its phases: with all experts at home in one call, and with each in one of its own."""

    together: list[_native.PhaseBytes]
    apart: list[_native.PhaseBytes]


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
    """The phases of `Routes.open`, `Chunk.compute`, `combine` and `gradients`, in their order; what lives in each is added up."""
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
    """Where so many bytes of weights' gradients are there when calls of the experts at home have ended."""
    row = hidden.shape[1] * max(hidden.element_size(), taken.out_size)
    wide = hidden.shape[1] * max(hidden.element_size(), taken.out_size, 4)  # sums, and results of f32 router weights
    cast = wide if wide > row else 0
    grad = max(row, hidden.shape[1] * routed.itemsize)  # a row of the output's type
    expert = sum(weight[0].numel() * weight.element_size() for weight in weights)
    kept = taken.between
    indices, numbered = _INDICES, {"token": 8 * ranks, "assignment": 16, "sent": 36, "received": 12, "position": 8}
    passing = 1 if nodes is None or nodes.copies == 0 else 2  # each row or weight, and its copy for one rank at a time
    if nodes is not None:
        indices = {"assignment": 16, "sent": 16, "received": 8 * nodes.copies, "position": 40}
        places = {"token": len(nodes.members) * nodes.size, "sent": nodes.size, "received": nodes.size}
        numbered |= {name: numbered[name] + 64 + _BY_NODES[name] * of for name, of in places.items()}

    def phase(experts_hold: Line, **each: int) -> _native.PhaseBytes:
        """With weights that travel; a borrowed expert takes what one at home does, and its weights."""
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
        phase(kept, position=3 * row),  # rows, the parts' results and the whole of them
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
    summed = widened + (expert if widened > expert else 0)  # on their way home, as weights are

    def in_backward(experts_hold: Line, **each: int) -> _native.PhaseBytes:
        return phase(experts_hold, summed=summed, **each)

    backward = [
        in_backward(kept, position=2 * row, token=grad, received=grad * passing, sent=grad, fixed=totals),
        in_backward(kept, position=2 * row + grad, token=grad, received=grad, fixed=totals),
        in_backward(kept, position=2 * row + 2 * max(wide, grad), fixed=totals),
        in_backward(taken.backward, position=row + grad, fixed=totals),
        in_backward(grads, position=row + cast, token=wide, received=wide),
        in_backward(grads, position=row, **sums_home),
        in_backward(grads, token=wide, received=wide),  # what comes home is added in f32, as wide as totals at most
    ]
    assert len(backward) == BACKWARD_PHASES
    return forward + backward


def least_bytes(phases: Phases, k: int, ranks: int) -> int:
    """The fewest bytes that run every routing, one token of each rank at a time.

    Assumes an expert lent to all ranks, unless fewer bytes are enough without lending.
    """
    without = max(phase.of_one_token(k, ranks) for phase in phases.together)
    return min(without, max(phase.of_one_token(k, ranks, borrowed=int(ranks > 1)) for phase in phases.apart))
