"""How one step's tokens are cut into chunks: counted on all ranks, then planned, alike on every rank."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import _native
from .._arguments import invalid
from ._chunk import Routes
from ._exchange import Exchange, SameOnEveryRank, to_host

_BLOCKS = 32
"""Under a budget tokens are counted in so many blocks, of which chunks are made."""


def blocks_of(budget: int | None, bins: Sequence[int] | None) -> int:
    """In how many blocks a step's tokens are first counted."""
    return 1 if budget is None else math.lcm(*bins) if bins else _BLOCKS


def count(ids: torch.Tensor, blocks: int, experts: int) -> torch.Tensor:
    """`[blocks, E + 2]` of tokens that are cut into blocks: by expert, of ids that are none, and tokens."""
    tokens = len(ids)
    bounds = torch.tensor([tokens * b // blocks for b in range(blocks + 1)], device=ids.device)
    flat = ids.reshape(-1)
    wrong = (flat < -1) | (flat >= experts)
    column = flat.masked_fill(wrong, experts).masked_fill(flat == -1, experts + 1)
    if blocks > 1:
        of_token = torch.bucketize(torch.arange(tokens, device=ids.device), bounds[1:], right=True)
        column = column + of_token.repeat_interleave(ids.shape[1]) * (experts + 2)
    made = torch.bincount(column, minlength=blocks * (experts + 2)).view(blocks, experts + 2)
    made[:, -1] = bounds.diff()
    return made


class Counted(NamedTuple):
    """Tokens begin..end of every rank, in blocks."""

    begin: int
    end: int
    counts: np.ndarray  # [P, blocks, E]
    tokens: np.ndarray  # [P, blocks]
    own: np.ndarray  # this rank's ids

    @staticmethod
    def of(begin: int, end: int, counts: np.ndarray, own: np.ndarray) -> Counted:
        """From what `count` gave on every rank, `[P, blocks, E + 2]`.

        Raises:
            InvalidArgument: on every rank, if an id of any is no expert's.
        """
        experts = counts.shape[2] - 2
        bad = counts[:, :, experts].sum(axis=1)
        if bad.any():
            rank = int(bad.argmax())
            why = f"{int(bad[rank])} expert ids of rank {rank} are outside -1..{experts - 1}"
            raise SameOnEveryRank(invalid("top_k_index", why, "ids over all ranks"))
        by_expert, by_block = (np.ascontiguousarray(found) for found in (counts[:, :, :experts], counts[:, :, -1]))
        return Counted(begin, end, by_expert, by_block, own)

    def without_ids(self) -> Counted:
        """What may be kept after the step."""
        return self._replace(own=self.own[:0].copy())

    def bound(self, block: int) -> int:
        """This rank's first token of a block."""
        return self.begin + (self.end - self.begin) * block // self.tokens.shape[1]


class Cut:
    """One step's chunks, of its tokens as `counted`; `homes` are the experts' ranks.

    `last` is what `ExpertParallel.last` says of the step.
    """

    def __init__(
        self, exchange: Exchange, layout: _native.StepLayout, homes: np.ndarray, ids: torch.Tensor, counted: Counted
    ) -> None:
        self.exchange, self.layout, self.homes, self.ids, self.counted = exchange, layout, homes, ids, counted
        self.chunks: list[tuple[int, int, Routes]] = []
        self.last: dict[str, Any] = {
            "training": torch.is_grad_enabled(),
            "chunks": 0,
            "transfers": 0,
            "lacked_memory": False,
            "rank_loads": [0] * exchange.ranks,
            "home_loads": [0] * exchange.ranks,
        }

    def whole(self, also_if_nothing_moves: bool) -> None:
        """One chunk; none where nothing moves, unless that is wanted."""
        self._add(self.counted, 0, 1, also_if_nothing_moves)

    def equal(self, numbers: Iterable[int], budget: int, balanced: bool) -> bool:
        """As many equal chunks as the least number that fits, false if none does; `balanced`: as the planner plans them."""
        counted = self.counted
        blocks = counted.tokens.shape[1]
        for chunks in numbers:
            if self.layout.equal_chunk_bytes(counted.counts, counted.tokens, chunks, balanced) <= budget:
                for i in range(chunks):
                    self._add(counted, i * blocks // chunks, (i + 1) * blocks // chunks)
                return True
        return False

    def fewest(self) -> None:
        """A block that does not fit is counted again in blocks of its own, down to one token of each rank."""
        if self.counted.tokens.shape[1] == _BLOCKS:
            self._fewest_of(self.counted)
        else:  # counted for equal chunks, which do not fit
            self._fewest_in(0, len(self.ids))

    def note_lacked_memory(self) -> None:
        """Chunks so small that moving pays in none count as well, where the step as one would have moved work."""
        if self.last["chunks"] > 1 and not self.last["transfers"]:
            self.layout.equal_chunk_bytes(self.counted.counts, self.counted.tokens, 1, True)
            self.last["lacked_memory"] = self.layout.equal_chunks_move

    def _fewest_in(self, begin: int, end: int) -> None:
        part = self.ids[begin:end]
        every, own = to_host(self.exchange.all_gather("counts", count(part, _BLOCKS, len(self.homes))), part)
        self._fewest_of(Counted.of(begin, end, every, own))

    def _fewest_of(self, counted: Counted) -> None:
        first = 0
        while first < _BLOCKS:
            last = self.layout.longest_chunk(counted.counts, counted.tokens, first)
            if last > first:
                self._add(counted, first, last)
                first = last
            else:  # this ends: one token of each rank fits, with nothing moved (ExpertParallel._set_budget)
                self._fewest_in(counted.bound(first), counted.bound(first + 1))
                first += 1

    def _add(self, counted: Counted, first: int, last: int, also_if_nothing_moves: bool = True) -> None:
        """The chunk of these blocks, if any rank has tokens in them; a step without a budget is one of none, too."""
        start, stop = counted.bound(first), counted.bound(last)
        run = slice(first, last)
        own = np.ascontiguousarray(counted.own[start - counted.begin : stop - counted.begin])
        counts = np.ascontiguousarray(counted.counts[:, run].sum(axis=1))
        tokens = counted.tokens[:, run].sum(axis=1)
        native = self.layout.step(own, counts, tokens.tolist(), also_if_nothing_moves)
        if tokens.any() or counted.tokens.shape[1] == 1:
            self._report(counts)
            if native is not None:
                self.chunks.append((start, stop, Routes(native, self.ids.device, stop - start)))

    def _report(self, counts: np.ndarray) -> None:
        """A chunk as it has been planned; `counts` are its assignments `[P, E]`."""
        last, ranks = self.last, self.exchange.ranks
        at_home = np.bincount(self.homes, weights=counts.sum(axis=0), minlength=ranks).astype(np.int64).tolist()
        last["chunks"] += 1
        last["transfers"] += self.layout.transfers
        last["lacked_memory"] |= self.layout.fell_back_to_ep
        for name, loads in (("rank_loads", self.layout.rank_loads), ("home_loads", at_home)):
            last[name] = [total + load for total, load in zip(last[name], loads, strict=True)]
