"""That every rank was given the same layer: compared once, before ranks wait for each other by what they were given."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from .._arguments import invalid
from ._exchange import Exchange


def require_alike(exchange: Exchange, facts: Mapping[str, object], device: torch.device) -> None:
    """Collective: `facts` by the name of the argument, the same names on every rank.

    Raises:
        InvalidArgument: on every rank, where one rank's fact is not another's.
    """
    mine = torch.tensor([_digest(fact) for fact in facts.values()], dtype=torch.int64, device=device)
    every = exchange.all_gather("options", mine).cpu()
    for i, (name, fact) in enumerate(facts.items()):
        other = (every[:, i] != every[0, i]).nonzero().flatten().tolist()
        if other:
            raise invalid(
                name,
                f"is not the same on ranks 0 and {other[0]}; this rank has {fact}",
                "the same on every rank of the group",
            )


def _digest(fact: object) -> int:
    """Alike for 1 and 1.0, and for a list and a tuple."""
    if isinstance(fact, int) and not isinstance(fact, bool):
        fact = float(fact) if abs(fact) < 2**53 else fact
    fact = list(fact) if isinstance(fact, tuple) else fact
    return int.from_bytes(hashlib.blake2b(repr(fact).encode(), digest_size=8).digest(), "little", signed=True)
