"""Times the host's part of a step with slots: from the counts of all ranks to the plan and the device's tables.

usage: PYTHONPATH=build/release/python python3 benchmarks/slot_plans.py

Runs as one of P ranks, with E experts, 4,096 tokens a rank and top-8. Routing is random; a share of it is to 4 experts.
Times are medians of 400 runs.
"""

import time

import numpy as np

import evenkeel as ek
from evenkeel import _native

ASSIGNMENTS = 4096 * 8


def microseconds(experts: int, ranks: int, hot: float) -> tuple[float, int]:
    """The median time, and how many weights are sent."""
    random = np.random.default_rng(0)
    layout = _native.StepLayout(ek.Placement.contiguous(1, experts, ranks)._native, 0, 0, "level", 1000, 64, 0, slots=4)
    chances = np.full(experts, (1 - hot) / experts)
    chances[:4] += hot / 4
    found = []
    for _ in range(20):
        shares = random.dirichlet(200 * chances + 0.05, ranks)
        counts = np.stack([random.multinomial(ASSIGNMENTS, share) for share in shares])
        for _ in range(20):
            begin = time.perf_counter()
            layout.slots(counts).rule(ASSIGNMENTS)
            found.append(time.perf_counter() - begin)
    return 1e6 * float(np.median(found)), layout.transfers


def main() -> None:
    print("experts  ranks  in 4 experts  microseconds  weights")
    for experts, ranks in ((128, 8), (256, 32), (384, 64)):
        for hot in (0.0, 0.5, 0.95):
            time_taken, transfers = microseconds(experts, ranks, hot)
            print(f"{experts:7}  {ranks:5}  {hot:12.0%}  {time_taken:12.0f}  {transfers:7}")


if __name__ == "__main__":
    main()
