"""Routing known before the step: forced or checked, with no read by the host inside the layers."""

from __future__ import annotations

import json
import tempfile
import unittest
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from costs_test import NUMBERS
from processes import error_message, run_ranks
from slots_test import close, dispatcher, experts
from torch import nn
from torch.utils.checkpoint import checkpoint

import evenkeel as ek
from evenkeel.torch import ExpertParallel, ExpertSlots, _cut, keep_plans, routes_ahead
from evenkeel.torch._exchange import HostReads

EXPERTS, K, WIDTH, LAYERS, TOKENS = 8, 2, 16, 3, 40


class Block(nn.Module):
    """A router as models have it, and our experts. With `forced` ids the oracle sets the router's choice."""

    def __init__(self, kind: type[ExpertParallel], options: dict[str, Any]) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        here = EXPERTS // dist.get_world_size()
        self.up, self.down = (nn.Parameter(torch.randn(EXPERTS, WIDTH, WIDTH) / 4) for _ in "12")
        own = slice(dist.get_rank() * here, (dist.get_rank() + 1) * here)
        self.up, self.down = nn.Parameter(self.up[own].detach()), nn.Parameter(self.down[own].detach())
        self.layer = kind(EXPERTS, **{"imbalance_threshold": 1.0, "min_segment": 1} | options)
        self.forced: torch.Tensor | None = None
        self.chosen: torch.Tensor | None = None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        scores = self.router(hidden).softmax(-1)
        if self.forced is None:
            weights, ids = torch.topk(scores, K, dim=-1)
        else:
            weights, ids = scores.gather(-1, self.forced.clamp(min=0)), self.forced
        self.chosen = ids.clone()
        weights = weights / weights.sum(-1, keepdim=True)
        given = hidden, ids, weights, experts, {"up": self.up, "down": self.down}
        if isinstance(self.layer, ExpertSlots):
            return hidden + self.layer(*given, partial(dispatcher, here=self.layer.places_here))
        return hidden + self.layer(*given)


