"""Modules of experts: whose layer each is, and running one with other weights."""

from __future__ import annotations

from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from torch import nn

from ._chunk import Weights

Layer = TypeVar("Layer")

layer_of_module: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
"""The `ExpertParallel` of an experts module; beside it, since a process group in the module would keep a model from being
copied."""


def holders_of(model: nn.Module, kind: type[Layer]) -> list[tuple[nn.Module, Layer]]:
    """The layers of this kind that a model has, in its order, each with the first module that has it."""
    found: dict[Layer, nn.Module] = {}
    for module in model.modules():
        for layer in (*vars(module).values(), layer_of_module.get(module)):
            if isinstance(layer, kind):
                found.setdefault(layer, module)
    return [(module, layer) for layer, module in found.items()]


def with_weights(experts: nn.Module, weights: Weights) -> nn.Module:
    """The module with other weights, and as many experts as these have; the module itself stays as it is."""
    other: nn.Module = object.__new__(type(experts))
    other.__dict__ = dict(experts.__dict__)
    other.__dict__["_parameters"] = {name: weights.get(name) for name in experts._parameters}
    other.__dict__["num_experts"] = len(next(iter(weights.values())))
    return other
