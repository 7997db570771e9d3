"""One rank of the measurement: every mode runs the same text, round by round; rank 0 writes the results.

usage (by shaped_link.py, on every rank): rank.py PLAN.json RESULT.json
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from text import Requests, draw, kind, kinds_of_text
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from transformers import AutoModelForCausalLM
from transformers.distributed.expert_parallel import AllToAllEP
from transformers.utils.logging import disable_progress_bar

from evenkeel.torch._chunk import Weights
from evenkeel.torch._exchange import Exchange
from evenkeel.torch._faults import Pending
from evenkeel.torch._options import LayerOptions
from evenkeel.torch.experts import find_experts
from evenkeel.transformers import EvenkeelEP

LINK = os.environ["GLOO_SOCKET_IFNAME"]
PLANNERS = {
    "ep": LayerOptions(planner="ep"),
    "level": LayerOptions(imbalance_threshold=1.05),
    "auto": LayerOptions(imbalance_threshold="auto"),
}


@dataclass(frozen=True)
class Plan:
    """What to measure; the same on all ranks."""

    checkpoints: dict[str, str]
    """Checkpoint folders by placement."""
    modes: list[tuple[str, str]]
    """Pairs of placement and planner; the first mode is the baseline."""
    requests: Requests
    rounds: int
    steps: int
    sequences: int
    length: int
    dtype: str


@dataclass
class ModeRound:
    """One mode's steps in one round, on this rank."""

    seconds: float
    link_bytes: tuple[int, int]
    """Bytes that this rank's node sent and received over the link."""
    loopback_bytes: int
    exchange_seconds: list[float]
    """By step and layer: the layer's time without its experts' time."""
    payload: list[tuple[str, int]]
    """For every all-to-all: its phase, and the bytes that this rank sent to the other node."""
    transfers: int
    home_loads: list[list[int]]
    """By step and layer: each rank's assignments if nothing moves."""
    rank_loads: list[list[int]]


@dataclass
class LayerCounters:
    """Counts what this rank's layers do in the current round of a mode."""

    experts_seconds: float = 0.0
    exchange_seconds: list[float] = field(default_factory=list)
    payload: list[tuple[str, int]] = field(default_factory=list)
    transfers: int = 0
    home_loads: list[list[int]] = field(default_factory=list)
    rank_loads: list[list[int]] = field(default_factory=list)


counters = LayerCounters()


def main() -> None:
    plan = Plan(**json.loads(Path(sys.argv[1]).read_text()))
    torch.set_num_threads(1)
    disable_progress_bar()
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    with torch.inference_mode():
        modes = load_modes(plan)
        texts = kinds_of_text("measured")
        agreement = compare_logits(modes, batch_of(plan, texts, 0))
        turns: list[list[dict[str, Any]]] = [[] for _ in modes]
        for number in range(plan.rounds):
            batches = [batch_of(plan, texts, 1 + number * plan.steps + step) for step in range(plan.steps)]
            order = [(number + i) % len(modes) for i in range(len(modes))]
            for i in order:  # each round starts with another mode
                turns[i].append(asdict(run_round(modes[i], batches)))
    every: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(every, turns)
    if dist.get_rank() == 0:
        Path(sys.argv[2]).write_text(json.dumps({"turns": every, "agreement": agreement}))
    dist.barrier()
    dist.destroy_process_group()


# Running one round of a mode.


def run_round(mode: Mode, batches: Sequence[torch.Tensor]) -> ModeRound:
    global counters
    counters = LayerCounters()
    mode.install()
    dist.barrier()
    link, loopback = bytes_sent_and_received(LINK), bytes_sent_and_received("lo")
    start = time.perf_counter()
    for batch in batches:
        mode.model(input_ids=batch, use_cache=False)
    dist.barrier()
    seconds = time.perf_counter() - start
    now = bytes_sent_and_received(LINK)
    return ModeRound(
        seconds=seconds,
        link_bytes=(now[0] - link[0], now[1] - link[1]),
        loopback_bytes=bytes_sent_and_received("lo")[0] - loopback[0],
        exchange_seconds=counters.exchange_seconds,
        payload=counters.payload,
        transfers=counters.transfers,
        home_loads=counters.home_loads,
        rank_loads=counters.rank_loads,
    )


