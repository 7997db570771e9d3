"""Names the rank at fault when a collective fails or does not end; a backend names an address at best.

Each rank notes in memory which collectives it has begun and not finished, which costs a few assignments each. If a
collective fails, the rank asks all others for their notes. The rank at fault is the first found of these: a rank whose
connection has closed; a rank that has not answered several requests, which a waiting rank sends at growing intervals; a
rank at another call; a rank that has not come as far as the others. The first rank with a result sends it to all; it
ends every later collective of the group.

The connections are made once, in the group's first collective here; faults before that are not named. A rank that could
not be reached (a firewall) is not blamed for its silence.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from ..errors import CommError
from ._peers import Peers

_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # renamed in torch 2.13

_ANSWER_SECONDS = 1.0
_FIRST_ASK_SECONDS, _ASK_BACKOFF = 0.5, 1.25
"""A waiting rank first asks after so many seconds, then each time after so many times the time waited."""
_ASKS = 3  # a rank is silent if it has not answered the last asks, which span about the second half of the wait
_POLL_INTERVAL = timedelta(seconds=0.25)  # how often a waiting rank checks whether another has found a fault
_ADDRESS_BYTES = 256
_WHY_CHARACTERS = 400


class Place(NamedTuple):
    """A collective, numbered within its group."""

    number: int
    phase: str
    layer: str
    direction: str

    def __str__(self) -> str:
        return f"{self.phase}{f' of layer {self.layer}' if self.layer else ''}, {self.direction}"


class Verdict(NamedTuple):
    """What a fault is; equal on all ranks. `peer` is -1 if no rank is to blame."""

    peer: int
    place: Place  # where it was found; its number is that of the first collective that lacks a rank
    why: str  # a sentence without its full stop


class State(NamedTuple):
    """Where a rank is."""

    place: Place
    waits: bool  # it is still in that collective; else it has left
    foreign_collective: str
    """The framework's collective in which the rank is, if it does not wait in ours; empty if none is known."""


class Pending:
    """A collective that has been started."""

    def __init__(self, faults: Faults, place: Place, on_host: bool) -> None:
        self.faults, self.place, self.on_host = faults, place, on_host
        self.began = time.monotonic()
        self.ask_after = _FIRST_ASK_SECONDS
        self.work: dist.Work | None = None

    def wait(self) -> None:
        """Returns when the result may be read; on a GPU, when work queued next on the stream may read it."""
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
                work.wait(_POLL_INTERVAL)
                return
            except RuntimeError:
                if self.faults.verdict is not None and self.faults.verdict.place.number <= self.place.number:
                    raise
        work.wait()

    def is_completed(self) -> bool:
        return self.work is not None and self.work.is_completed()

    def is_finished(self) -> bool:
        return self.is_completed() and self.work.is_success()  # type: ignore[union-attr]


