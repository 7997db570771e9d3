"""Names a framework's layers by their path in the model, such as `model.layers.3.mlp.experts`."""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ._exchange import Exchange

Check = Callable[[nn.Module], None]

_waiting: WeakKeyDictionary[nn.Module, tuple[Exchange, Check]] = WeakKeyDictionary()
_hook: list[RemovableHandle] = []
_seen: WeakSet[nn.Module] = WeakSet()
"""Modules already searched for waiting ones, so that not every forward searches them again."""


def name_at_first_forward(module: nn.Module, exchange: Exchange, check: Check = lambda model: None) -> None:
    """Names the exchange at the first forward of a module around `module`, since a module does not know its path.

    `check` may refuse the containing model then.
    """
    _waiting[module] = exchange, check
    _seen.clear()
    if not _hook:
        _hook.append(nn.modules.module.register_module_forward_pre_hook(_name))


def place_of(path: str) -> str:
    """The path without wrappers of modules, whose names begin with _ or are PEFT's."""
    return ".".join(part for part in path.split(".") if not part.startswith("_") and part != "base_layer")


def _name(model: nn.Module, arguments: object) -> None:
    if torch.compiler.is_compiling() or model in _seen:
        return
    found = [(path, module) for path, module in model.named_modules() if path and module in _waiting]
    for check in {_waiting[module][1] for _, module in found}:
        check(model)
    _seen.add(model)
    for path, module in found:
        _waiting.pop(module)[0].layer = place_of(path)
    if not _waiting:
        while _hook:
            _hook.pop().remove()
