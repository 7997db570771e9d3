"""Chunks that share their step's plan: weights travel once a pass, and results match those of any other step.

These tests cut the steps themselves, whatever the layer's budget would decide.
"""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Callable
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from budget_test import SHAPES, Shape, Step, budgets_of_error, dropping, experts
from layer_test import check
from processes import run_ranks
from torch.utils.checkpoint import checkpoint

from evenkeel.torch import SpillCosts
from evenkeel.torch._cut import Cut
from evenkeel.torch._exchange import Exchange
from evenkeel.torch._loan import Loan

Cutter = Callable[..., Any]


def whole(chunks: int) -> Cutter:
    def decide(cut: Cut, *_: Any, **__: Any) -> None:
        loan = borrowed_for(cut, cut.counted.counts.sum(axis=1))
        for first, last in equal_runs(cut, chunks):
            cut._add(cut.counted, first, last, loan=loan, shares=True)

    return decide


def own(chunks: int) -> Cutter:
    """Each chunk with a plan of its own."""

    def decide(cut: Cut, *_: Any, **__: Any) -> None:
        for first, last in equal_runs(cut, chunks):
            cut._add(cut.counted, first, last)

    return decide


def mixed(cut: Cut, *_: Any, **__: Any) -> None:
    """Four chunks; the second has its own plan while the others' borrowed weights are held."""
    runs = equal_runs(cut, 4)
    others = cut.counted.counts.copy()
    others[:, slice(*runs[1])] = 0
    loan = borrowed_for(cut, others.sum(axis=1))
    for i, (first, last) in enumerate(runs):
        cut._add(cut.counted, first, last, loan=None if i == 1 else loan, shares=i != 1)


