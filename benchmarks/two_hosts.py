#!/usr/bin/env python3
"""A layer on two hosts of two processes each, for several rates of the link between them.

    benchmarks/two_hosts.py TRACE.npz|SCENARIO [--layer 12] [--tokens 512] [--width 384]

Compares plain EP, a placement, a spill that knows the link, two levels, and all together with 8 copies of popular
experts. The last two also run with results summed in nodes. The table has, for each: the bytes over the link and in its
busier direction, the speed-up over plain EP that the model predicts, and the measured milliseconds.

The link's rate depends on plain EP: at 1:1, the busier direction of its exchange takes as long as its products; at 1:4
and 1:10, four and ten times as long. Placements are made from the trace's second half; steps use its first tokens. With
a scenario there are no placements and no predictions.
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
HOSTS, PER_HOST, EXPERTS, TOP_K = 2, 2, 32, 4
RANKS = HOSTS * PER_HOST
SUMS = ("--two-levels", "--sum-in-nodes")
# For each name: the method's name in `compare`, and the options of `run`.
METHODS: dict[str, tuple[str, list[object]]] = {
    "plain EP": ("ep", ["--planner", "ep"]),
    "placement": ("moetuner", ["--planner", "ep", "--placement", "homes.json"]),
    "spill that knows the link": ("level-links", ["--planner", "level"]),
    "two levels": ("two-levels", ["--planner", "ep", "--two-levels"]),
    "two levels, sums in nodes": ("two-levels+node-sums", ["--planner", "ep", *SUMS]),
    "all": ("robust:8+level-links+two-levels", ["--planner", "level", "--placement", "copies.json", "--two-levels"]),
    "all, sums in nodes": (
        "robust:8+level-links+two-levels+node-sums",
        ["--planner", "level", "--placement", "copies.json", *SUMS],
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("routing", help="a trace, or a scenario of `evenkeel run`")
    parser.add_argument("--layer", type=int, default=12, help="layer of the trace")
    parser.add_argument("--tokens", type=int, default=512, help="tokens on each rank")
    parser.add_argument("--width", type=int, default=384, help="hidden and intermediate size")
    given = parser.parse_args()
    if Path(given.routing).exists():
        given.routing = Path(given.routing).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        measure(given)


def measure(given: argparse.Namespace) -> None:
    traced = isinstance(given.routing, Path)
    shape = ["--hidden", given.width, "--intermediate", given.width]
    call("bench", "--calibrate", "cost.json", *shape, "--ranks", RANKS, "--experts", EXPERTS)
    step = ["--trace", given.routing, "--layer", given.layer] if traced else ["--scenario", given.routing]
    step += ["--tokens", given.tokens, *shape, "--cost", "cost.json"]
    step += [] if traced else ["--experts", EXPERTS, "--top-k", TOP_K]
    if traced:
        prepare(given)
    plain = call("run", *step, "--ranks", RANKS, "--nodes", HOSTS, "--planner", "ep")["planners"][0]
    # Ranks that share cores compute one after the other.
    products = plain["phases_ms"]["compute"] * max(1, RANKS / len(os.sched_getaffinity(0)))
    print(
        f"{given.tokens} tokens a rank, {EXPERTS} experts of {given.width} x {given.width}; products {products:.1f} ms"
    )
    for ratio in (1, 4, 10):
        mbit = 8e-3 * plain["most_bytes_of_a_node"] / products / ratio
        write_topology(mbit)
        print(f"\n1:{ratio}, {mbit:.0f} Mbit/s\n| | rows out | over the link | its busier way | model | clock, ms |")
        predicted = predict(given) if traced else {}
        for name, (method, options) in METHODS.items():
            if not traced and "--placement" in options:
                at = options.index("--placement")
                options = options[:at] + options[at + 2 :]
            ran = on_hosts(mbit, step, options)
            model = f"{predicted[method]:.2f}x" if traced else "-"
            sizes = [
                mib(ran[key]) for key in ("dispatch_bytes_between_nodes", "bytes_between_nodes", "most_bytes_of_a_node")
            ]
            print("|", " | ".join([name, *sizes, model, f"{ran['wall_ms']:.0f}"]), "|", flush=True)


def prepare(given: argparse.Namespace) -> None:
    """Writes placements made from the trace's second half, and the layers as a model, for predictions."""
    trace = np.load(given.routing)["topk_ids"]
    assert trace.max() < EXPERTS and trace.shape[2] == TOP_K
    np.savez("others.npz", topk_ids=trace[trace.shape[0] // 2 :])
    place = ["place", "others.npz", "--ranks", RANKS, "--nodes", HOSTS]
    call(*place, "-o", "homes.json")
    call(*place, "--steps", "--step-tokens", RANKS * given.tokens, "--redundant-experts", 8, "-o", "copies.json")
    model = {"model_type": "mixtral", "hidden_size": given.width, "intermediate_size": given.width, "vocab_size": 1000,
             "num_local_experts": EXPERTS, "num_experts_per_tok": TOP_K, "torch_dtype": "float32",
             "num_attention_heads": 8, "num_key_value_heads": 8, "num_hidden_layers": trace.shape[1]}  # fmt: skip
    Path("config.json").write_text(json.dumps(model))
    rows = rows_over_link(trace[: RANKS * given.tokens, given.layer], given.tokens)
    print(f"under plain EP each token's row once over the link: {mib(rows * 4 * given.width)}")


def call(*words: object) -> Any:
    done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def write_topology(mbit: float) -> None:
    cost = json.loads(Path("cost.json").read_text())
    within = {"gigabytes_per_s": cost["link_bytes_per_second"] * 1e-9}
    said = {"format": "evenkeel.topology.v1", "num_nodes": HOSTS, "ranks_per_node": PER_HOST, "within": within,
            "across": {"gigabytes_per_s": mbit / 8000}}  # fmt: skip
    Path("hosts.json").write_text(json.dumps(said))
    cost["ranks_per_nic"] = PER_HOST  # the ranks of a host share its link
    Path("cost.json").write_text(json.dumps(cost))


def predict(given: argparse.Namespace) -> dict[str, float]:
    """The speed-up over plain EP by method: mean steps over all layers, judged on the trace's second half."""
    methods = ",".join(method for method, _ in METHODS.values())
    compared = call("compare", given.routing, "--topology", "hosts.json", "--cost", "cost.json", "--model", "config.json",
                    "--step-tokens", RANKS * given.tokens, "--methods", methods)  # fmt: skip
    return {method["name"]: method["speedup"] for method in compared["methods"]}


def on_hosts(mbit: float, step: list[object], options: list[object]) -> Any:
    """Runs a method as processes on two hosts; returns its figures."""
    run = [REPOSITORY / "tools/hosts.py", "--rate", f"{mbit}mbit", "--per-host", PER_HOST, "--",
           "mpirun", "--mca", "btl_tcp_sndbuf", 131072,  # else control messages wait behind data
           COMMAND, "run", "--backend", "mpi", *step, "--topology", "hosts.json", *options, "--repeat", 5, "--json"]  # fmt: skip
    done = subprocess.run([*map(str, run)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["planners"][-1]


def rows_over_link(ids: np.ndarray[Any, Any], tokens: int) -> int:
    """The rows that cross the link under plain EP: a token's row, once, if any of its experts is on the other host."""
    host_of_expert = np.arange(EXPERTS) * HOSTS // EXPERTS
    host_of_token = np.arange(len(ids)) // tokens // PER_HOST
    return int((host_of_expert[ids] != host_of_token[:, None]).any(axis=1).sum())


def mib(size: float) -> str:
    return f"{size / 2**20:.2f} MiB"


if __name__ == "__main__":
    main()