def bytes_sent_and_received(interface: str) -> tuple[int, int]:
    """Bytes sent and received by a network interface of this host since its start."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            fields = counts.split()
            return int(fields[8]), int(fields[0])
    raise LookupError(f"no interface {interface} here")


def compare_logits(modes: Sequence[Mode], batch: torch.Tensor) -> list[dict[str, float]]:
    """For each mode: the largest difference of a logit from that of the first mode, divided by the largest logit, and
    how many tokens differ by more than a thousandth. Such a token chose another of two experts that tie within
    rounding."""
    first, made = torch.empty(0), []
    for mode in modes:
        mode.install()
        logits = mode.model(input_ids=batch, use_cache=False).logits.double()
        first = logits if mode is modes[0] else first
        off = (logits - first).abs().amax(dim=-1).flatten()
        largest = torch.stack([off.max(), first.abs().max()])
        dist.all_reduce(largest, dist.ReduceOp.MAX)
        tokens = torch.tensor([int((off > 1e-3 * largest[1]).sum()), off.numel()])
        dist.all_reduce(tokens)
        made.append(
            {
                "largest_difference": float(largest[0] / largest[1]),
                "tokens_that_differ": int(tokens[0]),
                "tokens": int(tokens[1]),
            }
        )
    return made


def batch_of(plan: Plan, texts: Sequence[torch.Tensor], number: int) -> torch.Tensor:
    """This rank's sequences of a step, `[sequences, length]` bytes."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    kinds = [kind(plan.requests, rank, ranks, i) for i in range(plan.sequences)]
    return draw(texts, kinds, plan.length, seed=number * ranks + rank)


# Installing the modes.


@dataclass
class Mode:
    model: nn.Module
    layers: list[tuple[nn.Module, Layer]]
    """This rank's experts modules, each with the layer that brings it tokens."""

    def install(self) -> None:
        for experts, layer in self.layers:
            experts.forward = layer


def load_modes(plan: Plan) -> list[Mode]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("ep", "tp"))
    models = {name: load_share(folder, plan.dtype) for name, folder in plan.checkpoints.items()}
    made = []
    for placement, planner in plan.modes:
        model, experts = models[placement]
        made.append(Mode(model, [(each, Layer(each, mesh, planner)) for each in experts]))
    return made


def load_share(folder: str, dtype: str) -> tuple[nn.Module, list[Any]]:
    """Loads the model with this rank's share of every layer's experts; everything else is on every rank."""
    model = AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=getattr(torch, dtype),
        experts_implementation="grouped_mm" if dtype == "float32" else "eager",
    ).eval()
    modules: list[Any] = [each.module for each in find_experts(model)]
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for experts in modules:
        own = experts.num_experts // ranks
        for name, parameter in list(experts.named_parameters(recurse=False)):
            mine = parameter.detach()[rank * own : (rank + 1) * own].clone()
            setattr(experts, name, nn.Parameter(mine, requires_grad=False))
        experts.num_experts, experts._is_expert_parallel = own, True
    return model, modules


class Layer:
    """Times a layer's forward: transformers' all-to-all ("stock"), or ours with a planner."""

    def __init__(self, experts: nn.Module, mesh: DeviceMesh, planner: str) -> None:
        kind = Stock if planner == "stock" else type("Planned", (Ours,), {"layer_options": PLANNERS[planner]})
        self.run = kind(experts, mesh["ep"], mesh["tp"])

    def __call__(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        before, start = counters.experts_seconds, time.perf_counter()
        made: torch.Tensor = self.run(hidden, index, weights)
        counters.exchange_seconds.append(time.perf_counter() - start - (counters.experts_seconds - before))
        return made


class Stock(AllToAllEP):
    def __init__(self, experts: Any, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        forward = type(experts).forward

        def timed(*arguments: torch.Tensor) -> torch.Tensor:
            start = time.perf_counter()
            made: torch.Tensor = forward(experts, *arguments)
            counters.experts_seconds += time.perf_counter() - start
            return made

        self.experts_forward = timed


class Ours(EvenkeelEP):
    """Uses our exchange even in steps that move nothing, so that modes differ only in placement and planner."""

    def __init__(self, experts: Any, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        self.layer.exchange = CountedExchange(ep_mesh.get_group(), self.layer.exchange.layer)

    def _eager(self, *given: Any, with_stock: bool) -> torch.Tensor:
        made = super()._eager(*given, with_stock=False)
        counters.transfers += self.layer.last["transfers"]
        counters.home_loads.append(self.layer.last["home_loads"])
        counters.rank_loads.append(self.layer.last["rank_loads"])
        return made

    def _run(self, rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
        start = time.perf_counter()
        made = super()._run(rows, slots, weights)
        counters.experts_seconds += time.perf_counter() - start
        return made


class CountedExchange(Exchange):
    """Counts the bytes that all-to-alls send to the other node."""

    def start(
        self,
        phase: str,
        rows: torch.Tensor,
        sent: Sequence[int],
        received: Sequence[int],
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Pending]:
        each = rows.element_size() * rows[0].numel() if len(rows) else 0
        on_node = int(os.environ["LOCAL_WORLD_SIZE"])
        away = sum(count for rank, count in enumerate(sent) if rank // on_node != self.rank // on_node)
        counters.payload.append((phase, each * away))
        return super().start(phase, rows, sent, received, out)


if __name__ == "__main__":
    main()
