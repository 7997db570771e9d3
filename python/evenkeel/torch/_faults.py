"""Names the rank at fault when a collective fails or does not end: a backend names an address at best.

Each rank notes in memory which collectives it has begun and not finished: a few assignments a collective. One thread per
process group sleeps until another rank asks for these notes, by UDP. Where a collective fails, this rank asks all others
for a second. At fault is, in this order: a rank that does not answer; one that says it failed; one that has not
come as far as the rest. What the first rank finds is told to all, and ends every later collective of the group.

Addresses are gathered once, in the group's first collective here; a fault before that is not named. A rank that was
never heard (a firewall, a network without IPv4) is not blamed for its silence.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..errors import CommError

Gather = Callable[[torch.Tensor], torch.Tensor]
"""Rows `[P, n]` of all ranks from this rank's `[n]`."""

Data = dict[str, int | float | str]

_ASKED_SECONDS = 1.0
_ASK_AGAIN_SECONDS = 0.2
_LOOK_AGAIN = timedelta(seconds=0.25)
"""How often a rank that waits looks whether another has found a fault."""
_ADDRESS_BYTES = 128
_WHY_CHARACTERS = 400


class Place(NamedTuple):
    """A collective: the n-th of its group."""

    number: int
    phase: str
    layer: str
    direction: str

    def __str__(self) -> str:
        return (
            f"{self.phase} of layer {self.layer}, {self.direction}" if self.layer else f"{self.phase}, {self.direction}"
        )


def different_calls(one: int, two: int, places: Mapping[int, object] | Sequence[object]) -> str:
    """By rank, where each is."""
    return (
        f"ranks {one} and {two} are at different calls (rank {one}: {places[one]}; rank {two}: {places[two]}), "
        "and every rank must make the same layers and the same calls in one order"
    )


class Verdict(NamedTuple):
    """What a fault is: alike on all ranks. `peer` is -1 where no rank is to blame."""

    peer: int
    place: Place
    why: str
    """A sentence without its full stop."""
    first: int
    """The number of the first collective that some rank does not take part in."""


class Pending:
    """A collective that has begun."""

    def __init__(self, faults: Faults, place: Place, on_host: bool) -> None:
        self.faults, self.place, self.on_host = faults, place, on_host
        self.began = time.monotonic()
        self.work: dist.Work | None = None

    def wait(self) -> None:
        """Returns when the result may be read; on a GPU, by what is put on the stream next."""
        try:
            if self.work is not None:
                self._wait(self.work)
        except RuntimeError as error:
            raise self.faults.error(self.began, error) from error
        self.done()

    def done(self) -> None:
        self.faults.unfinished.pop(self.place.number, None)

    def _wait(self, work: dist.Work) -> None:
        while self.on_host and not work.is_completed():
            try:
                work.wait(_LOOK_AGAIN)
                return
            except RuntimeError:
                if self.faults.verdict is not None and self.faults.verdict.first <= self.place.number:
                    raise
        work.wait()

    def is_finished(self) -> bool:
        return self.work is not None and self.work.is_completed() and self.work.is_success()


