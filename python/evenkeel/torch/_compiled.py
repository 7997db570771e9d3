"""A layer in a compiled graph: one operator, of which the compiler only knows shapes.

The operator runs the layer as without a compiler and keeps its graph for backward by a ticket (_kept.py), so that steps
in flight share nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch

from . import _kept

_numbers = itertools.count()
_layers: WeakValueDictionary[int, Any] = WeakValueDictionary()

# The dispatch state outside of any operator, with which operators find their kernels, including autograd's.
_dispatch = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()


def number_of(layer: Any) -> torch.Tensor:
    """The number by which graphs call the layer's `in_graph(hidden, top_k_index, top_k_weights, weights)`. Since it is
    a tensor, equal layers share a graph."""
    number = next(_numbers)
    _layers[number] = layer
    return torch.tensor(number)


def call_in_graph(
    number: torch.Tensor,
    hidden: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
    weights: Sequence[torch.Tensor],
) -> torch.Tensor:
    """The layer's output, of the type of `hidden`."""
    kind = hidden.device.type
    autocast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    wants = [torch.is_grad_enabled() and each.requires_grad for each in (hidden, top_k_weights, *weights)]
    made: torch.Tensor = _step(hidden, top_k_index, top_k_weights, weights, number, wants, autocast)[0]
    return made


@torch.library.custom_op("evenkeel::step", mutates_args=())
def _step(
    hidden: torch.Tensor,
    top_k_index: torch.Tensor,
    top_k_weights: torch.Tensor,
    weights: Sequence[torch.Tensor],
    number: torch.Tensor,
    wants: Sequence[bool],
    autocast: torch.dtype | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output, and the ticket for what backward needs."""
    given = [each.detach().requires_grad_(w) for each, w in zip((hidden, top_k_weights, *weights), wants, strict=True)]
    with (
        torch._C._ForceDispatchKeyGuard(*_dispatch),
        torch.set_grad_enabled(any(wants)),
        torch.autocast(hidden.device.type, autocast, enabled=autocast is not None),
    ):
        made = _layers[int(number)].in_graph(given[0], top_k_index, given[1], given[2:]).to(hidden.dtype)
    kept = (made, [each for each in given if each.requires_grad]) if any(wants) else None
    return made.detach().contiguous(), _kept.keep(kept)


@_step.register_fake
def _(hidden: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return hidden.new_empty(hidden.shape), torch.empty((), dtype=torch.int64)


@torch.library.custom_op("evenkeel::step_backward", mutates_args=())
def _step_backward(grad: torch.Tensor, ticket: torch.Tensor, wanted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Gradients of the `wanted` tensors, of which only shapes are read."""
    kept = _kept.take(ticket)
    if kept is None:
        raise RuntimeError("backward has already run for this compiled step; run forward again before another backward")
    made, inputs = kept
    with torch._C._ForceDispatchKeyGuard(*_dispatch), torch.enable_grad():
        grads = torch.autograd.grad(made, inputs, grad, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g.contiguous() for x, g in zip(inputs, grads, strict=True)]


@_step_backward.register_fake
def _(grad: torch.Tensor, ticket: torch.Tensor, wanted: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [each.new_empty(each.shape) for each in wanted]


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, torch.Tensor]) -> None:
    hidden, _, top_k_weights, weights, _, ctx.wants, _ = inputs
    wanted = [each for each, w in zip((hidden, top_k_weights, *weights), ctx.wants, strict=True) if w]
    ctx.save_for_backward(output[1], *wanted)


def _backward(ctx: Any, grad: torch.Tensor, _: Any) -> tuple[Any, ...]:
    ticket, *wanted = ctx.saved_tensors
    made = iter(_step_backward(grad, ticket, wanted))
    hidden, top_k_weights, *weights = (next(made) if w else None for w in ctx.wants)
    return hidden, None, top_k_weights, weights, None, None, None


_step.register_autograd(_backward, setup_context=_setup)
