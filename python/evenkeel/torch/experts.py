"""Finds the experts of a live model of any class, and the layers that they belong to.

A module counts as the experts of a layer if its forward takes a router's choices under the names of transformers:
(hidden_states, top_k_index, top_k_weights), or (hidden_states, router_indices, routing_weights).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._arguments import invalid

_CHOICE_NAMES = (("top_k_index", "top_k_weights"), ("router_indices", "routing_weights"))
_LAYER = re.compile(r"^(?P<stack>.*?)(?<![^.])(?P<number>\d+)(?:\.|$)")


@dataclass(frozen=True)
class Experts:
    """The experts of one layer."""

    name: str
    """The module's path in its model, such as model.layers.3.mlp.experts."""
    module: torch.nn.Module
    names: tuple[str, str]
    """The names of the chosen ids and their weights in the forward's arguments."""

    @property
    def stack(self) -> str:
        """The list of layers that contains the module, such as model.layers."""
        found = _LAYER.match(self.name)
        return found["stack"].rstrip(".") if found else ""

    @property
    def layer(self) -> int | None:
        """The layer's index in that list; None if the module is in no list."""
        found = _LAYER.match(self.name)
        return int(found["number"]) if found else None

    @property
    def num_experts(self) -> int:
        """The number of experts over all ranks."""
        # Expert parallelism leaves one rank's number in num_experts, but a distributed tensor has the whole shape.
        counts = [parameter.shape[0] for parameter in self.module.parameters() if parameter.dim() == 3]
        return int(max([getattr(self.module, "num_experts", 0), *counts]))

    def choice(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """The ids and weights in the arguments of a forward call."""
        given = dict(zip(("hidden_states", *self.names), arguments, strict=False)) | dict(named)
        ids, weights = (given[name] for name in self.names)
        return ids, weights


def find_experts(model: torch.nn.Module) -> list[Experts]:
    """The experts of every layer, in the model's order.

    Raises:
        InvalidArgument: the model has none.
    """
    found = []
    for name, module in model.named_modules():
        parameters = tuple(inspect.signature(type(module).forward).parameters)
        for names in _CHOICE_NAMES:
            if parameters[1:4] == ("hidden_states", *names):
                found.append(Experts(name, module, names))
    if not found:
        raise invalid(
            "model",
            f"{type(model).__name__} has no experts that evenkeel recognises",
            "a model with modules whose forward takes "
            + " or ".join(f"(hidden_states, {', '.join(names)})" for names in _CHOICE_NAMES),
        )
    return found
