"""Balance behind a dispatcher that does not know of it: outputs match to the bit, gradients within rounding."""

from __future__ import annotations

import time
import unittest
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from processes import error_message, run_ranks
from torch.autograd.graph import save_on_cpu
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.utils.checkpoint import checkpoint

import evenkeel as ek
from evenkeel.torch import ExpertSlots, LiveBytes, keep_plans, weights_fixed
from evenkeel.torch._chunk import Weights
from evenkeel.torch._exchange import Exchange, HostReads
from evenkeel.torch._slots import SlotStep


def experts(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Uses only elementwise operations and row sums, so that a row's bits do not depend on the other rows."""
    up, down = weights["up"][slots], weights["down"][slots]
    wide = torch.relu((rows.unsqueeze(1) * up).sum(-1))
    return (wide.unsqueeze(1) * down).sum(-1)


def dispatcher(
    hidden: torch.Tensor, places: torch.Tensor, top_k: torch.Tensor, run: Any, here: int, group: Any = None
) -> torch.Tensor:
    """Exchanges rows sorted by place with all-to-all; each rank has `here` places."""
    group = group or dist.group.WORLD
    ranks, k = dist.get_world_size(group), places.shape[1]
    flat = places.reshape(-1)
    order = flat.argsort()
    order = order[flat[order] >= 0]
    sent = flat[order].bincount(minlength=ranks * here).view(ranks, here)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    sizes = received.sum(1).tolist(), sent.sum(1).tolist()
    rows = all_to_all_single_autograd(hidden[order // k], *sizes, group)
    slots = torch.arange(here).repeat(ranks).repeat_interleave(received.reshape(-1))
    back = all_to_all_single_autograd(run(rows, slots), *reversed(sizes), group)
    out = hidden.new_zeros((len(flat), hidden.shape[1])).index_copy(0, order, back)
    return (out.view(*places.shape, hidden.shape[1]) * top_k.unsqueeze(-1)).sum(1)


class Case:
    """One rank's inputs, drawn from a seed."""

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
        close(gradients(ours, case), gradients(stock, case))
        moved += layer.last["transfers"]
    return moved


def gradients(made: torch.Tensor, case: Case) -> list[torch.Tensor]:
    return [*torch.autograd.grad(made.square().sum(), case.inputs())]


def close(found: list[torch.Tensor], right: list[torch.Tensor], error: float = 2e-6) -> None:
    for i, (mine, theirs) in enumerate(zip(found, right, strict=True)):
        most = float(theirs.float().abs().max()) if theirs.numel() else 0.0
        off = (mine.float() - theirs.float()).abs()
        assert not off.numel() or float(off.max()) <= error * most, f"input {i}: off by {off.max()} of {most}"


def modes(rank: int, ranks: int, seed: int) -> None:
    """Under each autograd mode, a step's results match those of the plain step."""
    case = Case(rank, ranks, seed)
    layer = case.layer()
    made = case.ours(layer)
    right = gradients(made, case)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert torch.equal(case.ours(layer), made)
    for reentrant in (False, True):
        again = checkpoint(lambda hidden: case.ours(layer), case.hidden, use_reentrant=reentrant)
        again.square().sum().backward()
        close([each.grad for each in case.inputs() if each.grad is not None], right)
        for each in case.inputs():
            each.grad = None
    before = HostReads.count
    again = checkpoint(lambda hidden: case.ours(layer), case.hidden, use_reentrant=False, context_fn=keep_plans)
    assert torch.equal(again, made)
    for _ in "12":
        close([*torch.autograd.grad(again.square().sum(), case.inputs(), retain_graph=True)], right)
    assert HostReads.count == before + 1
    with save_on_cpu():  # the hook moves the saved ticket, so that the experts run again
        offloaded = case.ours(layer)
    close(gradients(offloaded, case), right)
    twice = case.ours(layer)
    close([*torch.autograd.grad(twice.square().sum(), case.inputs(), retain_graph=True)], right)
    close(gradients(twice, case), right)
    case.weights["up"].requires_grad_(False)
    frozen = case.ours(layer)
    kept = [each for each in case.inputs() if each.requires_grad]
    close([*torch.autograd.grad(frozen.square().sum(), kept)], [*right[:2], right[3]])


def under_autocast(rank: int, ranks: int, seed: int) -> None:
    case = Case(rank, ranks, seed)
    layer = case.layer()
    with torch.autocast("cpu", torch.bfloat16):
        made, right = case.ours(layer), case.stock()
    assert torch.equal(made, right)
    close(gradients(made, case), gradients(right, case), 0.02)


def packed_experts(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Experts of packed bytes with a scale each, and a bias: whole experts travel, whatever their tensors are."""
    up = weights["bytes"].view(torch.int8)[slots].to(rows.dtype) * weights["scale"][slots][:, None, None]
    return (rows.unsqueeze(1) * up).sum(-1) + weights["bias"][slots]


def packed(rank: int, ranks: int, seed: int) -> None:
    case = Case(rank, ranks, seed)
    random = torch.Generator().manual_seed(seed + rank)
    weights = {
        "bytes": torch.randint(256, (case.here, 16, 16), generator=random, dtype=torch.uint8),
        "scale": torch.rand(case.here, generator=random).to(torch.float8_e5m2).float(),
        "bias": torch.randn((case.here, 16), generator=random),
    }
    layer = case.layer()
    carry = partial(dispatcher, here=layer.places_here)
    made = layer(case.hidden, case.ids, case.top_k, packed_experts, weights, carry)
    run = partial(packed_experts, weights=weights)
    assert torch.equal(made, dispatcher(case.hidden, case.ids, case.top_k, run, case.here))


def sorted_experts(rows: torch.Tensor, counts: torch.Tensor, weights: Weights, probs: torch.Tensor) -> torch.Tensor:
    """Rows after the counted ones are NaN, as are their gradients."""
    own, past = rows.tensor_split([int(counts.sum())])
    made = experts(own, torch.arange(len(counts)).repeat_interleave(counts), weights)
    return torch.cat([made, past * torch.nan]) * probs[:, None]


def pad_rows(rows: torch.Tensor, counts: torch.Tensor, multiple: int, more: int) -> tuple[torch.Tensor, ...]:
    """Pads each place's rows to a nonzero multiple and adds `more` rows; returns rows, counts and indices."""
    room = (counts.clamp(min=1) + multiple - 1) // multiple * multiple
    moved = (room.cumsum(0) - room) - (counts.cumsum(0) - counts)
    at = torch.arange(len(rows)) + moved.repeat_interleave(counts)
    wide = rows.new_zeros((int(room.sum()) + more, *rows.shape[1:]))
    wide[len(wide) - more :] = torch.nan
    return wide.index_copy(0, at, rows), room, at


def sorts(rank: int, ranks: int, seed: int, multiple: int = 0, more: int = 0) -> None:
    """Sorts rows by place, with the router's weights beside them; with `multiple`, pads the rows."""
    case = Case(rank, ranks, seed)
    layer = case.layer()

    def carry(hidden: torch.Tensor, places: torch.Tensor, top_k: torch.Tensor, run: Any) -> torch.Tensor:
        wide = torch.cat([hidden[:, None].expand(-1, case.k, -1), top_k[..., None]], -1).flatten(0, 1)

        def sort(rows: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
            order = slots.argsort(stable=True)
            counts = slots.bincount(minlength=layer.places_here)
            sorted_rows, at = rows[order], torch.arange(len(order))
            if multiple:
                sorted_rows, counts, at = pad_rows(sorted_rows, counts, multiple, more)
            out = run.sorted(sorted_experts, sorted_rows[:, :-1], counts, sorted_rows[:, -1])
            assert out.isfinite().all()
            out = torch.nn.functional.pad(out[at], (0, 1))  # the width of the received rows
            return torch.empty_like(out).index_copy(0, order, out)

        flat = places.view(-1, 1)
        made = dispatcher(wide, flat, torch.ones_like(flat, dtype=hidden.dtype), sort, layer.places_here)
        return made.view(*places.shape, hidden.shape[1] + 1)[..., :-1].sum(1)

    made = layer(case.hidden, case.ids, case.top_k, experts, case.weights, carry)
    right = case.stock()
    assert torch.allclose(made, right, rtol=1e-6, atol=1e-6)
    close(gradients(made, case), gradients(right, case))


def keeps_no_borrowed_weight(rank: int, ranks: int) -> None:
    """Between forward and backward, a step holds no more than stock, apart from what home experts hold in any case."""
    held = []
    for ours in (False, True):
        case = Case(rank, ranks, 0)
        case.here, case.k, case.slots = 2, 1, 2
        random = torch.Generator().manual_seed(rank)
        case.hidden = torch.randn((32, 16), generator=random).requires_grad_()
        case.ids = torch.zeros((32, 1), dtype=torch.int64)
        case.top_k = torch.rand((32, 1), generator=random).requires_grad_()
        case.weights = {
            "up": torch.randn((2, 4096, 16), generator=random).requires_grad_(),
            "down": torch.randn((2, 16, 4096), generator=random).requires_grad_(),
        }
        layer = case.layer()
        slow = partial(one_by_one, weights=case.weights)
        with LiveBytes() as live:
            if ours:
                carry = partial(dispatcher, here=layer.places_here)
                made = layer(case.hidden, case.ids, case.top_k, one_by_one, case.weights, carry)
                assert layer.last["transfers"] == ranks - 1
            else:
                made = dispatcher(case.hidden, case.ids, case.top_k, slow, case.here)
            held.append(live.now)
        made.square().sum().backward()
    expert = 2 * 4096 * 16 * 4
    total = torch.tensor(held)
    dist.all_reduce(total)
    assert total[1] <= total[0] + expert / 4, f"{total.tolist()}, and an expert has {expert}"


def one_by_one(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Computes expert by expert, without copying the weights."""
    parts = [(slots == slot).nonzero()[:, 0] for slot in range(len(weights["up"]))]
    made = [torch.relu(rows[at] @ weights["up"][i].T) @ weights["down"][i].T for i, at in enumerate(parts) if len(at)]
    out = rows * 0  # part of the graph even without rows
    return out.index_add(0, torch.cat(parts), torch.cat(made)) if made else out


def slots_kept(rank: int, ranks: int) -> tuple[int, int]:
    """Weights sent by steps whose slots stay, and by steps that fill slots anew; every step has stock's bits."""
    sent, anew = 0, 0
    for seed in (5, 9, 14):
        case = Case(rank, ranks, seed)
        case.hidden, case.ids, case.top_k = (t.detach().repeat(20, 1) for t in (case.hidden, case.ids, case.top_k))
        layer, fresh = case.layer(), case.layer()
        random = torch.Generator().manual_seed(rank)

        def step(which: ExpertSlots, case: Case = case) -> int:
            assert torch.equal(case.ours(which), case.stock())
            transfers: int = which.last["transfers"]
            return transfers

        with torch.no_grad(), weights_fixed(layer):
            for i in range(12):
                order = torch.rand(len(case.ids), generator=random).argsort()
                case.ids = case.ids[order]
                case.ids[:2] = torch.rand((len(case.ids[:2]), layer.num_experts), generator=random).argsort(1)[
                    :, : case.k
                ]
                with torch.inference_mode() if i % 2 else torch.no_grad():
                    sent += step(layer)
                    anew += step(fresh)
    return sent, anew


def changed(rank: int, ranks: int) -> str:
    """Weights that one rank or all ranks change empty the slots; nothing stays from an earlier block."""
    case = Case(rank, ranks, 5)
    layer = case.layer()

    def step() -> int:
        with torch.no_grad():
            assert torch.equal(case.ours(layer), case.stock())
        sent: int = layer.last["transfers"]
        return sent

    with weights_fixed(layer):
        close(gradients(case.ours(layer), case), gradients(case.stock(), case))  # a training step, whose weights travel
        first = step()
        assert first > 0 and step() == 0
        for which in (rank == 0, rank == 1, True):
            if which:
                case.weights["up"].detach().mul_(2)
            assert step() == first
            assert step() == 0
        optimizer = torch.optim.SGD(case.weights.values(), lr=0.1)
        case.ours(layer).square().sum().backward()
        optimizer.step()
        assert step() == first
        case.weights = {name: weight.detach().clone() + 1 for name, weight in case.weights.items()}
        assert step() == first
    with weights_fixed(layer):
        assert step() == first
        kept = case.weights
        wide = {"up": torch.randn(case.here, 4096, 16), "down": torch.randn(case.here, 16, 4096)}
        for _ in "123":  # new tensors with new values, allocated at the addresses of earlier ones
            case.weights = {name: weight * 1.0 for name, weight in wide.items()}
            assert step() == first
            for weight in wide.values():
                weight.mul_(2)
        case.weights = kept
    layer = case.layer(slots=2**31 - 1)  # more slots than experts to borrow
    with weights_fixed(layer):
        assert layer.slots == layer.num_experts
        assert step() == first and step() == 0
    return error_message(lambda: weights_fixed(torch.nn.Linear(1, 1)).__enter__(), ek.errors.InvalidArgument)


def messages(rank: int, ranks: int) -> list[list[str]]:
    """What a step sends and what the host reads, besides the dispatcher: if nothing moves, and if a weight moves."""
    found: list[list[str]] = []
    begin = Exchange._begin

    def recorded(self: Exchange, phase: str, *rest: Any) -> Any:
        found[-1].append(f"{phase}, {self.direction}")
        return begin(self, phase, *rest)

    case = Case(rank, ranks, 5)
    layer = case.layer(imbalance_threshold=1.5)
    with mock.patch.object(Exchange, "_begin", recorded):
        for ids in (torch.arange(len(case.ids)).view(-1, 1) % layer.num_experts, torch.zeros_like(case.ids[:, :1])):
            case.ids, case.top_k = ids, torch.ones(ids.shape)
            found.append([])
            case.ours(layer)
            found[-1].clear()  # a layer's first step has space for fewer counts
            before = HostReads.count, HostReads.bytes
            made = case.ours(layer)
            found[-1].append(f"{HostReads.count - before[0]} read of {HostReads.bytes - before[1]} bytes")
            made.sum().backward()
            assert HostReads.count == before[0] + 1, "backward reads"
    return found


def runs_otherwise(rank: int, ranks: int, times: int) -> str:
    """The error if a dispatcher calls `run` this many times."""
    case = Case(rank, ranks, 5)
    layer = case.layer()

    def carry(hidden: torch.Tensor, places: torch.Tensor, top_k: torch.Tensor, run: Any) -> torch.Tensor:
        def again(rows: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
            return torch.stack([run(rows, slots) for _ in range(times)] or [rows]).sum(0)

        return dispatcher(hidden, places, top_k, again, layer.places_here)

    call = partial(layer, case.hidden, case.ids, case.top_k, experts, case.weights, carry)
    return error_message(call, ek.errors.InvalidArgument, ek.errors.CommError)


def refused(rank: int, ranks: int) -> list[str]:
    """Errors that every rank raises alike, and survives; the last concerns a rank's own dispatcher."""
    case = Case(rank, ranks, 3)
    case.ids = torch.zeros((8, 1), dtype=torch.int64)
    case.hidden, case.top_k = torch.ones((8, 16)), torch.ones((8, 1))
    layer = case.layer()

    def call(dispatch: Any, ids: torch.Tensor = case.ids) -> str:
        run = partial(layer, case.hidden, ids, case.top_k, experts, case.weights, dispatch)
        return error_message(run, ek.errors.InvalidArgument, ek.errors.CommError)

    return [
        call(partial(dispatcher, here=layer.places_here), case.ids - 2),
        *(
            error_message(make, ek.errors.InvalidArgument)
            for make in (
                lambda: case.layer(planner="least-loaded"),
                lambda: case.layer(slots=0),
                lambda: case.layer(slots=None),
                lambda: ExpertSlots(3),
            )
        ),
        call(lambda hidden, places, top_k, run: run(hidden[:3], places[:3, 0])),
        call(None),
    ]


def raises_early(rank: int, ranks: int) -> str:
    """Rank 1's dispatcher raises before rank 0 has sent a weight, so rank 0 never sends it."""
    case = Case(rank, ranks, 5)
    layer = case.layer()
    borrow = SlotStep.borrow

    def late(step: SlotStep, weights: Any) -> Any:
        time.sleep(1)
        return borrow(step, weights)

    def raising(*_: Any) -> torch.Tensor:
        raise ValueError("of its own")

    with mock.patch.object(SlotStep, "borrow", late if rank == 0 else borrow):
        call = partial(layer, case.hidden, case.ids, case.top_k, experts, case.weights, raising)
        said = error_message(call, ek.errors.CommError, ValueError)
    time.sleep(2 * (rank == 0))  # by then rank 1 has its answer, or still waits
    return said


class SlotsTest(unittest.TestCase):
    def test_outputs_have_the_dispatchers_bits_and_gradients_its_numbers(self) -> None:
        for ranks in (1, 2, 4):
            with self.subTest(ranks=ranks):
                moved = run_ranks(ranks, exact, range(40))
                self.assertEqual(moved[0] > 0, ranks > 1)

    def test_modes_of_autograd(self) -> None:
        for ranks, seed in ((2, 5), (2, 9), (4, 6), (4, 11)):
            with self.subTest(ranks=ranks, seed=seed):
                run_ranks(ranks, modes, seed)

    def test_autocast(self) -> None:
        for seed in (5, 9):
            run_ranks(2, under_autocast, seed)

    def test_packed_experts_travel_whole(self) -> None:
        for seed in (5, 6, 9):
            run_ranks(2, packed, seed)

    def test_rows_sorted_by_place(self) -> None:
        for ranks, seed in ((2, 5), (4, 9), (2, 9), (4, 6)):
            run_ranks(ranks, sorts, seed)

    def test_rows_sorted_by_place_with_more_rows_than_assignments(self) -> None:
        for ranks, seed, multiple, more in ((2, 5, 1, 0), (2, 9, 8, 0), (2, 14, 1, 100), (4, 9, 4, 7), (4, 6, 16, 64)):
            with self.subTest(ranks=ranks, seed=seed):
                run_ranks(ranks, sorts, seed, multiple, more)

    def test_between_the_passes_no_borrowed_weight_is_kept(self) -> None:
        for ranks in (2, 4):
            run_ranks(ranks, keeps_no_borrowed_weight)

    def test_slots_that_stay_have_the_same_bits_and_send_less(self) -> None:
        for ranks in (2, 4):
            (sent, anew), *_ = run_ranks(ranks, slots_kept)
            self.assertLess(2 * sent, anew)

    def test_weights_that_change_empty_the_slots(self) -> None:
        said = "model: Linear has no layer with slots; allowed: one whose layers are ExpertSlots"
        self.assertEqual(run_ranks(2, changed), [said] * 2)

    def test_a_step_sends_counts_and_what_moves_and_reads_counts_alone(self) -> None:
        for nothing_moves, moving in run_ranks(2, messages):
            read = f"1 read of {2 * 4 * (8 + 7)} bytes"  # 8 counts from each rank, with 7 words around them
            self.assertEqual(nothing_moves, ["counts, forward", "dispatcher, forward", read])
            weights = [f"weights, {direction}" for direction in ("forward", "backward") for _ in "12"]
            home = ["weight gradients, backward"] * 2
            self.assertEqual(
                moving, ["counts, forward", *weights[:2], "dispatcher, forward", read, *weights[2:], *home]
            )

    def test_what_a_dispatcher_raises_waits_for_no_weight(self) -> None:
        others, own = run_ranks(2, raises_early)
        self.assertEqual(own, "of its own")
        self.assertIn("rank 1 failed (ValueError: of its own)", others)

    def test_what_is_refused(self) -> None:
        for rank, said in enumerate(run_ranks(2, refused)):
            self.assertRegex(said[0], "8 expert ids of rank 0 are outside -1..")
            self.assertEqual(said[1], "planner: 'least-loaded'; allowed: ep, level")
            self.assertEqual(said[2], "slots: 0; allowed: 1..2147483647")
            self.assertIn("slots: None; allowed", said[3])
            self.assertIn("3 experts are at home on 2 ranks as [1, 2]; allowed: equally many on each", said[4])
            self.assertRegex(
                said[5], f"dispatcher: brought 3 rows to rank {rank}; allowed: 8, one for each|rank . failed"
            )
            self.assertEqual(said[6], "dispatcher: is a NoneType; allowed: a callable")

    def test_a_dispatcher_calls_run_once(self) -> None:
        for times, what in ((0, "did not call run"), (2, "calls run a second time in one step")):
            for rank, said in enumerate(run_ranks(2, runs_otherwise, times)):
                self.assertRegex(said, f"dispatcher: {what} on rank {rank}|rank {1 - rank} failed")


if __name__ == "__main__":
    unittest.main()
