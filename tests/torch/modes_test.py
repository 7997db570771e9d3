"""The layer under the ways in which people run a model, and what it says of bad input and small budgets."""

from __future__ import annotations

import re
import unittest
from typing import Any

import torch
from layer_test import all_weights, experts, inputs, one_process, routing
from processes import run_ranks
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import evenkeel as ek
from evenkeel.torch import ExpertParallel
from evenkeel.torch._live_bytes import LiveBytes
from evenkeel.torch._options import LayerOptions

E, K, SEED = 8, 3, 7  # a seed whose routing is hot


class Case:
    """One rank's layer and inputs."""

    def __init__(self, rank: int, ranks: int, dtype: torch.dtype = torch.float32, **options: Any) -> None:
        self.ids = routing(SEED, ranks, E, K)[rank]
        self.whole = all_weights(SEED, E, dtype)
        mine = slice(rank * E // ranks, (rank + 1) * E // ranks)
        self.own = {name: weight[mine].clone().requires_grad_() for name, weight in self.whole.items()}
        self.hidden, self.top_k, self.grad = inputs(SEED, rank, self.ids, dtype)
        self.hidden.requires_grad_(), self.top_k.requires_grad_()
        self.layer = ExpertParallel(E, min_segment=1, imbalance_threshold=0.0, **options)

    def run(self) -> torch.Tensor:
        made = self.layer(self.hidden, self.ids, self.top_k, experts, self.own)
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


def checkpointing(rank: int, ranks: int, budget: int | None) -> None:
    case = Case(rank, ranks, budget=budget)
    case.run().backward(case.grad)
    plain = case.grads()
    for reentrant in (False, True):
        made = checkpoint(lambda x: case.run() + 0 * x, case.hidden, use_reentrant=reentrant)
        assert torch.equal(made, case.single())
        made.backward(case.grad)
        for one, other in zip(plain, case.grads(), strict=True):
            assert torch.allclose(one, other, rtol=1e-5, atol=1e-5)


def offloaded(rank: int, ranks: int) -> None:
    """Saved tensors are copied before backward, as offloading does, or moved to pinned memory."""
    case = Case(rank, ranks)
    case.run().backward(case.grad)
    plain = case.grads()
    for pack, unpack in ((torch.clone, torch.clone), (lambda x: (x.clone(), x.device), lambda x: x[0].to(x[1]))):
        with saved_tensors_hooks(pack, unpack):
            made = case.run()
        made.backward(case.grad)
        for one, other in zip(plain, case.grads(), strict=True):
            assert torch.allclose(one, other, rtol=1e-5, atol=1e-5)


def backward_again(rank: int, ranks: int, budget: int | None) -> None:
    """Two losses of one output, one backward pass each; and gradients of one tensor after the other."""
    case = Case(rank, ranks, budget=budget)
    made = case.run()
    (made.square().sum() + made.sum()).backward()
    both = case.grads()
    made = case.run()
    made.square().sum().backward(retain_graph=True)
    made.sum().backward()
    for one, two in zip(both, case.grads(), strict=True):
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-4)
    loss = case.run().square().sum()
    loss_of = loss + 0 * case.run().sum()
    for tensor in (case.hidden, case.own["up"]):
        (one,) = torch.autograd.grad(loss_of, [tensor], retain_graph=True)
        (two,) = torch.autograd.grad(loss, [tensor], retain_graph=True)
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-4)


