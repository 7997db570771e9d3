"""Calls a framework's layers by their place in the model, such as `model.layers.3.mlp.experts`."""

from __future__ import annotations

from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from ._exchange import Exchange

_waiting: WeakKeyDictionary[nn.Module, Exchange] = WeakKeyDictionary()
_hook: list[RemovableHandle] = []
_seen: WeakSet[nn.Module] = WeakSet()
"""Modules that contain none of those that wait, which are not looked through in each forward."""


def name_at_first_forward(module: nn.Module, exchange: Exchange) -> None:
    """A module does not know its place: the first forward of one that contains it, the model, tells."""
    _waiting[module] = exchange
    _seen.clear()
    if not _hook:
        _hook.append(nn.modules.module.register_module_forward_pre_hook(_name))


def place_of(path: str) -> str:
    """Without what wraps modules, whose names begin with _."""
    return ".".join(part for part in path.split(".") if not part.startswith("_"))


def _name(model: nn.Module, arguments: object) -> None:
    if torch.compiler.is_compiling() or model in _seen:
        return
    _seen.add(model)
    for path, module in model.named_modules():
        if path and module in _waiting:
            _waiting.pop(module).layer = place_of(path)
    if not _waiting:
        while _hook:
            _hook.pop().remove()
