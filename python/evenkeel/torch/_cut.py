"""How one step's tokens are cut into chunks: counted on all ranks, then planned, alike on every rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import _native
from .._arguments import invalid
from ._chunk import Routes
from ._exchange import Exchange, SameOnEveryRank, to_host
from ._loan import Loan

_BLOCKS = 32
"""Under a budget tokens are counted in so many blocks, of which chunks are made."""

REASONS = ("nothing moves", "as planned", "ep: faster", "ep: no memory")
"""Why work goes where it goes (evenkeel/step/step_reason.h); of several chunks the last of these."""


def blocks_of(budget: int | None, bins: Sequence[int] | None) -> int:
    """In how many blocks a step's tokens are first counted."""
    return 1 if budget is None else math.lcm(*bins) if bins else _BLOCKS


def how_many(numbers: torch.Tensor, of: int) -> torch.Tensor:
    """Of each of 0..of-1; as bincount() says, which waits for a device."""
    return numbers.new_zeros(of).scatter_add_(0, numbers, torch.ones_like(numbers))


def count(ids: torch.Tensor, blocks: int, experts: int) -> torch.Tensor:
    """`[blocks, E + 2]` in 32 bits, of tokens that are cut into blocks: by expert, of ids that are none, and tokens."""
    tokens = len(ids)
    bounds = torch.arange(blocks + 1, device=ids.device) * tokens // blocks
    flat = ids.reshape(-1)
    wrong = (flat < -1) | (flat >= experts)
    column = flat.masked_fill(wrong, experts).masked_fill(flat == -1, experts + 1)
    if blocks > 1:
        of_token = torch.bucketize(torch.arange(tokens, device=ids.device), bounds[1:], right=True)
        column = column + of_token.repeat_interleave(ids.shape[1], output_size=len(flat)) * (experts + 2)
    made = how_many(column, blocks * (experts + 2)).to(torch.int32).view(blocks, experts + 2)
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
        by_expert, by_block = (found.astype(np.int64) for found in (counts[:, :, :experts], counts[:, :, -1]))
        return Counted(begin, end, by_expert, by_block, own)

    def without_ids(self) -> Counted:
        """What may be kept after the step."""
        return self._replace(own=self.own[:0].copy())

    def asked(self) -> tuple[np.ndarray, list[int]]:
        """The counts, and each rank's tokens."""
        return self.counts, self.tokens.sum(axis=1).tolist()

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
        self.chunks: list[tuple[int, int, Routes, Loan | None]] = []
        self.last: dict[str, Any] = {
            "training": torch.is_grad_enabled(),
            "chunks": 0,
            "transfers": 0,
            "reason": REASONS[0],
            "lacked_memory": False,
            "rank_loads": [0] * exchange.ranks,
            "home_loads": [0] * exchange.ranks,
        }

    def whole(self, also_if_nothing_moves: bool) -> None:
        """One chunk; none where nothing moves, unless that is wanted."""
        self._add(self.counted, 0, 1, also_if_nothing_moves=also_if_nothing_moves)
        self._note(REASONS[self.last["transfers"] > 0])

    def decide(self, finer: Callable[[], None]) -> None:
        """As the library decides under the layout's budget; `finer` is called before blocks are counted again."""
        self._decide(self.counted, finer)
        if self.last["chunks"] > 1 and not self.last["transfers"]:
            # Chunks so small that moving pays in none count as well, where the step as one would have moved work.
            counted = self.counted
            self.last["lacked_memory"] = self.layout.equal_chunk_bytes(*counted.asked(), self.ids.shape[1], 1)[1]

    def _decide(self, counted: Counted, finer: Callable[[], None]) -> None:
        """This ends: one token of each rank fits, with nothing moved (LayerBudget)."""
        layout = self.layout
        runs = [*layout.decide(*counted.asked(), self.ids.shape[1])]
        self._note(layout.reason)
        if not layout.plans_chunks:
            self.last["transfers"] += layout.decided_transfers
            loan = Loan(self.exchange, layout.loan) if layout.decided_transfers else None
            for first, last, _ in runs:
                self._add(counted, first, last, loan=loan, shares=True)
            return
        for first, last, stays in sorted([*runs, *((first, last, None) for first, last in layout.refine)]):
            if stays is not None:
                self._add(counted, first, last, stays=stays)
            else:
                finer()
                begin, end = counted.bound(first), counted.bound(last)
                part = self.ids[begin:end]
                own, every = to_host(part, self.exchange.all_gather("counts", count(part, _BLOCKS, len(self.homes))))
                self._decide(Counted.of(begin, end, every, own), finer)

    def _add(
        self,
        counted: Counted,
        first: int,
        last: int,
        *,
        also_if_nothing_moves: bool = True,
        stays: bool = False,
        loan: Loan | None = None,
        shares: bool = False,
    ) -> None:
        """The chunk of these blocks, if any rank has tokens in them; a step without a budget is one of none, too.

        It `shares` the decided plan, or has one of its own, where with `stays` nothing moves.
        """
        start, stop = counted.bound(first), counted.bound(last)
        run = slice(first, last)
        own = np.ascontiguousarray(counted.own[start - counted.begin : stop - counted.begin])
        counts = np.ascontiguousarray(counted.counts[:, run].sum(axis=1))
        native: _native.StepRoutes | None
        if shares:
            native = self.layout.share(own, counts)
        else:
            native = self.layout.step(own, counts, stays, also_if_nothing_moves)
            self.last["transfers"] += self.layout.transfers
        if counted.tokens[:, run].any() or counted.tokens.shape[1] == 1:
            self._report(counts)
            if native is not None:
                self.chunks.append((start, stop, Routes(native, self.ids.device, stop - start), loan))

    def _note(self, reason: str) -> None:
        self.last["reason"] = max(self.last["reason"], reason, key=REASONS.index)
        self.last["lacked_memory"] = self.last["reason"].startswith("ep:")

    def _report(self, counts: np.ndarray) -> None:
        """A chunk as it has been planned; `counts` are its assignments `[P, E]`."""
        last, ranks = self.last, self.exchange.ranks
        at_home = np.bincount(self.homes, weights=counts.sum(axis=0), minlength=ranks).astype(np.int64).tolist()
        last["chunks"] += 1
        for name, loads in (("rank_loads", self.layout.rank_loads), ("home_loads", at_home)):
            last[name] = [total + load for total, load in zip(last[name], loads, strict=True)]
