"""routes_ahead(): for steps whose routing is known before they run, as in training on samples of a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn

from .._arguments import choice, instance, invalid
from ._ahead import Forced, LayerAhead
from ._cut import decide_together
from ._exchange import Exchange, gather_numbers, invalid_on_all, to_device
from ._module import holders_of
from ._routes import Sent, read_rows
from .expert_parallel import ExpertParallel


@contextmanager
def routes_ahead(
    model: nn.Module,
    routed_experts: ArrayLike | torch.Tensor,
    *,
    replay: bool = True,
    missing: Literal["router", "drop"] = "router",
) -> Iterator[None]:
    """A context in which one forward of `model` and its backward use these ids. Before the forward, one message
    gathers the counts of all layers.

    The host then reads nothing of ours within layers, except in the first block, which measures a step of this kind.
    All checks are made when the block ends, so call the optimizer after it. Every rank must enter it with the same
    options.

    Args:
        model: a model with our layers, as attributes of its modules or by `evenkeel.transformers`.
        routed_experts: `[..., layers, k]`, integers of any width: the choices of each token of this rank's micro-batch,
            in the order of the layers' tokens (for transformers `[batch, length, layers, k]`), for each of our layers
            in the model's order. -1 is no expert.
        replay: whether the routers are made to choose these ids, with the weights that they compute for them. Otherwise
            they choose themselves, and other choices are an error.
        missing: what happens to a token whose ids are all -1, such as a cached one. "router": the layer's router
            chooses, and the layer then counts in its step as usual, on all ranks. "drop": the token goes to no expert.

    Raises:
        InvalidArgument: on every rank, if an id of any rank is no expert's, if ranks enter with different options, or,
            when the block ends, if a router chose other ids or a layer was not called; on this rank, if tokens, layers
            or k do not fit, or if `replay` cannot force a router because it does not call `torch.topk`.
        CommError: as the layers do.
    """
    held = holders_of(instance(model, nn.Module, "model"), ExpertParallel)
    if any(layer.nodes is not None for _, layer in held):
        raise invalid(
            "model", "has layers with nodes, whose steps read from the device", "layers without nodes in this block"
        )
    choice(missing, "missing", ("router", "drop"))
    ids = _checked(routed_experts, len(held), next((p.device for p in model.parameters()), None))
    names = {module: name for name, module in model.named_modules()}
    aheads = [
        LayerAhead(layer, layer.exchange.layer or names[module], ids[:, i], replay, missing == "router")
        for i, (module, layer) in enumerate(held)
    ]
    with ExitStack() as stack:
        for group in dict.fromkeys(layer.exchange.group for _, layer in held):
            of_group = [ahead for ahead in aheads if ahead.layer.exchange.group is group]
            stack.enter_context(_known_on_all_ranks(of_group, ids))
        if replay:
            stack.enter_context(_forced(model, [names[module] for module, _ in held], aheads))
        yield


def _checked(routed: Any, layers: int, device: torch.device | None) -> torch.Tensor:
    """The checked ids `[tokens, layers, k]`."""
    if layers == 0:
        raise invalid("model", "has no evenkeel layer", "a model with ExpertParallel or ExpertSlots")
    ids = torch.as_tensor(routed)
    if ids.dim() < 3 or ids.shape[-2] != layers or ids.shape[-1] == 0:
        right = f"[..., {layers}, k], for the model's {layers} evenkeel layers"
        raise invalid("routed_experts", f"has shape {list(ids.shape)}", right)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise invalid("routed_experts", f"is of {ids.dtype}", "whole numbers")
    if not ids.dtype.is_signed:
        ids = ids.to(torch.int32 if ids.element_size() < 4 else torch.int64)
    return ids.flatten(0, -3).to(device or ids.device)


@contextmanager
def _known_on_all_ranks(aheads: list[LayerAhead], ids: torch.Tensor) -> Iterator[None]:
    """A context in which these layers of one group use all ranks' routes. At its end routers' choices are checked."""
    first, layers = aheads[0], [ahead.layer for ahead in aheads]
    exchange, agreement = first.layer.exchange, first.layer._agreement
    with exchange.step("forward", ids.device):
        facts = {
            "routed_experts": f"[tokens, {ids.shape[1]}, {ids.shape[2]}]",
            "layers": ", ".join(f"{layer.num_experts} in {layer._blocks}" for layer in layers),
            "replay": str(first.replay),
            "missing": "router" if first.keeps_missing else "drop",
            "weights_fixed": str([layer.keeps_slots for layer in layers]),
            "gradients": "enabled" if torch.is_grad_enabled() else "disabled",
        }
        agreement.forward(facts, None, ids.new_empty(0, dtype=torch.int32), "the beginning of routes_ahead")
        _count(exchange, aheads)
        _plan(exchange, aheads)
        for ahead in aheads:
            ahead.layer.ahead = ahead
        try:
            yield
        finally:
            for layer in layers:
                layer.ahead, layer.ran_forced = None, first.replay and torch.is_grad_enabled()
        uncalled = to_device([-1, 0], ids.device, torch.int32)
        found = [uncalled if ahead.found is None else ahead.found for ahead in aheads]
        met = {"arguments of layers": "\n".join(ahead.facts for ahead in aheads)}
        every = agreement.forward(met, None, torch.stack(found), "the end of routes_ahead").counts
        _require_chosen([ahead.name for ahead in aheads], every)


def _count(exchange: Exchange, aheads: list[LayerAhead]) -> None:
    """Collective: gathers the counts of all layers with one message."""
    numbers = []
    for ahead in aheads:
        ids = ahead.ids()
        without = (ids < 0).all(-1).sum(0, keepdim=True).to(torch.int32)
        numbers.append(torch.cat([ahead.layer.count(ids).view(-1), without]))
    k = aheads[0].routed.shape[1]
    for ahead, of_layer in zip(aheads, gather_numbers(exchange, "routes ahead", numbers), strict=True):
        layer = ahead.layer
        counts, missing = of_layer[:, :-1].reshape(exchange.ranks, layer._blocks, -1), of_layer[:, -1]
        wrong = counts[:, :, layer.num_experts].sum(axis=1)
        if wrong.any():
            rank = int(wrong.argmax())
            why = f"{wrong[rank]} ids of rank {rank} in layer {ahead.name} are outside -1..{layer.num_experts - 1}"
            raise invalid_on_all("routed_experts", why, "the model's expert ids, over all ranks")
        if not (ahead.keeps_missing and missing.any()):
            ahead.counts = counts
        chosen = counts[:, :, : layer.num_experts].sum() + k * missing.sum() * ahead.keeps_missing
        ahead.is_whole = chosen == k * counts[:, :, layer.num_experts + 1].sum()
        if not (ahead.is_whole or layer.allows_missing):
            why = f"has -1 in layer {ahead.name}, whose dispatcher needs an expert for each choice"
            raise invalid_on_all("routed_experts", why, 'ids for all choices, or mode="exchange"')


def _plan(exchange: Exchange, aheads: list[LayerAhead]) -> None:
    """Collective: plans layers. Numbers of rows that their steps would read are gathered now, with one message."""
    decide_together(exchange, [ahead.layer.plan_ahead(ahead) for ahead in aheads])
    cuts = [ahead.cut for ahead in aheads if ahead.cut is not None]
    chunks = [
        (routes, cut.ids[begin:end]) for cut in cuts for begin, end, routes, _ in cut.chunks if routes.rows is None
    ]
    if chunks:
        sent = [Sent(routes.tables, ids).row_counts for routes, ids in chunks]
        for (routes, _), rows in zip(chunks, read_rows(exchange, sent), strict=True):
            routes.rows = rows


def _require_chosen(names: list[str], every: np.ndarray) -> None:
    """Checks what the routers chose: `[P, layers, 2]`, as in `LayerAhead.found`."""
    for rank, of_rank in enumerate(every):
        for name, (first, number) in zip(names, of_rank, strict=True):
            if first < 0:
                why = f"did not call layer {name} on rank {rank}"
                raise invalid_on_all("model", why, "a forward that calls every evenkeel layer")
            if number:
                why = f"is not what the router of layer {name} chose for {number} tokens of rank {rank}, first token {first}"
                right = "the same experts, or replay=True; and each backward within the block of its forward"
                raise invalid_on_all("routed_experts", why, right)


@contextmanager
def _forced(model: nn.Module, names: list[str], aheads: list[LayerAhead]) -> Iterator[None]:
    """Forces the layer's router, which is looked for in the modules that contain this layer and no other."""
    paths = [_path(name) for name in names]
    with ExitStack() as stack:
        for i, path in enumerate(paths):
            modes: list[Forced | None] = []
            others = set().union(*(other for j, other in enumerate(paths) if j != i))
            for name in path - others:
                module = model.get_submodule(name)

                def enter(*_: object, ahead: LayerAhead = aheads[i], modes: list[Forced | None] = modes) -> None:
                    modes.append(None if modes else Forced(ahead))  # already active within an outer module
                    if modes[-1] is not None:
                        modes[-1].__enter__()

                def leave(*_: object, modes: list[Forced | None] = modes) -> None:
                    if (mode := modes.pop()) is not None:
                        mode.__exit__(None, None, None)

                stack.enter_context(module.register_forward_pre_hook(enter))
                stack.enter_context(module.register_forward_hook(leave, always_call=True))
        yield


def _path(name: str) -> set[str]:
    """The paths of a module and of all modules that contain it."""
    parts = name.split(".") if name else []
    return {".".join(parts[:length]) for length in range(len(parts) + 1)}


__all__ = ["routes_ahead"]
