"""Modules of experts: finds their layers and each expert's weights, and runs a module with other weights."""

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
"""The `ExpertParallel` of each experts module. It is not in the module: a process group there would prevent
copies of the model."""

Module = TypeVar("Module", bound=nn.Module)


def weights_of(experts: nn.Module, first: Sequence[str] = ()) -> Weights:
    """Each expert's own weights, by name: the module's parameters, or what its parametrizations make of them.

    The order is equal on all ranks and in a repeated step: weights that are not always present are named in `first`.
    """
    names = dict.fromkeys(
        (*first, *experts._parameters, *(getattr(experts, _MADE) if is_parametrized(experts) else ()))
    )
    weights = {name: getattr(experts, name) for name in names}
    return {name: weight for name, weight in weights.items() if weight is not None}


def shared_weights(experts: nn.Module) -> dict[str, torch.Tensor]:
    """Trained parameters that all experts of a module share, by their path in it, such as `norm.weight`."""
    inside = {name: each for name, each in experts.named_parameters() if "." in name and not name.startswith(_MADE)}
    return {name: each for name, each in inside.items() if each.requires_grad}


_MADE = "parametrizations"  # torch's name for the module that holds them


def holders_of(model: nn.Module, kind: type[Layer]) -> list[tuple[nn.Module, Layer]]:
    """A model's layers of this kind, in module order, each with the first module that has it."""
    found: dict[Layer, nn.Module] = {}
    for module in model.modules():
        for layer in (*vars(module).values(), layer_of_module.get(module)):
            if isinstance(layer, kind):
                found.setdefault(layer, module)
    return [(module, layer) for layer, module in found.items()]


def with_weights(experts: nn.Module, weights: Weights) -> nn.Module:
    """A copy of the module with other weights and as many experts as these have. The module itself is unchanged.

    `weights` hold a shared weight once for each expert, since it is sent like the experts' own weights.
    """
    one = {name: weight[0] if "." in name else weight for name, weight in weights.items()}
    other = _copy(experts, type_before_parametrizations(experts), one)
    other.__dict__["num_experts"] = len(next(iter(weights.values())))
    return other


def _copy(module: Module, kind: type[Module], parameters: Weights) -> Module:
    """A copy of the module with these parameters, by their paths in it."""
    other = object.__new__(kind)
    other.__dict__ = dict(module.__dict__)
    other.__dict__.pop("forward", None)  # a framework's replacement, which would run the original module
    own = {name: parameter for name, parameter in parameters.items() if "." not in name}
    other.__dict__["_parameters"] = {**module._parameters, **own}
    other.__dict__["_modules"] = dict(module._modules)
    for name, child in module._modules.items():
        inside = {each.removeprefix(f"{name}."): p for each, p in parameters.items() if each.startswith(f"{name}.")}
        if child is not None and inside:
            other.__dict__["_modules"][name] = _copy(child, type(child), inside)
    return other
