"""With nodes: which of a chunk's rows and lent weights cross a link, and which are passed on within the other node.

Arrivals are stored in this order: those sent directly by their own rank, by rank; then those passed on, by place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from .. import _native
from ._exchange import Exchange, Rows, to_device, to_host

if TYPE_CHECKING:
    from ._nodes import Nodes
    from ._routes import Sent


class Levels(NamedTuple):
    """How many rows or weights each of the two exchanges carries."""

    first: Rows  # directly sent ones, by rank of the group
    passed: Rows  # passed on, by place in this rank's node
    between: int  # over links between nodes, of all ranks
    within: int  # within nodes, of all ranks

    @property
    def arrival_counts(self) -> list[int]:
        """How many arrive here directly from their own ranks, and how many are passed on to this rank."""
        return [sum(self.first.received), sum(self.passed.received)]


class OutgoingRows:
    """The rows that this rank sends: which of them it sends itself, and which ranks want those passed on.

    Tensors by node are `[nodes, places, ...]`, with the places of the largest node.
    """

    def __init__(self, nodes: Nodes, sent: Sent) -> None:
        self.nodes, tokens, device = nodes, sent.sends.shape[1], sent.sends.device
        numbers = np.stack([nodes.node_of, nodes.slot_of, nodes.gateway_order[nodes.rank]])
        node_of, slot_of, order = to_device(numbers, device)
        slots, by_node = len(nodes.members) * nodes.size, (len(nodes.members), nodes.size)
        wants = sent.sends.new_zeros((slots, tokens)).index_copy_(0, slot_of, sent.sends).view(*by_node, tokens)
        order = order.new_zeros(slots).index_copy_(0, slot_of, order).view(*by_node, 1)
        late = torch.where(wants > 0, order, nodes.size).to(torch.int32)
        leads = wants * (late == late.amin(1, keepdim=True))
        leads[nodes.node] = wants[nodes.node]  # no link in between
        del late
        first = leads.view(slots, tokens).index_select(0, slot_of)
        counts = first.sum(1, dtype=torch.int32)
        at = first.cumsum(1, dtype=torch.int32)[sent.rank, sent.token] - 1 + (counts.cumsum(0) - counts)[sent.rank]
        at = torch.where(first[sent.rank, sent.token] > 0, at, len(at))
        self.rows = sent.token.new_empty(len(at) + 1).scatter_(0, at, sent.token)
        """Tokens of the rows that this rank sends directly, by rank; the rest is undefined."""
        wanted = wants.transpose(1, 2)[node_of[sent.rank], sent.token]
        self.announced = torch.cat([sent.row_of.unsqueeze(1), wanted], dim=1)
        """Sent with each position: which of this rank's rows it reads, and the places that want the row."""
        passes = torch.bmm(leads.double(), wants.double().transpose(1, 2))  # by gateway and place
        passes *= 1 - torch.eye(nodes.size, device=device)
        passes[nodes.node] = 0
        between = (counts * to_device(~nodes.near, device)).sum()
        totals = torch.stack([between, counts.sum() - between + passes.sum()]).expand(len(counts), 2)
        of_ranks = [each.reshape(slots, nodes.size)[slot_of] for each in (passes, passes.transpose(1, 2))]
        each_rank = torch.stack([sent.row_counts, counts], dim=1)
        self.numbers = torch.cat([each_rank, *of_ranks, totals], dim=1).to(torch.int32)
        """For each rank, rows: those it gets in all, directly from here, passes on, gets passed on; and totals."""

    def count(self, exchange: Exchange) -> tuple[Rows, Levels]:
        """Exchanges the numbers. Collective, with a read by the host."""
        ones, ranks, size = [1] * exchange.ranks, exchange.ranks, self.nodes.size
        received = exchange.all_to_all("rows", self.numbers, ones, ones)
        both = torch.stack([self.numbers[:, :2], received[:, :2]]).view(-1)
        read = to_host(torch.cat([both, received[:, 2:].sum(0, dtype=torch.int32)]))
        of_ranks, passed, totals = np.split(read, [4 * ranks, 4 * ranks + 2 * size])
        rows, first = (Rows(*of_ranks.reshape(2, ranks, 2)[:, :, i].tolist()) for i in range(2))
        in_node = Rows(*passed.reshape(2, size)[:, : len(self.nodes.mine)].tolist())
        return rows, Levels(first, in_node, *totals.tolist())


