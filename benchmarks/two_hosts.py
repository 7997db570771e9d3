#!/usr/bin/env python3
"""A layer on two hosts of two processes each, by rate of the link between them: bytes over it, its busier way, the
model's seconds and the clock's, of plain EP, a placement, a spill that knows the link, two levels, and all together with
8 copies of popular experts.

    benchmarks/two_hosts.py TRACE.npz [--layer 12] [--tokens 512] [--width 384]

The link's rate follows a rule: at 1:1 the busier way of plain EP's exchange takes as long as its products, at 1:4 and
1:10 four and ten times as long. Placements are made from the trace's second half, steps are of its first tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

REPOSITORY = Path(__file__).resolve().parent.parent
COMMAND = REPOSITORY / "build/release/bin/evenkeel"
HOSTS, PER_HOST, TOP_K = 2, 2, 4
RANKS = HOSTS * PER_HOST
# By name: what `compare` calls it, and the options of `run`.
METHODS = {
    "plain EP": ("ep", ["--planner", "ep"]),
    "placement": ("moetuner", ["--planner", "ep", "--placement", "homes.json"]),
    "spill that knows the link": ("level-links", ["--planner", "level"]),
    "two levels": ("two-levels", ["--planner", "ep", "--two-levels"]),
    "all": ("robust:8+level-links+two-levels", ["--planner", "level", "--placement", "copies.json", "--two-levels"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--layer", type=int, default=12)
    parser.add_argument("--tokens", type=int, default=512, help="of a rank")
    parser.add_argument("--width", type=int, default=384, help="of rows and experts")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        measure(given)


def measure(given: argparse.Namespace) -> None:
    trace = np.load(given.trace)["topk_ids"]
    np.savez("others.npz", topk_ids=trace[trace.shape[0] // 2 :])
    call("place", "others.npz", "--ranks", RANKS, "--nodes", HOSTS, "-o", "homes.json")
    call("place", "others.npz", "--ranks", RANKS, "--nodes", HOSTS, "--steps", "--step-tokens", RANKS * given.tokens,
         "--redundant-experts", 8, "-o", "copies.json")  # fmt: skip
    experts = int(trace.max()) + 1
    shape = ["--hidden", given.width, "--intermediate", given.width]
    call("bench", "--calibrate", "cost.json", *shape, "--ranks", RANKS, "--experts", experts)
    model = {"model_type": "mixtral", "hidden_size": given.width, "intermediate_size": given.width, "vocab_size": 1000,
             "num_local_experts": experts, "num_experts_per_tok": TOP_K, "torch_dtype": "float32",
             "num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": trace.shape[1]}  # fmt: skip
    Path("config.json").write_text(json.dumps(model))
    step = [
        "--trace",
        given.trace.resolve(),
        "--layer",
        given.layer,
        "--tokens",
        given.tokens,
        *shape,
        "--cost",
        "cost.json",
    ]
    plain = call("run", *step, "--ranks", RANKS, "--nodes", HOSTS, "--planner", "ep")["planners"][0]
    # Ranks that share cores compute in turns.
    products = plain["phases_ms"]["compute"] * max(1, RANKS / len(os.sched_getaffinity(0)))
    rows = rows_over_link(trace[: RANKS * given.tokens, given.layer], given.tokens, experts)
    print(f"{given.tokens} tokens a rank, {experts} experts of {given.width} x {given.width}; products {products:.1f} ms; "
          f"each token's row once: {mib(rows * 4 * given.width)} over the link")  # fmt: skip
    for ratio in (1, 4, 10):
        mbit = 8e-3 * plain["most_bytes_of_a_node"] / products / ratio
        print(f"\n1:{ratio}, {mbit:.0f} Mbit/s\n| | rows out | over the link | its busier way | model | clock, ms |")
        predicted = predict(given, mbit)
        for name, (method, options) in METHODS.items():
            ran = on_hosts(mbit, *step, "--nodes", "hosts", *options)
            print(f"| {name} | {mib(ran['dispatch_bytes_between_nodes'])} | {mib(ran['bytes_between_nodes'])} | "
                  f"{mib(ran['most_bytes_of_a_node'])} | {predicted['ep'] / predicted[method]:.2f}x | {ran['wall_ms']:.0f} |",
                  flush=True)  # fmt: skip


def call(*words: object) -> Any:
    done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def topology(mbit: float) -> str:
    cost = json.loads(Path("cost.json").read_text())
    link = {
        "within": {"gigabytes_per_s": cost["link_bytes_per_second"] * 1e-9},
        "across": {"gigabytes_per_s": mbit / 8000},
    }
    said = {"format": "evenkeel.topology.v1", "num_nodes": HOSTS, "ranks_per_node": PER_HOST, **link}
    Path("hosts.json").write_text(json.dumps(said))
    # Both ranks of a host share its link.
    cost["ranks_per_nic"] = PER_HOST
    Path("shared.json").write_text(json.dumps(cost))
    return "hosts.json"


def predict(given: argparse.Namespace, mbit: float) -> dict[str, float]:
    """Mean milliseconds of steps over all layers, by method."""
    compared = call("compare", given.trace.resolve(), "--topology", topology(mbit), "--cost", "shared.json", "--model",
                    "config.json", "--step-tokens", RANKS * given.tokens,
                    "--methods", ",".join(method for method, _ in METHODS.values()))  # fmt: skip
    return {method["name"]: 1 / method["speedup"] for method in compared["methods"]}


def on_hosts(mbit: float, *step: object) -> Any:
    """The last planner's figures, of processes on two hosts."""
    more = ["--topology", "hosts.json"] if "level" in step else []
    words = [step_word for step_word in step if not more or step_word not in ("--nodes", "hosts")]
    words = ["shared.json" if more and word == "cost.json" else word for word in words]
    run = [REPOSITORY / "tools/hosts.py", "--rate", f"{mbit}mbit", "--per-host", PER_HOST, "--",
           "mpirun", "--mca", "btl_tcp_sndbuf", 131072, COMMAND, "run", "--backend", "mpi", *words, *more,
           "--repeat", 5, "--json"]  # fmt: skip
    done = subprocess.run([*map(str, run)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["planners"][-1]


def rows_over_link(ids: np.ndarray[Any, Any], tokens: int, experts: int) -> int:
    """Of plain EP: a token's row once to the other host, if any of its experts lives there."""
    host_of_expert = np.arange(experts) * HOSTS // experts
    host_of_token = np.arange(len(ids)) // tokens // PER_HOST
    return int((host_of_expert[ids] != host_of_token[:, None]).any(axis=1).sum())


def mib(size: float) -> str:
    return f"{size / 2**20:.2f} MiB"


if __name__ == "__main__":
    main()
