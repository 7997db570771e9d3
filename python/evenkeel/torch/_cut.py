"""Cuts one step's tokens into chunks: counts them on all ranks, then plans, with the same result on every rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from .. import _native
from ._exchange import Exchange, Rows, gather_numbers, invalid_on_all, to_device
from ._loan import Loan
from ._routes import Routes

_BLOCKS = 32
"""Under a budget, tokens are counted in so many blocks; chunks are runs of blocks."""

REASONS = ("nothing moves", "as planned", "ep: faster", "ep: no memory")
"""The reasons of a decision (evenkeel/step/step_reason.h); several chunks report the last one in this order."""


Decision: TypeAlias = Generator[torch.Tensor, np.ndarray, None]
"""A generator that decides on a step: it yields this rank's counts of some blocks and is sent those of all ranks."""


def decide_together(exchange: Exchange, decisions: Sequence[Decision]) -> None:
    """Collective: runs all decisions together; one message per round gathers what they yield."""
    active: list[tuple[Decision, Any]] = [(each, None) for each in decisions]
    while active:
        pending = []
        for each, every in active:
            with suppress(StopIteration):
                pending.append((each, each.send(every)))
        of_all = gather_numbers(exchange, "counts", [mine for _, mine in pending]) if pending else []
        active = [(each, every) for (each, _), every in zip(pending, of_all, strict=True)]


def blocks_of(budget: int | None, bins: Sequence[int] | None) -> int:
    """The number of blocks in which a step's tokens are first counted."""
    return 1 if budget is None else math.lcm(*bins) if bins else _BLOCKS


def count_values(numbers: torch.Tensor, of: int) -> torch.Tensor:
    """Counts each of 0..of-1 like bincount(), which would wait for a device."""
    return numbers.new_zeros(of).scatter_add_(0, numbers, torch.ones_like(numbers))


def count(ids: torch.Tensor, blocks: int, experts: int, homes: np.ndarray | None = None) -> torch.Tensor:
    """Counts by block `[blocks, E + 2]`, 32 bits: assignments of each expert, invalid ids, and tokens.

    With `homes`, the rank of each expert, `[blocks, E + 2 + P]`: also tokens with an expert at home on each rank.
    """
    tokens = len(ids)
    bounds = torch.arange(blocks + 1, device=ids.device) * tokens // blocks
    flat = ids.reshape(-1)
    wrong = (flat < -1) | (flat >= experts)
    column = flat.masked_fill(wrong, experts).masked_fill(flat == -1, experts + 1)
    of_token = torch.bucketize(torch.arange(tokens, device=ids.device), bounds[1:], right=True)
    of_block = column.view(ids.shape) + of_token.unsqueeze(1) * (experts + 2)
    made = count_values(of_block.view(-1), blocks * (experts + 2)).to(torch.int32).view(blocks, experts + 2)
    made[:, -1] = bounds.diff()
    if homes is None:
        return made
    ranks = int(homes.max()) + 1
    home = to_device(np.append(homes, [ranks, ranks]), ids.device)[column].view(ids.shape)
    goes = made.new_zeros((tokens, ranks + 1)).scatter_(1, home, 1)
    return torch.cat([made, made.new_zeros((blocks, ranks + 1)).index_add_(0, of_token, goes)[:, :ranks]], dim=1)


class Counted(NamedTuple):
    """Tokens begin..end of every rank, in blocks."""

    begin: int
    end: int
    counts: np.ndarray  # [P, blocks, E]
    tokens: np.ndarray  # [P, blocks]
    rows: np.ndarray  # [P, blocks, P], tokens with an expert at home on each rank; [P, blocks, 0] if not counted

    @staticmethod
    def of(begin: int, end: int, counts: np.ndarray, experts: int) -> Counted:
        """Made from the results of `count` on all ranks.

        Raises:
            InvalidArgument: on every rank, if any rank has an id that is no expert's.
        """
        bad = counts[:, :, experts].sum(axis=1)
        if bad.any():
            rank = int(bad.argmax())
            why = f"{int(bad[rank])} expert ids of rank {rank} are outside -1..{experts - 1}"
            raise invalid_on_all("top_k_index", why, "the model's expert ids, over all ranks")
        parts = counts[:, :, :experts], counts[:, :, experts + 1], counts[:, :, experts + 2 :]
        return Counted(begin, end, *(found.astype(np.int64) for found in parts))

    def counts_and_tokens(self) -> tuple[np.ndarray, list[int]]:
        """The counts, and each rank's tokens."""
        return self.counts, self.tokens.sum(axis=1).tolist()

    def bound(self, block: int) -> int:
        """This rank's first token of a block."""
        return self.begin + (self.end - self.begin) * block // self.tokens.shape[1]


