"""Rebalancing while serving: our hook in vLLM against vLLM's own policy, window after window, in one table.

    PYTHONPATH=build/release/python EVENKEEL_PEERS=FOLDERS python3 benchmarks/server_hooks.py [--windows 20] [--seed 1]

The model has DeepSeek-V3's sizes: 58 layers, 256 experts, 288 physical experts on 32 ranks. After each window both
policies get its loads and their own previous map, as vLLM passes them. The new map is judged on the next window, which
it was not made from. The folders of EVENKEEL_PEERS contain vLLM's policy, as for eplb_peers.py. The hook's options come
from the environment (docs/servers.md).

The popularity of a layer's experts is lognormal with sigma 1. A window's loads are drawn from it, with twice the
variance of independent draws. With drift, the logarithm of the popularity takes a normal step of `--drift` before each
window. The table also has two references: the first window's map, never changed, and the map that evenkeel makes for
the popularity itself. What the second reference has above 1 is sampling noise, which no policy can foresee.
"""

import argparse
import os
import statistics
import sys
import time
from dataclasses import dataclass, field
from unittest import mock

import eplb_peers
import numpy as np
import torch

import evenkeel as ek
from evenkeel._live import Windows
from evenkeel.vllm import EvenkeelPolicy

LAYERS, EXPERTS, SLOTS, RANKS, TOP_K = 58, 256, 288, 32, 8
DISPERSION = 2  # variance of the loads, relative to independent draws


@dataclass
class Scenario:
    name: str
    tokens: int  # for each window
    drift: float = 0


def draw(random, popularity, tokens):
    """Draws a window's loads `[L, E]` from a Dirichlet-multinomial."""
    total = tokens * TOP_K
    spread = (total - DISPERSION) / (DISPERSION - 1)
    return np.stack([random.multinomial(total, random.dirichlet(row * spread)) for row in popularity])


def draw_windows(random, scenario, count):
    """Loads and popularity of each window."""
    log_popularity = random.standard_normal((LAYERS, EXPERTS))
    for _ in range(count):
        log_popularity += scenario.drift * random.standard_normal(log_popularity.shape)
        popularity = np.exp(log_popularity)
        popularity /= popularity.sum(axis=1, keepdims=True)
        yield draw(random, popularity, scenario.tokens), popularity


def count_moves(old, new):
    """Counts new triples of layer, rank and expert, which are the weights to send between ranks."""
    moves = 0
    per_rank = SLOTS // RANKS
    for before, after in zip(old.reshape(-1, per_rank), new.reshape(-1, per_rank), strict=True):
        moves += len(set(after.tolist()) - set(before.tolist()))
    return moves


def max_over_mean(loads, phy2log):
    return eplb_peers.max_over_mean(loads, phy2log, RANKS).mean()


@dataclass
class Outcome:
    moves: list = field(default_factory=list)
    on_next: list = field(default_factory=list)
    ms: list = field(default_factory=list)


def serve(policy, windows, groups, nodes):
    """Calls the policy after each window but the last; judges each map on the next window."""
    outcome = Outcome()
    live = torch.arange(SLOTS).expand(LAYERS, -1) % EXPERTS  # vLLM's initial map
    for (loads, _), (following, _) in zip(windows[:-1], windows[1:], strict=True):
        begin = time.process_time()
        new = policy.rebalance_experts(torch.from_numpy(loads), SLOTS, groups, nodes, RANKS, live)
        outcome.ms.append(1e3 * (time.process_time() - begin))
        outcome.moves.append(count_moves(live.numpy(), new.numpy()))
        outcome.on_next.append(max_over_mean(following, new.numpy()))
        live = new
    return outcome


def level(loads, groups, nodes):
    return ek.rebalance_experts(loads, SLOTS, groups, nodes, RANKS)[0]


def references(windows, groups, nodes):
    """Max/mean on each window but the first: of the first window's map, and of a map for the true popularity."""
    first = level(windows[0][0], groups, nodes)
    kept = [max_over_mean(loads, first) for loads, _ in windows[1:]]
    noise = [max_over_mean(loads, level(popularity, groups, nodes)) for loads, popularity in windows[1:]]
    return kept, noise


def our_policy():
    """A policy that has seen no windows."""

    class Policy(EvenkeelPolicy):
        windows = Windows()

    return Policy


def print_rows(scenario, theirs, windows, groups, nodes):
    last_alone = {"EVENKEEL_WINDOWS": "1"}
    for name, policy, options in (
        ("vLLM default", theirs, {}),
        ("evenkeel", our_policy(), {}),
        ("evenkeel, EVENKEEL_WINDOWS=1", our_policy(), last_alone),
    ):
        with mock.patch.dict(os.environ, options):
            outcome = serve(policy, windows, groups, nodes)
        later = statistics.mean(outcome.moves[1:])
        on_next = statistics.mean(outcome.on_next[1:])
        ms = statistics.median(outcome.ms)
        print(f"| {scenario.name} | {name} | {outcome.moves[0]} | {later:.0f} | {on_next:.4f} | {ms:.0f} |")
    kept, noise = references(windows, groups, nodes)
    print(f"| {scenario.name} | first window's map, kept | | 0 | {statistics.mean(kept[1:]):.4f} | |")
    print(f"| {scenario.name} | sampling noise alone | | | {statistics.mean(noise[1:]):.4f} | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--windows", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=2**20, help="tokens in a window")
    parser.add_argument("--drift", type=float, default=0.05)
    parser.add_argument("--groups", type=int, default=1)
    parser.add_argument("--nodes", type=int, default=4, help="if it divides the groups, groups stay on nodes")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    path = "vllm/distributed/eplb/policy/default.py"
    folder, version = eplb_peers.find(path)
    if folder is None:
        sys.exit(f"{path} was not found; EVENKEEL_PEERS names folders with unpacked wheels")
    theirs = eplb_peers.load(folder, path).DefaultEplbPolicy
    of = f"{arguments.windows} windows of {arguments.tokens} tokens, {arguments.groups} groups, seed {arguments.seed}"
    print(f"vLLM {version or 'of no known version'}, {of}")
    print("| loads | policy | moves, first | moves, later | max/mean on the next window | CPU ms a call |")
    print("|---|---|---|---|---|---|")
    for scenario in (
        Scenario("stationary", arguments.tokens),
        Scenario("stationary, 1/16 of the tokens", arguments.tokens // 16),
        Scenario(f"drifting, {arguments.drift:g} a window", arguments.tokens, arguments.drift),
    ):
        random = np.random.default_rng(arguments.seed)
        windows = list(draw_windows(random, scenario, arguments.windows + 1))
        print_rows(scenario, theirs, windows, arguments.groups, arguments.nodes)


if __name__ == "__main__":
    main()
