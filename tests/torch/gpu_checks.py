"""Checks and times evenkeel.torch on a GPU that four ranks share as threads; on the CPU if there is no GPU.

usage: gpu_checks.py [--device cuda|cpu] [--json PATH]

Each line has a measurement, from the worst rank, and its limit. Exits with 1 if one exceeds its limit.
tools/gpu_torch.sh runs this on a machine with a GPU.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from threads import run_threads
from torch import nn
from torch.nn.functional import grouped_mm

import evenkeel as ek
from evenkeel import _native
from evenkeel.torch import ExpertParallel, ExpertSlots, LiveBytes, routes_ahead
from evenkeel.torch._chunk import Experts, Weights
from evenkeel.torch._cut import count_values
from evenkeel.torch._exchange import HostReads, on_host
from evenkeel.torch._routes import Sent
from evenkeel.torch._slots import places_of

RANKS = 4
BARRIER = threading.Barrier(RANKS, timeout=60)


class Kind(NamedTuple):
    name: str
    made: type[ExpertParallel]
    options: dict[str, Any]

    def layer(self, experts: int, **more: Any) -> ExpertParallel:
        return self.made(experts, imbalance_threshold=1.0, **self.options, **more)


SLOTS = Kind("slots", ExpertSlots, {"slots": 4})
PARALLEL = Kind("parallel", ExpertParallel, {})
BUDGET = Kind("parallel, budget", ExpertParallel, {"budget": "auto"})


class Line(NamedTuple):
    what: str
    value: float
    unit: str = ""
    at_most: float | None = None

    def holds(self) -> bool:
        return self.at_most is None or self.value <= self.at_most

    def __str__(self) -> str:
        bar = "" if self.at_most is None else f"at most {self.at_most:g}" + ("" if self.holds() else "  MISSED")
        return f"{self.what:<58} {self.value:>12.4g} {self.unit:<8} {bar}".rstrip()


class Shape(NamedTuple):
    experts: int
    tokens: int
    k: int
    hidden: int
    width: int


class Case:
    """One rank's inputs; the share `hot` of all choices falls on expert 0. `every` has the weights of all ranks."""

    def __init__(self, rank: int, shape: Shape, device: torch.device, dtype: torch.dtype, hot: float) -> None:
        alike, mine = torch.Generator(device).manual_seed(1), torch.Generator(device).manual_seed(2 + rank)

        def draw(random: torch.Generator, *size: int) -> torch.Tensor:
            return torch.randn(size, generator=random, device=device).to(dtype).requires_grad_()

        here = shape.experts // RANKS
        self.every = {
            "up": draw(alike, shape.experts, shape.hidden, shape.width),
            "down": draw(alike, shape.experts, shape.width, shape.hidden),
        }
        self.home = slice(rank * here, (rank + 1) * here)
        self.weights = {name: w.detach()[self.home].clone().requires_grad_() for name, w in self.every.items()}
        self.hidden, self.top_k = draw(mine, shape.tokens, shape.hidden), draw(mine, shape.tokens, shape.k)
        chosen = torch.rand((shape.tokens, shape.experts), generator=mine, device=device).topk(shape.k).indices
        self.ids = torch.where(torch.rand(chosen.shape, generator=mine, device=device) < hot, 0, chosen)
        self.ids[:2, -1] = -1

    def step(self, layer: ExpertParallel, experts: Experts) -> torch.Tensor:
        given = self.hidden, self.ids, self.top_k, experts, self.weights
        carry = [partial(dispatcher, here=layer.places_here)] if isinstance(layer, ExpertSlots) else []
        made: torch.Tensor = layer(*given, *carry)
        return made

    def alone(self, experts: Experts) -> torch.Tensor:
        """The output as one rank with all experts computes it."""
        flat, k = self.ids.reshape(-1), self.ids.shape[1]
        rows = self.hidden.index_select(0, torch.arange(len(flat), device=flat.device) // k)
        made = experts(rows, flat.clamp(min=0), self.every).masked_fill((flat < 0)[:, None], 0)
        return (made.view(-1, k, made.shape[1]) * self.top_k.unsqueeze(-1)).sum(1)

    def gradients(self, made: torch.Tensor, weights: Weights) -> list[torch.Tensor]:
        return [*torch.autograd.grad(made.square().sum(), [self.hidden, self.top_k, *weights.values()])]


class AllToAll(torch.autograd.Function):
    """Sends `sent[r]` rows to rank r and receives `received[r]` from it. torch's own class keeps being renamed."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        ctx.sizes = received, sent
        out = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
        return AllToAll.apply(grad, *ctx.sizes), None, None


def dispatcher(hidden: torch.Tensor, places: torch.Tensor, top_k: torch.Tensor, run: Any, here: int) -> torch.Tensor:
    """Exchanges rows sorted by place with all-to-all. To learn the sizes, it waits for the device."""
    k, flat = places.shape[1], places.reshape(-1)
    order = flat.argsort(stable=True)
    order = order[flat[order] >= 0]
    sent = count_values(flat[order], RANKS * here).view(RANKS, here)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sizes = sent.sum(1).tolist(), received.sum(1).tolist()
    rows: torch.Tensor = AllToAll.apply(hidden.index_select(0, order // k), *sizes)
    slots = torch.arange(here, device=places.device).repeat(RANKS).repeat_interleave(received.reshape(-1))
    back: torch.Tensor = AllToAll.apply(run(rows, slots), *reversed(sizes))
    out = hidden.new_zeros((len(flat), hidden.shape[1])).index_copy(0, order, back)
    return (out.view(*places.shape, hidden.shape[1]) * top_k.unsqueeze(-1)).sum(1)


def one_order(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Adds products in a fixed order with elementwise operations: a row's bits depend only on that row."""

    def product(rows: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
        of_rows = matrices.index_select(0, slots)
        total = torch.zeros_like(of_rows[:, 0])
        for numbers, weights in zip(rows.unbind(1), of_rows.unbind(1), strict=True):
            total = total + numbers[:, None] * weights
        return total

    return product(torch.relu(product(rows, weights["up"])), weights["down"])


def grouped(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """Grouped products, as models compute them, without waiting for the device."""
    order = slots.argsort(stable=True)
    ends = count_values(slots, len(weights["up"])).cumsum(0).to(torch.int32)
    wide = torch.relu(grouped_mm(rows.index_select(0, order), weights["up"], offs=ends))
    return torch.empty_like(rows).index_copy(0, order, grouped_mm(wide, weights["down"], offs=ends))


def largest(values: torch.Tensor) -> float:
    return float(values.float().abs().max())


def exact(rank: int, ranks: int, device: torch.device) -> list[Line]:
    """Compares with one rank that has all experts: outputs to the bit, gradients within rounding."""
    shape, found = Shape(experts=8, tokens=40 + 8 * rank, k=2, hidden=8, width=16), []
    for dtype, bar in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
        for kind in (SLOTS, PARALLEL, BUDGET):
            layer = kind.layer(shape.experts, min_segment=1)
            differ, off = 0, 0.0
            for hot in (0.0, 0.95):
                case = Case(rank, shape, device, dtype, hot)
                made, right = case.step(layer, one_order), case.alone(one_order)
                differ += int((made != right).sum())
                of_ours, of_one = case.gradients(made, case.weights), case.gradients(right, case.every)
                for i, whole in enumerate(of_one[2:], 2):  # summed over all ranks' tokens
                    total = whole.float()
                    dist.all_reduce(total)
                    of_one[i] = total[case.home]
                for ours, one in zip(of_ours, of_one, strict=True):
                    error = largest(ours - one) / max(largest(one), 1e-30)  # both are 0 for experts without rows
                    off = float(np.maximum(off, error))  # unlike max(), keeps NaN
            last = layer.last
            assert last["transfers"] > 0 and (last["chunks"] > 1) == (kind is BUDGET), last
            what = f"{kind.name}, {str(dtype).removeprefix('torch.')}"
            found.append(Line(f"{what}: outputs that differ from one rank", differ, "numbers", 0))
            found.append(Line(f"{what}: largest relative error of gradients", off, "", bar))
    return found


@contextmanager
def waits_noted(device: torch.device, places: list[str]) -> Iterator[None]:
    """Collects torch's warnings about places where evenkeel's code waits for a GPU; on a CPU there are none."""

    def note(message: Warning | str, *_: Any) -> None:
        """Blames the innermost evenkeel frame; waits of this program's dispatcher and of the group are not counted."""
        for at in reversed(traceback.extract_stack()[:-1]) if "synchronizing CUDA" in str(message) else ():
            if Path(at.filename).name == Path(__file__).name or "/distributed/" in at.filename:
                return
            if "/evenkeel/torch/" in at.filename:
                return places.append(f"{Path(at.filename).name}:{at.lineno} {at.line}")

    if device.type != "cuda":
        yield
        return
    with warnings.catch_warnings(), mock.patch("warnings.showwarning", note):
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")


def reads(rank: int, ranks: int, device: torch.device, waits: list[str]) -> list[Line]:
    """Per rank and step: the host's reads that evenkeel counts, and the waits that torch reports."""
    shape, found = Shape(experts=8, tokens=64, k=2, hidden=16, width=16), []

    @contextmanager
    def counted(what: str, at_most: int) -> Iterator[None]:
        BARRIER.wait()
        before = HostReads.count, len(waits)
        BARRIER.wait()
        yield
        BARRIER.wait()
        found.append(Line(f"{what}: host reads", (HostReads.count - before[0]) / ranks, "a rank", at_most))
        if device.type == "cuda":
            found.append(Line(f"{what}: waits for the GPU", (len(waits) - before[1]) / ranks, "a rank", at_most))
        BARRIER.wait()

    for kind, forward, backward in ((SLOTS, 1, 0), (PARALLEL, 2, int(on_host(device)))):
        case = Case(rank, shape, device, torch.float32, 0.95)
        model, layer = nn.Module(), kind.layer(shape.experts, min_segment=1)
        model.layer = layer  # type: ignore[assignment]
        case.gradients(case.step(layer, one_order), case.weights)  # a group's first step reads more
        with counted(f"{kind.name}, forward", forward):
            made = case.step(layer, one_order)
        with counted(f"{kind.name}, backward", backward):
            case.gradients(made, case.weights)
        with (
            routes_ahead(model, case.ids[:, None], replay=False),
            counted(f"{kind.name}, forward, routes ahead", 0),
        ):
            case.step(layer, one_order)
    return found


def peaks(rank: int, ranks: int, device: torch.device, shape: Shape) -> list[Line]:
    """Peak bytes of a training step with 95 % of the choices on one expert, balanced and not."""
    found = []
    for kind in (SLOTS, PARALLEL):
        held = []
        for planner in ("ep", "level"):
            case, layer = Case(rank, shape, device, torch.bfloat16, 0.95), kind.layer(shape.experts, planner=planner)
            case.gradients(case.step(layer, grouped), case.weights)
            BARRIER.wait()
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
            BARRIER.wait()
            with LiveBytes() as live:
                case.gradients(case.step(layer, grouped), case.weights)
            BARRIER.wait()
            if device.type == "cuda":
                whole = (torch.cuda.max_memory_allocated() - before) / 2**20
                found.append(Line(f"{kind.name}, {planner}: peak of all ranks, by torch's allocator", whole, "MiB"))
            peak = torch.tensor(live.peak / 2**20)
            dist.all_reduce(peak, dist.ReduceOp.MAX)
            held.append(float(peak))
            found.append(Line(f"{kind.name}, {planner}: the worst rank's peak", held[-1], "MiB"))
        found.append(Line(f"{kind.name}: peak balanced / not", held[1] / held[0], "", 1))
    return found


def microseconds(work: Callable[[], object], device: torch.device) -> float:
    """The median time of one call."""
    found = []
    for _ in range(7):
        began = time.perf_counter()
        for _ in range(10):
            work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        found.append(1e5 * (time.perf_counter() - began))
    return median(found)


def planning(device: torch.device) -> list[Line]:
    """Times the work of a step besides sending: the plan, and the places or indices of this rank's ids."""
    found, tokens, k = [], 4096, 8
    for experts, ranks in ((128, 8), (384, 64)):
        random = np.random.default_rng(ranks)
        share = random.dirichlet(np.full(experts, 0.5))
        ids = torch.from_numpy(random.choice(experts, (tokens, k), p=share))
        counts = random.multinomial(tokens * k, share, ranks)
        counts[0] = count_values(ids.view(-1), experts).numpy()
        placement = ek.Placement.contiguous(1, experts, ranks)._native
        layout = _native.StepLayout(placement, 0, 0, "level", 1000, 64, 1000, 4)
        plan = partial(layout.slots, counts)
        places = partial(places_of, ids.to(device), plan())
        of = f"{experts} experts on {ranks} ranks"
        found.append(Line(f"plan of {of}", microseconds(plan, torch.device("cpu")), "us"))
        found.append(Line(f"places of {tokens} x {k} assignments, {of}", microseconds(places, device), "us"))
        sent = partial(Sent, layout.step(counts, False), ids.to(device))
        found.append(Line(f"indices of rows to send, {of}", microseconds(sent, device), "us"))
    return found


def products(device: torch.device) -> list[Line]:
    """Times products of home and slot experts: one call on adjacent weights, and two calls that copy no weights."""
    if device.type != "cuda":
        return []
    found, homes, slots = [], 16, 4
    for hidden, width in ((2048, 768), (2880, 2880), (7168, 2048)):
        weights = torch.randn((homes + slots, hidden, width), device=device).bfloat16()
        in_slots = weights[homes:].clone()
        for each in (200, 1600):
            rows = torch.randn((each * len(weights), hidden), device=device).bfloat16()
            ends = torch.arange(1, len(weights) + 1, device=device, dtype=torch.int32) * each
            own, foreign = rows.split([each * homes, each * slots])
            one = partial(grouped_mm, rows, weights, offs=ends)
            calls = (
                partial(grouped_mm, own, weights[:homes], offs=ends[:homes]),
                partial(grouped_mm, foreign, in_slots, offs=ends[:slots]),
            )
            two = partial(lambda calls: [call() for call in calls], calls)
            ratio = microseconds(two, device) / microseconds(one, device)
            found.append(Line(f"{len(rows)} rows of {hidden} x {width}: time of two calls / of one", ratio))
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    device = torch.device(given.device)
    on_gpu = device.type == "cuda"
    shape = Shape(128, 4096, 8, 2048, 768) if on_gpu else Shape(8, 256, 2, 64, 32)
    waits: list[str] = []
    said: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if on_gpu else platform.machine(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "evenkeel": ek.__version__,
    }
    print(", ".join(f"{name} {value}" for name, value in said.items()))
    lines: list[Line] = []
    failures: list[str] = []

    def part(work: Callable[..., list[Line]], *more: Any, threads: bool = False) -> None:
        """Runs one part; a failure does not stop the other parts."""
        try:
            every = run_threads(RANKS, work, device, *more) if threads else [work(device, *more)]
        except Exception:
            failures.append(traceback.format_exc())
            print(failures[-1], flush=True)
            BARRIER.reset()
            return
        for of_ranks in zip(*every, strict=True):
            lines.append(max(of_ranks, key=lambda line: (not line.holds(), line.value)))
            print(lines[-1], flush=True)

    part(exact, threads=True)
    with waits_noted(device, waits):
        part(reads, waits, threads=True)
    part(planning)
    part(peaks, shape, threads=True)
    part(products)
    said["lines"] = [line._asdict() | {"holds": line.holds()} for line in lines]
    said |= {"failures": failures, "waits": sorted(set(waits))}
    if given.json is not None:
        given.json.write_text(json.dumps(said, indent=1) + "\n")
    return 0 if not failures and all(line.holds() for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
