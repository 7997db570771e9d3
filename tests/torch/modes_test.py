"""The layer under the modes in which people run a model, and its errors for bad input and small budgets."""

from __future__ import annotations

import re
import unittest
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from layer_test import all_weights, at_home, experts, inputs, least_budget, one_process, routing
from processes import run_ranks
from torch.utils.checkpoint import checkpoint

import evenkeel as ek
from evenkeel.torch import ExpertParallel
from evenkeel.torch._live_bytes import LiveBytes
from evenkeel.torch._options import LayerOptions

E, K, SEED = 8, 3, 7  # a seed whose routing is hot


class Case:
    """One rank's layer and inputs."""

    def __init__(self, rank: int, ranks: int, group: dist.ProcessGroup | None = None, **options: Any) -> None:
        self.ids = routing(SEED, ranks, E, K)[rank]
        self.whole = all_weights(SEED, E)
        self.own = at_home(self.whole, rank, ranks)
        self.hidden, self.top_k, self.grad = inputs(SEED, rank, self.ids)
        self.hidden.requires_grad_(), self.top_k.requires_grad_()
        self.layer = ExpertParallel(E, group, min_segment=1, imbalance_threshold=0.0, **options)

    def run(self, computed_by: Callable[..., torch.Tensor] = experts) -> torch.Tensor:
        made = self.layer(self.hidden, self.ids, self.top_k, computed_by, self.own)
        assert self.layer.last["transfers"] > 0, "this routing should move weights"
        return made

    def single(self) -> torch.Tensor:
        return one_process(self.hidden, self.ids, self.top_k, self.whole)

    def grads(self) -> list[torch.Tensor]:
        made = []
        for tensor in (self.hidden, self.top_k, *self.own.values()):
            assert tensor.grad is not None
            made.append(tensor.grad)
            tensor.grad = None
        return made


def inference(rank: int, ranks: int) -> None:
    case = Case(rank, ranks)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(case.run(), case.single())


def accumulation(rank: int, ranks: int) -> None:
    case = Case(rank, ranks)
    case.run().backward(case.grad)
    once = case.grads()
    first, second = case.run(), case.run()  # two in flight
    second.backward(case.grad)
    first.backward(case.grad)
    for one, two in zip(once, case.grads(), strict=True):
        assert torch.allclose(2 * one, two, rtol=1e-5, atol=1e-5)


