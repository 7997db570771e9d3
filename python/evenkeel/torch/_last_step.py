"""The facts of `ExpertParallel.last` as numbers for plots, and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ._costs import SpillCosts

Numbers = dict[str, float | int]

BY_NODES = ("rows_between_nodes", "rows_within_nodes", "weights_between_nodes", "weights_within_nodes")
"""Further facts about a step of a layer with nodes."""


def max_over_mean(loads: Sequence[int]) -> float:
    """max/mean of loads; 1 if there is no load."""
    total = sum(loads)
    return max(loads) * len(loads) / total if total else 1.0


def numbers_of(last: Mapping[str, Any], costs: SpillCosts | None) -> Numbers:
    """A step in numbers. The predicted gain is the worst rank's saving by `costs`, not counting the cost of moving."""
    loads, at_home = last["rank_loads"], last["home_loads"]
    made: Numbers = {
        "max_over_mean": max_over_mean(loads),
        "max_over_mean_home": max_over_mean(at_home),
        "transfers": last["transfers"],
        "chunks": last["chunks"],
        "lacked_memory": int(last["lacked_memory"]),
    }
    made |= {name: last[name] for name in BY_NODES if name in last}
    if costs is not None:
        made["predicted_gain_seconds"] = (max(at_home) - max(loads)) * costs.per_assignment
    return made


def step_in_words(last: Mapping[str, Any]) -> str:
    loads, at_home = (max_over_mean(last[name]) for name in ("rank_loads", "home_loads"))
    text = f"{last['reason']}, {plural(last['chunks'], 'chunk')}, {plural(last['transfers'], 'transfer')}"
    return f"{text}, max/mean {loads:.2f} ({at_home:.2f} at home)"


def plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
