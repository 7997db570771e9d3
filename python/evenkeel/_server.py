"""What the entry points into the servers share: whether they are asked for, and whether the server is one they know."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from ._arguments import invalid, unsupported

SWITCH = "EVENKEEL_REBALANCE"
"""Set to 1, it makes rebalance_experts the algorithm of the server that is started."""


def is_asked_for() -> bool:
    """Whether the user has asked for it; InvalidArgument where that cannot be told."""
    value = os.environ.get(SWITCH, "")
    if value not in ("", "0", "1"):
        raise invalid(SWITCH, f"'{value}'", "1 (on), or 0, empty or unset (off)")
    return value == "1"


def require_parameters(function: Callable[..., Any], names: list[str], what: str) -> None:
    """Refuses a server whose function takes something else, now rather than at its first rebalancing."""
    found = list(inspect.signature(function).parameters)
    if found != names:
        raise unsupported(f"{what} takes ({', '.join(found)}); evenkeel knows it with ({', '.join(names)})")