def measured_in_a_checkpoint(rank: int, ranks: int) -> int:
    """Counts a checkpointed region's runs in a forward in which the layer, inside it, measures its bytes."""
    case, runs = Case(rank, ranks, budget=400_000), []

    def region(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return case.run() + 0 * x

    made = checkpoint(region, case.hidden, use_reentrant=False)
    times = len(runs)
    made.backward(case.grad)
    return times


def dropped(rank: int, ranks: int) -> tuple[int, int]:
    """Bytes held between forward and backward: with activation checkpointing, then without."""
    case = Case(rank, ranks)
    held = []
    for run in (lambda: checkpoint(lambda x: case.run() + 0 * x, case.hidden, use_reentrant=False), case.run):
        with LiveBytes() as live:
            made = run()
            held.append(live.now)
        del made
    return held[0], held[1]


def autocast(rank: int, ranks: int, budget: int | None) -> None:
    case = Case(rank, ranks, budget=budget)
    with torch.autocast("cpu", torch.bfloat16):
        made, single = case.run(), case.single()
    assert torch.equal(made, single), (made.dtype, single.dtype)
    made.backward(case.grad.to(made.dtype))
    grads = case.grads()
    exact = Case(rank, ranks)
    exact.run().backward(exact.grad)
    for one, other in zip(grads, exact.grads(), strict=True):
        assert (one.float() - other).abs().max() <= 0.05 * (1 + other.abs().max())


def frozen(rank: int, ranks: int) -> None:
    case = Case(rank, ranks)
    case.run().backward(case.grad)
    all_grads = case.grads()
    case.own["up"].requires_grad_(False)
    case.hidden = case.hidden.detach()
    case.run().backward(case.grad)
    assert case.own["up"].grad is None and case.hidden.grad is None
    assert torch.allclose(case.own["down"].grad, all_grads[3], rtol=1e-5, atol=1e-5)  # type: ignore[arg-type]


def compiled(rank: int, ranks: int) -> None:
    case = Case(rank, ranks)
    made = torch.compile(lambda x: case.run() * 1.0, backend="eager")(case.hidden)
    assert torch.equal(made, case.single())


def promise(rank: int, ranks: int, seeds: range, over_least: float) -> tuple[int, int, int]:
    """The largest peak of any seed's step, the budget, and how many steps were cut into chunks.

    The layer's first call has no gradients, so it says nothing about the memory that training takes.
    """
    budget = int(over_least * least_budget(Case(rank, ranks, budget=1000).run))
    case = Case(rank, ranks, budget=budget)
    with torch.no_grad():
        case.layer(case.hidden, case.ids, case.top_k, experts, case.own)
    # Measures, before the count starts.
    case.layer(case.hidden[:0], case.ids[:0], case.top_k[:0], experts, case.own).sum().backward()
    most, cut = 0, 0
    for seed in seeds:
        ids = routing(seed, ranks, E, K)[rank]
        hidden, top_k, grad = inputs(seed, rank, ids)
        hidden.requires_grad_(), top_k.requires_grad_()
        for tensor in case.own.values():
            tensor.grad = None
        with LiveBytes() as live:
            made = case.layer(hidden, ids, top_k, experts, case.own)
            made.backward(grad)
        kept = [made, hidden.grad, top_k.grad, *(weight.grad for weight in case.own.values())]
        most = max(most, live.peak - sum(t.numel() * t.element_size() for t in kept if t is not None))
        cut += case.layer.last["chunks"] > 1
    return most, budget, cut


class LiveBytesTest(unittest.TestCase):
    def test_counts_each_storage_once_from_when_it_is_made_until_it_is_freed(self) -> None:
        before = torch.zeros(1000)
        with LiveBytes() as live:
            first = before + 1
            second = first.view(10, 100)[2:].exp()
            self.assertEqual((live.now, live.peak), (4000 + 3200, 7200))
            first.add_(1)
            del first
            self.assertEqual(live.now, 3200)
            kept = second[0]
            del second
            self.assertEqual(live.now, 3200)
            del kept
            self.assertEqual((live.now, live.peak), (0, 7200))


class ModesTest(unittest.TestCase):
    def test_without_gradients(self) -> None:
        run_ranks(2, inference)

    def test_gradients_accumulate_and_steps_overlap(self) -> None:
        run_ranks(2, accumulation)

    def test_a_budget_is_measured_within_a_checkpoint_without_computing_that_again(self) -> None:
        self.assertEqual(run_ranks(2, measured_in_a_checkpoint), [1, 1])

    def test_checkpointing_holds_no_activations(self) -> None:
        for checkpointed, plain in run_ranks(2, dropped):
            self.assertLess(checkpointed, plain / 4)

    def test_autocast(self) -> None:
        for budget in (None, 400_000):
            run_ranks(2, autocast, budget)

    def test_what_wants_no_gradient_gets_none(self) -> None:
        run_ranks(2, frozen)

    def test_compile_breaks_the_graph_and_is_right(self) -> None:
        run_ranks(2, compiled)

    def test_no_step_of_a_hundred_routings_holds_more_than_its_budget(self) -> None:
        for ranks, over_least, seeds in (
            (2, 1.0, range(34)),
            (2, 1.3, range(34, 67)),
            (2, 2.0, range(67, 100)),
            (4, 1.2, range(100, 130)),
        ):
            for most, budget, cut in run_ranks(ranks, promise, seeds, over_least):
                self.assertLessEqual(most, budget, f"at {over_least} times the least")
                self.assertGreater(most, budget / 2, "the bound is not idle")
                self.assertGreater(cut, len(seeds) / 3)

    def test_bins_that_say_nothing_are_refused(self) -> None:
        for options, said in (
            ({"chunk_bins": [1, 2]}, "chunk_bins: needs budget, which the chunks must fit"),
            ({"budget": 10**6, "chunk_bins": []}, "ascending numbers of chunks"),
            ({"budget": 10**6, "chunk_bins": [2, 1]}, "[2, 1]"),
            ({"budget": 10**6, "chunk_bins": [0, 1]}, "1..64"),
            ({"budget": 10**6, "chunk_bins": [7, 63, 64]}, "least common multiple"),
        ):
            with self.assertRaisesRegex(ek.errors.InvalidArgument, re.escape(said)):
                LayerOptions(**options)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
