"""A layer's steps are as its budgets promise: the chunks, whether they are balanced, and the peak bytes."""

from __future__ import annotations

import json
import logging
import re
import sys
import unittest
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from processes import error_message, lines_of_log, run_ranks
from torch.utils.checkpoint import checkpoint

import evenkeel as ek
from evenkeel.torch import Budgets, ExpertParallel, LiveBytes, SpillCosts
from evenkeel.torch._chunk import Experts, Weights

ROOT = Path(__file__).parents[2]
TIMES_LEAST = (1.0, 1.1, 1.5, 2.0, 4.0)


class Shape(NamedTuple):
    ranks: int
    experts: int
    k: int
    hidden: int
    width: int
    tokens: int
    hot: float
    """The share of choices that fall on expert 0."""


# Experts larger than many rows; a few wide experts with top-1; four ranks; one expert per rank, which gets no call alone.
SHAPES = (
    Shape(ranks=2, experts=16, k=2, hidden=32, width=64, tokens=96, hot=0.9),
    Shape(ranks=2, experts=6, k=1, hidden=24, width=160, tokens=120, hot=0.95),
    Shape(ranks=4, experts=8, k=3, hidden=16, width=96, tokens=80, hot=0.6),
    Shape(ranks=2, experts=2, k=1, hidden=16, width=96, tokens=80, hot=0.95),
)