def arrivals(
    nodes: Nodes, levels: Levels, received: list[int], row_of: torch.Tensor, wanted: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which directly received rows this rank passes on, and where each received row is stored.

    `received` are the rows from each rank, `row_of` is the row of each position, `wanted` the places that want it.
    """
    rows, device = sum(received), row_of.device
    wants = wanted.new_zeros((rows, nodes.size))
    wants[row_of] = wanted
    of_ranks = np.full((len(received), 2 + nodes.size), nodes.size)
    of_ranks[:, 0], of_ranks[:, 1], of_ranks[:, 2 : 2 + len(nodes.mine)] = (
        received,
        nodes.near,
        nodes.gateway_order[:, nodes.mine],
    )
    of_sources = to_device(of_ranks, device)
    of_rows = of_sources.repeat_interleave(of_sources[:, 0], dim=0, output_size=rows)
    near, gateway_order = of_rows[:, 1] > 0, of_rows[:, 2:]
    gateway = torch.where(wants > 0, gateway_order, nodes.size).argmin(1)
    straight = near | (gateway == nodes.place)
    order = gateway.masked_fill(straight, -1).argsort(stable=True)
    arrives_at = torch.empty_like(order).scatter_(0, order, torch.arange(rows, device=device))
    passes = wants * (straight & ~near).unsqueeze(1)
    passes[:, nodes.place] = 0
    first = passes.t().reshape(-1).argsort(descending=True, stable=True)[: sum(levels.passed.sent)]
    return arrives_at[first % max(rows, 1)], arrives_at


class Lending(NamedTuple):
    """The weights of a loan in two levels, as this rank sends and receives them."""

    levels: Levels
    lent: list[int]  # home slots of the experts that it sends directly
    passed: list[int]  # which of the directly received experts it passes on
    arrives_at: list[int]  # where each borrowed expert is stored


def lending_of(nodes: Nodes, loan: _native.Loan, transfers: np.ndarray) -> Lending:
    """`transfers` `[T, 3]` of all ranks: expert, home and borrower."""
    node_of, place_of, me = nodes.node_of, nodes.place_of, nodes.rank
    moves = sorted((home, expert, to) for expert, home, to in transfers.tolist())
    wanting: dict[tuple[int, int], list[int]] = {}  # ranks, by expert and node
    for _, expert, to in moves:
        wanting.setdefault((expert, node_of[to]), []).append(to)

    def sender(home: int, expert: int, to: int) -> int:
        """The rank that sends the expert to this borrower: its home or a gateway."""
        gateway = min(wanting[expert, node_of[to]], key=nodes.gateway_order[home].__getitem__)
        return home if gateway == to or node_of[home] == node_of[to] else gateway

    first, passed = (Rows([0] * ranks, [0] * ranks) for ranks in (len(node_of), len(nodes.mine)))
    lent, passes = [], []
    mine = sorted((to, expert) for home, expert, to in moves if home == me)
    for slot, (to, expert) in zip(loan.lent, mine, strict=True):
        if sender(me, expert, to) == me:
            lent.append(slot)
            first.sent[to] += 1
    borrowed = [(home, expert, sender(home, expert, me)) for home, expert, to in moves if to == me]
    direct = [(home, expert) for home, expert, giver in borrowed if giver == home]
    for home, _, giver in borrowed:
        if giver == home:
            first.received[home] += 1
        else:
            passed.received[place_of[giver]] += 1
    for place, rank in enumerate(nodes.mine):
        for i, (home, expert) in enumerate(direct):
            if rank in wanting[expert, nodes.node] and sender(home, expert, rank) == me:
                passes.append(i)
                passed.sent[place] += 1
    late = [-1 if giver == home else place_of[giver] for home, _, giver in borrowed]
    arrives_at = np.argsort(np.argsort(late, kind="stable")).tolist()
    between = len({(expert, node_of[to]) for home, expert, to in moves if node_of[home] != node_of[to]})
    return Lending(Levels(first, passed, between, len(moves) - between), lent, passes, arrives_at)
