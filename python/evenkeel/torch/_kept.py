"""Keeps a step's objects for backward, by tickets that autograd saves.

A step's backward needs objects (graphs of the experts' calls), but autograd only saves tensors. A ticket is a tensor to
identify the objects, which live as long as its storage. So activation checkpointing works as for any operation: it
drops the first forward's ticket, and with it the objects, and gives backward the ticket of the repeated forward.
"""

from __future__ import annotations

import itertools
import weakref
from typing import Any

import torch

_numbers = itertools.count()
_kept: dict[int, Any] = {}


def keep(what: Any) -> torch.Tensor:
    """Returns a ticket for `what`."""
    number = next(_numbers)
    ticket = torch.tensor(number)
    _kept[number] = what
    weakref.finalize(ticket.untyped_storage(), _kept.pop, number, None).atexit = False
    return ticket


def take(ticket: torch.Tensor) -> Any:
    """The ticket's objects; None if already taken, or dropped, as by hooks that move saved tensors elsewhere."""
    return _kept.pop(int(ticket), None)