def measured_in_a_checkpoint(rank: int, ranks: int) -> int:
    """How often the checkpointed region runs in a forward whose layer measures its bytes there."""
    case, runs = Case(rank, ranks, budget=400_000), []

    def region(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return case.run() + 0 * x

    made = checkpoint(region, case.hidden, use_reentrant=False)
    times = len(runs)
    made.backward(case.grad)
    return times


def dropped(rank: int, ranks: int) -> tuple[int, int]:
    """Bytes that live between forward and backward: with and without activation checkpointing."""
    case = Case(rank, ranks)
    held = []
    for run in (lambda: checkpoint(lambda x: case.run() + 0 * x, case.hidden, use_reentrant=False), case.run):
        with LiveBytes() as live:
            made = run()
            held.append(live.now)
        del made
    return held[0], held[1]


def narrow(rank: int, ranks: int, autocast: bool, budget: int | None) -> None:
    case = Case(rank, ranks, torch.float32 if autocast else torch.bfloat16, budget=budget)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
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


def wrong_ids(rank: int, ranks: int) -> str:
    case = Case(rank, ranks)
    case.ids = case.ids.clone()
    if rank == 1:
        case.ids[0, 0] = E
    try:
        case.run()
    except ek.errors.InvalidArgument as error:
        return str(error)
    return "nothing"


def too_small(rank: int, ranks: int) -> dict[str, Any]:
    try:
        Case(rank, ranks, budget=1000).run()
    except ek.errors.BudgetTooSmall as error:
        return error.data
    return {}


def promise(rank: int, ranks: int, seeds: range, over_least: float) -> tuple[int, int, int]:
    """The most that any of the seeds' steps held, the budget, and how many steps were cut.

    The layer's first call is without gradients, which says nothing of what training takes.
    """
    least = too_small(rank, ranks)["least"]
    budget = int(least * over_least)
    case = Case(rank, ranks, budget=budget)
    with torch.no_grad():
        case.layer(case.hidden, case.ids, case.top_k, experts, case.own)
    # Measures, outside of the count.
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


def with_bins(rank: int, ranks: int) -> list[tuple[int, int]]:
    """Numbers of chunks under growing budgets: the fewest that fit, and with bins 1, 2 and 8."""
    random = torch.Generator().manual_seed(SEED)
    ids = torch.randint(E, (96, K), generator=random)
    hidden, top_k, _ = inputs(SEED, rank, ids)
    case = Case(rank, ranks)
    single = one_process(hidden, ids, top_k, case.whole)
    least = too_small(rank, ranks)["least"]
    made = []
    for times in (1, 2, 4, 8, 16, 32, 64):
        chunks = []
        for bins in (None, [1, 2, 8]):
            layer = ExpertParallel(E, planner="ep", budget=least * times, chunk_bins=bins)
            assert torch.equal(layer(hidden, ids, top_k, experts, case.own), single)
            chunks.append(layer.last["chunks"])
        made.append((chunks[0], chunks[1]))
    return made


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

    def test_activation_checkpointing(self) -> None:
        run_ranks(2, checkpointing, None)
        run_ranks(2, checkpointing, 400_000)

    def test_activations_that_are_kept_elsewhere(self) -> None:
        run_ranks(2, offloaded)

    def test_backward_passes_of_one_forward(self) -> None:
        for budget in (None, 400_000):
            run_ranks(2, backward_again, budget)

    def test_a_budget_is_measured_within_a_checkpoint_without_computing_that_again(self) -> None:
        self.assertEqual(run_ranks(2, measured_in_a_checkpoint), [1, 1])

    def test_checkpointing_holds_no_activations(self) -> None:
        for checkpointed, plain in run_ranks(2, dropped):
            self.assertLess(checkpointed, plain / 4)

    def test_bf16_and_autocast(self) -> None:
        for autocast in (False, True):
            for budget in (None, 400_000):
                run_ranks(2, narrow, autocast, budget)

    def test_what_wants_no_gradient_gets_none(self) -> None:
        run_ranks(2, frozen)

    def test_compile_breaks_the_graph_and_is_right(self) -> None:
        run_ranks(2, compiled)

    def test_every_rank_says_whose_ids_are_wrong(self) -> None:
        for message in run_ranks(2, wrong_ids):
            self.assertIn("1 expert ids of rank 1 are outside -1..7", message)

    def test_a_budget_that_is_too_small_says_the_least(self) -> None:
        said = run_ranks(2, too_small)
        self.assertEqual(said[0]["given"], 1000)
        self.assertEqual(said[0], said[1])

    def test_no_step_of_a_hundred_routings_holds_more_than_its_budget(self) -> None:
        for over_least, seeds in ((1.0, range(34)), (1.3, range(34, 67)), (2.0, range(67, 100))):
            answers = run_ranks(2, promise, seeds, over_least)
            for most, budget, cut in answers:
                self.assertLessEqual(most, budget, f"at {over_least} times the least")
                self.assertGreater(most, budget / 2, "the bound is not idle")
                self.assertGreater(cut, len(seeds) / 3)

    def test_four_ranks_keep_the_budget(self) -> None:
        for most, budget, cut in run_ranks(4, promise, range(100, 130), 1.2):
            self.assertLessEqual(most, budget)
            self.assertGreater(cut, 10)

    def test_equal_chunks_are_the_least_bin_that_fits(self) -> None:
        for made in run_ranks(2, with_bins):
            for fewest, of_bins in made:
                self.assertIn(of_bins, (1, 2, 8) if of_bins <= 8 else (fewest,))
                self.assertGreaterEqual(of_bins, fewest)
                self.assertEqual(of_bins > 8, fewest > 8)
            self.assertLessEqual({1, 2, 8}, {of_bins for _, of_bins in made}, made)
            self.assertGreater(made[0][1], 8)

    def test_bins_that_say_nothing_are_refused(self) -> None:
        for options, said in (
            ({"chunk_bins": [1, 2]}, "chunk_bins: there is no budget that chunks must fit"),
            ({"budget": 10**6, "chunk_bins": []}, "ascending numbers of chunks"),
            ({"budget": 10**6, "chunk_bins": [2, 1]}, "[2, 1]"),
            ({"budget": 10**6, "chunk_bins": [0, 1]}, "1..64"),
            ({"budget": 10**6, "chunk_bins": [7, 63, 64]}, "least common multiple"),
        ):
            with self.assertRaisesRegex(ek.errors.InvalidArgument, re.escape(said)):
                LayerOptions(**options)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
