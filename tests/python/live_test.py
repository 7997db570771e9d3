"""Rebalancing from the map in use: what moves, which windows count, what a server continues with, and what it logs.

Maps are judged by their slots alone. Two ranks must get the same map if they saw the same windows, or differ only in
windows that no longer count.
"""

import logging
import os
import re
import sys
import threading
import types
import unittest
from unittest import mock

import numpy as np
from support import PackageTest

import evenkeel as ek
from evenkeel import _live, sglang, vllm
from evenkeel._live import Options, Sizes, Windows, next_map

try:
    import torch
except ImportError:
    torch = None

LAYERS, EXPERTS = 3, 16
SIZES = Sizes(num_replicas=24, num_groups=1, num_nodes=1, num_ranks=4)
LOGGER = logging.getLogger("evenkeel.test")
SGLANG_MAP = "sglang.srt.eplb.expert_location"
SGLANG_RANKS = "sglang.srt.elastic_ep.elastic_ep"


def popularity(seed, layers=LAYERS, experts=EXPERTS):
    return 1e6 * np.random.default_rng(seed).lognormal(0, 1, (layers, experts))


def first_map(weight, sizes=SIZES):
    """The map of a server that started on these loads."""
    return next_map(weight, np.full((len(weight), sizes.num_replicas), -1), sizes, Windows(), Options(), LOGGER)


def homes(phy2log, ranks=4):
    """The set of (layer, rank, expert)."""
    layers = phy2log.reshape(len(phy2log), ranks, -1)
    return {(at, rank, int(e)) for at, layer in enumerate(layers) for rank, own in enumerate(layer) for e in own}


def max_over_mean(windows, phy2log, ranks=4):
    """The worst window's max/mean in each layer, averaged over layers."""
    worst = []
    for layer, slots in enumerate(phy2log):
        copies = np.bincount(slots, minlength=windows[0].shape[1])
        of_ranks = [(loads[layer] / copies)[slots].reshape(ranks, -1).sum(axis=1) for loads in windows]
        worst.append(max(each.max() / each.mean() for each in of_ranks))
    return float(np.mean(worst))


class Rank:
    """One rank of a server, with its own windows."""

    def __init__(self, live, sizes=SIZES, options=None):
        self.live, self.sizes, self.options, self.windows = live, sizes, options or Options(), Windows()

    def rebalance(self, weight):
        self.live = next_map(weight, self.live, self.sizes, self.windows, self.options, LOGGER)
        return self.live


class LiveTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.dict(os.environ))
        for variable in (_live.MAX_MOVES, _live.LEAST_GAIN, _live.WINDOWS):
            os.environ.pop(variable, None)

    def logged(self, call, *arguments, level="INFO", logger=LOGGER):
        """Returns the call's result, and the only line that it logged."""
        with self.assertLogs(logger, level) as caught:
            result = call(*arguments)
        self.assertEqual(len(caught.records), 1, caught.output)
        return result, caught.records[0].getMessage()


class Moves(LiveTest):
    def test_nothing_moves_while_traffic_stays(self):
        noise = np.random.default_rng(5)
        rank = Rank(first_map(popularity(1)))
        live = rank.live.copy()
        for _ in range(5):
            weight = popularity(1) * noise.normal(1, 1e-3, (LAYERS, EXPERTS))
            ours, line = self.logged(rank.rebalance, weight)
            np.testing.assert_array_equal(ours, live)
            self.assertRegex(
                line, r"^evenkeel: nothing moves, .*; the best map found has .*, but EVENKEEL_LEAST_GAIN is 0\.\d+$"
            )

    def test_the_line_says_what_the_maps_say(self):
        windows = [popularity(seed) for seed in (1, 2, 3)]
        rank = Rank(first_map(windows[0]))
        for seen in range(1, 4):
            before = rank.live
            ours, line = self.logged(rank.rebalance, windows[seen - 1])
            found = re.match(
                r"evenkeel: (?:nothing moves|(\d+) experts move), max/mean (\S+?)(?: -> (\S+))? on the", line
            )
            recent = windows[:seen]
            self.assertEqual(int(found[1] or 0), len(homes(ours) - homes(before)))
            self.assertEqual(found[2], f"{max_over_mean(recent, before):.4f}")
            if found[3]:
                self.assertEqual(found[3], f"{max_over_mean(recent, ours):.4f}")
            self.assertIn(f" on the last {seen} windows" if seen > 1 else " on the last window", line)
        self.assertGreater(int(found[1]), 0)

    def test_one_that_leaves_no_step_says_so(self):
        live = np.array([[0, 1, 2, 3]])
        sizes = Sizes(4, 1, 1, 2)
        weight = np.array([[3.0, 3, 1, 1]])
        call = (weight, live, sizes, Windows(), Options(max_moves=1), LOGGER)
        ours, line = self.logged(next_map, *call)
        np.testing.assert_array_equal(ours, live)
        self.assertEqual(
            line,
            "evenkeel: nothing moves, max/mean 1.5000 on the last window; the best map found has 1.0000, but EVENKEEL_MAX_MOVES is 1",
        )