def experts(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    out = torch.zeros_like(rows)
    for slot in slots.unique().tolist():
        at = (slots == slot).nonzero()[:, 0]
        out = out.index_add(0, at, torch.nn.functional.silu(rows[at] @ weights["up"][slot]) @ weights["down"][slot])
    return out


class Step:
    """One rank's inputs; one expert takes most of the routing."""

    def __init__(self, rank: int, shape: Shape, hot: float | None = None) -> None:
        random = torch.Generator().manual_seed(rank)
        here = shape.experts // shape.ranks
        self.weights = {
            "up": torch.randn((here, shape.hidden, shape.width), generator=random).requires_grad_(),
            "down": torch.randn((here, shape.width, shape.hidden), generator=random).requires_grad_(),
        }
        self.hidden = torch.randn((shape.tokens, shape.hidden), generator=random).requires_grad_()
        self.ids = torch.randint(shape.experts, (shape.tokens, shape.k), generator=random)
        self.ids[torch.rand(self.ids.shape, generator=random) < (shape.hot if hot is None else hot)] = 0
        self.top_k = torch.rand(self.ids.shape, generator=random).requires_grad_()
        self.options: dict[str, Any] = {"min_segment": 4, "imbalance_threshold": 1.1}
        self.num_experts = shape.experts

    def layer(self, **options: Any) -> ExpertParallel:
        return ExpertParallel(self.num_experts, **self.options, **options)

    def peak(self, layer: ExpertParallel, experts: Experts = experts) -> int:
        """Peak bytes of a training step, minus what budgets do not count. First, an empty step lets the layer measure.

        A step in one chunk counts its weight gradients. With several chunks, each chunk counts its own, but their
        sum does not count.
        """
        layer(self.hidden[:0], self.ids[:0], self.top_k[:0], experts, self.weights).sum().backward()
        inputs = [self.hidden, self.top_k, *self.weights.values()]
        with LiveBytes() as live:
            made = layer(self.hidden, self.ids, self.top_k, experts, self.weights)
            grad = torch.ones_like(made)
            grads = torch.autograd.grad(made, inputs, grad)
        free = [made, grad, *(grads if layer.last["chunks"] > 1 else grads[:2])]
        return live.peak - sum(tensor.nbytes for tensor in free)


def peak_and_warnings(step: Step, layer: ExpertParallel) -> tuple[int, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        peak = step.peak(layer)
    return peak, [str(each.message) for each in caught if "a budget of" in str(each.message)]


def budgets_of_error(step: Step, experts: Experts = experts) -> Budgets:
    layer = step.layer(budget=1)
    try:
        layer(step.hidden, step.ids, step.top_k, experts, step.weights)
    except ek.errors.BudgetTooSmall as error:
        budgets = layer.budgets()
        assert error.data == {"given": 1, **budgets._asdict()}, error.data
        assert f": {budgets.least}. " in str(error) and str(budgets) in str(error), str(error)
        return budgets
    raise AssertionError("one byte was enough")


class StepOutcome(NamedTuple):
    """The outcome of a step under a budget."""

    budget: int
    chunks: int
    lacked_memory: bool
    transfers: int
    peak: int
    warned: list[str]


def steps(rank: int, ranks: int, shape: Shape) -> tuple[Budgets, list[StepOutcome]]:
    """Returns the budgets from the error, and the outcome of steps under budgets near them."""
    step, made = Step(rank, shape), []
    budgets = budgets_of_error(step)
    near = (budgets.step[n] - less for n in (2, 8) for less in (0, 1))
    for budget in (*(int(times * budgets.least) for times in TIMES_LEAST), *near):
        layer = step.layer(budget=budget)
        peak, warned = peak_and_warnings(step, layer)
        assert made or peak_and_warnings(step, layer)[1] == [], "it is said once"
        assert layer.budgets() == budgets, f"{layer.budgets()} of {budget}, before {budgets}"
        last = layer.last
        made.append(StepOutcome(budget, last["chunks"], last["lacked_memory"], last["transfers"], peak, warned))
    return budgets, made


def copying(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Copies all weights, as autocast does, and keeps the copies for backward; its peak is far above what it keeps."""
    out, copies = torch.zeros_like(rows), {name: weight.double() for name, weight in weights.items()}
    for slot in slots.unique().tolist():
        at = (slots == slot).nonzero()[:, 0]
        inner = rows[at].double() @ copies["up"][slot]
        inner.detach().repeat(1, 12)
        out = out.index_add(0, at, (inner @ copies["down"][slot]).to(rows.dtype))
    return out


def copied(rank: int, ranks: int, shape: Shape) -> list[tuple[int, int]]:
    """Peaks and budgets of a training step whose last home expert is hot, and of a step without gradients."""
    step = Step(rank, shape)
    step.options["planner"] = "ep"
    hot = shape.experts // shape.ranks - 1
    step.ids = torch.where(step.ids == 0, hot, torch.where(step.ids == hot, 0, step.ids))
    layer = step.layer(budget=int(1.1 * budgets_of_error(step, copying).least))
    training = step.peak(layer, copying), layer.budget or 0
    assert layer.last["chunks"] > 2, layer.last
    with torch.no_grad():
        step.ids = torch.full_like(step.ids, hot)  # the other rank has no rows
        layer = step.layer(budget=budgets_of_error(step, copying).least)
        layer(step.hidden[:0], step.ids[:0], step.top_k[:0], copying, step.weights)
        with LiveBytes() as live:
            out = layer(step.hidden, step.ids, step.top_k, copying, step.weights)
    return [training, (live.peak - out.nbytes, layer.budget or 0)]


class _Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows.new_ones(4000))
        return rows * 1.0

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0]


def keeping(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    return _Keeps.apply(experts(rows, slots, weights))  # type: ignore[no-any-return]


def frozen_that_keep(rank: int, ranks: int, shape: Shape) -> dict[int, int]:
    """Frozen weights, but calls that keep much else for backward. Maps a budget's expected chunks to the actual."""
    step, made = Step(rank, shape), {}
    step.weights = {name: weight.detach() for name, weight in step.weights.items()}
    for chunks, size in budgets_of_error(step, keeping).step.items():
        layer = step.layer(budget=size)
        layer(step.hidden, step.ids, step.top_k, keeping, step.weights)
        made[chunks] = layer.last["chunks"]
    return made


def one_without_gradients(rank: int, ranks: int, shape: Shape) -> list[bool]:
    step = Step(rank, shape)
    layer, unbounded = step.layer(budget="auto"), step.layer()
    with torch.set_grad_enabled(rank > 0):
        made = [each(step.hidden, step.ids, step.top_k, experts, step.weights) for each in (layer, unbounded)]
    return [torch.allclose(*made, rtol=1e-4, atol=1e-4), layer.last["training"]]


def automatic(rank: int, ranks: int, shape: Shape) -> list[Any]:
    """Chunks and budgets of three steps under "auto": an even step, an even step with fewer tokens, and a hot step."""
    layer, made = Step(rank, shape).layer(budget="auto"), []
    assert layer.budget == 0
    for tokens, hot in ((shape.tokens, 0.0), (shape.tokens // 2, 0.0), (shape.tokens, shape.hot)):
        step = Step(rank, shape, hot)
        if hot == 0.0:  # deal all ranks' assignments to the experts in turn
            count = step.ids.numel()
            step.ids = (rank * count + torch.arange(count)).view(-1, shape.k) % shape.experts
        step.hidden, step.ids, step.top_k = step.hidden[:tokens], step.ids[:tokens], step.top_k[:tokens]
        step.peak(layer)
        made.append((layer.last["chunks"], layer.budget, layer.budgets()))
    return made


def where_chunks_do_not_pay(rank: int, ranks: int, shape: Shape) -> list[Any]:
    """Moving pays in one chunk: it saves about 170 assignments and costs 100. In each of two chunks it does not."""
    step, made = Step(rank, shape), []
    step.options = {"min_segment": 4, "costs": SpillCosts(1e-6, 0, 100e-6)}
    budgets = budgets_of_error(step)
    for chunks in (1, 2):
        layer = step.layer(budget=budgets.step[chunks])
        _, warned = peak_and_warnings(step, layer)
        made.append((layer.last["chunks"], layer.last["transfers"] > 0, layer.last["lacked_memory"], warned))
    return made


def dropping(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    return torch.nn.functional.dropout(experts(rows, slots, weights), 0.5)


def checkpointed_while_auto_grows(rank: int, ranks: int, shape: Shape) -> tuple[int, int, bool]:
    """Returns the chunks of the forward and of its recomputation, and whether the gradients belong to that forward."""
    step = Step(rank, shape)
    layer = step.layer(budget="auto")
    out = checkpoint(
        lambda hidden, top_k: layer(hidden, step.ids, top_k, dropping, step.weights),
        step.hidden,
        step.top_k,
        use_reentrant=False,
    )
    forward = layer.last["chunks"]
    with torch.no_grad():
        more = [each.repeat(16, 1) for each in (step.hidden, step.ids, step.top_k)]
        layer(*more, dropping, step.weights)
    out.sum().backward()
    assert step.top_k.grad is not None  # with top-1, out is top_k times the experts' output
    same = torch.allclose(out.sum(1), (step.top_k * step.top_k.grad)[:, 0], rtol=1e-3, atol=1e-3)
    return forward, layer.last_training["chunks"], same


def logged(rank: int, ranks: int, shape: Shape) -> tuple[list[str], str]:
    """The debug log of two training steps and a step without gradients, and the layer's budgets."""
    lines = lines_of_log(logging.DEBUG)
    step = Step(rank, shape)
    layer = step.layer(budget="1GiB", name="7")
    for gradients in (True, True, False):
        with torch.set_grad_enabled(gradients):
            layer(step.hidden, step.ids, step.top_k, experts, step.weights)
    return lines, str(layer.budgets())


def with_bins(rank: int, ranks: int, shape: Shape) -> tuple[Budgets, list[int]]:
    step = Step(rank, shape)
    layer = step.layer(budget="auto", chunk_bins=[1, 3, 6])
    step.peak(layer)
    budgets, chunks = layer.budgets(), []
    for budget in (*budgets.step.values(), budgets.least):
        layer = step.layer(budget=budget, chunk_bins=[1, 3, 6])
        step.peak(layer)
        chunks.append(layer.last["chunks"])
    return budgets, chunks


def before_any(rank: int, ranks: int, shape: Shape) -> list[str]:
    step = Step(rank, shape)
    unbounded = step.layer()
    unbounded(step.hidden, step.ids, step.top_k, experts, step.weights)
    return [error_message(layer.budgets, ek.errors.Unsupported) for layer in (unbounded, step.layer(budget="auto"))]


class BudgetTest(unittest.TestCase):
    def test_steps_do_what_the_error_and_budgets_say(self) -> None:
        lacking = []
        for shape in SHAPES:
            answers = run_ranks(shape.ranks, steps, shape)
            budgets = answers[0][0]
            self.assertEqual([other for other, _ in answers], [budgets] * shape.ranks)
            for outcomes in zip(*(made for _, made in answers), strict=True):
                with self.subTest(shape=shape, budget=outcomes[0].budget, budgets=budgets):
                    self.check(budgets, outcomes)
                    lacking.append(outcomes[0].lacked_memory)
        self.assertIn(sum(lacking), range(2, len(lacking) // 2), lacking)

    def check(self, budgets: Budgets, outcomes: tuple[StepOutcome, ...]) -> None:
        """Compares the outcome on each rank, `outcomes`, with the promised budgets."""
        budget, chunks, lacked_memory, transfers = outcomes[0][:4]
        self.assertEqual({each[:4] for each in outcomes}, {outcomes[0][:4]})
        fitting = [n for n, size in budgets.step.items() if size <= budget]
        at_once = bool(fitting) and fitting[0] <= 2
        if fitting:
            self.assertFalse(lacked_memory)
            self.assertGreater(transfers, 0)
            self.assertLessEqual(chunks, fitting[0])
        if at_once:
            self.assertEqual(chunks, fitting[0])
        bound = budgets.step[chunks] if at_once else budget
        peak = max(each.peak for each in outcomes)
        self.assertLessEqual(peak, bound)
        if at_once or chunks > 1:
            self.assertGreater(peak, bound / (2 if at_once else 3), "the bound is not idle")
        self.assertEqual([len(each.warned) for each in outcomes], [int(lacked_memory), *[0] * (len(outcomes) - 1)])
        if lacked_memory:
            would_do = re.search(r"(\d+) bytes would do\. (.*)", outcomes[0].warned[0])
            assert would_do is not None
            self.assertGreater(int(would_do[1]), budget)
            self.assertEqual(would_do[2], str(budgets))

    def test_what_calls_one_by_one_keep_adds_up(self) -> None:
        for cases in run_ranks(2, copied, Shape(2, 16, k=1, hidden=32, width=32, tokens=800, hot=0.9)):
            for peak, budget in cases:
                self.assertLessEqual(peak, budget)

    def test_calls_one_by_one_take_no_more_chunks_than_one_call(self) -> None:
        for made in run_ranks(2, frozen_that_keep, Shape(2, 16, k=4, hidden=64, width=256, tokens=400, hot=0.9)):
            self.assertTrue(all(chunks <= of_budget for of_budget, chunks in made.items()), made)

    def test_one_rank_without_gradients_has_the_budget_of_the_others(self) -> None:
        for shape in SHAPES:
            every = run_ranks(shape.ranks, one_without_gradients, shape)
            self.assertEqual(every, [[True, rank > 0] for rank in range(shape.ranks)])

    def test_auto_is_what_even_routing_takes_in_two_chunks(self) -> None:
        for shape in (*SHAPES, SHAPES[0]._replace(tokens=99)):
            answers = run_ranks(shape.ranks, automatic, shape)
            self.assertEqual(answers, [answers[0]] * shape.ranks)
            (chunks, budget, budgets), fewer, hot = answers[0]
            self.assertEqual((chunks, budget), (2, max(budgets.least, budgets.even[2])))
            self.assertEqual(budgets.step, budgets.even)
            self.assertEqual((fewer[0], fewer[1]), (1, budget), "a shorter step keeps the budget")
            self.assertEqual((hot[1], hot[2].even), (budget, budgets.even), "nor does routing change it")

    def test_what_does_not_pay_in_each_chunk_pays_once_a_pass(self) -> None:
        for whole, chunked in run_ranks(2, where_chunks_do_not_pay, SHAPES[0]):
            self.assertEqual(whole, (1, True, False, []))
            self.assertEqual(chunked[1:], (True, False, []))
            self.assertGreater(chunked[0], 1)

    def test_a_checkpoint_computes_the_chunks_of_its_forward_again_though_auto_has_grown(self) -> None:
        for forward, again, same in run_ranks(2, checkpointed_while_auto_grows, SHAPES[1]):
            self.assertGreater(forward, again)
            self.assertTrue(same)

    def test_the_first_rank_logs_the_first_step_of_each_kind(self) -> None:
        (training, _, without), budgets = run_ranks(2, logged, SHAPES[0])[0]
        self.assertTrue(training.startswith("layer 7, a step with gradients in 1 chunk: a budget of 1073741824 bytes;"))
        self.assertTrue(training.endswith(budgets), "also after a step without")
        self.assertTrue(
            without.startswith("layer 7, a step without gradients in 1 chunk: a budget of 1073741824 bytes;")
        )
        self.assertFalse(without.endswith(budgets))
        self.assertEqual(run_ranks(2, logged, SHAPES[0])[1], ([], budgets))

    def test_bins_are_the_numbers_of_chunks(self) -> None:
        for budgets, chunks in run_ranks(2, with_bins, SHAPES[0]):
            *of_bins, finer = chunks
            self.assertEqual((list(budgets.step), list(budgets.even), of_bins), ([1, 3, 6], [1, 3, 6], [1, 3, 6]))
            self.assertGreater(finer, 6, "of a budget that no bin fits")

    def test_without_a_step_under_a_budget_there_is_nothing_to_say(self) -> None:
        why = 'budgets: this layer has run no step under a budget yet; set one, such as budget="auto"'
        self.assertEqual(run_ranks(2, before_any, SHAPES[0]), [[why, why]] * 2)

    def test_the_models_of_the_docs_take_what_the_benchmark_says(self) -> None:
        sys.path.insert(0, str(ROOT / "benchmarks"))
        from torch_budgets import budgets

        rows = re.findall(r"^\| ([a-z0-9.-]+) ((?:\| \d+\.\d\d ){5})\|$", (ROOT / "docs/torch.md").read_text(), re.M)
        self.assertGreater(len(rows), 5)
        for model, sizes in rows:
            with self.subTest(model=model):
                found = budgets(json.loads((ROOT / f"tests/data/configs/{model}.json").read_text()), 8, 4096)
                shown = (found.least, found.even[1], found.even[2], found.step[1], found.step[8])
                self.assertEqual(re.findall(r"[0-9.]+", sizes), [f"{size / 2**30:.2f}" for size in shown])


if __name__ == "__main__":
    unittest.main()
