"""Measures the speed-up from placing experts and balancing each step on two nodes joined by a slow link.

    python benchmarks/shaped_link/shaped_link.py [--rate 50] [--delay MS] [--ranks 4] [--json FILE] [--work FOLDER]

tools/hosts.py makes the nodes, two hosts with half of the ranks each, and the link. The model, a Qwen3-MoE of
transformers with examples/train_moe.py's sizes, is trained on half of the code and prose of Python's own library. It is
recorded on that half, placed for two nodes, and saved as a second checkpoint. The other half is used for measuring:
each rank runs prefill on its own sequences, and the modes take turns in every round.

If every rank reads all kinds of text, a placement cannot bring experts nearer to tokens, since tokens return home after
each layer. With `--requests by-node --traffic dispatch-combine --objective joint` it can.

It needs evenkeel's command and package, torch, transformers, and what tools/hosts.py needs.
Exit status 77: two hosts cannot be created here, and one line says why. 1: the modes give different results.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

HERE = Path(__file__).resolve().parent
HOSTS = HERE.parents[1] / "tools/hosts.py"
MODES = [
    ("contiguous", "ep"),
    ("contiguous", "ep"),  # the control: it shows the measurement noise
    ("contiguous", "stock"),
    ("contiguous", "level"),
    ("contiguous", "auto"),
    ("placed", "ep"),
    ("placed", "level"),
    ("placed", "auto"),
]
MOST_TIES = 1e-3
"""The share of tokens that may choose another expert by rounding. A wrong placement changes every token."""


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    options = arguments()
    try:
        if status := run_ranks(["true"], options):  # fails early if hosts cannot be created
            sys.exit(status)
        with tempfile.TemporaryDirectory() as scratch:
            work = options.work or Path(scratch)
            work.mkdir(parents=True, exist_ok=True)
            result = measure(options, work)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    print_table(result)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    worst = max(mode["tokens_that_differ"] / mode["tokens"] for mode in result["modes"])
    if worst > MOST_TIES:
        sys.exit(f"shaped_link: {worst:.1%} of the tokens differ between modes")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=50, metavar="MBIT", help="link rate in Mbit/s (50)")
    parser.add_argument("--delay", type=float, default=0, metavar="MS", help="link delay in ms; needs sch_netem (0)")
    parser.add_argument("--ranks", type=int, default=4, help="ranks on both nodes together (4)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; each mode has a turn in each (5)")
    parser.add_argument("--steps", type=int, default=2, help="steps in a turn (2)")
    parser.add_argument("--sequences", type=int, default=4, help="sequences for each rank and step (4)")
    parser.add_argument("--length", type=int, default=128, help="tokens in a sequence (128)")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument(
        "--requests",
        choices=["anywhere", "by-node"],
        default="anywhere",
        help="code and prose on all ranks, or code on node 0 and prose on node 1",
    )
    parser.add_argument("--objective", choices=["two-stage", "joint"], default="two-stage", help="as for `place`")
    parser.add_argument("--traffic", choices=["layer-to-layer", "dispatch-combine"], default="layer-to-layer")
    parser.add_argument("--training-steps", type=int, default=300)
    parser.add_argument(
        "--model", type=Path, metavar="FOLDER", help="a checkpoint with byte tokens, instead of training one"
    )
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep checkpoints, trace and placement here")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--evenkeel", default="evenkeel", help="the command")
    options = parser.parse_args()
    for name in ("rate", "rounds", "steps", "sequences", "length", "training_steps"):
        if getattr(options, name) <= 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0, got {getattr(options, name)}")
    if options.delay < 0:
        parser.error(f"--delay must be 0 or more, got {options.delay}")
    if options.ranks < 2 or options.ranks % 2:
        parser.error(f"--ranks must be even, for two equal nodes, got {options.ranks}")
    return options


def run_ranks(command: Sequence[str], options: argparse.Namespace) -> int:
    """Runs a command with tools/hosts.py; returns its status. If this process ends or is killed, hosts.py ends too."""
    hosts = f"--each --per-host {options.ranks // 2} --rate {options.rate} --delay {options.delay} --".split()
    ended_with_this = ["setpriv", "--pdeathsig", "KILL", sys.executable, str(HOSTS), *hosts, *command]
    return subprocess.run(ended_with_this, stdin=subprocess.DEVNULL).returncode


def measure(options: argparse.Namespace, work: Path) -> dict[str, Any]:
    import place
    import torch
    from transformers.utils.logging import disable_progress_bar

    torch.set_num_threads(1)  # waiting threads would occupy cores that others need
    disable_progress_bar()

    link = {"mbit_per_s": options.rate, "delay_ms": options.delay}
    checkpoint = options.model or place.train(work / "model", options.training_steps)
    placed = place.write_placed(
        checkpoint,
        work,
        link,
        options.ranks,
        options.requests,
        options.objective,
        options.traffic,
        command=options.evenkeel,
    )
    plan = {
        "checkpoints": {"contiguous": str(checkpoint), "placed": str(work / "placed")},
        "modes": MODES,
        "requests": options.requests,
        **{name: getattr(options, name) for name in ("rounds", "steps", "sequences", "length", "dtype")},
    }
    (work / "plan.json").write_text(json.dumps(plan))
    os.environ.update(OMP_NUM_THREADS="1", TORCH_CPP_LOG_LEVEL="ERROR")  # no warnings about host names
    load = os.getloadavg()
    command = [sys.executable, str(HERE / "rank.py"), str(work / "plan.json"), str(work / "seen.json")]
    if status := run_ranks(command, options):
        sys.exit(f"shaped_link: a rank failed with status {status}")
    seen = json.loads((work / "seen.json").read_text())
    return {
        "machine": {"cores": os.cpu_count(), "load_average_before": load, "torch": torch.__version__},
        "link": link,
        "nodes": 2,
        "ranks": options.ranks,
        "rounds": options.rounds,
        "steps": options.steps,
        "tokens_a_step": options.ranks * options.sequences * options.length,
        "requests": options.requests,
        "placement": placed,
        "modes": [mode_figures(options, i, seen) for i in range(len(MODES))],
    }


def mode_figures(options: argparse.Namespace, mode: int, seen: dict[str, Any]) -> dict[str, Any]:
    """Medians over rounds; speed relative to the first mode in the same round; times of the slowest rank."""
    of_ranks = [turns[mode] for turns in seen["turns"]]
    first, nodes = of_ranks[0], (of_ranks[0], of_ranks[-1])
    seconds = [turn["seconds"] for turn in first]
    base = [turn["seconds"] for turn in seen["turns"][0][0]]
    speed = [b / s for b, s in zip(base, seconds, strict=True)]
    a_step = options.rounds * options.steps
    tokens = options.ranks * options.sequences * options.length
    exchange = sorted(
        max(times)
        for turns in zip(*of_ranks, strict=True)
        for times in zip(*(turn["exchange_seconds"] for turn in turns), strict=True)
    )
    payload, busiest = payloads(of_ranks)
    return {
        "placement": MODES[mode][0],
        "planner": MODES[mode][1],
        "tokens_per_second": median(tokens * options.steps / s for s in seconds),
        "speed": {"median": median(speed), "least": min(speed), "most": max(speed)},
        "link_bytes_a_step": sum(sum(turn["link_bytes"]) for turn in first) / a_step,
        "loopback_bytes_a_step": sum(turn["loopback_bytes"] for node in nodes for turn in node) / a_step,
        "payload_a_step": {phase: sent / a_step for phase, sent in payload.items()},
        "busiest_direction_a_step": busiest / a_step if payload else None,
        "exchange_ms": {
            "mean": 1e3 * mean(exchange),
            "median": 1e3 * median(exchange),
            "p95": 1e3 * exchange[int(0.95 * (len(exchange) - 1))],
            "max": 1e3 * exchange[-1],
        },
        "transfers_a_step": sum(turn["transfers"] for turn in first) / a_step,
        "max_over_mean_at_home": max_over_mean(first, "home_loads"),
        "max_over_mean": max_over_mean(first, "rank_loads"),
        **seen["agreement"][mode],
    }


def payloads(of_ranks: list[list[dict[str, Any]]]) -> tuple[dict[str, int], int]:
    """By phase: the bytes to the other node, and the bytes of the busier direction, for which ranks wait.

    Both are sums over all-to-alls; the busier direction is chosen for each of them.
    """
    by_phase: dict[str, int] = {}
    busiest = 0
    for turns in zip(*of_ranks, strict=True):
        for calls in zip(*(turn["payload"] for turn in turns), strict=True):  # the same call of every rank
            phase, sent = calls[0][0], [count for _, count in calls]
            by_phase[phase] = by_phase.get(phase, 0) + sum(sent)
            busiest += max(sum(sent[: len(sent) // 2]), sum(sent[len(sent) // 2 :]))
    return by_phase, busiest


def max_over_mean(turns: list[dict[str, Any]], which: str) -> float | None:
    """Max/mean of the ranks' loads, averaged over steps and layers; None for stock, which does not report loads."""
    loads = [each for turn in turns for each in turn[which]]
    return mean(max(each) * len(each) / sum(each) for each in loads) if loads else None


