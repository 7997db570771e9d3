"""Compares slots that keep their experts with slots that are filled anew in each step.

The figures are the weights sent in a layer and step, and max/mean.

usage: python benchmarks/held_slots.py TOPK_IDS.npz [--ranks P] [--layers L,...]

Only plans are made, from counts. A step takes the given number of consecutive tokens of the recording, dealt evenly
over the ranks.
"""

from __future__ import annotations

import argparse

import numpy as np

import evenkeel as ek
from evenkeel import _native

STEPS = 24


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("trace", help="an archive with topk_ids [tokens, layers, k]")
    arguments.add_argument("--ranks", type=int, default=8)
    arguments.add_argument("--layers", default="0,7,15,23")
    given = arguments.parse_args()
    ids = np.load(given.trace)["topk_ids"]
    layers = [int(layer) for layer in given.layers.split(",")]
    experts = int(ids.max()) + 1
    print("| slots a rank | tokens a step | steps | plain EP | anew: max/mean | sent | stay: max/mean | worst | sent |")
    print("|---|---|---|---|---|---|---|---|---|")
    for slots in (1, 2, 4):
        for tokens in (256, 2048, 16384):
            rows = [run(ids[:, layer], given.ranks, experts, slots, tokens) for layer in layers]
            plain, anew, anew_sent, stay, worst, sent = np.mean(rows, axis=0)
            steps = min(STEPS, len(ids) // tokens)
            print(
                f"| {slots} | {tokens} | {steps} | {plain:.2f} | {anew:.3f} | {anew_sent:.1f} "
                f"| {stay:.3f} | {worst:.3f} | {sent:.1f} |"
            )


def run(ids: np.ndarray, ranks: int, experts: int, slots: int, tokens: int) -> list[float]:
    """Means over the layer's steps, and the worst max/mean with slots that keep their experts."""
    placement = ek.Placement.contiguous(1, experts, ranks)._native
    stay, anew = (_native.StepLayout(placement, 0, 0, "level", 1000, 1, 0, slots) for _ in range(2))
    found = []
    for step in range(min(STEPS, len(ids) // tokens)):
        parts = np.array_split(ids[step * tokens : (step + 1) * tokens], ranks)
        counts = np.stack([np.bincount(part.ravel(), minlength=experts) for part in parts]).astype(np.int64)
        mean = counts.sum() / ranks
        anew.slots(counts)
        stay.held_slots(counts)
        home = counts.sum(axis=0).reshape(ranks, -1).sum(axis=1).max()
        found.append(
            [home / mean, *(each for at in (anew, stay) for each in (max(at.rank_loads) / mean, at.transfers))]
        )
    means = np.mean(found, axis=0).tolist()
    return [*means[:4], float(np.max(found, axis=0)[3]), means[4]]


if __name__ == "__main__":
    main()
