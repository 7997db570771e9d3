"""A storm of faults between ranks: the surviving ranks end in time, blame no innocent rank, and compute nothing wrong.

One seed is one run (storm_runs.py), played by forked ranks (storm_ranks.py). `fault_storm_test.py 17 30-59` repeats
these seeds. EVENKEEL_STORM=20 runs 20 times as many, as `make test-long` does. Ranks are forked one run at a time
(FORKS); the runs themselves overlap, since they mostly wait.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from processes import PAGE, chosen_seeds, require_documented
from storm_ranks import CHECKPOINT, Outcome, on_rank
from storm_runs import CYCLE, INNOCENT, LOST, OWN_MESSAGE, PLACES, SAMPLE, SET_UP, Draft, Promise, Run
from transformers_test import save

AT_ONCE = 8

FORKS = threading.Lock()


def play(run: Run) -> str:
    """Plays one run. Returns what was wrong; all its processes have ended."""
    context = mp.get_context("fork")
    began = context.RawValue("d", 0.0)
    folder = tempfile.mkdtemp()  # which no rank removes when it ends
    pipes = [context.Pipe() for _ in range(run.ranks)]
    started = [
        context.Process(target=on_rank, args=(run, folder, rank, began, pipes[rank][1]), daemon=True)
        for rank in range(run.ranks)
    ]
    with FORKS:
        for process in started:
            process.start()
    lost = {fault.rank for fault in run.faults if fault.what in LOST}
    left = [rank for rank in range(run.ranks) if rank not in lost]
    processes = RankProcesses(folder, [pipe for pipe, _ in pipes], started)
    try:
        outcomes = [processes.receive(rank) for rank in left]
        if any(fault.what not in INNOCENT for fault in run.faults):
            assert began.value > 0, "the fault never came"
        judge(run, outcomes)
        if not run.ends:
            processes.continue_without_failed(run, left)
        for rank in left:
            processes.require_good_end(rank)
    except AssertionError as broken:
        return f"{broken}\n{run.shown()}"
    finally:
        for process in started:
            process.kill()
            process.join()
        shutil.rmtree(folder)
    return ""


class RankProcesses(NamedTuple):
    """The parent's side of the ranks: their processes, and a pipe to each."""

    folder: str
    pipes: list[Connection]
    started: list[Any]

    def receive(self, rank: int) -> Any:
        pipe, process = self.pipes[rank], self.started[rank]
        ready = wait([pipe, process.sentinel], timeout=SET_UP)
        if pipe in ready or pipe.poll(0):
            found = pipe.recv()
            assert not isinstance(found, str) or not found, f"rank {rank}: {found}"
            return found
        process.join(0.1)
        fate = f"ended with {process.exitcode}" if ready else "hangs"
        with open(os.path.join(self.folder, f"stderr{rank}"), "a+") as file:
            file.seek(0)
            raise AssertionError(f"rank {rank} {fate}, without an answer:\n{file.read()[-2000:]}")

    def require_good_end(self, rank: int) -> None:
        self.started[rank].join(SET_UP)
        with FORKS:  # starting another run also reaps children
            code = self.started[rank].exitcode
        assert code == 0, f"rank {rank} ended with {code}"

    def continue_without_failed(self, run: Run, left: list[int]) -> None:
        """If the group has failed, the surviving ranks continue in a new group without the faulty ones."""
        some = [rank for rank in left if not run.faults or rank not in run.faulty_ranks]
        able = run.promise.error == "CommError" and len(some) > 1 and not run.promise.own
        some = some if able and run.layers[0].world != "model" else []
        for rank in left:
            self.pipes[rank].send(some)
        for rank in some:
            self.receive(rank)
        for rank in some:
            self.pipes[rank].send("")


TORCH_ERRORS = {"RuntimeError", "DistError", "DistBackendError", "DistNetworkError", "DistStoreError"}


