"""Modules of experts: whose layer each is, what travels with an expert, and running one with other weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.utils.parametrize import is_parametrized, type_before_parametrizations

from ._chunk import Weights

Layer = TypeVar("Layer")

layer_of_module: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
"""The `ExpertParallel` of an experts module; beside it, since a process group in the module would keep a model from being
copied."""

Module = TypeVar("Module", bound=nn.Module)


def weights_of(experts: nn.Module, first: Sequence[str] = ()) -> Weights:
    """Each expert's own weights, by name: the module's parameters, and what its parametrizations make of them.

    The order is alike on all ranks, and in a step that is computed again: those that come and go are named `first`.
    """
    names = dict.fromkeys(
        (*first, *experts._parameters, *(getattr(experts, _MADE) if is_parametrized(experts) else ()))
    )
    weights = {name: getattr(experts, name) for name in names}
    return {name: weight for name, weight in weights.items() if weight is not None}


def shared_weights(experts: nn.Module) -> dict[str, torch.Tensor]:
    """What all experts of a module train together, by its place in it, such as `norm.weight`."""
    inside = {name: each for name, each in experts.named_parameters() if "." in name and not name.startswith(_MADE)}
    return {name: each for name, each in inside.items() if each.requires_grad}


_MADE = "parametrizations"  # torch's name for the module that holds them


def holders_of(model: nn.Module, kind: type[Layer]) -> list[tuple[nn.Module, Layer]]:
    """The layers of this kind that a model has, in its order, each with the first module that has it."""
    found: dict[Layer, nn.Module] = {}
    for module in model.modules():
        for layer in (*vars(module).values(), layer_of_module.get(module)):
            if isinstance(layer, kind):
                found.setdefault(layer, module)
    return [(module, layer) for layer, module in found.items()]


def with_weights(experts: nn.Module, weights: Weights) -> nn.Module:
    """The module with other weights, and as many experts as these have; the module itself stays as it is.

    A shared weight comes once for each expert, equal for all, since it travels as theirs do.
    """
    one = {name: weight[0] if "." in name else weight for name, weight in weights.items()}
    other = _copy(experts, type_before_parametrizations(experts), one)
    other.__dict__["num_experts"] = len(next(iter(weights.values())))
    return other


def _copy(module: Module, kind: type[Module], parameters: Weights) -> Module:
    """With these parameters, by their places in it."""
    other = object.__new__(kind)
    other.__dict__ = dict(module.__dict__)
    other.__dict__.pop("forward", None)  # a framework's, which runs the module itself
    own = {name: parameter for name, parameter in parameters.items() if "." not in name}
    other.__dict__["_parameters"] = {**module._parameters, **own}
    other.__dict__["_modules"] = dict(module._modules)
    for name, child in module._modules.items():
        inside = {each.removeprefix(f"{name}."): p for each, p in parameters.items() if each.startswith(f"{name}.")}
        if child is not None and inside:
            other.__dict__["_modules"][name] = _copy(child, type(child), inside)
    return other
