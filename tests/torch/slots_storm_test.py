"""A storm of steps with slots. In any mixture, outputs equal the dispatcher's to the bit and gradients within rounding,
or all ranks raise the same error. `slots_storm_test.py 17 30-59` repeats these seeds."""

from __future__ import annotations

import os
import random
import sys
import unittest
from contextlib import ExitStack
from typing import Any

import torch
from processes import chosen_seeds, error_message, run_ranks
from slots_test import Case, close, gradients
from torch import nn
from torch.utils.checkpoint import checkpoint

import evenkeel as ek
from evenkeel.torch import routes_ahead, weights_fixed

SEEDS = 50
"""Each has about eleven steps."""


class Storm:
    """One rank's layers, and the actions that a seed draws."""

    def __init__(self, rank: int, ranks: int, seed: int) -> None:
        self.rank, self.ranks, self.seed = rank, ranks, seed
        self.draw = random.Random(seed)  # the same on all ranks
        k = self.draw.choice([1, 2])
        cases = (Case(rank, ranks, 100 * seed + n) for n in range(100))
        self.cases = [case for case in cases if case.k == k][: self.draw.randint(1, 3)]
        options = {"imbalance_threshold": self.draw.choice([0.0, 1.2, "auto"])}
        self.layers = [case.layer(name=f"L{n}", **options) for n, case in enumerate(self.cases)]
        self.model = nn.Module()
        for n, layer in enumerate(self.layers):
            setattr(self.model, f"layer{n}", layer)
        self.steps = 0

    def run(self) -> int:
        for _ in range(3):
            for act in self.draw.sample([self.in_flight, self.fixed, self.ahead, self.wrong], 2):
                act()
            self.change()
        return self.steps

    def forward(self, n: int) -> torch.Tensor:
        self.steps += 1
        case, layer = self.cases[n], self.layers[n]
        if torch.is_grad_enabled() and self.draw.random() < 0.3:
            made: Any = checkpoint(lambda _: case.ours(layer), case.hidden, use_reentrant=False)
        else:
            made = case.ours(layer)
        assert torch.equal(made, case.stock()), f"output of layer {n}"
        return made  # type: ignore[no-any-return]

    def in_flight(self) -> None:
        """Runs micro-batches of the layers in one order, and their backward passes in another."""
        order = [self.draw.randrange(len(self.layers)) for _ in range(self.draw.randint(1, 4))]
        made = [(n, self.forward(n)) for n in order]
        self.draw.shuffle(made)
        for n, output in made:
            case = self.cases[n]
            close(gradients(output, case), gradients(case.stock(), case))

    def fixed(self) -> None:
        """Keeps slots across steps, while one rank's weights may change and some steps train."""
        with weights_fixed(self.model):
            n = self.draw.randrange(len(self.layers))
            for _ in range(self.draw.randint(2, 5)):
                n = n if self.draw.random() < 0.7 else self.draw.randrange(len(self.layers))
                changed = self.draw.randrange(2 * self.ranks)
                if changed == self.rank:
                    self.change()
                with ExitStack() as within:
                    if self.draw.random() < 0.8:
                        within.enter_context(self.draw.choice([torch.no_grad, torch.inference_mode])())
                    self.forward(n)

    def ahead(self) -> None:
        """Runs steps with routes known ahead, checked against the router."""
        tokens = min(len(case.ids) for case in self.cases)
        whole = [(case.hidden, case.ids, case.top_k) for case in self.cases]
        for case in self.cases:
            case.hidden, case.top_k = (t[:tokens].detach().requires_grad_() for t in (case.hidden, case.top_k))
            case.ids = case.ids[:tokens]
        ids = torch.stack([case.ids for case in self.cases], dim=1)
        ids[ids == -1] = 0
        for n, case in enumerate(self.cases):
            case.ids = ids[:, n].clone()
        odd = self.draw.randrange(3 * self.ranks)
        if odd == self.rank and tokens > 0:
            ids[tokens // 2] = -1  # the router decides for this token
        with routes_ahead(self.model, ids, replay=False):
            made = [self.forward(n) for n in range(len(self.layers))]
            for n, case in enumerate(self.cases):
                close(gradients(made[n], case), gradients(case.stock(), case))
        for case, given in zip(self.cases, whole, strict=True):
            case.hidden, case.ids, case.top_k = given

    def wrong(self) -> None:
        """One rank's ids, types or options are invalid: all ranks report it, and continue."""
        n, odd, how = self.draw.randrange(len(self.layers)), self.draw.randrange(self.ranks), self.draw.choice(UNLIKE)
        case, layer = self.cases[n], self.layers[n]
        given = case.ids, case.hidden, case.top_k
        with ExitStack() as within:
            if odd == self.rank and how.startswith("top_k_index"):
                case.ids = torch.full((3, case.k), 10**6)
                case.hidden, case.top_k = torch.zeros((3, 16)), torch.ones(case.ids.shape)
            elif odd == self.rank and how.startswith("hidden"):
                case.hidden = case.hidden.detach().double()
            elif odd == self.rank:
                within.enter_context(torch.autocast("cpu", torch.bfloat16))
            message = error_message(lambda: case.ours(layer), ek.InvalidArgument)
        assert how in message, message
        case.ids, case.hidden, case.top_k = given

    def change(self) -> None:
        for case in self.cases:
            for weight in case.weights.values():
                weight.detach().mul_(0.9)


UNLIKE = ("top_k_index: ", "hidden: is not the same on ranks", "autocast: is not the same on ranks")


def storm(rank: int, ranks: int, seeds: list[int]) -> int:
    steps = 0
    for seed in seeds:
        try:
            steps += Storm(rank, ranks, seed).run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: again: {sys.executable} {__file__} {seed}") from error
    return steps


class SlotsStormTest(unittest.TestCase):
    def test_mixed_steps_are_right_or_an_error_on_all_ranks(self) -> None:
        seeds = list(range(SEEDS * int(os.environ.get("EVENKEEL_STORM", "1"))))
        steps = run_ranks(2, storm, seeds[::2]), run_ranks(3, storm, seeds[1::2])
        self.assertGreater(steps[0][0] + steps[1][0], 500)


if __name__ == "__main__":
    chosen = chosen_seeds(sys.argv[1:])
    if not chosen:
        unittest.main()
    for each in chosen:
        print(each, run_ranks(2 + each % 2, storm, [each]))
