"""Makes the next map at each rebalancing in SGLang and vLLM, from the map in use and the last windows of loads.

Each rank of a server computes the map itself, so the map depends only on loads and maps, which are equal on all ranks.
A rank that joins later lacks the earlier windows, so after a change of ranks all ranks forget theirs.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from . import _native
from ._arguments import Floats, Integers, invalid

MAX_MOVES = "EVENKEEL_MAX_MOVES"
LEAST_GAIN = "EVENKEEL_LEAST_GAIN"
WINDOWS = "EVENKEEL_WINDOWS"
MOST_MOVES = 2**31 - 1
MOST_WINDOWS = 16


@dataclass(frozen=True)
class Options:
    """Options of rebalancing, from environment variables (docs/servers.md)."""

    max_moves: int = MOST_MOVES  # experts sent to new ranks, over all layers
    least_gain: float = 0.01  # in max/mean, averaged over layers
    windows: int = 3

    @classmethod
    def from_environment(cls) -> Options:
        """Reads the variables that are set. Raises InvalidArgument, naming the variable, for a wrong value."""
        return cls(
            max_moves=_whole(MAX_MOVES, cls.max_moves, MOST_MOVES),
            least_gain=_gain(LEAST_GAIN, cls.least_gain),
            windows=_whole(WINDOWS, cls.windows, MOST_WINDOWS),
        )


def _whole(variable: str, default: int, most: int) -> int:
    value = os.environ.get(variable, "")
    if not value:
        return default
    if not (value.isascii() and value.isdigit()) or not 1 <= int(value[:20]) <= most:
        raise invalid(variable, f"'{value}'", f"a whole number in 1..{most}, or empty or unset ({default})")
    return int(value)


def _gain(variable: str, default: float) -> float:
    value = os.environ.get(variable, "")
    if not value:
        return default
    try:
        gain = float(value)
    except ValueError:
        gain = math.nan
    if not (math.isfinite(gain) and gain >= 0):
        raise invalid(variable, f"'{value}'", f"a number that is 0 or more, or empty or unset ({default})")
    return gain


class Sizes(NamedTuple):
    """A server's sizes, in the order of EPLB's arguments."""

    num_replicas: int
    num_groups: int
    num_nodes: int
    num_ranks: int


class Windows:
    """The last windows of each model in this process; thread-safe. Models with equal shapes share windows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[int, ...], tuple[Sizes, list[Floats]]] = {}

    def add(self, weight: Floats, sizes: Sizes, most: int) -> Floats:
        """Adds a window and returns up to `most` windows `[W, L, E]`, this one last. Drops windows with other sizes."""
        with self._lock:
            of, kept = self._kept.get(weight.shape, (sizes, []))
            kept = [*(kept if of == sizes else []), weight.copy()][-most:]
            self._kept[weight.shape] = sizes, kept
        return np.stack(kept)

    def forget(self, weight: Floats) -> None:
        """Drops the windows of the model whose loads have this shape."""
        with self._lock:
            self._kept.pop(weight.shape, None)


def next_map(
    weight: Floats, live: Integers, sizes: Sizes, windows: Windows, options: Options, logger: logging.Logger
) -> Integers:
    """The next map `[L, num_replicas]`: the logical expert of each physical expert. It is the map in use,
    changed by the moves that pay.

    Args:
        weight: `[L, E]` loads of the window that ends now. Invalid loads leave the map unchanged.
        live: `[L, physical experts]`, the map in use; -1 is an empty slot. Other sizes or empty slots mean that
            ranks joined or left: then everything is placed anew.

    Raises:
        InvalidArgument: sizes that do not divide each other, or a map with other layers or unknown experts.
    """
    if len(live) != len(weight):
        raise invalid("the map in use", f"shape {list(live.shape)}", f"[{len(weight)} layers, physical experts]")
    is_first = _is_first_rank()
    why_anew = _why_ranks_changed(live, sizes)
    unusable = why_unusable(weight)
    if unusable:
        then = "placed anew as if all loads were equal" if why_anew else "the map in use stays"
        logger.log(logging.WARNING if is_first else logging.DEBUG, "evenkeel: %s; %s", unusable, then)
    level = logging.INFO if is_first else logging.DEBUG
    has_load = not unusable and bool(weight.any())
    if not has_load and not why_anew:
        if not unusable:
            logger.log(level, "evenkeel: nothing moves, as no expert has any load")
        return live.copy()
    if why_anew:
        windows.forget(weight)
    recent = windows.add(weight, sizes, options.windows) if has_load else np.zeros((1, *weight.shape))
    result = _native.rebalance_live(
        recent,
        live[:, :0] if why_anew else live,
        *sizes,
        max_moves=options.max_moves,
        least_gain=options.least_gain,
    )
    logger.log(level, "evenkeel: %s", _summary(result, why_anew, len(recent), options))
    return keep_slots(result.physical_to_logical(), live, sizes.num_ranks)


