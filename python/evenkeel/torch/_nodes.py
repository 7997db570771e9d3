"""Ranks by node: a row or weight that several ranks of another node want crosses the link once and is passed on there.

Among the ranks of a node that want the same row or weight, the gateway is the first one, counted from the sender's own
place. The sender sends to the gateway, which passes it on. So the senders of one node load the ranks of another evenly.

Only rows and weights sent out use these two levels. Results and gradients return directly, since a sum in between would
change the rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist

from .._arguments import invalid, number, quoted
from ._exchange import Exchange
from ._peers import host_name

if TYPE_CHECKING:
    from ._agreement import Agreement

Members: TypeAlias = tuple[tuple[int, ...], ...]
"""The ranks of each node of a group."""

NodesOfRanks: TypeAlias = int | Sequence[Sequence[int]] | Literal["hosts"]
"""As given by users: ranks per node, filled in order; the ranks of each node; or the hosts of the processes."""

_RIGHT = 'ranks per node, like 8, the ranks of each node, like [[0, 1], [2, 3]], or "hosts"'


def checked_nodes(nodes: NodesOfRanks) -> int | Members | Literal["hosts"]:
    if isinstance(nodes, str) and nodes == "hosts":
        return "hosts"
    if not isinstance(nodes, Sequence):
        return number(nodes, "nodes", 1)
    listed: Sequence[Sequence[int]] = () if isinstance(nodes, str) else nodes
    if len(listed) == 0 or not all(isinstance(node, Sequence) and len(node) > 0 for node in listed):
        raise invalid("nodes", quoted(nodes), _RIGHT)
    return tuple(tuple(number(rank, "nodes", 0) for rank in node) for node in listed)


def members_of(nodes: int | Sequence[Sequence[int]], ranks: int) -> Members:
    """The nodes of a group of so many ranks. Each rank must be in exactly one node."""
    if isinstance(nodes, int):
        if ranks % nodes:
            why = f"{nodes} ranks per node do not divide {ranks} ranks"
            raise invalid("nodes", why, f"a divisor of {ranks}, or the ranks of each node")
        return tuple(tuple(range(first, first + nodes)) for first in range(0, ranks, nodes))
    times = Counter(rank for node in nodes for rank in node)
    for rank in sorted({*range(ranks), *times}):
        if times[rank] != 1 or rank >= ranks:
            why = "is not in the group" if rank >= ranks else "is in no node" if times[rank] == 0 else "is named twice"
            raise invalid("nodes", f"rank {rank} {why}", f"each of the ranks 0..{ranks - 1} once")
    return tuple(tuple(node) for node in nodes)


class Nodes:
    """A group's ranks by node, from this rank's view.

    A rank's place is its number in its node. `gateway_order[sender, rank]` is the rank's turn as a gateway of this sender:
    of the ranks that want a row, the one with the least number is its gateway.
    """

    def __init__(self, members: Sequence[Sequence[int]], rank: int, group: dist.ProcessGroup | None) -> None:
        self.members, self.group, ranks = members, group, sum(map(len, members))
        self.node_of, self.place_of = np.empty(ranks, np.int64), np.empty(ranks, np.int64)
        for node, of_node in enumerate(members):
            self.node_of[of_node], self.place_of[of_node] = node, np.arange(len(of_node))
        self.size = max(map(len, members))
        sizes = np.array([len(of_node) for of_node in members])[self.node_of]
        self.gateway_order = (self.place_of - self.place_of[:, None]) % sizes
        self.slot_of = self.node_of * self.size + self.place_of
        self.rank, self.node, self.place = rank, int(self.node_of[rank]), int(self.place_of[rank])
        self.mine = members[self.node]
        self.near = self.node_of == self.node
        self.passes = len(members) > 1 and self.size > 1
        """Whether there is anything to pass on; equal on all ranks."""

    @property
    def copies(self) -> int:
        """The most ranks to which a gateway passes on a row or weight."""
        return self.size - 1 if self.passes else 0


_made: WeakKeyDictionary[dist.ProcessGroup, dict[Members, Nodes]] = WeakKeyDictionary()


def find_nodes(exchange: Exchange, agreement: Agreement, given: NodesOfRanks | None, device: torch.device) -> None:
    """Sets the layer's nodes. Collective at its first step, once options are known to be equal. Layers share groups."""
    if given is None or exchange.nodes is not None:
        return
    if given == "hosts":
        hosts = agreement.texts("nodes", host_name(), device)
        members = tuple(tuple(r for r, at in enumerate(hosts) if at == each) for each in dict.fromkeys(hosts))
    else:
        members = members_of(given, exchange.ranks)
    of_group = _made.setdefault(exchange.process_group, {})
    if members not in of_group:
        of_group[members] = _grouped(exchange, members, device)
    exchange.nodes = of_group[members]


def _grouped(exchange: Exchange, members: Members, device: torch.device) -> Nodes:
    group = exchange.process_group
    known = dist.get_process_group_ranks(group)
    nodes = Nodes([sorted(of_node, key=known.__getitem__) for of_node in members], exchange.rank, None)
    if nodes.passes and len(nodes.mine) > 1:
        options = getattr(group._get_backend(device), "options", None)
        nodes.group = dist.new_group(
            [known[rank] for rank in nodes.mine],
            timeout=getattr(options, "_timeout", None),  # the group's own: it ends a wait for a dead rank
            backend=dist.get_backend_config(group),
            use_local_synchronization=True,
        )
    return nodes