class Cut:
    """One step's chunks, made from its `counted` tokens; `homes` are the experts' ranks.

    `last` becomes `ExpertParallel.last`.
    """

    def __init__(
        self, exchange: Exchange, layout: _native.StepLayout, homes: np.ndarray, ids: torch.Tensor, counted: Counted
    ) -> None:
        self.exchange, self.layout, self.homes, self.ids, self.counted = exchange, layout, homes, ids, counted
        self.chunks: list[tuple[int, int, Routes, Loan | None]] = []
        self.one_by_one = False
        """Whether experts at home are called one by one."""
        self.budgeted: Any = None
        """The kind of step, its sizes and its budget in bytes (LayerBudget); None without a budget."""
        self.plans: list[tuple[Any, ...]] = []
        """By chunk, values that identify its plan, equal on every rank."""
        self.last: dict[str, Any] = {
            "training": torch.is_grad_enabled(),
            "chunks": 0,
            "transfers": 0,
            "reason": REASONS[0],
            "lacked_memory": False,
            "rank_loads": [0] * exchange.ranks,
            "home_loads": [0] * exchange.ranks,
        }

    def whole(self) -> None:
        """Makes one chunk."""
        self._add(self.counted, 0, 1)
        self._note(REASONS[self.last["transfers"] > 0])

    def slots(self, held: bool) -> _native.SlotTables:
        """The slots of one chunk, whose rows another dispatcher carries. Keeps `held` slots if loads allow it."""
        counts = np.ascontiguousarray(self.counted.counts[:, 0])
        tables = self.layout.held_slots(counts) if held else self.layout.slots(counts)
        self.last["transfers"] = self.layout.transfers
        self._report(counts)
        self._note(REASONS[tables.moves])
        return tables

    def decide(
        self, finer: Callable[[], None], most_together: float, set_one_by_one: Callable[[bool], None]
    ) -> Decision:
        """Makes the chunks that the library chooses under the layout's budget.

        `finer` is called before blocks are counted again. If a step cannot be balanced in `most_together` chunks,
        experts are called one by one, unless that takes more memory. `set_one_by_one` switches the budget to such
        calls.
        """
        runs = self._runs(self.counted)
        together = self._balanced_in(runs)
        if together > most_together:
            set_one_by_one(True)
            runs = self._runs(self.counted)
            self.one_by_one = self._balanced_in(runs) <= together
            if not self.one_by_one:  # single calls together may keep more
                set_one_by_one(False)
                runs = self._runs(self.counted)
        yield from self._carry_out(self.counted, runs, finer)
        if self.last["chunks"] > 1 and not self.last["transfers"]:
            # Memory is also lacking if chunks are too small for moving to pay but the whole step would move work.
            counted = self.counted
            whole = self.layout.equal_chunk_bytes(*counted.counts_and_tokens(), self.ids.shape[1], 1)
            self.last["lacked_memory"] = whole[1]

    def _runs(self, counted: Counted) -> list[tuple[int, int, bool]]:
        """The layout's decision: first and end block of each chunk, and whether nothing moves in it."""
        return [*self.layout.decide(*counted.counts_and_tokens(), self.ids.shape[1])]

    def _balanced_in(self, runs: list[tuple[int, int, bool]]) -> float:
        """The number of chunks if the step is balanced; infinite if it is not, or blocks must be counted again."""
        return math.inf if self.layout.reason == REASONS[-1] or len(self.layout.refine) > 0 else len(runs)

    def _carry_out(self, counted: Counted, runs: list[tuple[int, int, bool]], finer: Callable[[], None]) -> Decision:
        """Makes the chunks. The recursion ends, since one token of each rank fits with nothing moved (LayerBudget)."""
        layout = self.layout
        self._note(layout.reason)
        if not layout.plans_chunks:
            self.last["transfers"] += layout.decided_transfers
            loan = Loan(self.exchange, layout.loan, layout.lending()) if layout.decided_transfers else None
            for first, last, _ in runs:
                self._add(counted, first, last, loan=loan, shares=True)
            return
        for first, last, nothing_moves in sorted([*runs, *((first, last, None) for first, last in layout.refine)]):
            if nothing_moves is not None:
                self._add(counted, first, last, nothing_moves=nothing_moves)
            else:
                finer()
                begin, end = counted.bound(first), counted.bound(last)
                every = yield count(self.ids[begin:end], _BLOCKS, len(self.homes), self.homes)
                part = Counted.of(begin, end, every, len(self.homes))
                yield from self._carry_out(part, self._runs(part), finer)

    def _add(
        self,
        counted: Counted,
        first: int,
        last: int,
        *,
        nothing_moves: bool = False,
        loan: Loan | None = None,
        shares: bool = False,
    ) -> None:
        """Adds the chunk of these blocks, if any rank has tokens in them or the step has no budget.

        The chunk `shares` the decided plan or has its own plan; with `nothing_moves` nothing moves in it.
        """
        start, stop = counted.bound(first), counted.bound(last)
        run = slice(first, last)
        counts = np.ascontiguousarray(counted.counts[:, run].sum(axis=1))
        tables = self.layout.share(counts) if shares else self.layout.step(counts, nothing_moves)
        moves = self.layout.transfers > 0
        if not shares:
            self.last["transfers"] += self.layout.transfers
            loan = None
            if moves:
                loan = Loan(self.exchange, self.layout.step_loan, self.layout.step_lending(), several=False)
        if not counted.tokens[:, run].any() and counted.tokens.shape[1] > 1:
            return
        self._report(counts)
        self.plans.append((*counted.tokens[:, run].sum(axis=1), *self.layout.rank_loads, self.layout.transfers, shares))
        rows = None if moves else self._rows_at_home(counted.rows[:, run].sum(axis=1))
        self.chunks.append((start, stop, Routes(tables, stop - start, rows), loan))

    def note_nodes(self) -> None:
        """Reports what crossed links between nodes. Called once the chunks' indices are made."""
        rows = [routes.levels for _, _, routes, _ in self.chunks if routes.levels is not None]
        loans = dict.fromkeys(loan for _, _, _, loan in self.chunks)
        weights = [loan.lending.levels for loan in loans if loan is not None and loan.lending is not None]
        for name, levels in (("rows", rows), ("weights", weights)):
            self.last[f"{name}_between_nodes"] = sum(each.between for each in levels)
            self.last[f"{name}_within_nodes"] = sum(each.within for each in levels)

    def _rows_at_home(self, goes: np.ndarray) -> Rows:
        """Rows sent if nothing moves; `goes` `[P, P]` counts each rank's tokens with an expert at home on each rank."""
        goes = goes * (1 - np.eye(len(goes), dtype=np.int64))
        me = self.exchange.rank
        return Rows(goes[me].tolist(), goes[:, me].tolist())

    def _note(self, reason: str) -> None:
        self.last["reason"] = max(self.last["reason"], reason, key=REASONS.index)
        self.last["lacked_memory"] = self.last["reason"].startswith("ep:")

    def _report(self, counts: np.ndarray) -> None:
        """Adds a planned chunk to `last`; `counts` are its assignments `[P, E]`."""
        last, ranks = self.last, self.exchange.ranks
        at_home = np.bincount(self.homes, weights=counts.sum(axis=0), minlength=ranks).astype(np.int64).tolist()
        last["chunks"] += 1
        for name, loads in (("rank_loads", self.layout.rank_loads), ("home_loads", at_home)):
            last[name] = [total + load for total, load in zip(last[name], loads, strict=True)]
