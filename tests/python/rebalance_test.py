"""rebalance_experts() replaces EPLB's: the same shapes and types, and a balance that is never worse.

If EVENKEEL_EPLB names a checkout of deepseek-ai/EPLB (and torch is installed), the original runs beside it.
"""

import importlib
import os
import sys
import unittest

import numpy as np
from support import PackageTest

import evenkeel as ek

try:
    import torch
except ImportError:
    torch = None

EPLB = os.environ.get("EVENKEEL_EPLB", "")

# Experts, replicas, groups, nodes, GPUs. Some cases are hierarchical, some global because of the groups, and some
# without copies.
CASES = [(12, 16, 4, 2, 8), (64, 80, 8, 2, 16), (60, 64, 1, 2, 16), (32, 32, 4, 4, 8), (16, 40, 1, 1, 8)]


def random_weight(seed, layers, experts):
    return np.random.default_rng(seed).lognormal(3, 1.2, (layers, experts))


def max_over_mean(weight, phy2log, logcnt, gpus):
    each = np.take_along_axis(weight / logcnt, phy2log, axis=1)
    of_gpu = each.reshape(len(weight), gpus, -1).sum(axis=2)
    return of_gpu.max(axis=1) / of_gpu.mean(axis=1)


class Rebalance(PackageTest):
    def check(self, maps, experts, replicas):
        """Checks shapes and types; the maps' contents are tested in the library (tests/placement/replicas)."""
        phy2log, log2phy, logcnt = maps
        layers = len(phy2log)
        self.assertEqual([each.dtype for each in maps], [np.int64] * 3)
        self.assertEqual((phy2log.shape, logcnt.shape), ((layers, replicas), (layers, experts)))
        self.assertEqual(log2phy.shape, (layers, experts, logcnt.max()))
        for layer, expert in np.ndindex(logcnt.shape):
            slots = np.flatnonzero(phy2log[layer] == expert)
            copies = logcnt[layer, expert]
            self.assertEqual(sorted(log2phy[layer, expert, :copies]), slots.tolist())

    def test_takes_what_eplbs_readme_shows(self):
        weight = np.array([[90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
                           [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27]])  # fmt: skip
        # The map that EPLB's README prints for 16 replicas, 4 groups, 2 nodes, 8 GPUs.
        theirs = np.array([[5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1],
                           [7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1]])  # fmt: skip
        counts = np.array([np.bincount(row, minlength=12) for row in theirs])
        for given in [weight, weight.tolist(), weight.astype(np.float32), weight.astype(np.int32)]:
            phy2log, log2phy, logcnt = ek.rebalance_experts(given, 16, 4, 2, 8)
            self.check((phy2log, log2phy, logcnt), 12, 16)
            ours = max_over_mean(weight, phy2log, logcnt, 8)
            self.assertTrue((ours <= max_over_mean(weight, theirs, counts, 8) + 1e-9).all())

    def test_refuses_what_eplb_asserts_against(self):
        weight = random_weight(0, 2, 12)
        self.assert_raises(ek.InvalidArgument, "", ek.rebalance_experts, weight, 15, 4, 2, 8)
        self.assert_raises(ek.Infeasible, "", ek.rebalance_experts, weight, 8, 4, 2, 8)
        weight[1, 3] = -1
        self.assert_raises(ek.InvalidArgument, "layer 1, expert 3: -1", ek.rebalance_experts, weight, 16, 4, 2, 8)
        self.assert_raises(ek.InvalidArgument, "[layers, experts]", ek.rebalance_experts, weight[0], 16, 4, 2, 8)

    @unittest.skipUnless(torch, "torch is not installed")
    def test_gives_tensors_for_a_tensor(self):
        weight = random_weight(3, 2, 64)
        expected = ek.rebalance_experts(weight.astype(np.float32), 80, 8, 2, 16)
        for given in [torch.from_numpy(weight).float(), torch.from_numpy(weight).float().requires_grad_()]:
            maps = ek.rebalance_experts(given, 80, 8, 2, 16)
            for ours, numpys in zip(maps, expected, strict=True):
                self.assertEqual((ours.dtype, ours.device.type), (torch.int64, "cpu"))
                np.testing.assert_array_equal(ours.numpy(), numpys)
        ek.rebalance_experts(torch.from_numpy(weight).bfloat16(), 80, 8, 2, 16)

    @unittest.skipUnless(
        torch and EPLB, "EVENKEEL_EPLB does not name a checkout of deepseek-ai/EPLB, or there is no torch"
    )
    def test_has_the_originals_shapes_types_and_never_a_worse_gpu(self):
        sys.path.insert(0, EPLB)
        original = importlib.import_module("eplb")
        for seed, (experts, replicas, groups, nodes, gpus) in enumerate(CASES):
            weight = torch.from_numpy(random_weight(seed, 4, experts)).float()
            theirs = original.rebalance_experts(weight, replicas, groups, nodes, gpus)
            ours = ek.rebalance_experts(weight, replicas, groups, nodes, gpus)
            with self.subTest(seed=seed):
                for a, b in zip(ours, theirs, strict=True):
                    self.assertEqual((a.dtype, a.device, a.dim()), (b.dtype, b.device, b.dim()))
                self.assertEqual(ours[0].shape, theirs[0].shape)
                self.assertEqual(ours[2].shape, theirs[2].shape)
                for maps in (ours, theirs):  # the checks apply to EPLB's maps too
                    self.check([each.numpy() for each in maps], experts, replicas)
                worst = [
                    max_over_mean(weight.numpy(), each[0].numpy(), each[2].numpy(), gpus) for each in (ours, theirs)
                ]
                self.assertTrue((worst[0] <= worst[1] + 1e-6).all(), worst)
