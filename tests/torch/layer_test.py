"""The layer between processes matches one process: outputs to the bit, all gradients within rounding.

The oracle runs every token's experts on one rank: in f32 for the bits, dense in f64 for the gradients.
"""

from __future__ import annotations

import unittest
from collections.abc import Callable
from typing import Any

import torch
from processes import run_ranks

import evenkeel as ek
from evenkeel.torch import ExpertParallel, SpillCosts

HIDDEN, WIDTH = 24, 20


def experts(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """A gated feed-forward network. It computes row by row, so that a row's bits do not depend on the other rows."""
    made = rows.new_zeros((rows.shape[0], HIDDEN))
    parts, places = [], []
    for slot in range(weights["up"].shape[0]):
        at = (slots == slot).nonzero()[:, 0]
        if at.numel():
            gate, up = (rows[at].unsqueeze(1) * weights["up"][slot].unsqueeze(0)).sum(-1).chunk(2, dim=-1)
            parts.append(
                ((torch.nn.functional.silu(gate) * up).unsqueeze(1) * weights["down"][slot].unsqueeze(0)).sum(-1)
            )
            places.append(at)
    return made.index_add(0, torch.cat(places), torch.cat(parts)) if parts else made


def routing(seed: int, ranks: int, num_experts: int, k: int) -> list[torch.Tensor]:
    """The choices of each rank's tokens: even, hot, all on one expert, few, none, or with missing experts."""
    random = torch.Generator().manual_seed(seed)

    def below(count: int) -> int:
        return int(torch.randint(count, (1,), generator=random))

    kind, made = below(7), []
    hot = below(num_experts)
    for rank in range(ranks):
        tokens = (1 if rank == 0 else 0) if kind == 0 else below(40) if kind < 4 else 30
        ids = torch.randint(num_experts, (tokens, k), generator=random)
        if kind in (2, 5):
            ids[torch.rand((tokens, k), generator=random) < 0.9] = hot
        if kind == 3:
            ids[:] = hot
        if kind == 4:
            ids[torch.rand((tokens, k), generator=random) < 0.3] = -1
        if kind == 6:
            ids = ids % max(1, num_experts // 3)
        made.append(ids)
    return made


def inputs(seed: int, rank: int, ids: torch.Tensor, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(1000 * seed + rank)
    shapes = ((len(ids), HIDDEN), tuple(ids.shape), (len(ids), HIDDEN))
    hidden, weights, grad = (torch.randn(shape, generator=random).to(dtype) for shape in shapes)
    return [hidden, weights, grad]


def all_weights(seed: int, num_experts: int) -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    up = torch.randn((num_experts, 2 * WIDTH, HIDDEN), generator=random) * 0.3
    down = torch.randn((num_experts, HIDDEN, WIDTH), generator=random) * 0.3
    return {"up": up, "down": down}


def at_home(weights: dict[str, torch.Tensor], rank: int, ranks: int) -> dict[str, torch.Tensor]:
    """This rank's part of all weights; requires gradients."""
    count = len(next(iter(weights.values())))
    mine = slice(rank * count // ranks, (rank + 1) * count // ranks)
    return {name: weight[mine].detach().clone().requires_grad_() for name, weight in weights.items()}


def one_process(
    hidden: torch.Tensor, ids: torch.Tensor, top_k: torch.Tensor, weights: dict[str, torch.Tensor]
) -> torch.Tensor:
    tokens, k = ids.shape
    flat = ids.reshape(-1)
    some = (flat >= 0).nonzero()[:, 0]
    made = experts(hidden[some // k], flat[some], weights)
    every = made.new_zeros((tokens * k, HIDDEN)).index_add(0, some, made)
    return (every.view(tokens, k, HIDDEN) * top_k.unsqueeze(-1)).sum(1)


def least_budget(call: Callable[[], object]) -> int:
    """The least budget, from the error of a call whose budget is too small."""
    try:
        call()
    except ek.errors.BudgetTooSmall as error:
        return int(error.data["least"])
    raise AssertionError("the budget was enough")


def check(rank: int, ranks: int, seeds: list[int], options: dict[str, Any], num_experts: int, k: int) -> int:
    """Returns how many steps moved weights; fails if a result differs from the oracle's."""
    placed = options.pop("homes", None)
    placement = None
    if placed is not None:
        placement = ek.Placement([[[home] for home in placed]], ranks)
    mine = [e for e in range(num_experts) if (placed[e] if placed else _home(e, num_experts, ranks)) == rank]
    layer = ExpertParallel(num_experts, planner=options.pop("planner"), placement=placement, min_segment=1, **options)
    moved, chunks = 0, [0, 0]
    for seed in seeds:
        ids = routing(seed, ranks, num_experts, k)
        whole = all_weights(seed, num_experts)
        own = {name: weight[mine].clone().requires_grad_() for name, weight in whole.items()}
        hidden, top_k, grad = inputs(seed, rank, ids[rank])
        hidden.requires_grad_(), top_k.requires_grad_()
        made = layer(hidden, ids[rank], top_k, experts, own)
        moved += layer.last["transfers"] > 0
        single = one_process(hidden.detach(), ids[rank], top_k.detach(), whole)
        chunks[layer.last["chunks"] > 1] += 1
        assert torch.equal(made, single), f"seed {seed}, rank {rank}: {(made - single).abs().max()}"
        made.backward(grad)

        exact = {name: weight.double().requires_grad_() for name, weight in whole.items()}
        everyone = [[each.double() for each in inputs(seed, other, ids[other])] for other in range(ranks)]
        for each in everyone:
            each[0].requires_grad_(), each[1].requires_grad_()
        for other, (h, w, g) in enumerate(everyone):
            one_process(h, ids[other], w, exact).backward(g)
        _close(hidden.grad, everyone[rank][0].grad, f"seed {seed}, rank {rank}, hidden")
        _close(top_k.grad, everyone[rank][1].grad, f"seed {seed}, rank {rank}, router weights")
        for name, weight in own.items():
            dense = exact[name].grad
            _close(weight.grad, None if dense is None else dense[mine], f"seed {seed}, rank {rank}, {name}")
    assert layer.budget is None or chunks[1] > len(seeds) // 4, chunks
    return moved


def _close(made: torch.Tensor | None, exact: torch.Tensor | None, what: str) -> None:
    assert made is not None, f"{what}: no gradient"
    exact = torch.zeros_like(made) if exact is None else exact
    scale = max(1.0, float(exact.abs().max())) if exact.numel() else 1.0
    worst = float((made.double() - exact).abs().max()) if exact.numel() else 0.0
    assert worst <= 2e-5 * scale, f"{what}: off by {worst} of {scale}"


def _home(expert: int, num_experts: int, ranks: int) -> int:
    return next(r for r in range(ranks) if expert < (r + 1) * num_experts // ranks)


class LayerTest(unittest.TestCase):
    def run_all(self, ranks: int, seeds: int, num_experts: int = 8, k: int = 3, **options: Any) -> int:
        options.setdefault("planner", "level")
        options.setdefault("imbalance_threshold", 0.0)
        return sum(run_ranks(ranks, check, list(range(seeds)), options, num_experts, k))

    def test_bits_and_gradients_are_those_of_one_process(self) -> None:
        """Each case also needs more than the given number of steps in which weights move."""
        cases: tuple[tuple[int, int, int, dict[str, Any]], ...] = (
            (2, 100, 50, {}),
            (4, 30, 20, {"num_experts": 10, "planner": "least-loaded"}),
            (2, 30, 10, {"homes": [1, 0, 0, 1, 1, 0, 1, 0]}),
            (3, 20, 10, {"num_experts": 7}),
            (2, 100, 50, {"budget": 400_000}),
            (4, 20, -1, {"budget": 600_000}),
        )
        for ranks, seeds, moving, options in cases:
            with self.subTest(ranks=ranks, **options):
                self.assertGreater(self.run_all(ranks, seeds, **options), moving)

    def test_plain_expert_parallelism_and_one_rank_move_nothing(self) -> None:
        self.assertEqual(self.run_all(2, 20, planner="ep"), 0)
        self.assertEqual(self.run_all(1, 10), 0)

    def test_gains_decide_alike_on_all_ranks(self) -> None:
        self.assertEqual(self.run_all(2, 20, imbalance_threshold="auto", costs=SpillCosts(1e-9, 1.0, 1.0)), 0)
        self.assertGreater(self.run_all(2, 20, imbalance_threshold="auto", costs=SpillCosts(1.0, 1e-9, 1e-9)), 5)
        self.run_all(2, 3, imbalance_threshold="auto")


if __name__ == "__main__":
    unittest.main()