class Faults:
    """Tracks one process group's collectives on this rank and asks other ranks about theirs."""

    def __init__(self, group: dist.ProcessGroup, device: torch.device) -> None:
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.global_ranks = dist.get_process_group_ranks(group)
        self.unfinished: dict[int, Pending] = {}
        self.last = Place(0, "no collective", "", "forward")
        self.verdict: Verdict | None = None
        self._in_backward = False
        """Whether this rank, since its last collective, is in a backward pass with collectives of other code."""
        self._is_blamed = False
        """Whether another rank's verdict blames this rank, which forwards the verdict but does not name itself."""
        self._states: dict[int, State] = {}
        self._asked = 0
        self._answered = [0] * self.ranks  # by rank, the number of the last request that it answered
        self._updated = threading.Condition()
        self._peers = Peers(self.rank, self.ranks, self._on_message, self._ask_if_due)
        if self.ranks > 1:
            self._connect(group, device)
            weakref.finalize(group, self._peers.end).atexit = False

    def begin(
        self, phase: str, layer: str, direction: str, start: Callable[[], dist.Work | None], on_host: bool
    ) -> Pending:
        """Starts a collective. Raises if the group has already failed."""
        if self.verdict is not None:
            raise self.error(time.monotonic())
        self.last, self._in_backward = Place(self.last.number + 1, phase, layer, direction), False
        pending = self.unfinished[self.last.number] = Pending(self, self.last, on_host)
        try:
            pending.work = start()
        except RuntimeError as error:
            raise self.error(pending.began, error) from error
        return pending

    def enter_backward(self, phase: str, layer: str) -> None:
        """Notes that a backward pass with other code's collectives begins. If one of these fails, the end of the pass is
        not noted."""
        self.last = Place(self.last.number, phase, layer, "backward")
        self._in_backward = True
        torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)  # type: ignore[attr-defined]

    def _end_backward(self) -> None:
        self._in_backward = False

    def error(self, began: float, cause: BaseException | None = None) -> CommError:
        """The error that every rank raises. Finds the rank at fault if no rank has found it yet."""
        seconds = time.monotonic() - began
        verdict = self.verdict or self._conclude(self._judge(cause))
        if self._is_blamed:
            verdict = verdict._replace(peer=-1, why=f"the other ranks gave up on this rank: {verdict.why}")
        self.unfinished.clear()  # frees their tensors
        message = f"{verdict.why}; rank {self.rank} waited {seconds:.1f} s. This process group cannot go on."
        return _comm_error(message, verdict.peer, verdict.place, seconds, verdict.why)

    def end(self, peer: int, why: str) -> CommError:
        """Ends the group with a fault that every rank has found separately, with the same result."""
        self.verdict = Verdict(peer, self.last, why)
        return self.error(time.monotonic())

    def failed_here(self, error: BaseException) -> None:
        """Tells all ranks that this rank leaves its step, by its own error or by an error in other collectives."""
        if self.verdict is None and self.ranks > 1:
            what = f"{type(error).__name__}: {error}"[:_WHY_CHARACTERS]
            outside = is_of_backend(error) or isinstance(error, CommError)
            action = "was stopped by an error outside of this group" if outside else "failed"
            why = f"{self._named(self.rank)} {action} ({what}) after {self.last}"
            place = self.last._replace(number=self.last.number + 1)
            self._conclude(Verdict(-1 if outside else self.rank, place, why))
        self.unfinished.clear()

    def _judge(self, cause: BaseException | None) -> Verdict:
        self._ask()
        if self.verdict is not None:
            return self.verdict
        states = {rank: state for rank, state in self._states.items() if self._answered[rank] == self._asked}
        states[self.rank] = self._state()
        stuck = min([state.place for state in states.values() if state.waits], default=self.last)
        return (
            self._find_silent(self._peers.closed, "its process has ended, or it has left the group", stuck)
            or self._find_silent(self._unheard(_ASKS + 1), "killed, stopped or cut off", stuck)
            or self._find_late(states, stuck)
            or self._find_silent(self._unheard(2), "killed, stopped or cut off", stuck)
            or Verdict(-1, stuck, f"no rank is known to be at fault ({str(cause)[:_WHY_CHARACTERS]}) in {stuck}")
        )

    def _unheard(self, asks: int) -> list[int]:
        """Ranks that have not answered the last so many requests, the longest silent first."""
        silent = [rank for rank in self._peers.connected() if self._asked - self._answered[rank] >= asks]
        return sorted(silent, key=lambda rank: self._answered[rank])

    def _find_silent(self, ranks: Sequence[int], how: str, stuck: Place) -> Verdict | None:
        if not ranks:
            return None
        others = "".join(f", nor does rank {rank}" for rank in ranks[1:])
        why = f"{self._named(ranks[0])} does not answer{others} ({how}), awaited in {stuck}"
        return Verdict(ranks[0], stuck, why)

    def _find_late(self, states: Mapping[int, State], stuck: Place) -> Verdict | None:
        late = [(state.place.number, state.waits, rank) for rank, state in states.items()]
        late = [found for found in late if 0 < found[0] < stuck.number]  # at 0 it is not connected to all ranks yet
        if not late:
            return None
        rank = min(late)[2]
        named, state = self._named(rank), states[rank]
        if state.foreign_collective:  # it is not known here which rank it waits for
            why = f"{named} is inside torch, in {state.foreign_collective}, and has not come to {stuck}"
            return Verdict(-1, stuck, why)
        why = f"{named} answers and was last in {state.place}, but has not come to {stuck}"
        return Verdict(rank, stuck, why)

    def _named(self, rank: int) -> str:
        known = self.global_ranks[rank]
        return f"rank {rank}" if known == rank else f"rank {rank} (global rank {known})"

    def _state(self) -> State:
        for pending in list(self.unfinished.values()):
            if not pending.is_finished():
                return State(pending.place, True, "")
        if self.last.phase not in ("stock", "dispatcher"):
            return State(self.last, False, _foreign_collective(backward=False))
        return State(self.last, False, "a backward pass" if self._in_backward else _foreign_collective(backward=True))

    def _conclude(self, verdict: Verdict) -> Verdict:
        """Sets the group's verdict, unless there is one, and sends it to all ranks. Returns the group's verdict."""
        with self._updated:
            verdict = self.verdict = self.verdict or verdict
        self._send_to_all("verdict", *verdict)
        return verdict

    # Between ranks.

    def _ask(self) -> None:
        """Asks all ranks. Returns when all connected ranks have answered, or after a second."""
        with self._updated:
            self._ask_all()
            self._updated.wait_for(lambda: self.verdict is not None or not self._unheard(1), _ANSWER_SECONDS)

    def _ask_if_due(self) -> None:
        """Called by the thread: asks if this rank has waited long, to know silent ranks before the deadline."""
        for pending in list(self.unfinished.values()):
            waited = time.monotonic() - pending.began
            if waited > pending.ask_after and not pending.is_completed():
                pending.ask_after = _ASK_BACKOFF * waited
                with self._updated:
                    return self._ask_all()

    def _ask_all(self) -> None:
        self._asked += 1
        self._send_to_all("ask", self._asked)

    def _send_to_all(self, *message: Any) -> None:
        for rank in self._peers.connected():
            self._peers.send(rank, message)

    def _on_message(self, rank: int, message: list[Any]) -> None:
        with self._updated:
            kind, *body = message
            if kind == "ask":
                answer = ["answer", *body, *self._state()] if self.verdict is None else ["verdict", *self.verdict]
                self._peers.send(rank, answer)
            elif kind == "answer":
                self._answered[rank], place, *rest = body
                self._states[rank] = State(Place(*place), *rest)
            elif kind == "verdict" and self.verdict is None:
                peer, place, *rest = body
                self.verdict = Verdict(peer, Place(*place), *rest)
                self._is_blamed = peer == self.rank
            self._updated.notify_all()

    def _connect(self, group: dist.ProcessGroup, device: torch.device) -> None:
        def gather_texts(text: str) -> list[str]:
            row = torch.tensor(list(text.encode().ljust(_ADDRESS_BYTES)), dtype=torch.uint8, device=device)
            every = row.new_empty((self.ranks, _ADDRESS_BYTES))
            work = start_gather(every, row, group)
            if work is not None:
                work.wait()
            return [bytes(each).decode() for each in every.tolist()]

        try:
            self._peers.connect(gather_texts)
        except RuntimeError as error:
            message = f"no rank can be named, since the group's first collective failed: {error}"
            raise _comm_error(message, -1, Place(0, "addresses", "", "forward"), 0.0, str(error)) from error

    def leave(self, error: BaseException | None) -> None:
        """Called before this process ends; reports the error that ends it to the other ranks."""
        if self._peers.is_serving():
            if error is not None:
                self.failed_here(error)
            self._peers.end(wait_seconds=1.0)


