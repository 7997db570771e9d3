"""Random faults on MPI ranks: no rank hangs, blames an innocent rank, or computes wrong numbers.

Each seed is one run of mpi_fault_program under mpirun, with a fault on one rank, or the same fault on two.
`fault_storm.py 17 30-59` repeats these seeds. EVENKEEL_STORM=20 runs 20 times as many seeds, as `make test-long` does.
MPI_FAULT_PROGRAM is the path of the program.
"""

from __future__ import annotations

import functools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAM = Path(os.environ.get("MPI_FAULT_PROGRAM", REPOSITORY / "build/release/bin/mpi_fault_program")).resolve()
SAMPLE = 20
AT_ONCE = 4

DEADLINE = 1.5
GRACE = 1.0
"""Seconds after the deadline in which the other ranks may still answer."""
SOON = 5.0
"""Seconds of delay allowed on a shared machine."""
LIMIT = 30.0

DEAD = {"kill", "exit"}
LOST = {*DEAD, "stop"}
KINDS = ["kill", "kill", "exit", "stop", "stop", "throw", "slow", "late"]
OPERATIONS = ["agreement", "split", "counts", "counts of a chunk", "dispatch indices", "weight transfer", "dispatch",
              "combine", "dispatch router weights", "dispatch gradients", "combine gradients", "return gradients"]  # fmt: skip
PRODUCTS = ["experts prepare", "experts forward", "experts backward"]
INSIDE = [
    *OPERATIONS,
    *(f"{name} posted" for name in OPERATIONS if name != "split"),
    *PRODUCTS,
    "step",
    "end",
    "moment",
]
"""Places within run_mpi_ranks. "moment" is any time in the second or third step."""
OUTSIDE = ["start", "set-up", "after"]
RECOVERY = ("--mca", "orte_enable_recovery", "1")
TCP = ("--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")


MPIRUN_SAYS = {"kill": "mpirun noticed that process rank {} with PID", "exit": ",1],{}] Exit code: 1"}
"""mpirun's default message about a process that dies."""


class Case(NamedTuple):
    ranks: int
    chunks: int
    kind: str
    faulty: tuple[int, ...]
    place: str
    at: int
    recovery: bool = False
    tcp: bool = False

    def arguments(self) -> list[str]:
        return [*map(str, (DEADLINE, self.chunks, self.kind, "".join(map(str, self.faulty)), self.place, self.at))]


def draw_case(seed: int) -> Case:
    draw = random.Random(seed)
    ranks = draw.choice([2, 3, 4])
    chunks = draw.choice([1, 3])
    kind = draw.choice(KINDS)
    place = draw.choice(INSIDE[:-1] if draw.random() < 0.85 else OUTSIDE)
    if kind in LOST and draw.random() < 0.25:
        place = "moment"
    many = place not in ("agreement", "split", "end", *OUTSIDE)
    at = draw.randint(1, 2 if chunks == 1 else 4) if many else 1
    at = draw.randint(0, 30) if place == "moment" else at
    recovery = draw.random() < 0.6
    # MPI_Init and MPI_Finalize have no deadline. A rank that throws before run_mpi_ranks enters MPI_Finalize.
    waits = {
        "start": LOST | {"throw"} if recovery else {"stop"},
        "set-up": {"throw"} if recovery else set(),
        "after": LOST if recovery else {"stop"},
    }
    if kind in waits.get(place, ()):
        kind = "late"
    faults = 2 if ranks > 2 and kind in LOST and place in INSIDE and draw.random() < 0.25 else 1
    return Case(ranks, chunks, kind, tuple(draw.sample(range(ranks), faults)), place, at, recovery, draw.random() < 0.3)


class Line(NamedTuple):
    """What a rank prints."""

    rank: int
    clock: float
    error: str
    peer: str
    operation: str
    after_seconds: str
    message: str
    checksums: list[str]


class Outcome(NamedTuple):
    status: int
    seconds: float
    left: list[str]
    faults: list[float]
    first: dict[int, Line]
    again: dict[int, Line]
    output: str


