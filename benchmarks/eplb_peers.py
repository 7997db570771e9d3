"""Compares placements of redundant experts by evenkeel with those of the programs that servers ship, in one run.

    PYTHONPATH=build/release/python EVENKEEL_PEERS=FOLDERS python3 benchmarks/eplb_peers.py [--rounds 15] [--seed 1]

Times rebalance_experts of evenkeel and of each program found, one after the other on the same loads. The same few lines
of code judge all maps. A peer's file is looked for in the folders of EVENKEEL_PEERS (separated by ':'; an unpacked
wheel works) and in Python's path. The file runs unchanged, without the package around it. deepseek-ai's eplb.py is
looked for in the same folders and where EVENKEEL_EPLB says. Needs torch and numpy.

Loads are lognormal with sigma 1, about a million assignments a layer. Times are CPU seconds of the process, with torch
on one thread. In each round, every peer's call runs between two calls of evenkeel. A ratio is the peer's time over the
mean of evenkeel's two; the control is the time of evenkeel's second call over that of its first.
"""

import argparse
import gc
import importlib
import os
import statistics
import sys
import time
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import evenkeel as ek


@dataclass
class Case:
    name: str
    layers: int
    experts: int
    slots: int
    groups: int  # if 1, it is no multiple of `nodes`, so that all programs let a copy go to any node
    nodes: int
    gpus: int

    @property
    def hierarchical(self):
        return self.groups % self.nodes == 0


CASES = [
    Case("58 x 256 into 288 on 32, 4 nodes, 8 groups", 58, 256, 288, 8, 4, 32),
    Case("58 x 256 into 288 on 32, 8 nodes, 8 groups", 58, 256, 288, 8, 8, 32),
    Case("58 x 256 into 288 on 32, flat", 58, 256, 288, 1, 4, 32),
    Case("36 x 128 into 144 on 16, flat", 36, 128, 144, 1, 2, 16),
    Case("94 x 128 into 160 on 32, flat", 94, 128, 160, 1, 4, 32),
    Case("61 x 384 into 416 on 32, flat", 61, 384, 416, 1, 4, 32),
]


def find(path):
    """The folder of a peer's file, and its version from the package metadata beside it."""
    folders = os.environ.get("EVENKEEL_PEERS", "").split(os.pathsep) + [os.environ.get("EVENKEEL_EPLB", "")]
    for folder in [f for f in folders if f] + sys.path:
        if Path(folder, path).is_file():
            package = Path(path).parts[0]
            versions = [each.name.split("-")[1] for each in Path(folder).glob(f"{package}-*.dist-info")]
            return Path(folder), versions[0].removesuffix(".dist") if versions else ""
    return None, ""


def load(folder, path):
    """Loads a module, which can import the modules beside it, without running the package's __init__."""
    file = folder / path
    package = types.ModuleType("_peer_" + "_".join(file.parent.parts[-3:]))
    package.__path__ = [str(file.parent)]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}.{file.stem}")


# Each call takes loads [L, E] as a tensor, and returns the map [L, slots] to logical experts, alone or as first result.
def call_eplb(module):
    return lambda w, c: module.rebalance_experts(w, c.slots, c.groups, c.nodes, c.gpus)


def call_vllm(module):
    return lambda w, c: module.DefaultEplbPolicy.rebalance_experts(w, c.slots, c.groups, c.nodes, c.gpus)


def call_sglang(module):
    return lambda w, c: module.rebalance_experts(w, c.slots, c.groups, c.nodes, c.gpus, c.hierarchical)


def call_sglang_vec(module):
    # The loads have one step.
    return lambda w, c: module.rebalance_experts(w[None], c.slots, c.slots // c.gpus, c.groups, c.nodes, c.hierarchical)


PEERS = [
    ("deepseek-ai", "eplb.py", call_eplb),
    ("SGLang deepseek", "sglang/srt/eplb/eplb_algorithms/deepseek.py", call_sglang),
    ("SGLang deepseek_vec", "sglang/srt/eplb/eplb_algorithms/deepseek_vec.py", call_sglang_vec),
    ("vLLM default", "vllm/distributed/eplb/policy/default.py", call_vllm),
]


def ours(weight, c):
    return ek.rebalance_experts(weight, c.slots, c.groups, c.nodes, c.gpus)


def first_map(result):
    return np.asarray(result if isinstance(result, torch.Tensor) else result[0]).astype(np.int64)


def max_over_mean(weight, phy2log, gpus):
    """`[L]`: max/mean of the GPUs' loads, with an expert's load split evenly over its copies."""
    values = []
    for loads, slots in zip(weight, phy2log, strict=True):
        copies = np.bincount(slots, minlength=len(loads))
        assert copies.min() >= 1, "an expert has no slot"
        per_gpu = (loads / copies)[slots].reshape(gpus, -1).sum(axis=1)
        values.append(per_gpu.max() / per_gpu.mean())
    return np.array(values)


def seconds(call, weight, case):
    start = time.process_time()
    call(weight, case)
    return time.process_time() - start


@dataclass
class Row:
    case: str
    program: str
    mean: float  # mean of max/mean over layers
    worst: float
    above: Any  # number of layers where evenkeel's max/mean is higher
    ms: float
    ratio: list


def quartiles(values):
    return statistics.quantiles(values, n=4) if len(values) > 1 else values * 3


def measure(case, peers, rounds, seed):
    random = np.random.default_rng(seed)
    loads = np.round(4096 * np.exp(random.standard_normal((case.layers, case.experts))))
    weight = torch.from_numpy(loads).float()
    our_quality = max_over_mean(loads, first_map(ours(weight, case)), case.gpus)
    rows, control, our_times = [], [], []
    for name, call in peers:
        quality = max_over_mean(loads, first_map(call(weight, case)), case.gpus)
        times, ratios = [], []
        for _ in range(rounds):
            before = seconds(ours, weight, case)
            theirs = seconds(call, weight, case)
            after = seconds(ours, weight, case)
            times.append(theirs)
            ratios.append(theirs / ((before + after) / 2))
            control.append(after / before)
            our_times += [before, after]
        above = int((our_quality > quality * (1 + 1e-6)).sum())
        ms = 1e3 * statistics.median(times)
        rows.append(Row(case.name, name, quality.mean(), quality.max(), above, ms, quartiles(ratios)))
    ms = 1e3 * statistics.median(our_times)
    return [Row(case.name, "evenkeel", our_quality.mean(), our_quality.max(), "", ms, quartiles(control)), *rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    peers = []
    for name, path, adapter in PEERS:
        folder, version = find(path)
        if folder is None:
            print(f"left out, not found: {name} ({path})")
            continue
        print(f"{name}: {path} {version}".rstrip())
        peers.append((name, adapter(load(folder, path))))
    if not peers:
        sys.exit("no peer was found; EVENKEEL_PEERS names folders with unpacked wheels")

    print(f"torch {torch.__version__}, numpy {np.__version__}, seed {arguments.seed}, {arguments.rounds} rounds\n")
    print("| case | program | max/mean, mean / worst layer | layers where ours is above | CPU ms | times ours |")
    print("|---|---|---|---|---|---|")
    gc.disable()
    for case in CASES:
        for row in measure(case, peers, arguments.rounds, arguments.seed):
            low, middle, high = row.ratio
            digits = 2 if middle < 10 else 0
            ratio = f"{middle:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"
            ms = f"{row.ms:.0f}" if row.ms >= 10 else f"{row.ms:.2f}"
            print(f"| {row.case} | {row.program} | {row.mean:.4f} / {row.worst:.4f} | {row.above} | {ms} | {ratio} |")


if __name__ == "__main__":
    main()