def equal_runs(cut: Cut, chunks: int) -> list[tuple[int, int]]:
    blocks = cut.counted.tokens.shape[1]
    return [(i * blocks // chunks, (i + 1) * blocks // chunks) for i in range(chunks)]


def borrowed_for(cut: Cut, counts: np.ndarray) -> Loan | None:
    cut.layout.plan_shares(counts)
    cut.last["transfers"] += cut.layout.decided_transfers
    return Loan(cut.exchange, cut.layout.loan) if cut.layout.decided_transfers else None


def cutting(cutter: Cutter) -> Any:
    return mock.patch.object(Cut, "decide", lambda *given, **named: cutter(*given, **named) or ())


def exact(rank: int, ranks: int, cutter: Cutter, seeds: list[int], planner: str) -> int:
    with cutting(cutter):
        options = {"planner": planner, "imbalance_threshold": 0.0, "budget": 2**40}
        return check(rank, ranks, seeds, options, num_experts=8, k=3)


class Sent(NamedTuple):
    phase: str
    direction: str
    bytes: int


def sending(run: Callable[[], Any]) -> tuple[list[Sent], Any]:
    """Runs `run` and records the collectives that carried weights and their gradients."""
    made, start = [], Exchange.start

    def recorded(self: Exchange, phase: str, rows: torch.Tensor, *rest: Any) -> Any:
        if "weight" in phase and "router" not in phase:
            made.append(Sent(phase, self.direction, rows.nbytes))
        return start(self, phase, rows, *rest)

    with mock.patch.object(Exchange, "start", recorded):
        return made, run()


def travels(rank: int, ranks: int, shape: Shape, chunks: int) -> list[list[Sent]]:
    """The weights sent by a step in one chunk, in chunks that share its plan, and in chunks with their own plans."""
    step = Step(rank, shape)

    def run(cutter: Cutter) -> list[Sent]:
        layer = step.layer(budget="1GiB")
        with cutting(cutter):
            sent, _ = sending(lambda: layer(step.hidden, step.ids, step.top_k, experts, step.weights).sum().backward())
        assert layer.last["transfers"] > 0
        return sent

    return [run(cutter) for cutter in (whole(1), whole(chunks), own(chunks))]


def cast_experts(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Uses products that autocast narrows; results have the rows' type."""
    gathered = rows.unsqueeze(1) @ weights["up"][slots]
    return (torch.nn.functional.silu(gathered) @ weights["down"][slots]).squeeze(1).to(rows.dtype)


def frozen_autocast_and_without_gradients(rank: int, ranks: int, shape: Shape) -> None:
    step = Step(rank, shape)
    step.weights["down"].requires_grad_(False)
    leaves = [step.hidden, step.top_k, step.weights["up"]]

    def run(cutter: Cutter, kind: str) -> list[torch.Tensor]:
        layer = step.layer(budget="1GiB")
        no_gradients = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(kind, torch.enable_grad)
        with cutting(cutter), no_gradients(), torch.autocast("cpu", torch.bfloat16, kind == "autocast"):
            sent, made = sending(lambda: layer(step.hidden, step.ids, step.top_k, cast_experts, step.weights))
            assert [each.phase for each in sent] == ["weights"] * 2, sent
        assert layer.last["transfers"] > 0
        if not made.requires_grad:
            return [made]
        sent, grads = sending(lambda: torch.autograd.grad(made.square().sum(), leaves))
        assert sum(each.phase == "weight gradients" for each in sent) == 1, sent
        return [made, *grads]

    for kind in ("gradients", "autocast", "no_grad", "inference"):
        for one, other in zip(run(whole(1), kind), run(whole(5), kind), strict=True):
            close = 5e-2 if kind == "autocast" else 1e-4
            scale = float(one.detach().abs().max())
            assert torch.allclose(one, other, rtol=close, atol=close * scale), f"{kind}: {(one - other).abs().max()}"


def dropout_of_other_plans(rank: int, ranks: int, shape: Shape) -> bool:
    """A checkpoint reruns the step in the same chunks, with other plans."""
    step = Step(rank, shape)
    layer = step.layer(budget="1GiB")
    with cutting(whole(4)):
        out = checkpoint(
            lambda hidden, top_k: layer(hidden, step.ids, top_k, dropping, step.weights),
            step.hidden,
            step.top_k,
            use_reentrant=False,
        )
    with cutting(own(4)):
        out.sum().backward()
    assert step.top_k.grad is not None
    return torch.allclose(out.sum(1), (step.top_k * step.top_k.grad)[:, 0], rtol=1e-3, atol=1e-3)


def bfloat16_sums(rank: int, ranks: int, shape: Shape, chunks: int) -> float:
    """The largest relative error, against f32, of the gradients of borrowed and native bf16 weights."""
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        step = Step(rank, shape)
        cast = [step.hidden, step.top_k, *step.weights.values()]
        hidden, top_k, *weights = (t.detach().bfloat16().to(dtype).requires_grad_() for t in cast)
        with cutting(whole(chunks)):
            layer = step.layer(budget="1GiB")
            made = layer(hidden, step.ids, top_k, experts, dict(zip(step.weights, weights, strict=True)))
        found.append([grad.float() for grad in torch.autograd.grad(made.sum(), weights)])
    return max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*found, strict=True))


def peaks_where_decided(rank: int, ranks: int, shape: Shape) -> list[tuple[int, int, bool]]:
    types = [(torch.float32, torch.float32), (torch.bfloat16, torch.bfloat16), (torch.bfloat16, torch.float32)]
    cases = itertools.product((2, 4, 8), types)
    return [peak_where_decided(rank, shape, chunks, *of_tensors) for chunks, of_tensors in cases]


def peak_where_decided(
    rank: int, shape: Shape, chunks: int, dtype: torch.dtype, routed: torch.dtype
) -> tuple[int, int, bool]:
    """The peak of a step, its budget, and whether its chunks shared a plan, if sending weights is expensive."""
    step = Step(rank, shape)
    step.options = {"min_segment": 4, "costs": SpillCosts(1e-6, 1e-5, 1e-6)}
    step.hidden, step.top_k = (
        t.detach().to(of).requires_grad_() for t, of in ((step.hidden, dtype), (step.top_k, routed))
    )
    step.weights = {name: w.detach().to(dtype).requires_grad_() for name, w in step.weights.items()}
    budget = budgets_of_error(step).step[chunks]
    layer = step.layer(budget=budget)
    sent, peak = sending(lambda: step.peak(layer))
    shares = layer.last["chunks"] > 1 and len(sent) == 3 * len(step.weights)
    return peak, budget, shares


class WholePlanTest(unittest.TestCase):
    def test_outputs_have_the_bits_and_gradients_the_numbers_of_one_process(self) -> None:
        for ranks, chunks, planner in (
            (1, 3, "level"),
            (2, 2, "level"),
            (2, 8, "least-loaded"),
            (3, 5, "level"),
            (4, 4, "least-loaded"),
            (2, 4, "ep"),
        ):
            with self.subTest(ranks=ranks, chunks=chunks, planner=planner):
                moved = sum(run_ranks(ranks, exact, whole(chunks), list(range(20)), planner))
                self.assertEqual(moved > 0, ranks > 1 and planner != "ep")

    def test_so_have_steps_in_which_a_chunk_has_a_plan_of_its_own(self) -> None:
        for ranks in (2, 3):
            self.assertGreater(sum(run_ranks(ranks, exact, mixed, list(range(20)), "level")), 0)

    def test_weights_and_their_gradients_travel_once_a_pass(self) -> None:
        for shape, chunks in zip(SHAPES[:3], (2, 8, 4), strict=True):
            every = run_ranks(shape.ranks, travels, shape, chunks)
            for one, shared, own_plans in every:
                forward, again = ([("weights", direction)] * 2 for direction in ("forward", "backward"))
                home = [("weight gradients", "backward")] * 2
                self.assertEqual([each[:2] for each in one], [*forward, *home])
                self.assertEqual([each[:2] for each in shared], [*forward, *again, *home])
                sizes = [each.bytes for each in one]
                self.assertEqual([each.bytes for each in shared], [*sizes[:2], *sizes[:2], *sizes[2:]])
                self.assertGreater(len(own_plans), len(shared))
            _, shared_bytes, own_bytes = (
                sum(each.bytes for rank in every for each in rank[which]) for which in range(3)
            )
            self.assertLess(shared_bytes, own_bytes)

    def test_frozen_weights_autocast_and_no_gradients(self) -> None:
        run_ranks(2, frozen_autocast_and_without_gradients, SHAPES[0])

    def test_dropout_is_that_of_the_forward_though_plans_are_others(self) -> None:
        self.assertEqual(run_ranks(2, dropout_of_other_plans, SHAPES[1]), [True, True])

    def test_sums_over_chunks_are_wider_than_bfloat16(self) -> None:
        for shape in SHAPES[:2]:
            one, eight = (max(run_ranks(2, bfloat16_sums, shape, chunks)) for chunks in (1, 8))
            self.assertLess(eight, 1.5 * one)

    def test_a_step_holds_no_more_than_its_budget(self) -> None:
        sharing = 0
        for shape in SHAPES:
            for cases in run_ranks(shape.ranks, peaks_where_decided, shape):
                for peak, budget, shares in cases:
                    self.assertLessEqual(peak, budget, f"{shape}")
                    sharing += shares
        self.assertGreater(sharing, 10)


if __name__ == "__main__":
    unittest.main()
