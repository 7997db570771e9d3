"""Faults on subgroups, and what is told of them. Faults in every phase, by the hundred: fault_storm_test.py."""

from __future__ import annotations

import gc
import threading
import time
import unittest
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from layer_test import all_weights, experts, inputs
from processes import run_ranks

from evenkeel.errors import CommError
from evenkeel.torch import ExpertParallel
from evenkeel.torch._exchange import Exchange
from evenkeel.torch._faults import Place, Verdict

EXPERTS, K, TOKENS = 6, 2, 12


class Step:
    """A step of a layer in which weights move: most tokens are routed to one expert."""

    def __init__(self, rank: int, ranks: int, group: dist.ProcessGroup) -> None:
        self.layer = ExpertParallel(EXPERTS, group, imbalance_threshold=0.0, min_segment=1, name="7")
        self.ids = torch.randint(EXPERTS, (TOKENS, K), generator=torch.Generator().manual_seed(rank))
        self.ids[torch.arange(TOKENS) % 4 != 0] = 1
        whole = all_weights(0, EXPERTS)
        at = slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
        self.weights = {name: weight[at].clone().requires_grad_() for name, weight in whole.items()}
        self.hidden, self.top_k, self.grad = inputs(0, rank, self.ids)
        self.hidden.requires_grad_(), self.top_k.requires_grad_()

    def run(self, computed_by: Callable[..., torch.Tensor]) -> None:
        made = self.layer(self.hidden, self.ids, self.top_k, computed_by, self.weights)
        assert self.layer.last["transfers"] > 0
        made.backward(self.grad)


def raising(*_: Any) -> torch.Tensor:
    raise ValueError("rows of another planet")


def on_subgroups(rank: int, ranks: int) -> list[str]:
    """What this rank met: on a group of all but rank 0 whose last rank fails, then on a group like it."""
    met = []
    for fails in (True, False):
        threads = threading.active_count()
        group = dist.new_group(list(range(1, ranks)))
        if rank == 0:
            continue
        step = Step(rank - 1, ranks - 1, group)
        try:
            step.run(raising if fails and rank == ranks - 1 else experts)
            met.append("none")
        except (CommError, ValueError) as error:
            met.append(str(error))
        dist.destroy_process_group(group)
        del group, step
        gc.collect()
        for _ in range(100):
            if threading.active_count() > threads:
                time.sleep(0.02)
        assert threading.active_count() == threads, "the thread outlives its group"
    return met


def told_of_a_fault(rank: int, ranks: int) -> list[str]:
    """What rank 1 gets of a collective that rank 0 is late for, where it hears meanwhile of a fault before or after it."""
    exchange = Exchange(None, "7")
    exchange.all_gather("counts", torch.zeros(1))
    met = []
    for first in (3, 2):  # the collective below is the second, then the third
        if rank == 0:
            time.sleep(0.8)
        else:
            faults = exchange._faults(torch.device("cpu"))
            told = Verdict(0, Place(first, "counts", "7", "forward"), "rank 0 failed", first)
            threading.Timer(0.1, setattr, (faults, "verdict", told)).start()
        try:
            met.append(str(exchange.all_gather("counts", torch.ones(1)).sum().item()))
            exchange._faults(torch.device("cpu")).verdict = None
        except CommError as error:
            met.append(str(error))
    return met


class FaultsTest(unittest.TestCase):
    def test_a_collective_that_all_came_to_ends_though_a_later_one_failed(self) -> None:
        done, failed = run_ranks(2, told_of_a_fault)[1]
        self.assertEqual(done, "2.0")
        self.assertIn("rank 0 failed", failed)

    def test_ranks_are_those_of_the_group(self) -> None:
        first, *others, last = run_ranks(3, on_subgroups)
        self.assertEqual(first, [])
        for met in others:
            self.assertIn("rank 1 (global rank 2) failed (ValueError: rows of another planet)", met[0])
            self.assertEqual(met[1], "none")
        self.assertEqual(last, ["rows of another planet", "none"])


if __name__ == "__main__":
    unittest.main()
