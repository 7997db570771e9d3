"""A decision depends only on its inputs: thread ranks, process ranks and the function itself decide alike."""

from __future__ import annotations

import unittest
import warnings
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np
from budget_test import Shape, Step, budgets_of_error, experts
from processes import run_ranks
from threads import run_threads

import evenkeel as ek
from evenkeel import _native
from evenkeel.torch import SpillCosts

RANKS = 4
STEPS = 20


class Decision(NamedTuple):
    """The inputs of a decision, and its result."""

    budget: tuple[Any, ...]
    counts: np.ndarray  # [P, blocks, E]
    tokens: list[int]
    k: int
    chunks: list[tuple[int, int, bool]]
    refine: list[tuple[int, int]]
    plans_chunks: bool
    reason: str
    plan: tuple[Any, ...]

    def answer(self) -> tuple[Any, ...]:
        return self.chunks, self.refine, self.plans_chunks, self.reason, self.plan


class Recorded:
    """Wraps a layer's layout and records its decisions."""

    def __init__(self, layout: _native.StepLayout) -> None:
        self.layout, self.made = layout, list[Decision]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.layout, name)

    def set_budget(self, phases: list[_native.PhaseBytes], *rest: Any, training: bool) -> None:
        self.budget = ([phase.to_list() for phase in phases], *rest, training)
        self.layout.set_budget(phases, *rest, training=training)

    def decide(self, counts: np.ndarray, tokens: list[int], k: int) -> list[tuple[int, int, bool]]:
        self.made.append(asked(self.layout, self.budget, counts, tokens, k))
        return self.made[-1].chunks


def asked(
    layout: _native.StepLayout, budget: tuple[Any, ...], counts: np.ndarray, tokens: list[int], k: int
) -> Decision:
    chunks = [*layout.decide(counts, tokens, k)]
    plan = (layout.decided_transfers, layout.loan.borrowed, layout.loan.lent) if not layout.plans_chunks else ()
    return Decision(budget, counts.copy(), tokens, k, chunks, layout.refine, layout.plans_chunks, layout.reason, plan)


def case(seed: int) -> tuple[Shape, float, Any]:
    """A shape, where the budget lies between the least (0) and that of one chunk (1), and options."""
    random = np.random.default_rng(seed)
    shape = Shape(
        ranks=RANKS,
        experts=int(random.choice([8, 12, 16])),
        k=int(random.integers(1, 4)),
        hidden=16,
        width=int(random.choice([16, 96])),
        tokens=int(random.integers(40, 100)),
        hot=float(random.choice([0.0, 0.5, 0.95])),
    )
    costs = [
        {"costs": SpillCosts(1e-6, 1e-5, 1e-6)},
        {"costs": SpillCosts(1e-5, 1e-7, 1e-7)},
        {"imbalance_threshold": 1.1},
    ]
    return shape, float(random.random()), {"min_segment": 4} | costs[seed % 3]


def layers(rank: int, ranks: int) -> list[list[Decision]]:
    """Runs each step forward and backward; returns this rank's decisions by step."""
    warnings.simplefilter("ignore")  # warnings of budgets too small to balance
    found = []
    for seed in range(STEPS):
        shape, between, options = case(seed)
        step = Step(rank, shape)
        step.options = options
        said = budgets_of_error(step)
        layer = step.layer(budget=int(said.least + between * (said.step[1] - said.least)))
        recorded = layer._layout = layer._budget.layout = Recorded(layer._layout)  # type: ignore[assignment]
        layer(step.hidden, step.ids, step.top_k, experts, step.weights).sum().backward()
        found.append(recorded.made)
    return found


def layout_of(seed: int, rank: int, budget: tuple[Any, ...]) -> _native.StepLayout:
    shape, _, options = case(seed)
    placement = ek.Placement.contiguous(1, shape.experts, RANKS)._native
    threshold = round(1000 * options.get("imbalance_threshold", 1))
    layout = _native.StepLayout(placement, 0, rank, "level", 1000, options["min_segment"], threshold)
    if "costs" in options:
        layout.set_costs(*astuple(options["costs"]))
    phases, *rest, training = budget
    layout.set_budget([_native.PhaseBytes(*phase) for phase in phases], *rest, training=training)
    return layout


class OneDecisionTest(unittest.TestCase):
    threads: list[list[list[Decision]]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.threads = run_threads(RANKS, layers)

    def test_threads_processes_and_the_function_decide_alike(self) -> None:
        processes, threads = run_ranks(RANKS, layers), self.threads
        kinds = set()
        for seed in range(STEPS):
            for rank in range(RANKS):
                ran, other = processes[rank][seed], threads[rank][seed]
                self.assertEqual([each.answer() for each in ran], [each.answer() for each in other], f"step {seed}")
                for each in ran:
                    alone = asked(layout_of(seed, rank, each.budget), each.budget, each.counts, each.tokens, each.k)
                    self.assertEqual(alone.answer(), each.answer(), f"step {seed}")
                    kinds.add((each.reason, each.plans_chunks, len(each.chunks) > 1))
        self.assertGreaterEqual(len(kinds), 4, kinds)

    def test_ranks_decide_alike_whatever_they_decided_before(self) -> None:
        """Makes 2,000 decisions on random routings, each by a layout with earlier decisions and by a new one."""
        for seed, made in enumerate(self.threads[0]):
            random, each = np.random.default_rng(seed), made[0]
            called = layout_of(seed, 0, each.budget)
            for i in range(2000 // STEPS):
                share = random.dirichlet(np.full(each.counts.shape[2], random.choice([0.1, 1.0, 10.0])))
                tokens = random.integers(0, 2 * max(each.tokens), RANKS).tolist()
                blocks = each.counts.shape[1]
                of_block = np.array([[n * (b + 1) // blocks - n * b // blocks for b in range(blocks)] for n in tokens])
                counts = random.multinomial(of_block * each.k, share).astype(np.int64)
                new = layout_of(seed, i % RANKS, each.budget)
                answers = [asked(layout, each.budget, counts, tokens, each.k) for layout in (called, new)]
                self.assertEqual(*(answer.answer()[:4] for answer in answers), f"step {seed}, routing {i}")


if __name__ == "__main__":
    unittest.main()
