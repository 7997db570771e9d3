"""A rank that is killed or stopped in any phase is named by every survivor, in time; the survivors then go on.

Ranks are forked, one case at a time (FORKS), and cases run side by side, since they mostly wait.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import multiprocessing as mp
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.distributed as dist
from layer_test import all_weights, experts, inputs
from processes import PAGE, require_documented, run_ranks

from evenkeel.errors import CommError
from evenkeel.torch import ExpertParallel, _faults, _peers
from evenkeel.torch._exchange import Exchange
from evenkeel.torch._faults import Place, Verdict

RANKS, EXPERTS, K, TOKENS = 3, 6, 2, 12
DEADLINE, MARGIN = 3.0, 2.0
DOCUMENTED = {
    "killed": "a rank is killed, or ends",
    "stopped": "a rank is stopped (SIGSTOP), or its network is cut",
    "raises": "a rank raises: its experts, its arguments, no memory",
    "late": "a rank comes too late: a slow step, an endless loop",
}
PAUSE = 1.5  # of an innocent rank; gloo's deadline counts for each peer that a rank waits for
SET_UP = 60.0  # of a group and its first step: other cases keep the cores busy, and nothing fails there
AT_ONCE = 8
FORWARD = ["counts", "routes", "weights", "dispatch", "combine"]
STOCK = "stock"  # the caller's own collectives, in a step where nothing moves
BACKWARD = [
    "agreement",
    "gradient dispatch",
    "router weights",
    "router gradients",
    "weight gradients",
    "gradient return",
]


class Case(NamedTuple):
    fault: str  # killed, stopped, raises, late
    rank: int
    phase: str
    store: str  # file, tcp
    other: str = ""  # what an innocent rank does meanwhile: paused, holds (the interpreter)

    @property
    def direction(self) -> str:
        return "backward" if self.phase in BACKWARD else "forward"


class Outcome(NamedTuple):
    """What a rank met, and how long after the fault."""

    rank: int
    data: dict[str, Any]
    message: str
    seconds: float
    step_after: bool  # a new group of the survivors gave the right result
    gradients: list[bool]  # which were set by the step that failed


def join(case: Case, folder: str, name: str, rank: int, ranks: int) -> None:
    timeout = timedelta(seconds=SET_UP)
    if case.store == "file":
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


class Step:
    """A step of a layer in which weights move: most tokens are routed to one expert."""

    def __init__(self, rank: int, ranks: int, group: dist.ProcessGroup | None = None, stock: bool = False) -> None:
        planner: Any = "ep" if stock else "level"
        self.layer = ExpertParallel(EXPERTS, group, planner=planner, imbalance_threshold=0.0, min_segment=1, name="7")
        self.stock = stock
        self.ids = torch.randint(EXPERTS, (TOKENS, K), generator=torch.Generator().manual_seed(rank))
        self.ids[torch.arange(TOKENS) % 4 != 0] = 1
        whole = all_weights(0, EXPERTS)
        at = slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
        self.weights = {name: weight[at].clone().requires_grad_() for name, weight in whole.items()}
        self.hidden, self.top_k, self.grad = inputs(0, rank, self.ids)
        self.hidden.requires_grad_(), self.top_k.requires_grad_()

    def run(self, computed_by: Callable[..., torch.Tensor] = experts) -> torch.Tensor:
        stock = self.run_stock if self.stock else None
        out = self.layer(self.hidden, self.ids, self.top_k, computed_by, self.weights, stock)
        assert (self.layer.last["transfers"] > 0) != self.stock
        out.backward(self.grad)
        return out.detach()

    def run_stock(self, hidden: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(torch.zeros(1))
        return hidden * 1.0

    def leaves(self) -> list[torch.Tensor]:
        return [self.hidden, self.top_k, *self.weights.values()]


def fail_in(case: Case, began: Any) -> None:
    """The next time that this rank enters the phase, it is killed or stopped, or comes late."""
    original = Exchange._faults

    def faults(self: Exchange, device: torch.device) -> Any:
        found = original(self, device)
        begin = found.begin

        def entering(phase: str, layer: str, direction: str, *rest: Any) -> Any:
            if (phase, direction) == (case.phase, case.direction):
                time.sleep(0.2)  # what was begun before is sent
                began.value = time.time()
                if case.fault == "late":
                    time.sleep(DEADLINE + MARGIN)
                os.kill(os.getpid(), signal.SIGKILL if case.fault == "killed" else signal.SIGSTOP)
            return begin(phase, layer, direction, *rest)

        found.begin = entering
        Exchange._faults = original  # type: ignore[method-assign]
        return found

    Exchange._faults = faults  # type: ignore[method-assign]


def raising(began: Any) -> Callable[..., torch.Tensor]:
    def computed_by(*_: Any) -> torch.Tensor:
        began.value = time.time()
        raise ValueError("rows of another planet")

    return computed_by


def pausing(how: str) -> Callable[..., torch.Tensor]:
    """For a while the process is stopped, or no other thread of it may run Python."""

    def computed_by(*given: Any) -> torch.Tensor:
        if how == "holds":
            ctypes.PyDLL(None).usleep(int(1e6 * PAUSE))
        elif os.fork() == 0:
            os.kill(os.getppid(), signal.SIGSTOP)
            time.sleep(PAUSE)
            os.kill(os.getppid(), signal.SIGCONT)
            os._exit(0)
        return experts(*given)

    return computed_by


def on_rank(case: Case, folder: str, rank: int, began: Any, answer: Connection) -> None:
    os.dup2(os.open(os.path.join(folder, f"stderr{rank}"), os.O_CREAT | os.O_WRONLY), 2)  # torch's own words on it
    torch.set_num_threads(1)
    join(case, folder, "first", rank, RANKS)
    step = Step(rank, RANKS, stock=case.phase == STOCK)
    right = step.run()
    for leaf in step.leaves():
        leaf.grad = None
    computed_by: Callable[..., torch.Tensor] = experts
    if rank == case.rank and case.fault == "raises":
        computed_by = raising(began)
    elif rank == case.rank:
        fail_in(case, began)
    elif case.other and rank == (case.rank + 1) % RANKS:
        computed_by = pausing(case.other)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=DEADLINE))
    try:
        step.run(computed_by)
    except CommError as error:
        seconds = time.time() - began.value
        data, message = error.data, str(error)
    gradients = [leaf.grad is not None for leaf in step.leaves()]

    dist.destroy_process_group()
    survivors = [other for other in range(RANKS) if other != case.rank]
    join(case, folder, "second", survivors.index(rank), len(survivors))
    after = Step(survivors.index(rank), len(survivors), stock=step.stock)
    made = after.run()
    same = rank != 0 or torch.equal(made, right)  # rank 0 keeps its tokens, and results their bits
    answer.send(Outcome(rank, data, message, seconds, same, gradients))


def run_case(case: Case) -> list[Outcome]:
    """Of the survivors, by rank; all processes are gone after."""
    context = mp.get_context("fork")
    began = context.Value("d", 0.0)
    with tempfile.TemporaryDirectory() as folder:
        ends = [context.Pipe(duplex=False) for _ in range(RANKS)]
        started = [
            context.Process(target=on_rank, args=(case, folder, rank, began, ends[rank][1]), daemon=True)
            for rank in range(RANKS)
        ]
        with FORKS:
            for process in started:
                process.start()
        try:
            outcomes = []
            for rank in range(RANKS):
                if rank == case.rank:
                    continue
                ready = wait([ends[rank][0], started[rank].sentinel], timeout=2 * SET_UP)
                if ends[rank][0] not in ready and not ends[rank][0].poll(0):
                    with open(os.path.join(folder, f"stderr{rank}")) as file:
                        raise AssertionError(f"{case}: rank {rank} gave no answer:\n{file.read()[-4000:]}")
                outcomes.append(ends[rank][0].recv())
            return outcomes
        finally:
            for process in started:
                process.kill()
                process.join()


FORKS = threading.Lock()


def on_subgroups(rank: int, ranks: int) -> list[str]:
    """What this rank met: on a group of all but rank 0 whose last rank fails, then on a group like it."""
    met = []
    for fails in (True, False):
        threads = threading.active_count()
        group = dist.new_group(list(range(1, ranks)))
        if rank == 0:
            continue
        step = Step(rank - 1, ranks - 1, group)
        began = mp.Value("d", 0.0)
        try:
            step.run(raising(began) if fails and rank == ranks - 1 else experts)
            met.append("none")
        except (CommError, ValueError) as error:
            met.append(str(error))
        dist.destroy_process_group(group)
        del group, step
        gc.collect()
        for _ in range(100):
            if threading.active_count() > threads:
                time.sleep(0.02)
        assert threading.active_count() == threads, "the thread outlives its group"
    return met


def told_of_a_fault(rank: int, ranks: int) -> list[str]:
    """What rank 1 gets of a collective that rank 0 is late for, where it hears meanwhile of a fault before or after it."""
    exchange = Exchange(None, "7")
    exchange.all_gather("counts", torch.zeros(1))
    met = []
    for first in (3, 2):  # the collective below is the second, then the third
        if rank == 0:
            time.sleep(0.8)
        else:
            faults = exchange._faults(torch.device("cpu"))
            told = Verdict(0, Place(first, "counts", "7", "forward"), "rank 0 failed", first)
            threading.Timer(0.1, setattr, (faults, "verdict", told)).start()
        try:
            met.append(str(exchange.all_gather("counts", torch.ones(1)).sum().item()))
            exchange._faults(torch.device("cpu")).verdict = None
        except CommError as error:
            met.append(str(error))
    return met


def outcome(work: Callable[[], object]) -> tuple[int, str]:
    """The peer and the message of what was raised; -2 where it was no `CommError`."""
    try:
        work()
    except CommError as error:
        return int(error.data["peer"]), str(error)
    except (ValueError, RuntimeError) as error:
        return -2, str(error)
    return -2, "nothing"


def rank_1_raises(rank: int, ranks: int) -> tuple[int, str]:
    """In the second step."""
    step = Step(rank, ranks)
    step.run()
    return outcome(lambda: step.run(raising(mp.Value("d", 0.0)) if rank == 1 else experts))


def without_ipv4(rank: int, ranks: int) -> tuple[int, str]:
    create = socket.create_server

    def refused(address: Any, *, family: Any, **options: Any) -> socket.socket:
        if family == socket.AF_INET:
            raise OSError("Address family not supported by protocol")
        return create(address, family=family, **options)

    socket.create_server = refused
    return rank_1_raises(rank, ranks)


def on_hosts_of_their_own(rank: int, ranks: int) -> tuple[int, str]:
    """Each rank at another address, and none reached at 127.0.0.1."""
    with mock.patch.multiple(_peers, _host=lambda: f"host{rank}", _outward=lambda: iter([f"127.0.0.{rank + 2}"])):
        return rank_1_raises(rank, ranks)


def among_strangers(rank: int, ranks: int) -> tuple[int, str]:
    """Strangers call every rank while the group meets; one knows the secret, and sends what was meant for others."""
    listeners: list[Any] = []
    strangers: list[socket.socket] = []
    listen, connect = _peers._listen, _peers.Peers.connect

    def listening(addresses: Any) -> socket.socket | None:
        made = listen(addresses)
        if made is not None:
            listeners.append(made.getsockname()[:2])
            for said in (b"[" * 4096 + b"\n", b"\n", os.urandom(70000), b"0 [0, 1]\n", b""):
                call(said)
        return made

    def call(said: bytes) -> None:
        strangers.append(socket.create_connection(listeners[-1]))
        strangers[-1].sendall(said)

    def connecting(self: Any, gather: Callable[[str], list[str]]) -> None:
        def gathering(text: str) -> list[str]:
            rows = gather(text)
            self._secret = json.loads(rows[0])[1]
            for told in (["ask", 1], [rank, rank], [2, 1 - rank], [[], rank], [{}, rank]):
                line = json.dumps(told).encode()
                call(self._signature(line) + b" " + line + b"\n")
            return rows

        connect(self, gathering)

    with mock.patch.object(_peers, "_listen", listening), mock.patch.object(_peers.Peers, "connect", connecting):
        Exchange(None).all_gather("counts", torch.zeros(1))
    for stranger in strangers:
        stranger.settimeout(5)
        with contextlib.suppress(ConnectionError):
            assert stranger.recv(1) == b"", "a stranger was answered"
    for address in listeners:
        with contextlib.suppress(ConnectionError):
            while True:  # until it is refused
                socket.create_connection(address).close()
                time.sleep(0.05)
    return rank_1_raises(rank, ranks)


def waits_elsewhere(rank: int, ranks: int, leaves: bool) -> tuple[int, str]:
    """Two pairs that share experts, and two across; rank 3 does not come across, for which rank 1 waits, and rank 0 for it.

    Rank 1 then ends by the error that it met there, or only after rank 0 has given up.
    """
    pairs = [dist.new_group(pair) for pair in ([0, 1], [2, 3])]
    across = [dist.new_group(pair) for pair in ([0, 2], [1, 3])]
    group, other = pairs[rank // 2], across[rank % 2]
    step = Step(rank % 2, 2, group)
    step.run()
    dist.barrier()
    for of, seconds in ((group, 6 if leaves else 2), (other, 2 if leaves else 6)):
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), of)
    if rank == 3:
        time.sleep(7)
        return -2, "late"
    if rank == 2:
        time.sleep(4)  # it waits for nobody, and rank 0 has come to it
    if rank == 1:
        try:
            dist.all_reduce(torch.zeros(1), group=other)
        except RuntimeError as error:
            sys.last_value = error  # as Python has it where a program ends by an error
            _faults._leave_all()
            return -2, str(error)
    return outcome(step.run) if rank == 0 else (-2, "")


def late(rank: int, ranks: int) -> tuple[int, str]:
    step = Step(rank, ranks)
    step.run()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
    time.sleep(4 * (rank == 1))
    return outcome(step.run)


class FaultsTest(unittest.TestCase):
    def run_all(self, cases: list[Case]) -> dict[Case, list[Outcome]]:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found = dict(zip(cases, pool.map(run_case, cases), strict=True))
        for case, outcomes in found.items():
            for outcome in outcomes:
                with self.subTest(case=case, rank=outcome.rank, message=outcome.message):
                    self.assertEqual(outcome.data["peer"], case.rank)
                    self.assertEqual(outcome.data["layer"], "7")
                    self.assertLess(outcome.seconds, DEADLINE + MARGIN + PAUSE * bool(case.other))
                    self.assertTrue(outcome.step_after)
                    self.assertNotIn(True, outcome.gradients)
                    if case.fault != "raises":
                        self.assertEqual(outcome.data["operation"], case.phase)
                        self.assertEqual(outcome.data["direction"], case.direction)
        return found

    def in_every_phase(self, fault: str, store: str) -> None:
        found = self.run_all(
            [Case(fault, rank, phase, store) for phase in [*FORWARD, STOCK, *BACKWARD] for rank in range(RANKS)]
        )
        for outcomes in found.values():
            for outcome in outcomes:
                self.assertIn("does not answer", outcome.message)

    def test_a_killed_rank_is_named(self) -> None:
        self.in_every_phase("killed", "file")

    def test_a_stopped_rank_is_named(self) -> None:
        self.in_every_phase("stopped", "file")

    def test_so_is_a_killed_rank_that_hosts_the_store(self) -> None:
        self.in_every_phase("killed", "tcp")

    def test_so_is_a_stopped_rank_that_hosts_the_store(self) -> None:
        self.in_every_phase("stopped", "tcp")

    def test_an_error_of_the_experts_is_told_before_the_deadline(self) -> None:
        found = self.run_all([Case("raises", rank, "combine", "file") for rank in range(RANKS)])
        for outcomes in found.values():
            for outcome in outcomes:
                self.assertIn("ValueError: rows of another planet", outcome.message)
                self.assertLess(outcome.seconds, DEADLINE / 2)

    def test_a_rank_that_comes_late_is_named_though_it_answers(self) -> None:
        found = self.run_all(
            [Case("late", rank, phase, "file") for rank in range(RANKS) for phase in ("counts", "combine")]
        )
        for outcomes in found.values():
            for outcome in outcomes:
                self.assertIn("has not come to", outcome.message)

    def test_the_page_says_what_is_named_in_each_phase(self) -> None:
        phases = [*FORWARD, STOCK, *BACKWARD]
        for phase in phases:
            self.assertIn(f"`{phase}`", PAGE.read_text())
        cases = [Case("killed", 1, phase, "file") for phase in phases]
        cases += [Case(fault, 1, "combine", "file") for fault in DOCUMENTED if fault != "killed"]
        for case, outcomes in self.run_all(cases).items():
            for outcome in outcomes:
                said = (
                    outcome.data["why"].replace(f"in {case.phase} of", "in combine of").replace("backward", "forward")
                )
                require_documented(DOCUMENTED[case.fault], 1, said)

    def test_an_innocent_rank_that_does_not_answer_for_a_while_is_not_named(self) -> None:
        self.run_all(
            [
                Case(fault, 2, "combine", "file", other)
                for fault in ("killed", "stopped")
                for other in ("paused", "holds")
            ]
        )

    def test_strangers_are_cut_off_and_nobody_listens_on(self) -> None:
        self.assert_rank_1_raised(run_ranks(3, among_strangers))

    def test_ranks_meet_without_ipv4(self) -> None:
        self.assert_rank_1_raised(run_ranks(3, without_ipv4))

    def test_ranks_of_several_hosts_meet(self) -> None:
        self.assert_rank_1_raised(run_ranks(3, on_hosts_of_their_own))

    def assert_rank_1_raised(self, met: list[tuple[int, str]]) -> None:
        self.assertEqual(met[1], (-2, "rows of another planet"))
        for peer, message in (met[0], met[2]):
            self.assertEqual(peer, 1)
            self.assertIn("rank 1 failed (ValueError: rows of another planet)", message)

    def test_a_rank_that_waits_for_another_group_is_not_named(self) -> None:
        for leaves, says in (
            (False, "rank 1 is in all_reduce of torch's own, and has not come to counts of layer 7"),
            (True, "rank 1 met a fault outside of this group (RuntimeError: ["),
        ):
            peer, message = run_ranks(4, waits_elsewhere, leaves, seconds=20)[0]
            self.assertEqual(peer, -1)
            self.assertIn(says, message)
            fault = (
                "a rank ends by an error of another group"
                if leaves
                else "a rank waits in a collective of another group"
            )
            require_documented(fault, -1, message)

    def test_no_rank_accepts_a_verdict_on_itself(self) -> None:
        (named, message), (own, answer) = run_ranks(2, late)
        self.assertEqual((named, own), (1, -1))
        require_documented("the same; this is what the late rank itself says", -1, answer)
        self.assertIn("rank 1 answers and was last in", message)
        self.assertIn("the other ranks gave this one up: rank 1 answers and was last in", answer)

    def test_a_collective_that_all_came_to_ends_though_a_later_one_failed(self) -> None:
        done, failed = run_ranks(2, told_of_a_fault)[1]
        self.assertEqual(done, "2.0")
        self.assertIn("rank 0 failed", failed)

    def test_ranks_are_those_of_the_group(self) -> None:
        first, *others, last = run_ranks(3, on_subgroups)
        self.assertEqual(first, [])
        for met in others:
            self.assertIn("rank 1 (global rank 2) failed (ValueError: rows of another planet)", met[0])
            self.assertEqual(met[1], "none")
        self.assertEqual(last, ["rows of another planet", "none"])


if __name__ == "__main__":
    unittest.main()
