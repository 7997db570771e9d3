"""One rank of a storm run: plays its script, commits its faults, and reports what happened.

The oracle computes all ranks' tokens in one process, in f64.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from types import SimpleNamespace
from typing import Any, NamedTuple

import processes  # noqa: F401  # else every rank imports it at its first step
import torch
import torch.distributed as dist
from slots_test import dispatcher
from storm_runs import (
    DEADLINE,
    INNOCENT,
    MARGIN,
    OWN_MESSAGE,
    PAUSE,
    PAUSE_AT_DEADLINE,
    SET_UP,
    Call,
    Fault,
    Run,
    Spec,
    steps,
)
from torch.distributed.device_mesh import init_device_mesh
from transformers.distributed.expert_parallel import AllToAllEP
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts
from transformers_test import load

import evenkeel.transformers
from evenkeel.errors import InvalidArgument
from evenkeel.torch import ExpertParallel, ExpertSlots, _faults, expert_parallel, routes_ahead
from evenkeel.torch._cut import Counted
from evenkeel.torch._exchange import Exchange
from evenkeel.torch._options import LayerOptions
from evenkeel.torch._slots import SlotStep

HIDDEN, WIDTH, TOKENS, K = 8, 6, 12, 2


class Outcome(NamedTuple):
    rank: int
    error: str
    message: str
    data: dict[str, Any]
    seconds: float
    layers: list[str]  # the names of this rank's layers
    wrong: str  # a result that was silently wrong, or set by a failed step
    trace: str


CHECKPOINT = os.path.join(tempfile.gettempdir(), f"evenkeel-storm-{os.getpid()}")
"""A tiny model, which the ranks of every run load."""

row_hooks: list[Callable[[torch.Tensor], torch.Tensor]] = []
"""Functions that this rank's experts apply to their rows."""


