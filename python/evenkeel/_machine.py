"""The machine that experts are placed on, from the arguments `ranks`, `nodes` and `topology` of several functions."""

from __future__ import annotations

import os

from . import _native
from ._arguments import MOST_RANKS, file_path, invalid, number, words


def machine_of(ranks: int | None, nodes: int, topology: str | os.PathLike[str] | None) -> _native.Topology:
    if topology is None:
        if ranks is None:
            raise invalid("ranks", "is missing, and so is topology", "the number of ranks, or topology instead")
        return _native.Topology.uniform(number(ranks, "ranks", 1, MOST_RANKS), number(nodes, "nodes", 1, MOST_RANKS))
    if number(nodes, "nodes", 1, MOST_RANKS) != 1:
        raise invalid("nodes", "is already given by topology", "to leave it out")
    name = file_path(topology, "topology")
    file_like = os.path.exists(name) or "/" in name or name.endswith(".json")
    machine = _native.Topology.named(name) if file_like else _native.Topology.preset(words(name, "topology"))
    if ranks is not None and number(ranks, "ranks", 1, MOST_RANKS) != machine.num_ranks:
        raise invalid("ranks", f"{ranks}, but {name} has {machine.num_ranks} ranks", "to leave it out")
    return machine
