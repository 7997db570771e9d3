"""Balance behind a dispatcher that knows nothing of it: outputs are its own to the bit, gradients to rounding."""

from __future__ import annotations

import unittest
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from processes import run_ranks
from torch.distributed._functional_collectives import all_to_all_single_autograd

from evenkeel.torch import ExpertSlots
from evenkeel.torch._chunk import Weights


def experts(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """By operations that vectors do as scalars do, so that a row's bits do not depend on the others."""
    up, down = weights["up"][slots], weights["down"][slots]
    wide = torch.relu((rows.unsqueeze(1) * up).sum(-1))
    return (wide.unsqueeze(1) * down).sum(-1)


def dispatcher(hidden: torch.Tensor, places: torch.Tensor, top_k: torch.Tensor, run: Any, here: int) -> torch.Tensor:
    """All-to-alls of rows sorted by place, with `here` places on each rank."""
    ranks, k = dist.get_world_size(), places.shape[1]
    flat = places.reshape(-1)
    order = flat.argsort()
    order = order[flat[order] >= 0]
    sent = flat[order].bincount(minlength=ranks * here).view(ranks, here)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sizes = received.sum(1).tolist(), sent.sum(1).tolist()
    group = dist.group.WORLD
    rows = all_to_all_single_autograd(hidden[order // k], *sizes, group)
    slots = torch.arange(here).repeat(ranks).repeat_interleave(received.reshape(-1))
    back = all_to_all_single_autograd(run(rows, slots), *reversed(sizes), group)
    out = hidden.new_zeros((len(flat), hidden.shape[1])).index_copy(0, order, back)
    return (out.view(*places.shape, hidden.shape[1]) * top_k.unsqueeze(-1)).sum(1)


class Case:
    """One rank's inputs, from a seed."""

    def __init__(self, rank: int, ranks: int, seed: int) -> None:
        alike = torch.Generator().manual_seed(seed)

        def draw(*choices: Any) -> Any:
            return choices[int(torch.randint(len(choices), (), generator=alike))]

        self.here, self.k, self.slots = draw(1, 2, 4), draw(1, 2), draw(1, 2, 4)
        self.k = min(self.k, self.here * ranks)
        hot, width = draw(0.0, 0.5, 0.95, 1.0), draw(8, 24)
        random = torch.Generator().manual_seed(1000 * seed + rank)
        tokens = int(torch.randint(0, 60, (), generator=random))
        number = self.here * ranks
        self.ids = torch.rand((tokens, number), generator=random).argsort(1)[:, : self.k]
        self.ids[torch.rand(self.ids.shape, generator=random) < 0.05] = -1
        self.ids[torch.rand(tokens, generator=random) < hot, 0] = 0
        self.hidden = torch.randn((tokens, 16), generator=random).requires_grad_()
        self.top_k = torch.rand(self.ids.shape, generator=random).requires_grad_()
        self.weights = {
            "up": torch.randn((self.here, width, 16), generator=random).requires_grad_(),
            "down": torch.randn((self.here, 16, width), generator=random).requires_grad_(),
        }

    def inputs(self) -> list[torch.Tensor]:
        return [self.hidden, self.top_k, *self.weights.values()]

    def layer(self, **options: Any) -> ExpertSlots:
        options = {"slots": self.slots, "min_segment": 1, "imbalance_threshold": 0.0} | options
        return ExpertSlots(self.here * dist.get_world_size(), **options)

    def ours(self, layer: ExpertSlots) -> torch.Tensor:
        carry = partial(dispatcher, here=layer.places_here)
        return layer(self.hidden, self.ids, self.top_k, experts, self.weights, carry)

    def stock(self) -> torch.Tensor:
        run = partial(experts, weights=self.weights)
        return dispatcher(self.hidden, self.ids, self.top_k, run, self.here)


def exact(rank: int, ranks: int, seeds: range) -> int:
    moved = 0
    for seed in seeds:
        case = Case(rank, ranks, seed)
        layer = case.layer()
        ours, stock = case.ours(layer), case.stock()
        assert torch.equal(ours, stock), f"seed {seed}: {(ours - stock).abs().max()}"
        found, right = (torch.autograd.grad(made.square().sum(), case.inputs()) for made in (ours, stock))
        for mine, theirs in zip(found, right, strict=True):
            close = 2e-6 * float(theirs.abs().max()) if theirs.numel() else 0.0
            assert torch.allclose(mine, theirs, rtol=2e-6, atol=close), f"seed {seed}: {(mine - theirs).abs().max()}"
        moved += layer.last["transfers"]
    return moved


class SlotsTest(unittest.TestCase):
    def test_outputs_have_the_dispatchers_bits_and_gradients_its_numbers(self) -> None:
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                moved = run_ranks(ranks, exact, range(40))
                self.assertEqual(moved[0] > 0, ranks > 1)


if __name__ == "__main__":
    unittest.main()
