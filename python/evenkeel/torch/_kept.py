"""What a step keeps for backward, by tickets that autograd saves.

A step's backward needs objects (graphs of the experts' calls), and autograd saves tensors alone. A ticket is a tensor
that stands for them: they live as long as its storage. So activation checkpointing works as for any operation: it drops
the first forward's ticket, and with it what was kept, and hands backward the ticket of the forward it ran again.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch

_numbers = itertools.count()
_kept: dict[int, Any] = {}


def keep(what: Any) -> torch.Tensor:
    """A ticket for `what`."""
    number = next(_numbers)
    ticket = torch.tensor(number)
    _kept[number] = what
    weakref.finalize(ticket.untyped_storage(), _kept.pop, number, None).atexit = False
    return ticket


def take(ticket: torch.Tensor) -> Any:
    """What the ticket stands for, once; None if it was dropped, as by hooks that move saved tensors elsewhere."""
    return _kept.pop(int(ticket), None)