class Model(nn.Module):
    def __init__(self, kind: type[ExpertParallel], layers: int = LAYERS, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.blocks = nn.ModuleList(Block(kind, options) for _ in range(layers))
        self.around = lambda block, hidden: block(hidden)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            hidden = self.around(block, hidden)
        return hidden

    def force(self, ids: torch.Tensor | None) -> None:
        for i, block in enumerate(self.blocks):
            block.forced = None if ids is None else ids[:, i]

    def made(self, hidden: torch.Tensor) -> list[torch.Tensor]:
        """Runs forward and backward; returns the output and gradients."""
        self.zero_grad()
        out = self(hidden)
        out.square().mean().backward()
        return [out.detach(), *(parameter.grad.clone() for parameter in self.parameters())]


def routing(rank: int, collapsed: bool, tokens: int = TOKENS) -> torch.Tensor:
    random = torch.Generator().manual_seed(rank)
    ids = torch.rand(tokens, LAYERS, EXPERTS, generator=random)
    if collapsed:
        ids[: tokens * 9 // 10, :, 0] = 2.0
    return ids.topk(K).indices


def cases(rank: int, ranks: int) -> None:
    hidden = torch.randn(TOKENS, WIDTH)
    for kind, options in ((ExpertSlots, {"slots": 2}), (ExpertParallel, {}), (ExpertParallel, {"budget": "64KiB"})):
        model = Model(kind, **options)
        for ids in (routing(rank, False), routing(rank, True)):
            others = ids.to(torch.uint8).view(4, 10, LAYERS, K), ids.to(torch.int16).numpy()
            forced_is_carried_out(model, hidden, ids, *others)
        recomputed(model, hidden, routing(rank, True))
        checked(model, hidden)
    for layers in (1, LAYERS):
        without_ids(Model(ExpertSlots, layers), hidden, routing(rank, True)[:, :layers])


def under_a_budget(rank: int, ranks: int, budget: str, tokens: int) -> int:
    """Returns the chunks of the first layer."""
    model = Model(ExpertParallel, budget=budget)
    forced_is_carried_out(model, torch.randn(tokens, WIDTH), routing(rank, True, tokens))
    return int(model.blocks[0].layer.last["chunks"])


def of_another_kind(rank: int, ranks: int, budget: str) -> list[Any]:
    """Budgets of three steps, with and without routes ahead; the middle step has another type."""
    ids, hidden, budgets = routing(rank, True), torch.randn(TOKENS, WIDTH), []
    for ahead in (False, True):
        model = Model(ExpertParallel, budget=budget)
        for given in (hidden, hidden[:2].double(), hidden):
            made = model.to(given.dtype)
            try:
                if ahead:
                    with routes_ahead(made, ids[: len(given)]):
                        made.made(given)
                else:
                    made.force(ids[: len(given)])
                    made.made(given)
            except ek.BudgetTooSmall:
                budgets.append("too small")
            else:
                budgets.append(made.blocks[0].layer.budget)
    return budgets


def run_counted(model: Model, hidden: torch.Tensor, ids: Any) -> tuple[list[torch.Tensor], int, int]:
    """Runs with routes ahead as on a device. Returns the results, and the host's reads inside and outside layers."""
    with mock.patch("evenkeel.torch._agreement.on_host", lambda _: False):
        around = HostReads.count
        with routes_ahead(model, ids):
            before = HostReads.count
            made = model.made(hidden)
            inside = HostReads.count - before
        return made, inside, HostReads.count - around - inside


def forced_is_carried_out(model: Model, hidden: torch.Tensor, ids: torch.Tensor, *others: Any) -> None:
    """Blocks that do not fit the budget are counted again before the layers run, by one message per layer."""
    model.force(ids)
    model.made(hidden)  # measures
    right, last, again = model.made(hidden), [block.layer.last for block in model.blocks], counted_again(model, hidden)
    of_rows = any(block.layer.last["transfers"] and type(block.layer) is ExpertParallel for block in model.blocks)
    model.force(None)
    for form in (ids, *others):
        made, inside, outside = run_counted(model, hidden, form)
        assert not inside, f"{inside} reads"
        assert outside == 3 + of_rows + again, "two or three reads before the layers, one when the block ends"
        assert all(map(torch.equal, made, right))
        assert [block.layer.last for block in model.blocks] == last


def counted_again(model: Model, hidden: torch.Tensor) -> int:
    """The largest number of blocks in a layer that are counted again."""
    most = 0
    for block in model.blocks:
        with mock.patch.object(_cut, "count", side_effect=_cut.count) as counted:
            block(hidden)
        most = max(most, counted.call_count)
    return most


def costs_that_are_not_given(rank: int, ranks: int, file: Path) -> None:
    """A layer's first step measures its costs; under a budget, the first step with gradients measures chunks."""
    hidden, ids = torch.randn(TOKENS, WIDTH), routing(rank, True)
    for costs in (None, file):
        for budget in (None, "40KiB"):
            model = Model(ExpertParallel, imbalance_threshold="auto", costs=costs, budget=budget)
            with torch.no_grad():
                model(hidden)
            if budget is not None:
                run_counted(model, hidden, ids)
            made, inside, _ = run_counted(model, hidden, ids)
            assert not inside, f"{inside} reads"
            last = [block.layer.last for block in model.blocks]
            assert costs is None or all(each["transfers"] for each in last), last
            model.force(ids)
            assert all(map(torch.equal, made, model.made(hidden)))
            assert [block.layer.last for block in model.blocks] == last


def recomputed(model: Model, hidden: torch.Tensor, ids: torch.Tensor) -> None:
    """Inside the block, a checkpoint recomputes with the forced ids; after the block, recomputing is refused."""
    model.force(ids)
    right = model.made(hidden)
    model.around = partial(checkpoint, use_reentrant=False, context_fn=keep_plans)
    close(model.made(hidden.clone().requires_grad_()), right)
    model.force(None)
    made, inside, _ = run_counted(model, hidden.clone().requires_grad_(), ids)
    assert not inside, f"{inside} reads"
    close(made, right)
    for reentrant in (False, True):
        model.around = partial(checkpoint, use_reentrant=reentrant)
        given = hidden.clone().requires_grad_()
        with routes_ahead(model, ids):
            close(model.made(given), right)
        with routes_ahead(model, ids):
            out = model(given)
        with torch.no_grad():
            model(hidden)
        message = error_message(out.sum().backward, ek.InvalidArgument)
        assert "routes_ahead: the block has ended, but backward runs layer" in message, message
        first, second = (given.detach() + i for i in range(2))
        with routes_ahead(model, ids):
            out = model(first.requires_grad_())
        message = error_message(lambda: backward_in_another(model, second, ids, out), ek.InvalidArgument)  # noqa: B023
        assert "is not what the router of layer" in message, message
        model.around = lambda block, hidden: block(hidden)
    close(model.made(hidden), model.made(hidden))  # the layer still works


def backward_in_another(model: Model, hidden: torch.Tensor, ids: torch.Tensor, before: torch.Tensor) -> None:
    with routes_ahead(model, ids.roll(1, 0)):
        (model(hidden.requires_grad_()).sum() + before.sum()).backward()


def checked(model: Model, hidden: torch.Tensor) -> None:
    """Without replay, the router's own ids are accepted in any order. Other ids raise an error on all ranks."""
    right = model.made(hidden)
    ids = torch.stack([block.chosen for block in model.blocks], dim=1)
    with routes_ahead(model, ids.flip(-1), replay=False):
        close(model.made(hidden), right)
    for wrong in (ids[..., [0, 0]], torch.cat([ids[..., :1], ids[..., 1:] * 0 - 1], -1)):
        message = error_message(lambda: run_ahead(model, hidden, wrong, replay=False), ek.InvalidArgument)  # noqa: B023
        assert "for 40 tokens of rank 0, first token 0" in message, message
    other = ids.clone()
    if dist.get_rank() == 1:
        other[7::5, 1, 0] = (other[7::5, 1, 0] + 1 + (other[7::5, 1, 1] == (other[7::5, 1, 0] + 1) % EXPERTS)) % EXPERTS
    message = error_message(lambda: run_ahead(model, hidden, other, replay=False), ek.InvalidArgument)
    assert "of layer" in message and "for 7 tokens of rank 1, first token 7;" in message, message


def run_ahead(model: Model, hidden: torch.Tensor, ids: Any, **options: Any) -> None:
    with routes_ahead(model, ids, **options):
        model(hidden)


def without_ids(model: Model, hidden: torch.Tensor, ids: torch.Tensor) -> None:
    """A token without ids is routed by its router, or nowhere; a missing choice of another token stays missing."""
    model(hidden)
    own = [block.chosen[:5] for block in model.blocks]
    model.force(torch.cat([torch.stack(own, 1), ids[5:]]))
    for _ in "12":  # each layer's router depends on the layers before it
        model(hidden)
    some = ids.clone()
    some[9, -1, 1] = -1
    some[:5] = -1
    for missing in ("router", "drop"):
        model.force(None)
        model.around = partial(checkpoint, use_reentrant=False)
        with routes_ahead(model, some, missing=missing):
            made = model.made(hidden)
        model.around = lambda block, hidden: block(hidden)
        whole = some.clone()
        if missing == "router":
            whole[:5] = torch.stack([block.chosen for block in model.blocks], 1)[:5]
        model.force(whole)
        close(made, model.made(hidden))


def refused(rank: int, ranks: int, last: str) -> list[str]:
    """Errors of wrong ids and options; the last error ends the group."""
    model, hidden, ids = Model(ExpertSlots), torch.randn(TOKENS, WIDTH), routing(rank, True)
    wrong = ids.clone()
    wrong[0, 2, 1] = 8 if rank == 1 else wrong[0, 2, 1]

    def refusal(ids: Any = ids, model: nn.Module = model, **options: Any) -> str:
        return error_message(lambda: run_ahead(model, hidden, ids, **options), ek.InvalidArgument, ek.CommError)

    found = [
        refusal(wrong),
        refusal(replay=rank == 0),
        refusal(ids[:, :2]),
        refusal(ids.float()),
        refusal(missing="none"),
        refusal(model=nn.Linear(WIDTH, WIDTH)),
    ]
    if last == "tokens":
        return [*found, refusal(ids[: TOKENS - rank])]
    model.force(ids)
    return [*found, refusal()]


class RoutesAheadTest(unittest.TestCase):
    def test_what_is_known_ahead_is_what_runs(self) -> None:
        run_ranks(2, cases)

    def test_chunks_are_known_ahead_too(self) -> None:
        for ranks, budget, tokens, least in ((2, "24KiB", 66, 33), (4, "64KiB", TOKENS, 3)):
            with self.subTest(ranks=ranks):
                self.assertGreaterEqual(run_ranks(ranks, under_a_budget, budget, tokens)[0], least)

    def test_a_step_of_another_kind_says_nothing_of_the_next(self) -> None:
        for budgets in run_ranks(2, of_another_kind, "40KiB"):
            self.assertEqual(budgets, 2 * [40 << 10, "too small", 40 << 10])
        for budgets in run_ranks(2, of_another_kind, "auto"):
            self.assertEqual(budgets[:3], budgets[3:])

    def test_costs_that_are_not_given_are_known_once_a_layer_has_run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "cost.json")
            slow = {"flops_per_second": 1e6, "link_bytes_per_second": 1e9, "chunk_seconds": 0}
            file.write_text(json.dumps({"format": "evenkeel.cost.v2", **NUMBERS, **slow}))
            run_ranks(2, costs_that_are_not_given, file)

    def test_what_is_refused(self) -> None:
        for messages in run_ranks(2, refused, "tokens"):
            self.assertIn("1 ids of rank 1 in layer blocks.2 are outside -1..7", messages[0])
            self.assertIn("replay: is not the same on ranks 0 and 1: rank 0 has True, rank 1 has False", messages[1])
            self.assertIn("has shape [40, 2, 2]; allowed: [..., 3, k], for the model's 3 evenkeel layers", messages[2])
            self.assertIn("routed_experts: is of torch.float32; allowed: whole numbers", messages[3])
            self.assertIn("missing: 'none'; allowed: router, drop", messages[4])
            self.assertIn("model: has no evenkeel layer", messages[5])
            self.assertIn("has ids [39, 2] for layer blocks.0, but its router on this rank chose [40, 2]", messages[6])

    def test_a_router_that_cannot_be_forced(self) -> None:
        for messages in run_ranks(2, refused, "router"):
            self.assertIn("ids of layer blocks.0: its router calls no torch.topk with k=2 on [tokens, 8]", messages[6])


if __name__ == "__main__":
    unittest.main()