def parse(text: str, kind: str) -> dict[int, Line]:
    found = {}
    for line in text.splitlines():
        what, *fields = line.split("\t")
        if what == kind and len(fields) == 8:
            rank, clock, *words, checksums = fields
            found[int(rank)] = Line(int(rank), float(clock), *words, checksums.split())
    return found


def run_case(case: Case, *options: str) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "faults"  # a unique path, by which its processes are found
        program.symlink_to(PROGRAM)
        command = [REPOSITORY / "tools/mpirun.sh", *options, *(RECOVERY if case.recovery else ()),
                   *(TCP if case.tcp else ()), "-n", str(case.ranks), program, *case.arguments()]  # fmt: skip
        out, err = Path(folder) / "out", Path(folder) / "err"
        start = time.monotonic()
        with out.open("wb") as to, err.open("wb") as to_err:
            job = subprocess.Popen([*map(str, command)], stdout=to, stderr=to_err)
        stopped = case.kind == "stop" and case.recovery
        while job.poll() is None and time.monotonic() - start < LIMIT:
            time.sleep(0.02)
            stopped = stopped and not kill_stopped(case, out.read_text())
        seconds = time.monotonic() - start
        status = job.poll()
        if status is None:
            job.kill()
            job.wait()
        time.sleep(0.1)
        left = subprocess.run(["pgrep", "-f", program], capture_output=True, text=True).stdout.split()
        for process in left:
            os.kill(int(process), signal.SIGKILL)
        stdout = out.read_text()
        faults = [float(line.split("\t")[1]) for line in stdout.splitlines() if line.startswith("fault")]
        output = f"{' '.join(map(str, command))}\nstatus {status}, {seconds:.1f} s\n{stdout}\n{err.read_text()[-3000:]}"
        return Outcome(-1 if status is None else status, seconds, left, faults, parse(stdout, "rank"),
                       parse(stdout, "again"), output)  # fmt: skip


def kill_stopped(case: Case, stdout: str) -> bool:
    """Kills stopped processes once all others have printed all their lines; mpirun does not kill them."""
    lines = [line.split("\t") for line in stdout.splitlines(keepends=True) if line.endswith("\n")]
    stopped = [int(line[2]) for line in lines if line[0] == "fault"]
    others = (case.ranks - len(stopped)) * (2 if case.place in INSIDE else 1)
    if not stopped or len(lines) - len(stopped) < others:
        return False
    for process in stopped:
        os.kill(process, signal.SIGKILL)
    return True


@functools.cache
def checksums_without_fault(ranks: int, chunks: int) -> list[list[str]]:
    outcome = run_case(Case(ranks, chunks, "none", (), "none", 0))
    assert outcome.status == 0, outcome.output
    return [outcome.first[rank].checksums for rank in range(ranks)]


def check_outcome(case: Case, outcome: Outcome) -> None:
    assert outcome.status != -1, "it hangs"
    assert not outcome.left, f"processes are left: {outcome.left}"
    expected = checksums_without_fault(case.ranks, case.chunks)
    for line in [*outcome.first.values(), *outcome.again.values()]:
        sums = expected[line.rank]
        assert line.checksums == sums[: len(line.checksums)], f"wrong numbers: {line}"
        assert line.error != "ok" or line.checksums == sums, f"steps are missing: {line}"
    faulted = outcome.faults and case.kind != "late" and not (case.kind == "slow" and case.place in OUTSIDE[::2])
    if not faulted:
        assert outcome.status == 0, "a nonzero exit status without a fault"
        assert [line.error for line in outcome.first.values()] == case.ranks * ["ok"], "an error without a fault"
        return
    if not case.recovery:  # with recovery, Open MPI 4.1 always exits with 0 and prints nothing
        assert outcome.status != 0, "an exit status of 0 after a fault"
        named = [MPIRUN_SAYS.get(case.kind, "").format(rank) if case.place in INSIDE else "" for rank in case.faulty]
        assert any(each in " ".join(outcome.output.split()) for each in named), f"mpirun does not say: {named}"
    survivors = [rank for rank in range(case.ranks) if rank not in case.faulty]
    reported = [rank for rank in survivors if rank in outcome.first]
    # By default mpirun ends the job as soon as a process dies or ends without MPI_Finalize.
    must_report = [] if case.place == "start" else survivors
    if not case.recovery and case.kind != "throw":
        must_report = [] if case.kind in DEAD else must_report[:1]
        assert not must_report or reported, "no survivor printed its line"
    else:
        assert set(must_report) <= set(reported), f"only ranks {reported} printed their line"
    for rank in reported:
        check_survivor(case, outcome, outcome.first[rank])
    if case.kind in ("throw", "slow") and case.faulty[0] in outcome.first:
        own = outcome.first[case.faulty[0]]
        named = own.error == "CommError" and own.peer in ("-1", str(own.rank))
        assert own.error == "exception" if case.kind == "throw" else named, f"wrong error on the faulty rank: {own}"
    if case.kind == "throw" and case.place in INSIDE:
        assert [line.error for line in outcome.again.values()] == case.ranks * ["ok"], "MPI failed in the run after"
    else:
        assert {line.error for line in outcome.again.values()} <= {"Unsupported"}, "MPI was called after a fault"