class InFull(LiveTest):
    def check(self, live, why, options=None):
        rank = Rank(np.asarray(live), options=options)
        ours, line = self.logged(rank.rebalance, popularity(1))
        self.assertRegex(line, f"^evenkeel: placed in full, as {why}")
        self.assertLess(max_over_mean([popularity(1)], ours), 1.02)
        return line

    def test_where_the_map_in_use_is_no_start(self):
        for live, why in [
            (np.tile(np.arange(16), (LAYERS, 1)), "the map in use has 16 physical experts, but 24 are requested: "),
            (np.tile(np.arange(32) % 16, (LAYERS, 1)), "the map in use has 32 physical experts, but 24 are requested"),
            (np.tile(np.r_[np.arange(20) % 16, [-1] * 4], (LAYERS, 1)), "layer 0 has empty slots, such as slot 20: "),
        ]:
            with self.subTest(why=why):
                self.check(live, why)

    def test_the_cap_does_not_hold_and_the_line_says_so(self):
        live = np.tile(np.arange(24) % 12, (LAYERS, 1))
        line = self.check(live, "in layer 0 of the map in use, no rank holds expert 12", Options(max_moves=5))
        self.assertIn(", which EVENKEEL_MAX_MOVES does not limit: ", line)

    def test_other_layers_are_refused(self):
        rank = Rank(first_map(popularity(1))[:2])
        self.assert_raises(
            ek.InvalidArgument, "the map in use: shape [2, 24]; allowed: [3 layers", rank.rebalance, popularity(1)
        )


