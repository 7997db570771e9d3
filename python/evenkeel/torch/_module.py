"""Modules of experts: whose layer each is, and running one with other weights."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from ._chunk import Weights

layer_of_module: WeakKeyDictionary[nn.Module, Any] = WeakKeyDictionary()
"""The `ExpertParallel` of an experts module; beside it, since a process group in the module would keep a model from being
copied."""


def with_weights(experts: nn.Module, weights: Weights) -> nn.Module:
    """The module with other weights, and as many experts as these have; the module itself stays as it is."""
    other: nn.Module = object.__new__(type(experts))
    other.__dict__ = dict(experts.__dict__)
    other.__dict__["_parameters"] = {name: weights.get(name) for name in experts._parameters}
    other.__dict__["num_experts"] = len(next(iter(weights.values())))
    return other