def products(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    for hook in row_hooks:
        rows = hook(rows)
    up = torch.einsum("th,thw->tw", rows, weights["up"][slots])
    return torch.einsum("tw,twh->th", torch.nn.functional.silu(up), weights["down"][slots])


class Experts(torch.nn.Module):
    """An experts module with the interface of transformers' experts."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.num_experts = len(weights["up"])
        for name, weight in weights.items():
            setattr(self, name, torch.nn.Parameter(weight.clone()))

    def forward(self, hidden: torch.Tensor, index: torch.Tensor, top_k: torch.Tensor) -> torch.Tensor:
        rows = hidden.repeat_interleave(index.shape[1], 0)
        made = products(rows, index.flatten(), dict(self._parameters))  # type: ignore[arg-type]
        return (made.view(*index.shape, -1) * top_k.unsqueeze(-1)).sum(1)


class Layer:
    """One layer on one rank, with its inputs; `rank` and `ranks` refer to its group."""

    def __init__(self, spec: Spec, number: int, rank: int, ranks: int, mesh: Any) -> None:
        self.spec, self.rank, self.ranks, self.number = spec, rank, ranks, number
        random_of = torch.Generator().manual_seed(number)
        shapes = {"up": (spec.experts, HIDDEN, WIDTH), "down": (spec.experts, WIDTH, HIDDEN)}
        self.whole = {name: torch.randn(shape, generator=random_of) for name, shape in shapes.items()}
        self.mine = slice(rank * spec.experts // ranks, (rank + 1) * spec.experts // ranks)
        self.experts = Experts({name: weight[self.mine] for name, weight in self.whole.items()})
        self.weights = dict(self.experts.named_parameters())
        self.hidden, self.top_k, self.grad, self.ids = self.inputs(rank)
        self.hidden.requires_grad_(), self.top_k.requires_grad_()
        self.exact, self.exact_grads = self.dense()
        bounded: dict[str, Any] = {"budget": 10**8, "chunk_bins": [spec.chunks]} if spec.chunks else {}
        options = {"planner": "level" if spec.moves else "ep", "imbalance_threshold": 0.0, "min_segment": 1} | bounded
        options |= {"slots": 4} if spec.slots else {}
        group = mesh["ep"].get_group()
        if spec.world == "transformers":
            ours = evenkeel.transformers.SlotsEP if spec.slots else evenkeel.transformers.EvenkeelEP
            kind = type("Evenkeel", (ours,), {"layer_options": LayerOptions(**options)})
            self.call = kind(self.experts, mesh["ep"], mesh["tp"])
            self.layers = [self.call.layer]
        elif spec.slots:
            slots = ExpertSlots(spec.experts, group, name=f"L{number}", **options)
            self.carry = partial(dispatcher, here=slots.places_here, group=group)
            self.layers = [slots]
        else:
            self.layers = [ExpertParallel(spec.experts, group, name=f"L{number}", **options)]
            self.stock = object.__new__(AllToAllEP)
            self.stock.__dict__ |= {
                "experts_forward": self.experts.forward,
                "num_local_experts": self.experts.num_experts,
                "ep_mesh": mesh["ep"],
                "tp_mesh": SimpleNamespace(size=lambda: 1),
            }

    def inputs(self, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Most tokens are routed to one expert, and each rank has some."""
        seeded = torch.Generator().manual_seed(100 * self.number + rank)
        hidden, grad = (torch.randn((TOKENS, HIDDEN), generator=seeded) for _ in range(2))
        ids = torch.randint(self.spec.experts, (TOKENS, K), generator=seeded)
        ids[torch.arange(TOKENS) % 4 != 0] = 1
        ids[: self.ranks, 0] = torch.arange(self.ranks) * self.spec.experts // self.ranks
        return hidden, torch.rand((TOKENS, K), generator=seeded), grad, ids

    def dense(self) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Returns this rank's outputs and gradients; computes all ranks' tokens in this process, in f64."""
        whole = {name: weight.double().requires_grad_() for name, weight in self.whole.items()}
        of_rank = []
        for rank in range(self.ranks):
            *given, ids = self.inputs(rank)
            hidden, top_k, grad = (tensor.double() for tensor in given)
            hidden.requires_grad_(), top_k.requires_grad_()
            made = products(hidden.repeat_interleave(K, 0), ids.flatten(), whole).view(TOKENS, K, HIDDEN)
            out = (made * top_k.unsqueeze(-1)).sum(1)
            out.backward(grad)
            of_rank.append((out.detach(), hidden.grad, top_k.grad))
        out, *grads = of_rank[self.rank]
        grads += [weight.grad[self.mine] for weight in whole.values() if weight.grad is not None]
        return out, grads  # type: ignore[return-value]

    def leaves(self) -> list[torch.Tensor]:
        return [self.hidden, self.top_k, *self.weights.values()]

    def unset_leaves(self) -> list[torch.Tensor]:
        """The tensors without a gradient after a failed step. With slots, the dispatcher has by then set top_k's."""
        return [leaf for leaf in self.leaves() if not (self.spec.slots and leaf is self.top_k)]

    def forward(self, how: str = "") -> torch.Tensor:
        hidden, top_k, ids, weights = self.hidden, self.top_k, self.ids, dict(self.weights)
        if how in ("hidden", "detached"):
            hidden = hidden.double() if how == "hidden" else hidden.detach()
        if how in ("top_k", "detached"):
            top_k = top_k.double() if how == "top_k" else top_k.detach()
        if how in ("frozen", "detached", "weights"):
            weights = {name: w.double() if how == "weights" else w.detach() for name, w in weights.items()}
        if how == "narrow":
            ids, top_k = ids[:, :1], top_k[:, :1]
        if how in ("ids", "arguments"):
            ids = ids - 3 if how == "ids" else ids[1:]
        if how == "counting":
            expert_parallel.count = _raising  # type: ignore[assignment]
        if how == "planning":
            Counted.of = _raising  # type: ignore[method-assign]
        with ExitStack() as within:
            if how in ("no_grad", "inference_mode"):
                within.enter_context(getattr(torch, how)())
            if how == "autocast":
                within.enter_context(torch.autocast("cpu", torch.bfloat16))
            if self.spec.world == "transformers":
                return self.call(hidden, ids, top_k)
            if self.spec.slots:
                return self.layers[0](hidden, ids, top_k, products, weights, self.carry)
            return self.layers[0](hidden, ids, top_k, products, weights, None if self.spec.chunks else self.stock)

    def wrong_output(self, made: torch.Tensor, how: str = "") -> str:
        if not _close(made, self.exact):
            return f"outputs of layer {self.number}"
        if not self.spec.moves and made.requires_grad != (how == ""):
            return f"layer {self.number}: requires_grad is {made.requires_grad}"
        return ""

    def backward(self, made: torch.Tensor) -> None:
        for leaf in self.leaves():
            leaf.grad = None
        made.backward(self.grad)

    def wrong_gradients(self) -> str:
        names = ["hidden", "top_k", *self.weights]
        for name, leaf, exact in zip(names, self.leaves(), self.exact_grads, strict=True):
            if leaf.grad is None or not _close(leaf.grad, exact):
                return f"gradient of {name} of layer {self.number}"
        return ""


class Model:
    """A transformers model under FSDP with its experts spread over `ep` ranks. Has the methods of a `Layer`."""

    def __init__(self, spec: Spec, rank: int, ranks: int, ep: int) -> None:
        self.spec = spec
        original = Qwen3MoeExperts.forward

        def forward_with_hooks(module: Any, hidden: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
            for hook in row_hooks:
                hidden = hook(hidden)
            return original(module, hidden, *rest)  # type: ignore[no-any-return]

        Qwen3MoeExperts.forward = forward_with_hooks
        mode: Any = "slots" if spec.slots else "exchange"
        evenkeel.transformers.register(min_segment=1, imbalance_threshold=0.0 if spec.moves else 1e6, mode=mode)
        self.model = load(CHECKPOINT, "eager", fsdp_size=ranks, ep_size=ep)
        self.layers = evenkeel.transformers.layers(self.model)
        self.ids = torch.randint(0, 64, (ranks, 40), generator=torch.Generator().manual_seed(1))
        self.ids[:, 8:] = 7  # most tokens choose the same experts
        self.mine = self.ids[rank : rank + 1]
        reference = load(CHECKPOINT, "eager").double()
        chosen: list[torch.Tensor] = []
        hooks = [
            module.register_forward_pre_hook(lambda _, given: chosen.append(given[1]))
            for module in reference.modules()
            if isinstance(module, Qwen3MoeExperts)
        ]
        self.exact = reference(self.mine).logits.detach()
        for hook in hooks:
            hook.remove()
        self.routed = torch.stack(chosen, 1)
        sum(reference(batch[None], labels=batch[None]).loss / ranks for batch in self.ids).backward()
        self.exact_grads = {name: p.grad for name, p in reference.named_parameters() if "experts" in name}

    def unset_leaves(self) -> list[torch.Tensor]:
        return []  # FSDP sets gradients during backward

    def forward(self, how: str = "") -> Any:
        if how == "no_grad":
            with torch.no_grad():
                return self.model(self.mine, labels=self.mine)
        return self.model(self.mine, labels=self.mine)

    def wrong_output(self, made: Any, how: str = "") -> str:
        return "" if torch.allclose(made.logits.double(), self.exact, rtol=1e-4, atol=1e-5) else "logits"

    def backward(self, made: Any) -> None:
        self.model.zero_grad()
        made.loss.backward()

    def wrong_gradients(self) -> str:
        found = {name: p.grad for name, p in self.model.named_parameters() if "experts" in name}
        for name, exact in self.exact_grads.items():
            grad = found[name]
            if grad is None:
                return f"{name} has no gradient"
            if (grad.full_tensor().double() - exact).abs().max() > 1e-3 * exact.abs().max():
                return f"gradient of {name}"
        return ""


def _groups() -> list[dist.ProcessGroup]:
    return list(dist.distributed_c10d._world.pg_map)


def _close(made: torch.Tensor, exact: torch.Tensor) -> bool:
    return made.shape == exact.shape and torch.allclose(made.double(), exact, rtol=1e-4, atol=1e-4)


def _raising(*_: Any, **__: Any) -> Any:
    raise MemoryError(OWN_MESSAGE)


class Failing(torch.autograd.Function):
    """Triggers the fault in backward."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, inject: Callable[[], None]) -> torch.Tensor:
        ctx.inject = inject
        return rows * 1.0

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        ctx.inject()
        return grads[0], None


class FaultInjector:
    """Carries out one fault of this rank."""

    def __init__(self, fault: Fault, layers: list[Any], began: Any) -> None:
        self.fault, self.began, self.left = fault, began, fault.nth + 1
        self.layer = layers[fault.layer].exchange.layer
        if fault.phase == "any moment":
            threading.Timer(fault.after, self.inject).start()
        elif fault.phase == "addresses":
            self.inject()
        elif fault.phase.startswith("experts"):
            row_hooks.append(self.on_rows)
        elif fault.phase == "meeting":
            self.after_addresses()
        elif fault.phase == "dispatcher backward":
            self.enter_dispatcher()
        elif (fault.what, fault.phase) in (("raises", "stock"), ("raises", "dispatcher")):
            self.enter_work()
        else:
            self.enter_phases()

    def on_rows(self, rows: torch.Tensor) -> torch.Tensor:
        if self.fault.direction == "backward":
            return Failing.apply(rows, self.count_down) if rows.requires_grad else rows  # type: ignore[no-any-return]
        self.count_down()
        return rows

    def after_addresses(self) -> None:
        original = _faults.start_gather

        def gather(*arguments: Any) -> None:
            work = original(*arguments)
            if work is not None:
                work.wait()
            self.count_down()

        _faults.start_gather = gather  # type: ignore[assignment]

    def enter_phases(self) -> None:
        original = Exchange._begin

        def begin(exchange: Exchange, phase: str, *rest: Any) -> Any:
            if (phase, exchange.direction, exchange.layer) == (self.fault.operation, self.fault.direction, self.layer):
                self.count_down()
            return original(exchange, phase, *rest)

        Exchange._begin = begin  # type: ignore[method-assign]

    def enter_work(self) -> None:
        """Triggers the fault once a collective that is not ours has begun."""
        original = Exchange.watch

        def watch(exchange: Exchange, phase: str, work: Callable[[], torch.Tensor], device: torch.device) -> Any:
            def work_with_fault() -> torch.Tensor:
                if (phase, exchange.layer) == (self.fault.phase, self.layer):
                    self.count_down()
                return work()

            return original(exchange, phase, work_with_fault, device)

        Exchange.watch = watch  # type: ignore[method-assign]

    def enter_dispatcher(self) -> None:
        """Triggers the fault in backward, after our own collectives."""
        original = SlotStep.__call__

        def run(step: SlotStep, rows: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
            if step.exchange.layer == self.layer and rows.requires_grad:
                rows = Failing.apply(rows, self.count_down)
            return original(step, rows, *rest)

        SlotStep.__call__ = run  # type: ignore[method-assign]

    def count_down(self) -> None:
        """Called at each collective or call of the experts in question; the nth triggers the fault."""
        self.left -= 1
        if self.left == 0 and self.fault.what in INNOCENT:
            threading.Timer(self.fault.after, self.inject).start()  # meanwhile this rank waits for the others
        elif self.left == 0:
            time.sleep(self.fault.after)
            self.inject()

    def inject(self) -> None:
        what, me = self.fault.what, os.getpid()
        pause = PAUSE if self.fault.after < 1 else PAUSE_AT_DEADLINE
        if what not in INNOCENT:
            self.began.value = time.time()
        if what == "orphaned" and os.fork() == 0:  # like a data loader's process, which keeps connections open
            time.sleep(2 * DEADLINE)
            os._exit(0)
        if what in ("killed", "orphaned"):
            os.kill(me, signal.SIGKILL)
        elif what == "stopped":
            os.kill(me, signal.SIGSTOP)
        elif what == "ends":
            end_process(None)
        elif what == "late":
            time.sleep(DEADLINE + MARGIN / 2)
        elif what == "slow":
            time.sleep(PAUSE)
        elif what == "raises":
            raise self.fault.error(OWN_MESSAGE)
        elif what == "paused":
            subprocess.Popen(["sh", "-c", f"kill -STOP {me}; sleep {pause}; kill -CONT {me}"]).wait()
        elif what == "holds":
            ctypes.PyDLL(None).usleep(int(pause * 1e6))


class Rank:
    """Plays one rank's script."""

    def __init__(self, run: Run, rank: int, ranks: int, began: Any) -> None:
        self.run, self.rank, self.began = run, rank, began
        if run.layers[0].world == "model":
            self.steps: list[Any] = [Model(run.layers[0], rank, ranks, ranks // (1 + run.two_groups))]
        else:
            self.mesh = init_device_mesh(
                "cpu", (1 + run.two_groups, ranks // (1 + run.two_groups), 1), mesh_dim_names=("dp", "ep", "tp")
            )
            ep = ranks // (1 + run.two_groups)
            self.steps = [Layer(spec, n, rank % ep, ep, self.mesh) for n, spec in enumerate(run.layers)]
        self.layers = [layer for step in self.steps for layer in step.layers]
        self.open: list[list[Any]] = [[] for _ in self.steps]
        self.within = ExitStack()
        self.wrong = ""
        self.refused = ""
        self.caught: BaseException | None = None
        self.armed_at = time.time()

    def warm(self) -> None:
        for call in steps(list(range(len(self.steps)))):
            self.play(call)
        for step, spec in zip(self.steps, self.run.layers, strict=True):
            for layer in step.layers:
                assert (layer.last["transfers"] > 0) == spec.moves, "a routing that does not do what the run is for"

    def play(self, call: Call) -> None:
        which, number, how = call
        step = self.steps[number]
        if which == "forward":
            try:
                made = step.forward(how)
            except InvalidArgument as error:
                if self.run.promise.error != "InvalidArgument":
                    raise
                self.refused = str(error)
                return
            self.wrong = self.wrong or step.wrong_output(made, how)
            self.open[number].append(made)
        elif which == "backward":
            step.backward(self.open[number].pop())
            self.wrong = self.wrong or step.wrong_gradients()
        elif which == "arm":
            self.armed_at = time.time()
            for fault in self.run.faults:
                if fault.rank == self.rank:
                    FaultInjector(fault, self.layers, self.began)
        elif which == "ahead":
            self.within.enter_context(self.routes_ahead())
        elif which == "compared":
            self.within.close()
        elif which == "add":  # add the gradients of the two groups
            for weight in step.weights.values():
                dist.all_reduce(weight.grad, group=self.mesh["dp"].get_group())

    def routes_ahead(self) -> AbstractContextManager[None]:
        if isinstance(self.steps[0], Model):
            return routes_ahead(self.steps[0].model, self.steps[0].routed)
        around = torch.nn.Module()
        for step in self.steps:
            holder = torch.nn.Module()
            holder.layer = step.layers[0]
            around.add_module(str(step.number), holder)
        return routes_ahead(around, torch.stack([step.ids for step in self.steps], 1), replay=False)

    def outcome(self, script: list[Call]) -> Outcome:
        error, message, data, trace, call = "", "", {}, "", script[0]
        try:
            with self.within:
                for call in script:
                    self.play(call)
            error, message = "InvalidArgument" if self.refused else "", self.refused
        except BaseException as caught:
            self.caught = caught
            error, message, data = type(caught).__name__, str(caught), getattr(caught, "data", {})
            trace = traceback.format_exc()
        seconds = time.time() - (self.began.value or self.armed_at)
        if error == "CommError" and call[0] == "backward" and not self.wrong:
            left = any(leaf.grad is not None for leaf in self.steps[call[1]].unset_leaves())
            self.wrong = "a gradient of the step that failed is set" if left else ""
        names = [layer.exchange.layer for layer in self.layers]
        return Outcome(self.rank, error, message, data, seconds, names, self.wrong, trace)


def join(run: Run, folder: str, name: str, rank: int, ranks: int) -> None:
    timeout = timedelta(seconds=SET_UP)
    if run.store == "file":
        where = f"file://{folder}/{name}"
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks, timeout=timeout)
        return
    port = os.path.join(folder, name)
    if rank == 0:
        store = dist.TCPStore("127.0.0.1", 0, ranks, True, timeout, wait_for_workers=False)
        with open(port + ".new", "w") as file:
            file.write(str(store.port))
        os.rename(port + ".new", port)
    else:
        while not os.path.exists(port):
            time.sleep(0.01)
        with open(port) as file:
            store = dist.TCPStore("127.0.0.1", int(file.read()), ranks, False, timeout)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks, timeout=timeout)


def set_deadline(seconds: float) -> None:
    for group in _groups():
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), group)


def on_rank(run: Run, folder: str, rank: int, began: Any, pipe: Connection) -> None:
    os.dup2(os.open(os.path.join(folder, f"stderr{rank}"), os.O_CREAT | os.O_WRONLY), 2)
    try:
        torch.set_num_threads(1)
        join(run, folder, "first", rank, run.ranks)
        here = Rank(run, rank, run.ranks, began)
        if run.warm:
            here.warm()
        dist.barrier()
        set_deadline(DEADLINE)
        outcome = here.outcome(run.scripts[rank])
        pipe.send(outcome)
        if run.ends:
            end_process(here.caught)
        else:
            left = pipe.recv()  # sent when all ranks have their error
            if rank in left:
                continue_without_failed(run, folder, left.index(rank), len(left), pipe)
    except BaseException:
        pipe.send(traceback.format_exc())
    finally:
        os._exit(0)


def end_process(error: BaseException | None) -> None:
    """Ends the process as the interpreter does after an uncaught error."""
    if error is not None:
        sys.last_value = error
    atexit._run_exitfuncs()
    os._exit(0)


def continue_without_failed(run: Run, folder: str, rank: int, ranks: int, pipe: Connection) -> None:
    """The surviving ranks make a new group and new layers, without faults."""
    row_hooks.clear()
    dist.destroy_process_group()
    join(run, folder, "second", rank, ranks)
    again = Rank(run._replace(two_groups=False), rank, ranks, None)
    again.warm()
    pipe.send(again.wrong)
    pipe.recv()