def check_survivor(case: Case, outcome: Outcome, line: Line) -> None:
    if case.place == "after":
        assert line.error == "ok", f"an error after all is done: {line}"
        return
    peers = [*map(str, case.faulty)] if case.place in INSIDE else ["-1"]
    assert line.error == "CommError" and line.peer in peers, f"expected peer {peers}: {line}"
    prefix = f"rank {line.peer} " if case.place in INSIDE else "not all ranks have come"
    assert line.message.startswith(prefix), f"expected {prefix!r}: {line}"
    seconds = SOON + (0 if case.kind == "throw" and case.place in INSIDE else DEADLINE + GRACE)
    seconds += DEADLINE if len(case.faulty) > 1 else 0
    passed = line.clock - max(outcome.faults)
    assert passed < seconds, f"{passed:.1f} s after the fault: {line}"


def wrong_with(case: Case, *options: str) -> str:
    outcome = run_case(case, *options)
    try:
        check_outcome(case, outcome)
    except AssertionError as wrong:
        return f"{wrong}\n{case}\n{outcome.output}"
    return ""


def storm(seeds: list[int]) -> list[tuple[int, str]]:
    for ranks in (2, 3, 4):
        for chunks in (1, 3):
            checksums_without_fault(ranks, chunks)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda seed: (seed, wrong_with(draw_case(seed))), seeds))
    return [(seed, wrong) for seed, wrong in found if wrong]


class FaultStormTest(unittest.TestCase):
    def test_whoever_is_left_ends_in_time_and_blames_no_innocent(self) -> None:
        times = int(os.environ.get("EVENKEEL_STORM", "1"))
        for seed, wrong in storm(list(range(SAMPLE * times))):
            with self.subTest(seed=seed):
                self.fail(f"{wrong}\nagain: {sys.executable} {__file__} {seed}")

    def test_where_mpi_starts_and_ends_only_a_time_limit_of_mpirun_ends_the_job(self) -> None:
        cases = [
            Case(3, 1, "stop", (1,), "start", 1),
            Case(3, 1, "kill", (1,), "start", 1, recovery=True),
            Case(3, 1, "stop", (1,), "after", 1),
        ]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for outcome in pool.map(lambda case: run_case(case, "--timeout", "3"), cases):
                self.assertNotIn(outcome.status, (-1, 0), outcome.output)
                self.assertEqual(outcome.left, [], outcome.output)
                self.assertGreater(outcome.seconds, 3, outcome.output)


if __name__ == "__main__":
    chosen: list[int] = []
    for words in sys.argv[1:]:
        first, _, last = words.partition("-")
        chosen += range(int(first), int(last or first) + 1)
    if not chosen:
        unittest.main()
    start = time.monotonic()
    found = storm(chosen)
    for seed, wrong in found:
        print(f"== seed {seed}: {wrong}\n")
    wrong_seeds = [seed for seed, _ in found]
    print(f"{len(found)} of {len(chosen)} runs are wrong: {wrong_seeds}; {time.monotonic() - start:.0f} s")
    sys.exit(bool(found))