class Faults:
    """One process group's collectives on this rank, and the ranks that can be asked about theirs."""

    def __init__(self, group: dist.ProcessGroup, gather: Gather, device: torch.device) -> None:
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.global_ranks = dist.get_process_group_ranks(group)
        self.unfinished: dict[int, Pending] = {}
        self.last = Place(0, "no collective", "", "forward")
        self.verdict: Verdict | None = None
        self._heard: set[int] = set()
        self._answers: dict[int, tuple[Place, bool]] = {}
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        if self.ranks > 1:
            self._meet(group, gather, device)

    def begin(
        self, phase: str, layer: str, direction: str, start: Callable[[], dist.Work | None], on_host: bool
    ) -> Pending:
        """Starts a collective; raises where the group has failed already."""
        if self.verdict is not None:
            raise self.error(time.monotonic())
        self.last = Place(self.last.number + 1, phase, layer, direction)
        pending = self.unfinished[self.last.number] = Pending(self, self.last, on_host)
        try:
            pending.work = start()
        except RuntimeError as error:
            raise self.error(pending.began, error) from error
        return pending

    def error(self, began: float, cause: Exception | None = None) -> CommError:
        """What every rank raises; finds the rank at fault where no rank has found it yet."""
        seconds = time.monotonic() - began
        if self.verdict is None:
            self._conclude(self._judge(cause))
        verdict = self.verdict
        assert verdict is not None
        self.unfinished.clear()  # they hold their tensors
        return CommError(
            f"{verdict.why}; rank {self.rank} waited {seconds:.1f} s. This process group cannot go on.",
            {
                "peer": verdict.peer,
                "operation": verdict.place.phase,
                "layer": verdict.place.layer,
                "direction": verdict.place.direction,
                "after_seconds": seconds,
                "why": verdict.why,
            },
        )

    def end(self, peer: int, why: str) -> CommError:
        """Ends the group by what all ranks found alike, each by itself."""
        self._conclude(Verdict(peer, self.last, why, self.last.number))
        return self.error(time.monotonic())

    def failed_here(self, error: Exception) -> None:
        """Tells all that this rank leaves its step by an error of its own."""
        if self.verdict is None and self.ranks > 1:
            what = f"{type(error).__name__}: {error}"[:_WHY_CHARACTERS]
            why = f"{self._named(self.rank)} failed ({what}) after {self.last}"
            self._conclude(Verdict(self.rank, self.last, why, self.last.number + 1))
        self.unfinished.clear()

    def _judge(self, cause: Exception | None) -> Verdict:
        answers = self._ask()
        if self.verdict is not None:
            return self.verdict
        stuck = min([place for place, waits in answers.values() if waits], default=self.last)
        silent = sorted(self._heard - answers.keys())
        if silent:
            others = "" if len(silent) == 1 else f", nor do ranks {', '.join(map(str, silent[1:]))}"
            why = f"{self._named(silent[0])} does not answer{others} (killed, stopped or cut off), awaited in {stuck}"
            return Verdict(silent[0], stuck, why, stuck.number)
        apart = self._apart({rank: place for rank, (place, waits) in answers.items() if waits}, stuck)
        if apart is not None:
            return apart
        behind = [
            (place.number, waits, rank) for rank, (place, waits) in answers.items() if place.number < stuck.number
        ]
        if behind:
            rank = min(behind)[2]
            why = f"{self._named(rank)} answers and was last in {answers[rank][0]}, but has not come to {stuck}"
            return Verdict(rank, stuck, why, stuck.number)
        why = f"no rank is known to be at fault ({str(cause)[:_WHY_CHARACTERS]}) in {stuck}"
        return Verdict(-1, stuck, why, stuck.number)

    def _apart(self, waiting: dict[int, Place], stuck: Place) -> Verdict | None:
        """Ranks that wait in different collectives of one number; they wait for each other, and none is behind."""
        met = {rank: place for rank, place in sorted(waiting.items()) if place.number == stuck.number}
        for rank, place in met.items():
            if place != stuck:
                other = next(rank for rank in met if met[rank] == stuck)
                one, two = min(rank, other), max(rank, other)
                return Verdict(-1, stuck, different_calls(one, two, met), stuck.number)
        return None

    def _named(self, rank: int) -> str:
        known = self.global_ranks[rank]
        return f"rank {rank}" if known == rank else f"rank {rank} (global rank {known})"

    def _ask(self) -> dict[int, tuple[Place, bool]]:
        """Where each rank is that answers, and whether it waits there; this one too."""
        end = time.monotonic() + _ASKED_SECONDS
        with self._news:
            self._answers = {}
            while not self._know_enough() and time.monotonic() < end:
                self._tell_all("ask")
                self._news.wait_for(self._know_enough, _ASK_AGAIN_SECONDS)
            return {**self._answers, self.rank: self._state()}

    def _know_enough(self) -> bool:
        return self.verdict is not None or len(self._answers) == self.ranks - 1

    def _conclude(self, verdict: Verdict) -> None:
        with self._news:
            self.verdict = self.verdict or verdict
        for _ in range(3 if self.ranks > 1 else 0):  # a datagram may be lost
            self._tell_all("verdict", self.verdict)

    def _state(self) -> tuple[Place, bool]:
        for pending in list(self.unfinished.values()):
            if not pending.is_finished():
                return pending.place, True
        return self.last, False

    # Between ranks.

    def _meet(self, group: dist.ProcessGroup, gather: Gather, device: torch.device) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("", 0))
        port, token = self._socket.getsockname()[1], secrets.token_hex(8)
        mine = f"{_host()} {_ip()} {port} {token}".encode()[:_ADDRESS_BYTES].ljust(_ADDRESS_BYTES)
        try:
            every = gather(torch.tensor(list(mine), dtype=torch.uint8, device=device)).tolist()
        except RuntimeError as error:
            message = f"no rank can be named: the group's first collective failed: {error}"
            data: Data = {"peer": -1, "operation": "addresses", "layer": "", "after_seconds": 0.0, "why": str(error)}
            raise CommError(message, data) from error
        rows = [bytes(row).decode().split() for row in every]
        self._token = rows[0][3]
        self._addresses = {
            rank: ("127.0.0.1" if host == _host() else ip, int(at)) for rank, (host, ip, at, _) in enumerate(rows)
        }
        self._thread = threading.Thread(target=self._serve, name="evenkeel-faults", daemon=True)
        self._thread.start()
        self._tell_all("ask")  # whoever answers now, and not after a fault, is silent
        weakref.finalize(group, self._end, os.getpid()).atexit = False

    def end_thread(self) -> None:
        """At once, unless the thread is another process's."""
        if self._thread is not None and self._thread.is_alive():
            self._tell(self.rank, "end")
            self._thread.join(1.0)

    def _end(self, process: int) -> None:
        """Ends the thread; in a forked process the group may go, and the thread must stay."""
        if os.getpid() == process:
            self._tell(self.rank, "end")

    def _serve(self) -> None:
        while True:
            data, sender = self._socket.recvfrom(65536)
            with contextlib.suppress(ValueError, LookupError, TypeError):  # not from a rank
                message: dict[str, Any] = json.loads(data)
                if message["token"] != self._token:
                    continue
                rank, kind, body = message["rank"], message["kind"], message["body"]
                if kind == "end" and rank == self.rank:
                    return self._socket.close()
                self._addresses[rank] = sender
                self._take(rank, kind, body)

    def _take(self, rank: int, kind: str, body: Any) -> None:
        with self._news:
            self._heard.add(rank)
            if kind == "ask":
                told = ("answer", self._state()) if self.verdict is None else ("verdict", self.verdict)
                self._tell(rank, *told)
            elif kind == "answer":
                self._answers[rank] = (Place(*body[0]), body[1])
                self._news.notify_all()
            elif kind == "verdict":
                self.verdict = self.verdict or Verdict(body[0], Place(*body[1]), *body[2:])
                self._news.notify_all()

    def _tell_all(self, kind: str, body: Any = None) -> None:
        for rank in range(self.ranks):
            if rank != self.rank:
                self._tell(rank, kind, body)

    def _tell(self, rank: int, kind: str, body: Any = None) -> None:
        message = {"token": self._token, "rank": self.rank, "kind": kind, "body": body}
        with contextlib.suppress(OSError):  # whoever is not heard is silent
            self._socket.sendto(json.dumps(message).encode(), self._addresses[rank])


_all: weakref.WeakKeyDictionary[dist.ProcessGroup, Faults] = weakref.WeakKeyDictionary()


@atexit.register
def _end_all() -> None:
    """Before the interpreter ends: a thread that it stops in a call into torch takes the process down with it."""
    for faults in list(_all.values()):
        faults.end_thread()


def faults_of(group: dist.ProcessGroup | None, gather: Gather, device: torch.device) -> Faults:
    """Those of a group, shared by all layers on it. Collective at a group's first call."""
    group = group or dist.group.WORLD
    assert group is not None
    found = _all.get(group)
    if found is None:
        found = _all[group] = Faults(group, gather, device)
    return found


def _host() -> str:
    """The same for processes that reach each other by 127.0.0.1."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return f"{boot.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()[:64]


def _ip() -> str:
    """This machine's address on the way to the others."""
    try:
        if "MASTER_ADDR" not in os.environ:
            return socket.gethostbyname(socket.gethostname())
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((os.environ["MASTER_ADDR"], 1))  # sends nothing
            return str(way.getsockname()[0])
    except OSError:
        return "127.0.0.1"
