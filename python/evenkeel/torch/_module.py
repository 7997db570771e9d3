"""A module of experts that is run with other weights."""

from __future__ import annotations

from torch import nn

from ._chunk import Weights


def with_weights(experts: nn.Module, weights: Weights) -> nn.Module:
    """The module with other weights, and as many experts as these have; the module itself stays as it is."""
    other: nn.Module = object.__new__(type(experts))
    other.__dict__ = dict(experts.__dict__)
    other.__dict__["_parameters"] = {name: weights.get(name) for name in experts._parameters}
    other.__dict__["num_experts"] = len(next(iter(weights.values())))
    return other
