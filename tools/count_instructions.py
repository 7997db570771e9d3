#!/usr/bin/env python3
"""Compares how many instructions two builds of `evenkeel` need for plans, a placement, and steps of a layer.

usage: tools/count_instructions.py BEFORE_BIN_DIR AFTER_BIN_DIR [--runs N]

Unlike time, instructions hardly depend on what else the machine does. Prints medians of N runs (5) counted by `perf
stat`, or one run counted by Valgrind, if the machine has no counters. Each row is a command's count minus the count of
another command with the same start-up. Plans and placements run with a fake clock that advances by a fixed time at
every reading, so loops with a time limit always run equally often.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import statistics
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

CLOCK = """#include <time.h>
int clock_gettime(clockid_t id, struct timespec* now) {
  static long long us;
  const long long at = __atomic_add_fetch(&us, 100, __ATOMIC_RELAXED);
  now->tv_sec = at / 1000000, now->tv_nsec = at % 1000000 * 1000;
  return 0;
}
"""
PERF = ["perf", "stat", "-x,", "-e", "instructions:u"]
VALGRIND = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]


class Row(NamedTuple):
    name: str
    counted: str
    less: str  # the command with the same start-up, whose count is subtracted


def plan(experts: int, ranks: int) -> Row:
    words = f"plan {experts}.json --ranks {ranks} --min-segment 64 --planner "
    return Row(f"plan, {experts} experts on {ranks} ranks", words + "level", words + "ep")


def steps(name: str, *words: str) -> Row:
    shape = "--scenario concentrated:0.95:1 --ranks 4 --tokens 64 --experts 16 --hidden 64 --intermediate 32"
    start = " ".join(["run", shape, "--planner level --min-segment 8 --imbalance-threshold 0", *words, "--repeat "])
    return Row(name, start + "9", start + "1")


ROWS = [
    plan(128, 8),
    plan(384, 64),
    Row("place, 58 layers of 256 experts", "place profile.npz --ranks 16 --nodes 2", "profile profile.npz"),
    steps("forward, 95 % to one expert"),
    steps("the same and backward", "--backward"),
]


def make_inputs(folder: Path) -> None:
    """Loads with one hot expert, the profile of a random trace, and the fake clock."""
    numbers = random.Random(1)
    for experts in (128, 384):
        loads = [int(numbers.paretovariate(1) * 100) for _ in range(experts)]
        (folder / f"{experts}.json").write_text(json.dumps({"loads": loads}), encoding="utf-8")
    ids = b"".join(bytes(numbers.sample(range(256), 8)) for _ in range(512 * 58))
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (512, 58, 8), }".ljust(117) + "\n"
    (folder / "trace.npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + ids)
    (folder / "clock.c").write_text(CLOCK, encoding="utf-8")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", "clock.so", "clock.c"], cwd=folder, check=True)


def count(counter: list[str], binary: Path, words: str, folder: Path) -> int:
    """Counts one run's instructions. Ranks wait by the clock, so runs of a layer use the real clock."""
    clock = {} if words.startswith("run") else {"LD_PRELOAD": str(folder / "clock.so")}
    done = subprocess.run(
        [*counter, binary, *words.split()],
        cwd=folder,
        env=os.environ | clock,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^(\d+),,instructions|Collected : (\d+)", done.stderr, re.MULTILINE)
    if done.returncode or not found:
        raise SystemExit(f"evenkeel {words}: {done.stderr}")
    return int(found[1] or found[2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--runs", type=int)
    options = parser.parse_args()
    binaries = [Path(each, "evenkeel").resolve() for each in (options.before, options.after)]
    counts = subprocess.run([*PERF, "true"], capture_output=True, text=True, check=False)
    counter = PERF if re.search(r"^\d+,", counts.stderr, re.MULTILINE) else VALGRIND
    runs = options.runs or (5 if counter is PERF else 1)
    print(f"instructions counted by {counter[0]}, medians of {runs} runs")
    print(f"{'':34}{'before':>14}{'after':>14}  after / before")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder)
        subprocess.run(
            [binaries[0], "profile", "trace.npy", "--axes", "tokens,layers,k", "-o", "profile.npz"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        for row in ROWS:
            before, after = (
                statistics.median(
                    count(counter, binary, row.counted, folder) - count(counter, binary, row.less, folder)
                    for _ in range(runs)
                )
                for binary in binaries
            )
            print(f"{row.name:34}{before:14,.0f}{after:14,.0f}  {after / before:.3f}", flush=True)


if __name__ == "__main__":
    main()