class WhichWindowsCount(LiveTest):
    def test_the_last_ones_and_no_others(self):
        for most in (1, 2, 3):
            old_rank = Rank(first_map(popularity(1)), options=Options(windows=most))
            for seed in range(2, 7):
                old_rank.rebalance(popularity(seed))
            new_rank = Rank(old_rank.live, options=Options(windows=most))
            for seed in range(8 - most, 7):  # all but the last window
                new_rank.windows.add(popularity(seed), SIZES, most)
            np.testing.assert_array_equal(new_rank.rebalance(popularity(7)), old_rank.rebalance(popularity(7)))

    def test_they_stay_what_they_were_when_the_server_counts_on_in_its_array(self):
        rank, other = (Rank(first_map(popularity(1))) for _ in range(2))
        counts = popularity(2)
        rank.rebalance(counts)
        other.rebalance(popularity(2))
        counts[:] = popularity(3)
        np.testing.assert_array_equal(rank.rebalance(counts), other.rebalance(popularity(3)))

    def test_each_model_has_its_own(self):
        shared, alone = Windows(), {8: Windows(), 16: Windows()}
        live = {experts: first_map(popularity(1, experts=experts)) for experts in alone}
        for seed in range(2, 7):
            for experts, windows in alone.items():
                weight = popularity(seed, experts=experts)
                ours = next_map(weight, live[experts], SIZES, shared, Options(), LOGGER)
                wanted = next_map(weight, live[experts], SIZES, windows, Options(), LOGGER)
                np.testing.assert_array_equal(ours, wanted)
                live[experts] = ours

    def test_a_rank_that_comes_later_decides_as_the_others_do(self):
        larger = SIZES._replace(num_replicas=30, num_ranks=5)
        for sizes, live in [
            (larger, np.pad(first_map(popularity(1)), ((0, 0), (0, 6)), constant_values=-1)),  # grown by one rank
            (SIZES, np.tile(np.r_[np.arange(16), [-1] * 8], (LAYERS, 1))),  # a rank was replaced
        ]:
            old_rank = Rank(first_map(popularity(1)))
            for seed in range(2, 5):
                old_rank.rebalance(popularity(seed))
            old_rank.live, old_rank.sizes = live, sizes
            new_rank = Rank(live, sizes)
            new_rank.rebalance(np.zeros((LAYERS, EXPERTS)))  # vLLM's dry run when a process starts
            new_rank.live = live
            for seed in range(5, 8):
                loads = popularity(seed)
                np.testing.assert_array_equal(old_rank.rebalance(loads), new_rank.rebalance(loads))

    def test_grown_and_shrunk_again_it_remembers_nothing_of_before(self):
        larger = SIZES._replace(num_replicas=30, num_ranks=5)
        old_rank = Rank(first_map(popularity(1)))
        old_rank.rebalance(popularity(2))
        next_map(popularity(3), first_map(popularity(3), larger), larger, old_rank.windows, Options(), LOGGER)
        new_rank = Rank(old_rank.live)
        np.testing.assert_array_equal(old_rank.rebalance(popularity(4)), new_rank.rebalance(popularity(4)))

    def test_no_thread_loses_the_window_of_another(self):
        windows = Windows()
        switch = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        self.addCleanup(sys.setswitchinterval, switch)
        threads = [
            threading.Thread(target=lambda: [windows.add(popularity(1), SIZES, 400) for _ in range(40)])
            for _ in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        self.assertEqual(len(windows.add(popularity(1), SIZES, 400)), 321)


class NoLoads(LiveTest):
    def broken(self, value):
        weight = popularity(2)
        weight[1, 5] = value
        return weight

    def test_the_map_in_use_stays_with_a_warning_and_the_window_is_forgotten(self):
        huge = np.full((LAYERS, EXPERTS), 1e308)
        for weight, why in [
            (self.broken(np.nan), "the load of layer 1, expert 5 is nan"),
            (self.broken(np.inf), "the load of layer 1, expert 5 is inf"),
            (self.broken(-3), "the load of layer 1, expert 5 is -3"),
            (huge, "the loads of layer 0 do not add up to a finite number"),
        ]:
            with self.subTest(why=why):
                rank, other = (Rank(first_map(popularity(1))) for _ in range(2))
                live = rank.live.copy()
                ours, line = self.logged(rank.rebalance, weight, level="WARNING")
                self.assertEqual(line, f"evenkeel: {why}; the map in use stays")
                np.testing.assert_array_equal(ours, live)
                np.testing.assert_array_equal(rank.rebalance(popularity(3)), other.rebalance(popularity(3)))

    def test_a_window_without_load_changes_nothing(self):
        rank, other = (Rank(first_map(popularity(1))) for _ in range(2))
        live = rank.live.copy()
        ours, line = self.logged(rank.rebalance, np.zeros((LAYERS, EXPERTS)))
        self.assertEqual(line, "evenkeel: nothing moves, as no expert has any load")
        np.testing.assert_array_equal(ours, live)
        np.testing.assert_array_equal(rank.rebalance(popularity(3)), other.rebalance(popularity(3)))

    def test_a_map_with_empty_slots_is_filled_all_the_same(self):
        rank = Rank(np.tile(np.r_[np.arange(16), [-1] * 8], (LAYERS, 1)))
        with self.assertLogs(LOGGER, "WARNING") as caught:
            ours = rank.rebalance(self.broken(np.nan))
        self.assertIn("placed anew as if all loads were equal", caught.output[0])
        self.assertEqual({(at, e) for at, _, e in homes(ours)}, {(at, e) for at in range(3) for e in range(16)})

    def test_ranks_but_the_first_say_it_at_a_lower_level(self):
        distributed = types.SimpleNamespace(
            is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: self.rank
        )
        standin = types.SimpleNamespace(distributed=distributed, Tensor=type("Tensor", (), {}))
        levels = {}
        with mock.patch.dict(sys.modules, torch=standin):
            for self.rank in (0, 3):
                with self.assertLogs(LOGGER, "DEBUG") as caught:
                    Rank(first_map(popularity(1))).rebalance(popularity(2))
                    Rank(first_map(popularity(1))).rebalance(self.broken(np.nan))
                levels[self.rank] = {record.levelname for record in caught.records}
        self.assertEqual(levels, {0: {"INFO", "WARNING"}, 3: {"DEBUG"}})


class OptionsOfTheEnvironment(LiveTest):
    def test_are_the_defaults_where_nothing_is_set(self):
        self.assertEqual(Options.from_environment(), Options())
        for variable in (_live.MAX_MOVES, _live.LEAST_GAIN, _live.WINDOWS):
            os.environ[variable] = ""
        self.assertEqual(Options.from_environment(), Options())

    def test_are_read(self):
        os.environ.update(EVENKEEL_MAX_MOVES="500", EVENKEEL_LEAST_GAIN="0", EVENKEEL_WINDOWS="1")
        self.assertEqual(Options.from_environment(), Options(max_moves=500, least_gain=0, windows=1))
        os.environ["EVENKEEL_LEAST_GAIN"] = "2.5e-3"
        self.assertEqual(Options.from_environment().least_gain, 0.0025)

    def test_are_refused_by_name(self):
        allowed = {
            "EVENKEEL_MAX_MOVES": "a whole number in 1..2147483647, or empty or unset (2147483647)",
            "EVENKEEL_WINDOWS": "a whole number in 1..16, or empty or unset (3)",
            "EVENKEEL_LEAST_GAIN": f"a number that is 0 or more, or empty or unset ({Options.least_gain:g})",
        }
        wrong = {
            "EVENKEEL_MAX_MOVES": ["0", "-1", "2147483648", "1e3", " 5", "5.0", "many", "9" * 30, "٣"],
            "EVENKEEL_WINDOWS": ["0", "17", "three", "2.5"],
            "EVENKEEL_LEAST_GAIN": ["-0.01", "nan", "inf", "1%", "none"],
        }
        for variable, values in wrong.items():
            for value in values:
                with self.subTest(variable=variable, value=value[:20]), mock.patch.dict(os.environ, {variable: value}):
                    error = self.assert_raises(ek.InvalidArgument, "", Options.from_environment)
                    self.assertEqual(str(error), f"{variable}: '{value}'; allowed: {allowed[variable]}")
                    self.assertEqual(error.data["argument"], variable)


class ListCopies(PackageTest):
    def test_is_what_eplb_gives_with_its_map(self):
        for seed in range(20):
            phy2log, log2phy, counts = ek.rebalance_experts(popularity(seed), 24, 1, 1, 4)
            for ours, wanted in zip(_live.list_copies(phy2log, EXPERTS), (log2phy, counts), strict=True):
                self.assertEqual(ours.dtype, np.int64)
                np.testing.assert_array_equal(ours, wanted)


@unittest.skipUnless(torch, "torch is not installed")
class InVllm(LiveTest):
    def setUp(self):
        super().setUp()
        self.policy = type("Policy", (vllm.EvenkeelPolicy,), {"windows": Windows()})

    def rebalance(self, weight, live):
        live = None if live is None else torch.from_numpy(live)
        return self.policy.rebalance_experts(torch.from_numpy(weight), *SIZES, live)

    def test_the_map_in_use_is_the_start_and_the_policy_keeps_the_windows(self):
        rank = Rank(first_map(popularity(1)))
        for seed in range(1, 5):
            live = rank.live
            ours, line = self.logged(self.rebalance, popularity(seed), live, logger="vllm.evenkeel")
            self.assertIn(f" on the last {min(seed, 3)} windows" if seed > 1 else " on the last window", line)
            self.assertEqual((ours.dtype, ours.device.type), (torch.int64, "cpu"))
            np.testing.assert_array_equal(ours.numpy(), rank.rebalance(popularity(seed)))

    def test_the_options_are_those_of_the_environment(self):
        os.environ.update(EVENKEEL_MAX_MOVES="4", EVENKEEL_WINDOWS="1")
        live = first_map(popularity(1))
        for seed in (2, 3):
            ours, line = self.logged(self.rebalance, popularity(seed), live, logger="vllm.evenkeel")
            self.assertIn(" on the last window", line)
            self.assertLessEqual(len(homes(ours.numpy()) - homes(live)), 4)

    def test_without_a_map_these_loads_alone_count(self):
        for seed in (1, 2):
            wanted = ek.rebalance_experts(popularity(seed), *SIZES)[0]
            np.testing.assert_array_equal(self.rebalance(popularity(seed), None).numpy(), wanted)

    def test_loads_of_other_types_are_taken(self):
        live = first_map(popularity(1))
        for dtype in (torch.int32, torch.bfloat16, torch.float16):
            weight = torch.from_numpy(popularity(2) / 1e4).to(dtype)
            ours = self.policy.rebalance_experts(weight, *SIZES, torch.from_numpy(live).int())
            self.assertLess(len(homes(ours.numpy()) - homes(live)), LAYERS * SIZES.num_replicas)


class InSglang(LiveTest):
    """Keeps the map where SGLang keeps it, in arrays instead of tensors."""

    def setUp(self):
        super().setUp()
        self.enterContext(mock.patch.object(sglang, "windows", Windows()))
        self.enterContext(mock.patch.dict(sys.modules))
        self.use_map(first_map(popularity(1)))

    def use_map(self, live):
        metadata = None if live is None else types.SimpleNamespace(physical_to_logical_map=live)
        self.live = live
        sys.modules[SGLANG_MAP] = types.SimpleNamespace(get_global_expert_location_metadata=lambda: metadata)

    def rebalance(self, weight, algorithm="deepseek", groups=None, nodes=1, original=None):
        steps = np.stack([weight / 2, weight / 2])
        return sglang.rebalance(original, steps, 24, 6, groups, nodes, types.SimpleNamespace(name=algorithm))

    def test_the_map_in_use_is_the_start_and_the_process_keeps_the_windows(self):
        rank = Rank(self.live)
        for seed in range(1, 5):
            maps, line = self.logged(self.rebalance, popularity(seed), logger="evenkeel.sglang")
            self.assertIn(f" on the last {min(seed, 3)} windows" if seed > 1 else " on the last window", line)
            np.testing.assert_array_equal(maps[0], rank.rebalance(popularity(seed)))
            for ours, wanted in zip(maps[1:], _live.list_copies(maps[0], EXPERTS), strict=True):
                np.testing.assert_array_equal(ours, wanted)
            self.use_map(maps[0])

    def test_before_there_is_a_map_these_loads_alone_count(self):
        self.use_map(None)
        for seed in (1, 2):
            wanted = ek.rebalance_experts(popularity(seed), 24, 1, 1, 4)
            for ours, each in zip(self.rebalance(popularity(seed)), wanted, strict=True):
                np.testing.assert_array_equal(ours, each)

    def test_unusable_loads_keep_the_map_or_leave_the_choice_to_sglang(self):
        weight = popularity(2)
        weight[0, 0] = np.nan
        maps, line = self.logged(self.rebalance, weight, logger="evenkeel.sglang", level="WARNING")
        np.testing.assert_array_equal(maps[0], self.live)
        self.assertIn("the load of layer 0, expert 0 is nan; the map in use stays", line)
        self.use_map(None)
        theirs = mock.Mock(return_value="SGLang's")
        call = (weight, "deepseek", None, 1, theirs)
        maps, line = self.logged(self.rebalance, *call, logger="evenkeel.sglang", level="WARNING")
        self.assertEqual(maps, "SGLang's")
        self.assertIn("expert 0 is nan; SGLang's own algorithm decides", line)
        self.assertEqual(theirs.call_args.args[1:5], (24, 6, None, 1))

    def test_only_the_last_window_counts_where_ranks_may_come_and_go(self):
        state = types.SimpleNamespace(active_ranks=np.ones(4))
        manager = types.SimpleNamespace(instance=lambda: state)
        sys.modules[SGLANG_RANKS] = types.SimpleNamespace(ElasticEPStateManager=manager)
        for algorithm in ("elasticity_aware", "deepseek"):
            for seed in (2, 3):
                maps, line = self.logged(self.rebalance, popularity(seed), algorithm, logger="evenkeel.sglang")
                self.assertIn(" on the last window", line)
                new_rank = Rank(self.live, options=Options(windows=1))
                np.testing.assert_array_equal(maps[0], new_rank.rebalance(popularity(seed)))
        state.active_ranks[2] = 0
        theirs = mock.Mock(return_value="SGLang's")
        self.assertEqual(self.rebalance(popularity(2), "elasticity_aware", original=theirs), "SGLang's")

    @unittest.skipUnless(torch, "torch is not installed")
    def test_gives_tensors_for_tensors(self):
        live = torch.from_numpy(self.live)
        self.use_map(live)
        steps = torch.from_numpy(popularity(2)).int()[None]
        maps = sglang.rebalance(None, steps, 24, 6, None, 1, types.SimpleNamespace(name="deepseek"))
        for each, dimensions in zip(maps, (2, 3, 2), strict=True):
            self.assertEqual((each.dtype, each.device.type, each.dim()), (torch.int64, "cpu", dimensions))