def print_table(result: dict[str, Any]) -> None:
    link, placed = result["link"], result["placement"]
    print(
        f"{result['ranks']} ranks on 2 nodes, {link['mbit_per_s']:g} Mbit/s and {link['delay_ms']:g} ms between them; "
        f"{result['tokens_a_step']} tokens a step, "
        f"requests {result['requests']}, {result['rounds']} rounds of {result['steps']} steps\n"
        f"{result['machine']['cores']} cores, load average {result['machine']['load_average_before'][0]:.2f} before"
    )
    print(f"{'':<24}{'':>9}{'speed':^20}{'link':>8}{'of it':>8}{'busier':>8}{'exchange of a layer, ms':>24}{'':>9}")
    print(
        f"{'placement, planner':<24}{'tokens/s':>9}{'median':>8}{'least-most':>12}{'MB':>8}{'weights':>8}{'way':>8}"
        f"{'median':>8}{'p95':>8}{'max':>8}{'max/mean':>9}"
    )
    for i, mode in enumerate(result["modes"]):
        name = f"{mode['placement']}, {mode['planner']}{' (control)' if i == 1 else ''}"
        speed, times = mode["speed"], mode["exchange_ms"]
        even = "" if mode["max_over_mean"] is None else f"{mode['max_over_mean']:.2f}"
        busier = "" if mode["busiest_direction_a_step"] is None else f"{mode['busiest_direction_a_step'] / 1e6:.2f}"
        spread = f"{speed['least']:.2f}-{speed['most']:.2f}"
        print(
            f"{name:<24}{mode['tokens_per_second']:>9,.0f}{speed['median']:>7.2f}x{spread:>12}"
            f"{mode['link_bytes_a_step'] / 1e6:>8.2f}{mode['payload_a_step'].get('weights', 0) / 1e6:>8.2f}{busier:>8}"
            f"{times['median']:>8.1f}{times['p95']:>8.1f}{times['max']:>8.1f}{even:>9}"
        )
    before, after = placed["before"], placed["after"]
    print(
        f"On the recorded text, from which the placement was made: max/mean {before['max_over_mean']:.2f} -> "
        f"{after['max_over_mean']:.2f}, {placed['traffic']} traffic across nodes "
        f"{before['across_nodes']:.1%} -> {after['across_nodes']:.1%}"
    )
    most = max(mode["tokens_that_differ"] for mode in result["modes"])
    difference = max(mode["largest_difference"] for mode in result["modes"])
    print(
        f"Logits of {result['modes'][0]['tokens']} tokens: {most} differ by over a thousandth of the largest; "
        f"the largest difference is {difference:.1e} of it"
    )


if __name__ == "__main__":
    main()
