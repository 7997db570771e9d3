"""With nodes, rows and weights cross to a node once. Bits are those without nodes, and nothing crosses needlessly.

What must cross is derived from where the layer without nodes sends its rows and weights.
"""

from __future__ import annotations

import re
import unittest
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from layer_test import all_weights, at_home, experts, inputs, least_budget, routing
from processes import error_message, run_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

import evenkeel as ek
import evenkeel.transformers
from evenkeel.torch import ExpertParallel, keep_plans, metrics, routes_ahead
from evenkeel.torch._exchange import Exchange, HostReads, Rows
from evenkeel.torch._live_bytes import LiveBytes
from evenkeel.torch._loan import Loan
from evenkeel.torch._options import LayerOptions
from evenkeel.torch._routes import Indices, Routes
from evenkeel.torch.slots import ExpertSlots

E = 12
Members = Sequence[Sequence[int]]


class Watched:
    """What one rank's step sends between nodes and within its node, by phase: actual and needed."""

    def __init__(self, rank: int, members: Members) -> None:
        self.node_of = {each: node for node, of_node in enumerate(members) for each in of_node}
        self.here = self.node_of[rank]
        self.carried: Counter[tuple[str, bool]] = Counter()
        self.needed: Counter[tuple[str, bool]] = Counter()

    def need(self, phase: str, goes: set[tuple[int, int]]) -> None:
        """`goes` has pairs of an item and the rank to which it goes."""
        crossing = {(what, self.node_of[to]) for what, to in goes if self.node_of[to] != self.here}
        self.needed[phase, True] += len(crossing)
        self.needed[phase, False] += len(goes) - len(crossing)

    def run(self, step: Callable[[], Any]) -> Any:
        start, pass_on, open_routes, borrow = Exchange.start, Exchange.pass_on, Routes.open, Loan.borrow

        def starts(of: Exchange, phase: str, rows: torch.Tensor, sent: Sequence[int], *rest: Any) -> Any:
            for to, count in enumerate(sent):
                self.carried[phase, self.node_of[to] != self.here] += count * (to != of.rank)
            return start(of, phase, rows, sent, *rest)

        def passes_on(
            of: Exchange, phase: str, rows: torch.Tensor, chosen: torch.Tensor, counts: Rows, *out: Any
        ) -> None:
            self.carried[phase, False] += len(chosen)
            pass_on(of, phase, rows, chosen, counts, *out)

        def opens(of: Routes, exchange: Exchange, ids: torch.Tensor) -> Indices:
            at = open_routes(of, exchange, ids)
            ranks = [rank for rank, count in enumerate(of.sent_counts) for _ in range(count)]
            self.need("rows", set(zip((at.sent_positions // ids.shape[1]).tolist(), ranks, strict=True)))
            return at

        def borrows(of: Loan, weights: Sequence[torch.Tensor]) -> None:
            ranks = [rank for rank, count in enumerate(of.native.lent_counts) for _ in range(count)]
            self.need("weights", set(zip(of.native.lent, ranks, strict=True)))
            borrow(of, weights)

        with (
            mock.patch.object(Exchange, "start", starts),
            mock.patch.object(Exchange, "pass_on", passes_on),
            mock.patch.object(Routes, "open", opens),
            mock.patch.object(Loan, "borrow", borrows),
        ):
            return step()


def watched_step(
    layer: ExpertParallel, members: Members, seed: int, dtype: torch.dtype
) -> tuple[list[torch.Tensor | None], Watched, Watched]:
    """Runs a step. Returns output and gradients, and what forward and backward sent."""
    rank, ranks = layer.exchange.rank, layer.exchange.ranks
    ids = routing(seed, ranks, E, k=4 - seed % 4)[rank]
    own = at_home({name: weight.to(dtype) for name, weight in all_weights(seed, E).items()}, rank, ranks)
    hidden, top_k, grad = inputs(seed, rank, ids, dtype)
    hidden.requires_grad_(), top_k.requires_grad_()
    forward, backward = Watched(rank, members), Watched(rank, members)
    out = forward.run(lambda: layer(hidden, ids, top_k, experts, own))
    backward.run(lambda: out.backward(grad))
    return [out, hidden.grad, top_k.grad, *(weight.grad for weight in own.values())], forward, backward


def same(
    rank: int,
    ranks: int,
    nodes: Any,
    members: Members,
    seeds: Sequence[int],
    dtype: torch.dtype,
    options: dict[str, Any],
) -> Counter[str]:
    """Fails if bits or the items sent differ from the expected ones; returns what all steps sent."""
    outside = options.pop("outside", 0)  # ranks that are not in the layer's group
    group = dist.new_group(list(range(outside, ranks))) if outside else None
    if rank < outside:
        return Counter()
    rank, ranks = rank - outside, ranks - outside
    sums_in_nodes = options.pop("sum_in_nodes", False)
    plain = ExpertParallel(E, group, min_segment=1, **options)
    layer = ExpertParallel(E, group, min_segment=1, **options, nodes=nodes, sum_in_nodes=sums_in_nodes)
    near = 64 * torch.finfo(dtype).eps, 16 * torch.finfo(dtype).eps  # error of one more rounding in each node
    sums: Counter[str] = Counter()
    for seed in seeds:
        of_plain, apart, _ = watched_step(plain, members, seed, dtype)
        made, forward, backward = watched_step(layer, members, seed, dtype)
        for what, (one, other) in enumerate(zip(of_plain, made, strict=True)):
            where = f"seed {seed}, rank {rank}: number {what} differs"
            assert torch.equal(one, other) or (sums_in_nodes and torch.allclose(one, other, *near)), where
        needed = apart.needed
        crossing = {"dispatch": needed["rows", True], "weights": 2 * needed["weights", True]}  # once up and once down
        for phase, count in crossing.items():
            assert forward.carried[phase, True] == count, f"seed {seed}, rank {rank}, {phase}"
        assert backward.carried["gradient dispatch", True] == needed["rows", True], f"seed {seed}, rank {rank}"
        every: list[Any] = [None] * ranks
        dist.all_gather_object(every, (needed, forward.carried, backward.carried), group=group)
        for what, phase, times in (("rows", "dispatch", 1), ("weights", "weights", 2)):
            for where, between in (("between", True), ("within", False)):
                name, count = f"{what}_{where}_nodes", sum(need[what, between] for need, *_ in every)
                assert layer.last[name] == count, f"seed {seed}: {name}"
                assert sum(carried[phase, between] for _, carried, _ in every) == times * count, f"seed {seed}: {name}"
                sums[name] += count
        home = [sum(carried["combine", True] for _, carried, _ in every)]
        home += [sum(carried["gradient return", True] for *_, carried in every)]
        rows = layer.last["rows_between_nodes"]
        assert home == [rows, rows] if sums_in_nodes else min(home) >= rows, f"seed {seed}: {home}, {rows} rows"
        sums["more come home"] += home[0] - rows
        sums["chunks"] += layer.last["chunks"]
        sums["more without nodes"] += apart.carried["dispatch", True] - needed["rows", True]
    return sums


def reads(rank: int, ranks: int) -> list[tuple[int, int]]:
    """For each step: the host's reads in forward and in backward."""
    found = []
    layer = ExpertParallel(8, imbalance_threshold=1.0, min_segment=1, nodes=1)
    weights = at_home(all_weights(0, 8), rank, ranks)
    even = torch.arange(64).view(-1, 2) % 8
    for ids in (even, even, torch.zeros_like(even)):  # the first step makes space for counts
        hidden, top_k, grad = inputs(0, rank, ids)
        before = HostReads.count
        with mock.patch("evenkeel.torch._agreement.on_host", lambda _: False):
            out = layer(hidden.requires_grad_(), ids, top_k, experts, weights)
            forward = HostReads.count - before
            out.backward(grad)
        found.append((forward, HostReads.count - before - forward))
    return found[1:]


def bounded(
    rank: int, ranks: int, nodes: Any, seeds: Sequence[int], over_least: float, sum_in_nodes: bool
) -> tuple[int, int, int]:
    """The largest peak of a step, the budget, and how many steps were cut into chunks."""

    def step(layer: ExpertParallel, seed: int) -> int:
        """The step's peak bytes, without its results."""
        ids = routing(seed, ranks, E, 3)[rank]
        own = at_home(all_weights(seed, E), rank, ranks)
        hidden, top_k, grad = inputs(seed, rank, ids)
        hidden.requires_grad_(), top_k.requires_grad_()
        with LiveBytes() as live:
            out = layer(hidden, ids, top_k, experts, own)
            out.backward(grad)
        kept = [out, hidden.grad, top_k.grad, *(weight.grad for weight in own.values())]
        return live.peak - sum(each.nbytes for each in kept if each is not None)

    def made(budget: int) -> ExpertParallel:
        options = {"nodes": nodes, "sum_in_nodes": sum_in_nodes, "budget": budget}
        return ExpertParallel(E, min_segment=1, imbalance_threshold=0.0, **options)

    budget = int(over_least * least_budget(lambda: step(made(1000), 0)))
    layer, most, cut = made(budget), 0, 0
    step(layer, 0)  # measures, before the count starts
    for seed in seeds:
        most = max(most, step(layer, seed))
        cut += layer.last["chunks"] > 1
    return most, budget, cut


def with_f64_router(rank: int, ranks: int) -> tuple[int, int]:
    """The peak of a step without gradients whose sums are f64, and what one chunk is said to take."""
    own, tokens = E // ranks, 20
    given = [torch.ones(tokens, 1024), torch.full((tokens, 1), rank * own), torch.ones(tokens, 1, dtype=torch.float64)]

    def scaled(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
        return rows * weights["scale"][slots]

    def step(layer: ExpertParallel) -> int:
        weights = {"scale": torch.ones(own, 1024)}
        with LiveBytes() as live, torch.no_grad():
            out = layer(*given, scaled, weights)
        return live.peak - out.nbytes

    options: dict[str, Any] = {"planner": "ep", "nodes": 1, "sum_in_nodes": True}
    first = ExpertParallel(E, **options, budget="auto")
    step(first)
    budget = first.budgets().step[1]
    layer = ExpertParallel(E, **options, budget=budget)
    step(layer)  # measures, before the count starts
    return step(layer), budget


def in_a_checkpoint(rank: int, ranks: int) -> None:
    """Checks recomputed steps of one layer, and the layer's numbers by name."""
    layer = ExpertParallel(E, min_segment=1, imbalance_threshold=0.0, nodes=[[1, 0], [3, 2]])
    ids = routing(7, ranks, E, 3)[rank]
    hidden, top_k, grad = inputs(7, rank, ids)
    hidden.requires_grad_()
    own = at_home(all_weights(7, E), rank, ranks)
    runs: list[Callable[[Callable[[torch.Tensor], torch.Tensor]], torch.Tensor]] = [
        lambda call: call(hidden),
        lambda call: checkpoint(call, hidden, use_reentrant=False),
        lambda call: checkpoint(call, hidden, use_reentrant=False, context_fn=keep_plans),
    ]
    made = []
    for run in runs:
        out = run(lambda rows: layer(rows, ids, top_k, experts, own))
        reads_before = HostReads.count
        with mock.patch("evenkeel.torch._agreement.on_host", lambda _: False):
            out.backward(grad)
        made.append((out, hidden.grad, HostReads.count - reads_before))
        hidden.grad = None
    for out, of_hidden, _ in made[1:]:
        assert torch.equal(out, made[0][0]) and torch.equal(of_hidden, made[0][1])
    assert [count for _, _, count in made] == [0, 2, 0]
    found = metrics(layer)
    assert found["evenkeel/layer/rows_between_nodes"] == layer.last["rows_between_nodes"] > 0, found


def leaves_its_node(rank: int, ranks: int, last: str) -> str:
    """The error if a rank ends before its node's part of phase `last`."""
    layer = ExpertParallel(E, planner="ep", nodes=2, sum_in_nodes=True)
    ids = torch.arange(48).view(-1, 3) % E

    def step() -> object:
        hidden, top_k, grad = inputs(0, rank, ids)
        layer(hidden.requires_grad_(), ids, top_k, experts, at_home(all_weights(0, E), rank, ranks)).backward(grad)

    within_node = Exchange._within_node

    def leave(of: Exchange, phase: str, *rest: Any) -> None:
        if phase == last:
            raise ek.errors.CommError("left without a word", {})
        within_node(of, phase, *rest)

    step()
    if rank == 3:
        Exchange._within_node = leave  # type: ignore[method-assign]
    return error_message(step, ek.errors.CommError)


def unlike(rank: int, ranks: int) -> str:
    layer = ExpertParallel(E, nodes=[[0, 1, 2, 3]] if rank == 2 else 2)
    return error_message(
        lambda: layer(*_nothing(), experts, at_home(all_weights(0, E), rank, ranks)), ek.errors.InvalidArgument
    )


def _nothing() -> tuple[torch.Tensor, ...]:
    hidden, top_k, _ = inputs(0, 0, torch.zeros((0, 2)))
    return hidden, torch.zeros((0, 2), dtype=torch.int64), top_k


def refused(rank: int, ranks: int) -> list[str]:
    """Errors for nodes that are known to be wrong or useless before a step."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = ExpertParallel(E, nodes=2)

    def ahead() -> None:
        with routes_ahead(Model(), torch.zeros((1, 1, 2), dtype=torch.int64)):
            pass

    calls: list[Callable[[], object]] = [
        lambda: ExpertParallel(E, nodes=3),
        lambda: ExpertParallel(E, nodes=[[0, 1], [2]]),
        lambda: ExpertParallel(E, nodes=[[0, 1], [2, 3, 1]]),
        lambda: ExpertParallel(E, nodes=[[0, 1], [2, 3, 4]]),
        lambda: ExpertSlots(E, nodes=2),  # type: ignore[call-arg]
        ahead,
    ]
    return [error_message(call, ek.errors.InvalidArgument) for call in calls]


PAIRS = [[0, 1], [2, 3]]


class TwoLevelsTest(unittest.TestCase):
    def run_all(
        self, ranks: int, nodes: Any, members: Members, dtype: torch.dtype = torch.float32, **options: Any
    ) -> Any:
        options = {"imbalance_threshold": 0.0, "seeds": range(8)} | options
        seeds = options.pop("seeds")
        return sum(run_ranks(ranks, same, nodes, members, seeds, dtype, options), Counter())

    def test_bits_are_those_without_nodes_and_none_crosses_that_need_not(self) -> None:
        for ranks, nodes, members, options in (
            (4, 2, PAIRS, {}),
            (4, [[3, 0], [1, 2]], [[0, 3], [1, 2]], {"dtype": torch.bfloat16, "planner": "least-loaded"}),
            (6, 2, [[0, 1], [2, 3], [4, 5]], {"planner": "ep", "seeds": range(6)}),
            (6, [[0], [4, 1, 2], [3, 5]], [[0], [1, 2, 4], [3, 5]], {"seeds": range(6)}),
            (5, 2, PAIRS, {"outside": 1, "seeds": range(4)}),
            (4, 2, PAIRS, {"budget": 10**8, "chunk_bins": [4]}),
            (4, [[0], [1, 2, 3]], [[0], [1, 2, 3]], {"budget": 10**8, "chunk_bins": [2], "dtype": torch.bfloat16}),
        ):
            with self.subTest(ranks=ranks, nodes=nodes, **options):
                sums = self.run_all(ranks, nodes, members, **options)
                self.assertGreater(sums["more without nodes"], 8, "there is nothing to pass on")
                self.assertEqual(sums["weights_between_nodes"] > 10, options.get("planner") != "ep")
                self.assertEqual(sums["chunks"] > 8 * ranks, "budget" in options)

    def test_sums_in_nodes_bring_one_row_home_for_each_that_went_out(self) -> None:
        for ranks, nodes, members, options in (
            (4, 2, PAIRS, {}),
            (6, [[0], [4, 1, 2], [3, 5]], [[0], [1, 2, 4], [3, 5]], {"dtype": torch.bfloat16, "seeds": range(6)}),
            (4, 2, PAIRS, {"planner": "ep", "budget": 10**8, "chunk_bins": [4]}),
            (4, 4, [[0, 1, 2, 3]], {"seeds": range(4)}),
        ):
            with self.subTest(ranks=ranks, nodes=nodes, **options):
                without = self.run_all(ranks, nodes, members, **options)
                sums = self.run_all(ranks, nodes, members, **options, sum_in_nodes=True)
                self.assertEqual((without["more come home"] > 8, sums["more come home"]), (len(members) > 1, 0))

    def test_one_node_and_nodes_of_one_rank_pass_nothing_on(self) -> None:
        for nodes, members in ((4, [[0, 1, 2, 3]]), ("hosts", [[0, 1, 2, 3]]), (1, [[0], [1], [2], [3]])):
            sums = self.run_all(4, nodes, members, seeds=range(7))
            self.assertEqual(sums["rows_between_nodes"] > 0, nodes == 1)
            self.assertEqual(sums["more without nodes"], 0)

    def test_the_host_reads_numbers_of_rows_in_each_step(self) -> None:
        self.assertEqual(run_ranks(2, reads), [[(2, 0), (2, 0)]] * 2)

    def test_no_step_holds_more_than_its_budget(self) -> None:
        for ranks, nodes, over_least, sums in (
            (4, 2, 1.0, False),
            (6, 3, 1.3, False),
            (4, 2, 1.0, True),
            (6, 3, 1.3, True),
        ):
            for most, budget, cut in run_ranks(ranks, bounded, nodes, range(8), over_least, sums):
                self.assertLessEqual(most, budget)
                self.assertGreater(cut, 2)

    def test_sums_as_wide_as_f64_router_weights_are_counted(self) -> None:
        for peak, budget in run_ranks(2, with_f64_router):
            self.assertLessEqual(peak, budget)

    def test_a_checkpoint_computes_the_same_again(self) -> None:
        run_ranks(4, in_a_checkpoint)

    def test_a_rank_that_ends_within_its_node_is_named_on_all(self) -> None:
        for phase in ("dispatch", "combine", "gradient dispatch", "gradient return"):
            for said in run_ranks(4, leaves_its_node, phase)[:3]:
                self.assertIn("rank 3 does not answer (its process has ended, or it has left the group)", said)

    def test_nodes_that_cannot_be_are_refused(self) -> None:
        for given, why in (({}, "needs nodes"), ({"nodes": 2}, "'yes'")):
            with self.assertRaisesRegex(ek.errors.InvalidArgument, f"sum_in_nodes: .*{why}"):
                LayerOptions(sum_in_nodes="yes" if given else True, **given)  # type: ignore[arg-type]
        for nodes, right in (("racks", "hosts"), (0, "1.."), ([], "[[0, 1], [2, 3]]"), ([0, 1], "[[0, 1], [2, 3]]")):
            with self.assertRaisesRegex(ek.errors.InvalidArgument, "nodes: .*allowed: .*" + re.escape(right)):
                LayerOptions(nodes=nodes)  # type: ignore[arg-type]
        with self.assertRaisesRegex(
            ek.errors.InvalidArgument, 'nodes: applies only to evenkeel.s exchange.*allowed: mode="exchange"'
        ):
            evenkeel.transformers.register(mode="slots", nodes=2)
        divides, left_out, twice, outside, slots, ahead = run_ranks(4, refused)[2]
        self.assertIn("nodes: 3 ranks per node do not divide 4 ranks; allowed: a divisor of 4, or the ranks", divides)
        self.assertIn("nodes: rank 3 is in no node; allowed: each of the ranks 0..3 once", left_out)
        self.assertIn("nodes: rank 1 is named twice", twice)
        self.assertIn("nodes: rank 4 is not in the group", outside)
        self.assertIn("'nodes' is no argument of ExpertSlots()", slots)
        self.assertIn("model: has layers with nodes", ahead)
        for said in run_ranks(4, unlike):
            self.assertIn("nodes: is not the same on ranks 0 and 2: rank 0 has 2, rank 2 has ((0, 1, 2, 3),)", said)


if __name__ == "__main__":
    unittest.main()
