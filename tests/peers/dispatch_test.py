"""`evenkeel place --dispatch` promises the loads that SGLang's ranks get by SGLang's own reader and node rule.

    EVENKEEL_PEERS=FOLDER python3 tests/peers/dispatch_test.py BUILD/bin/evenkeel

FOLDER holds an unpacked wheel of sglang (servers.py). In every case each rank reads the file as a starting server does.
The ranks' loads are then summed from the slots to which each rank dispatches.
"""

import itertools
import json
import random
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import peer

peer.require("torch", "numpy")

import numpy as np  # noqa: E402
import servers  # noqa: E402

COMMAND = Path(sys.argv.pop(1)).resolve()
# SGLang's start options for each rule.
STARTED = {
    "static": {"moe_a2a_backend": "deepep", "ep_dispatch_algorithm": "static"},
    "nearest": {"moe_a2a_backend": "deepep", "ep_dispatch_algorithm": "dynamic"},
    "even": {"moe_a2a_backend": "none", "ep_dispatch_algorithm": "dynamic"},
}
LAYERS = 2


def cases(count):
    """8 to 64 ranks, 0 to 64 copies, 1 to 8 nodes, with and without groups; equal slots on all ranks."""
    draw = random.Random(5)
    for seed in range(count):
        ranks = draw.choice((8, 16, 32, 64))
        nodes = draw.choice([n for n in (1, 2, 4, 8) if ranks // n > 1])
        copies = draw.choice([c for c in (0, 8, 16, 32, 64) if c % ranks == 0])
        groups = draw.choice((1, nodes))
        yield seed, ranks, nodes, copies, groups, draw.choice((64, 128))


class Dispatched(unittest.TestCase):
    def setUp(self):
        self.text = servers.find_source(servers.SGLANG)
        if self.text is None:
            self.skipTest(f"{servers.SGLANG} is in no folder of EVENKEEL_PEERS")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def place(self, loads, ranks, nodes, copies, groups, rule):
        np.savez(self.folder / "counts.npz", logical_count=loads)
        words = ["place", self.folder / "counts.npz", "--ranks", ranks, "--nodes", nodes, "--redundant-experts", copies]
        words += [
            "--groups",
            groups,
            "--dispatch",
            rule,
            "--format",
            "sglang",
            "-o",
            self.folder / "init.json",
            "--json",
        ]
        words += ["--moe-layers", f"0-{LAYERS - 1}"]
        done = subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["after"]

    def served(self, loads, ranks, nodes, copies, rule):
        """`[layers]`: max/mean of the ranks' loads."""
        experts = loads.shape[1]
        sizes = {"hidden_layers": LAYERS, "experts": experts, "slots": experts + copies, "ranks": ranks, "nodes": nodes}
        path = self.folder / "init.json"
        locations = [servers.sglang_location(self.text, path, rank, **sizes, **STARTED[rule]) for rank in range(ranks)]
        parts = servers.sglang_parts(locations, STARTED[rule]["ep_dispatch_algorithm"])
        rows = locations[0].physical_to_logical_map.numpy()
        of_rank = (np.take_along_axis(loads, rows, 1) * parts).reshape(LAYERS, ranks, -1).sum(-1)
        return of_rank.max(1) / of_rank.mean(1)

    def test_promised_is_served(self):
        for (seed, ranks, nodes, copies, groups, experts), rule in itertools.product(cases(20), STARTED):
            with self.subTest(ranks=ranks, nodes=nodes, copies=copies, groups=groups, experts=experts, rule=rule):
                loads = np.random.default_rng(seed).lognormal(9, 1, (LAYERS, experts)).astype(np.int64)
                promised = self.place(loads, ranks, nodes, copies, groups, rule)
                served = self.served(loads, ranks, nodes, copies, rule)
                self.assertAlmostEqual(promised["max_over_mean_mean"], served.mean(), delta=1e-9)
                self.assertAlmostEqual(promised["max_over_mean_worst"], served.max(), delta=1e-9)

    def test_two_nodes_under_dynamic_are_level(self):
        loads = np.random.default_rng(1).lognormal(9, 1, (LAYERS, 128)).astype(np.int64)
        self.place(loads, 32, 2, 64, 1, "nearest")
        self.assertLessEqual(self.served(loads, 32, 2, 64, "nearest").max(), 1.1)


if __name__ == "__main__":
    unittest.main()
