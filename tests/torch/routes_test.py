"""Indices made on the device compute each assignment once; the host's reads in a step are counted."""

from __future__ import annotations

import unittest
from dataclasses import fields
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from layer_test import all_weights, at_home, experts, inputs, routing
from processes import run_ranks
from threads import run_threads

import evenkeel as ek
from evenkeel import _native
from evenkeel.torch import ExpertParallel
from evenkeel.torch._cut import count
from evenkeel.torch._exchange import Exchange, HostReads, to_host
from evenkeel.torch._routes import Indices, Routes, Rows


class OfRank(NamedTuple):
    """The results of one rank; `slots` lists the experts in its slots."""

    at: dict[str, np.ndarray]
    rows: Rows
    counts: tuple[list[int], list[int]]
    slots: list[int]
    load: int
    borrowed: int


def made(rank: int, ranks: int, seed: int) -> bool:
    """Returns whether work moved. Each rank checks the results of all ranks."""
    random = np.random.default_rng(seed)
    num_experts, k = int(random.integers(ranks, 3 * ranks + 1)), int(random.integers(1, 4))
    ids = routing(seed, ranks, num_experts, k)
    homes = np.concatenate([np.arange(ranks), random.integers(0, ranks, num_experts - ranks)])
    placement = ek.Placement(homes[None], ranks)
    layout = _native.StepLayout(placement._native, 0, rank, "level", 1000, 1, 1000)
    counts = np.stack([to_host(count(each, 1, num_experts))[0, :num_experts] for each in ids]).astype(np.int64)
    tables = layout.step(counts, False)
    routes = Routes(tables, len(ids[rank]), None)
    at = routes.open(Exchange(None), ids[rank])
    assert routes.rows is not None
    slots = [*np.flatnonzero(homes == rank).tolist(), *layout.step_loan.borrowed]
    mine = OfRank(
        {field.name: getattr(at, field.name).numpy() for field in fields(Indices)},
        routes.rows,
        (tables.sent_counts, tables.received_counts),
        slots,
        layout.rank_loads[rank],
        int((homes == rank).sum()),
    )
    every: list[Any] = [None] * ranks
    dist.all_gather_object(every, mine)
    check([each.numpy() for each in ids], every, k)
    return bool(layout.transfers)


def pieces(whole: np.ndarray, counts: list[int]) -> list[np.ndarray]:
    assert len(whole) == sum(counts)
    return np.split(whole, np.cumsum(counts)[:-1])


def check(ids: list[np.ndarray], every: list[OfRank], k: int) -> None:
    computed = [np.zeros(of.size, dtype=int) for of in ids]
    for me, here in enumerate(every):
        positions = [(me, int(a)) for a in here.at["own_positions"]]
        pool = [(me, token) for token in range(len(ids[me]))]
        for source, there in enumerate(every):
            sent = pieces(there.at["sent_positions"], there.counts[0])[me]
            rows = pieces(there.at["sent_rows"], there.rows.sent)[me]
            assert (len(sent), len(rows)) == (here.counts[1][source], here.rows.received[source])
            assert np.array_equal(rows, np.unique(sent // k)), "a row is sent twice, or not"
            positions += [(source, int(a)) for a in sent]
            pool += [(source, int(token)) for token in rows]
        order = here.at["order"]
        assert len(order) == len(positions) == here.load
        assert np.array_equal(here.at["computed_at"][order], np.arange(len(order)))
        keys = []
        for number, slot, row in zip(order, here.at["slots"], here.at["pool_rows"], strict=True):
            source, assignment = positions[number]
            computed[source][assignment] += 1
            assert ids[source].flat[assignment] == here.slots[slot]
            assert pool[row] == (source, assignment // k)
            keys.append((slot, source, assignment))
        assert keys == sorted(keys)
        results = [*here.at["sent_positions"], *here.at["own_positions"]]
        for assignment, expert in enumerate(ids[me].flat):
            result = here.at["result_of"][assignment]
            assert result == len(results) if expert < 0 else results[result] == assignment
    for of, times in zip(ids, computed, strict=True):
        assert np.array_equal(times, of.reshape(-1) >= 0)


def all_made(rank: int, ranks: int) -> int:
    return sum(made(rank, ranks, seed) for seed in range(60))


def reads(rank: int, ranks: int) -> list[tuple[int, int, int]]:
    """For each step: the host's reads in forward, their bytes, and its reads in backward."""
    found, num_experts, k = [], 8, 2
    layer = ExpertParallel(num_experts, imbalance_threshold=1.0, min_segment=1)
    weights = at_home(all_weights(0, num_experts), rank, ranks)
    even = torch.arange(32 * k).view(-1, k) % num_experts
    for ids in (even, even, torch.zeros_like(even)):  # the first step makes space for counts
        hidden, top_k, grad = inputs(0, rank, ids)
        before = HostReads.count, HostReads.bytes
        with mock.patch("evenkeel.torch._agreement.on_host", lambda _: False):
            out = layer(hidden.requires_grad_(), ids, top_k, experts, weights)
            forward = HostReads.count - before[0], HostReads.bytes - before[1]
            out.backward(grad)
        found.append((*forward, HostReads.count - before[0] - forward[0]))
    return found[1:]


class RoutesTest(unittest.TestCase):
    def test_every_assignment_is_computed_once_on_its_tokens_row(self) -> None:
        for ranks in (1, 2, 3, 5):
            moved = run_threads(ranks, all_made)
            self.assertEqual(len(set(moved)), 1)
            self.assertEqual(moved[0] > 10, ranks > 1, moved)

    def test_the_host_reads_counts_and_where_work_moves_numbers_of_rows(self) -> None:
        for nothing_moves, moves in run_ranks(2, reads):
            of_counts = 4 * 2 * (8 + 2 + 7)  # bytes: P ranks, each with E expert counts, P row counts, and the head
            self.assertEqual(nothing_moves, (1, of_counts, 0))
            self.assertEqual(moves, (2, of_counts + 8 * 2, 0))


if __name__ == "__main__":
    unittest.main()