def _comm_error(message: str, peer: int, place: Place, seconds: float, why: str) -> CommError:
    _, phase, layer, direction = place
    at = {"operation": phase, "layer": layer, "direction": direction}
    return CommError(message, {"peer": peer, **at, "after_seconds": seconds, "why": why})


_faults_of_groups: weakref.WeakKeyDictionary[dist.ProcessGroup, Faults] = weakref.WeakKeyDictionary()


@atexit.register
def _leave_all() -> None:
    """Ends the threads before the interpreter: a thread stopped within a call into torch would crash the process."""
    for faults in list(_faults_of_groups.values()):
        faults.leave(getattr(sys, "last_value", None))


def start_gather(every: torch.Tensor, mine: torch.Tensor, group: dist.ProcessGroup | None) -> dist.Work | None:
    """Starts gathering all ranks' tensors `mine` into `every`, `[P, ...]`."""
    work: dist.Work | None = _gather(every.view(-1), mine.reshape(-1).contiguous(), group=group, async_op=True)
    return work


def faults_of(group: dist.ProcessGroup | None, device: torch.device) -> Faults:
    """The Faults of a group, shared by all its layers. Collective at a group's first call."""
    group = group or dist.group.WORLD
    assert group is not None
    found = _faults_of_groups.get(group)
    if found is None:
        found = _faults_of_groups[group] = Faults(group, device)
    return found


_OF_GLOO = "gloo", "Application timeout caused pair closure"
"""Parts of gloo's messages: its source path, in nearly all of them, and that for another collective's timeout."""


def is_of_backend(error: BaseException) -> bool:
    """Whether the error is a failed collective of any group."""
    of_gloo = isinstance(error, RuntimeError) and any(words in str(error) for words in _OF_GLOO)
    return of_gloo or isinstance(error, dist.DistError)


def _foreign_collective(backward: bool) -> str:
    """In which function of torch.distributed a thread of this process is; empty if none is.

    `backward`: also looks for autograd, whose own collectives show no frame.
    """
    for frame in sys._current_frames().values():
        inner: Any = frame
        while inner is not None and inner.f_code.co_filename.endswith("torch/_ops.py"):
            inner = inner.f_back
        if inner is not None and Path(inner.f_code.co_filename).is_relative_to(_DISTRIBUTED):
            return str(inner.f_code.co_name)
        if backward and inner is not None and inner.f_code.co_name == "_engine_run_backward":
            return "a backward pass"
    return ""


_DISTRIBUTED = Path(dist.__file__).parent
