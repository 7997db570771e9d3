"""The indices of one chunk's rows and positions. The host computes runs of them from counts
(evenkeel/plan/route_tables.h); a sort of the ids on their own device does the rest.

A position is one assignment on the rank that computes it. A row is one token's hidden state; it is sent to a rank once,
however many of its positions are there. Rows are sent in the order of destinations, then of tokens. The positions that
a rank computes are numbered: those of its own tokens first, then those received. They read their rows from the pool:
this rank's tokens, then received rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike

from .. import _native
from ._exchange import Exchange, Rows, to_device, to_host
from ._levels import Levels, OutgoingRows, arrivals


@dataclass
class Indices:
    """Device tensors that live while the chunk is computed, or until backward if the chunk is kept."""

    sent_positions: torch.Tensor
    """This and the next: the assignment, token * k + place, of each position sent, and of each own position."""
    own_positions: torch.Tensor
    result_of: torch.Tensor
    """Of each assignment: its row among the results of positions sent, of own positions, and a row of zeros, used for
    assignments without an expert."""
    sent_rows: torch.Tensor
    """The token of each row sent."""
    order: torch.Tensor
    """Numbers of the positions here, in the order of computing: experts at home, then borrowed experts."""
    computed_at: torch.Tensor
    """The inverse of `order`."""
    slots: torch.Tensor
    """In the order of computing, like `pool_rows`, the rows of the pool that positions read."""
    pool_rows: torch.Tensor
    arrived_rows: torch.Tensor
    """Like `pool_rows`, for a pool in the order of arrival: with nodes, rows that were passed on come last."""
    sent_first: torch.Tensor
    """Tokens of the rows that this rank sends directly; with nodes only some of `sent_rows`."""
    passed: torch.Tensor
    """With nodes: the directly received rows that this rank passes on, by place."""


def in_order(ids: torch.Tensor, rule: ArrayLike) -> tuple[torch.Tensor, torch.Tensor]:
    """Assignments in the order of their experts, first those without an expert, and the rule's number for each."""
    order = ids.reshape(-1).argsort(stable=True)
    numbers, counts = to_device(rule, ids.device)
    return order, _spread(numbers, counts, len(order))


def _spread(numbers: torch.Tensor, counts: torch.Tensor, total: int) -> torch.Tensor:
    return numbers.repeat_interleave(counts, output_size=total)


def _inverse(order: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))


class Sent:
    """The positions and rows that this rank sends for a chunk with these ids `[tokens, k]`."""

    def __init__(self, tables: _native.RouteTables, ids: torch.Tensor) -> None:
        tokens, k = ids.shape
        self.positions = sum(tables.sent_counts)
        order, step = in_order(ids, tables.sent_rule(ids.numel()))
        step += torch.arange(ids.numel(), device=ids.device)
        self.position_of = torch.empty_like(step).scatter_(0, order, step)
        self.assignments = torch.empty_like(order).scatter_(0, step, order)
        del order, step
        ranks = torch.arange(len(tables.sent_counts), device=ids.device)
        rank = self.rank = _spread(ranks, to_device(tables.sent_counts, ids.device), self.positions)
        self.token = self.assignments[: self.positions] // k
        sends = self.sends = ids.new_zeros((len(ranks), tokens), dtype=torch.int32).index_put_(
            (rank, self.token), torch.ones((), dtype=torch.int32, device=ids.device)
        )
        """`[P, tokens]`, 1 if the token's row goes to the rank."""
        self.row_counts = sends.sum(1, dtype=torch.int32)
        """`[P]`, rows sent to each rank."""
        self.row_of = sends.cumsum(1, dtype=torch.int32)[rank, self.token] - 1
        """The row of each position sent, numbered among the rows to its rank."""
        before = self.row_counts.cumsum(0) - self.row_counts
        self.rows = torch.empty_like(self.token).scatter_(0, self.row_of + before[rank], self.token)
        """The token of each row; undefined behind the last row."""


class Routes:
    """One chunk's routes, as far as the host knows them."""

    def __init__(self, tables: _native.RouteTables, tokens: int, rows: Rows | None) -> None:
        self.tables, self.tokens, self.rows = tables, tokens, rows
        """`rows` are known if nothing moves or if read before; otherwise the first `open` reads them."""
        self.sent_counts, self.received_counts = tables.sent_counts, tables.received_counts
        self.own, self.native_positions = tables.own, tables.native_positions
        self.levels: Levels | None = None
        """With nodes: set by the first `open`."""

    def rows_at_home(self, experts: int) -> list[int]:
        """The number of positions of each expert at home."""
        _, slots, counts = self.tables.computed_rule()
        made = np.zeros(experts, np.int64)
        np.add.at(made, slots[slots < experts], counts[slots < experts])
        return made.tolist()

    def open(self, exchange: Exchange, ids: torch.Tensor) -> Indices:
        """Makes the indices. Collective: if work moves, counts do not tell how many rows go to a rank or node, since a
        token's row goes there only once."""
        sent, device = Sent(self.tables, ids), ids.device
        outgoing = None if exchange.nodes is None else OutgoingRows(exchange.nodes, sent)
        del sent.sends, sent.rank  # large and not needed any more
        if outgoing is not None and self.levels is None:
            self.rows, self.levels = outgoing.count(exchange)
        elif self.rows is None:
            (self.rows,) = read_rows(exchange, [sent.row_counts])
        announced = sent.row_of.unsqueeze(1) if outgoing is None else outgoing.announced
        announced = exchange.all_to_all("routes", announced, self.sent_counts, self.received_counts)
        begins = [self.tokens + sum(self.rows.received[:rank]) for rank in range(exchange.ranks)]
        begin_of, positions = to_device([begins, self.received_counts], device)
        own = sent.assignments[sent.positions : sent.positions + self.own]
        row_of = announced[:, 0] + _spread(begin_of, positions, len(announced))
        sent_rows = sent.rows[: sum(self.rows.sent)]
        pool_rows = torch.cat([own // ids.shape[1], row_of])
        rule = to_device(self.tables.computed_rule(), device)
        order = _spread(rule[0], rule[2], len(pool_rows)) + torch.arange(len(pool_rows), device=device)
        pool_rows = pool_rows[order]
        at = Indices(
            sent_positions=sent.assignments[: sent.positions],
            own_positions=own,
            result_of=sent.position_of.clamp_(max=sent.positions + self.own),
            sent_rows=sent_rows,
            order=order,
            computed_at=_inverse(order),
            slots=_spread(rule[1], rule[2], len(order)),
            pool_rows=pool_rows,
            arrived_rows=pool_rows,
            sent_first=sent_rows,
            passed=sent_rows[:0],
        )
        if outgoing is not None and self.levels is not None:
            at.sent_first = outgoing.rows[: sum(self.levels.first.sent)]
            row_of -= self.tokens
            at.passed, arrives_at = arrivals(outgoing.nodes, self.levels, self.rows.received, row_of, announced[:, 1:])
            at.arrived_rows = torch.cat([torch.arange(self.tokens, device=device), self.tokens + arrives_at])[pool_rows]
        return at


def read_rows(exchange: Exchange, row_counts: list[torch.Tensor]) -> list[Rows]:
    """Rows sent and received for each chunk, from its `row_counts` `[P]`. Collective, with a read by the host."""
    sent = torch.stack(row_counts, dim=1)
    ones = [1] * exchange.ranks
    both = to_host(torch.stack([sent, exchange.all_to_all("rows", sent, ones, ones)]))
    return [Rows(*both[:, :, i].tolist()) for i in range(len(row_counts))]
