"""Checks for the entry points into servers: whether the user asked for them and whether the server is supported."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any

from ._arguments import invalid, unsupported

SWITCH = "EVENKEEL_REBALANCE"
"""Environment variable; 1 makes our rebalance_experts the algorithm of a server started with it."""


def is_enabled() -> bool:
    """Whether the user asked for rebalancing. Raises InvalidArgument for an unknown value."""
    value = os.environ.get(SWITCH, "")
    if value not in ("", "0", "1"):
        raise invalid(SWITCH, f"'{value}'", "1 (on), or 0, empty or unset (off)")
    return value == "1"


def require_parameters(function: Callable[..., Any], names: list[str], what: str) -> None:
    """Refuses a server whose function has other parameters, before its first rebalancing would fail."""
    found = list(inspect.signature(function).parameters)
    if found != names:
        raise unsupported(f"{what} takes ({', '.join(found)}); this evenkeel supports only ({', '.join(names)})")