def judge(run: Run, outcomes: list[Outcome]) -> None:
    promise = run.promise
    for outcome in outcomes:
        assert not outcome.wrong, f"rank {outcome.rank}: wrong {outcome.wrong}"
        if outcome.rank in run.raising():
            assert outcome.error == promise.own, f"rank {outcome.rank}, which raises, says {outcome}"
        elif run.kind == "late" and outcome.rank in run.faulty_ranks:
            judge_rank(run, outcome, promise._replace(peers=(-1, outcome.rank), says="", place=False))
        elif run.two_groups and outcome.rank // 2 != run.faulty_ranks[0] // 2:
            # This rank is in the half without the fault, and notices it only in its own group's collectives.
            judge_rank(run, outcome, Promise(or_torch_error=True, peers=(-1,)))
        else:
            judge_rank(run, outcome, promise)
    messages = {outcome.data.get("why", outcome.message) for outcome in outcomes}
    assert not promise.alike or len(messages) == 1, f"ranks do not say the same: {messages}"
    named = any(outcome.error == promise.error for outcome in outcomes)
    assert named or -1 in promise.peers, "no rank names the fault"


def judge_rank(run: Run, outcome: Outcome, promise: Promise) -> None:
    shown = outcome._replace(trace="")
    allowed = {promise.error} | (TORCH_ERRORS if promise.or_torch_error else set())
    assert outcome.error in allowed, f"expected {' or '.join(allowed) or 'no error'}: {shown}\n{outcome.trace}"
    assert outcome.seconds < promise.seconds, f"after {outcome.seconds:.2f} s: {shown}"
    if outcome.error == promise.error:
        assert re.search(promise.says, outcome.message), f"expected {promise.says!r}: {shown}"
    if outcome.error == "CommError":
        assert outcome.data["peer"] in promise.peers, f"expected peer {promise.peers}: {shown}"
        assert outcome.data["layer"] in (*outcome.layers, ""), f"a layer of no name: {shown}"
    if run.kind in DOCUMENTED and promise.peers == run.faulty_ranks:
        require_documented(DOCUMENTED[run.kind], 1, as_documented(run, outcome.data["why"]))
    if promise.place:
        (fault,) = run.faults
        found = tuple(outcome.data[name] for name in ("operation", "layer", "direction"))
        expected = (fault.operation, outcome.layers[fault.layer], fault.direction)
        assert found == expected, f"expected {expected}: {shown}"


DOCUMENTED = {
    "killed": "a rank is killed, or ends",
    "stopped": "a rank is stopped (SIGSTOP), or its network is cut",
    "raises": "a rank raises: its experts, its arguments, no memory",
    "late": "a rank comes too late: a slow step, an endless loop",
}
"""The name of each kind of run in docs/errors.md."""


def as_documented(run: Run, why: str) -> str:
    """Rewrites the message as docs/errors.md shows it: rank 1 at fault, in one layer and phase."""
    (fault,) = run.faults
    why = why.replace(f"rank {fault.rank} ", "rank 1 ")
    why = why.replace(f"{fault.error.__name__}: {fault.error(OWN_MESSAGE)}", "ValueError: rows of another planet")
    for words, phase in (("awaited in|come to", "combine"), ("after|last in", "dispatch")):
        why = re.sub(rf"({words}) [a-z ]+ of layer \S+, (forward|backward)", rf"\1 {phase} of layer 7, forward", why)
    return why


def storm(seeds: list[int]) -> list[tuple[int, str]]:
    """Returns the seed and the error of each run that was wrong."""
    save("Qwen3Moe", CHECKPOINT)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda seed: (seed, play(Draft.make(seed))), seeds))
    shutil.rmtree(CHECKPOINT)
    return [(seed, wrong) for seed, wrong in found if wrong]


class FaultStormTest(unittest.TestCase):
    def test_whoever_is_left_ends_in_time_and_blames_no_innocent(self) -> None:
        times = int(os.environ.get("EVENKEEL_STORM", "1"))
        for seed, wrong in storm(list(range(SAMPLE * times))):
            with self.subTest(seed=seed):
                self.fail(f"{wrong}\nagain: {sys.executable} {__file__} {seed}")

    def test_the_page_on_errors_has_every_phase(self) -> None:
        for *_, phase in PLACES:
            if not phase.startswith("experts"):
                self.assertIn(f"`{phase.removesuffix(' backward')}`", PAGE.read_text())


if __name__ == "__main__":
    chosen = chosen_seeds(sys.argv[1:])
    if not chosen:
        unittest.main()
    start = time.monotonic()
    found = storm(chosen)
    for seed, wrong in found:
        print(f"== seed {seed}, {CYCLE[seed % SAMPLE]}: {wrong}\n")
    print(
        f"{len(found)} of {len(chosen)} runs are wrong: {[seed for seed, _ in found]}; {time.monotonic() - start:.0f} s"
    )
    sys.exit(bool(found))