def _why_ranks_changed(live: Integers, sizes: Sizes) -> str:
    """Why the map does not fit the present ranks; empty if it fits."""
    if live.shape[1] != sizes.num_replicas:
        return f"the map in use has {live.shape[1]} physical experts, but {sizes.num_replicas} are requested"
    empty = np.argwhere(live < 0)
    return f"layer {empty[0][0]} has empty slots, such as slot {empty[0][1]}" if len(empty) else ""


def why_unusable(weight: Floats) -> str:
    """Why these cannot be loads; empty if they can."""
    wrong = np.argwhere(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        layer, expert = wrong[0]
        return f"the load of layer {layer}, expert {expert} is {weight[layer, expert]:g}"
    with np.errstate(over="ignore"):
        endless = np.flatnonzero(~np.isfinite(weight.sum(axis=1)))
    return f"the loads of layer {endless[0]} do not add up to a finite number" if len(endless) else ""


def _is_first_rank() -> bool:
    """Whether this process logs for all ranks. One log is enough, since all ranks decide alike."""
    torch = sys.modules.get("torch")
    if torch is None or not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return True
    return bool(torch.distributed.get_rank() == 0)


def _summary(result: _native.LiveResult, why_anew: str, windows: int, options: Options) -> str:
    """What moved and why, in one line. max/mean is that of each layer's worst window, averaged over layers."""
    over = f"on the last {windows} windows" if windows > 1 else "on the last window"
    made_from = f"{over}, from which the new map is made"
    before, after, reachable = (
        float(np.mean(each)) if each else math.nan
        for each in (result.max_over_mean_before, result.max_over_mean, result.reachable)
    )
    if result.placed_in_full:
        capped = f", which {MAX_MOVES} does not limit" if options.max_moves < result.moves else ""
        was = "" if math.isnan(before) else f"{before:.4f} -> "
        return (
            f"placed in full, as {why_anew or result.placed_in_full}{capped}: "
            f"{result.moves} experts move, max/mean {was}{after:.4f} {made_from}"
        )
    if result.moves:
        moved = f"{result.moves} experts move, max/mean {before:.4f} -> {after:.4f} {made_from}"
        return f"{moved}; the best map found has {reachable:.4f}"
    why = f"{MAX_MOVES} is {options.max_moves}"
    if before - reachable < options.least_gain or before == reachable:
        why = f"{LEAST_GAIN} is {options.least_gain:g}"
    return f"nothing moves, max/mean {before:.4f} {over}; the best map found has {reachable:.4f}, but {why}"


def keep_slots(phy2log: Integers, old: Integers, num_ranks: int) -> Integers:
    """Reorders each rank's experts so that as many as possible keep the slot that they have in `old`.

    Args:
        phy2log: `[L, physical experts]`; their number is a multiple of num_ranks.
        old: `[L, physical experts]`; -1 is an empty slot. It may have more or fewer ranks, but must have as many
            slots per rank as phy2log.
    """
    layers, slots = phy2log.shape
    space = slots // num_ranks
    before = np.full_like(phy2log, -1)
    shared = min(slots, old.shape[1])
    before[:, :shared] = old[:, :shared]

    new = phy2log.reshape(layers * num_ranks, space)
    before = before.reshape(new.shape)
    kept = np.empty_like(new)
    is_placed = np.zeros(new.shape, dtype=bool)  # entries of new
    is_filled = np.zeros(new.shape, dtype=bool)  # entries of kept
    for slot in range(space):
        stays = (new == before[:, slot, None]) & ~is_placed
        ranks = np.flatnonzero(stays.any(axis=1))
        is_placed[ranks, stays[ranks].argmax(axis=1)] = True
        is_filled[ranks, slot] = True
        kept[ranks, slot] = before[ranks, slot]
    kept[~is_filled] = new[~is_placed]  # equally many in each row
    return kept.reshape(phy2log.shape)


def list_copies(phy2log: Integers, num_experts: int) -> tuple[Integers, Integers]:
    """EPLB's other maps: `[L, E, X]`, each expert's physical experts, ascending, then -1; and counts `[L, E]`."""
    layers, slots = phy2log.shape
    counts = np.zeros((layers, num_experts), dtype=np.int64)
    np.add.at(counts, (np.arange(layers)[:, None], phy2log), 1)
    by_expert = np.argsort(phy2log, axis=1, kind="stable")
    experts = np.take_along_axis(phy2log, by_expert, axis=1)
    first = np.cumsum(counts, axis=1) - counts
    nth = np.arange(slots) - np.take_along_axis(first, experts, axis=1)
    log2phy = np.full((layers, num_experts, int(counts.max())), -1, dtype=np.int64)
    log2phy[np.arange(layers)[:, None], experts, nth] = by_expert
    return log2phy, counts


__all__ = ["Options", "Sizes", "Windows", "keep_slots", "list_copies", "next_map", "why_unusable"]
