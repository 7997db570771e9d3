"""SGLang and vLLM rebalance with evenkeel if asked to: tested in their own modules, with their own plugin loaders.

    EVENKEEL_PEERS=FOLDER PYTHONPATH=BUILD/python python3 tests/peers/server_hooks_test.py

FOLDER holds unpacked wheels of sglang and vllm (servers.py). Only the modules that load plugins and rebalance are the
servers' own. The packages around them are left empty, since they need a server's whole environment. vLLM's own test of
its policy (tests/distributed/test_eplb_algo.py of its source) runs against our policy, if a folder of EVENKEEL_PEERS
has it and pytest is installed.
"""

import importlib
import inspect
import os
import sys
import tempfile
import tomllib
import types
import typing
import unittest
from pathlib import Path
from unittest import mock

import peer

peer.require("torch", "numpy", "evenkeel")

import numpy as np  # noqa: E402
import servers  # noqa: E402
import torch  # noqa: E402

import evenkeel as ek  # noqa: E402
from evenkeel import sglang as evenkeel_sglang  # noqa: E402
from evenkeel import vllm as evenkeel_vllm  # noqa: E402
from evenkeel._live import Windows, keep_slots  # noqa: E402

EXPERTS, SLOTS, RANKS, GROUPS, NODES = 32, 40, 8, 4, 2
# Tests of vLLM that only its own algorithm passes: the first expects one of several equally good maps, the second an
# AssertionError.
THEIRS_ALONE = {"test_basic_rebalance", "test_parameter_validation"}


def max_over_mean(weight, phy2log, ranks):
    copies = torch.stack([torch.bincount(row, minlength=weight.shape[1]) for row in phy2log])
    loads = (weight / copies).gather(1, phy2log).view(len(weight), ranks, -1).sum(-1)
    return loads.max(1).values / loads.mean(1)


def random_weight(seed, *shape):
    return torch.from_numpy(np.random.default_rng(seed).lognormal(5, 1, shape).astype(np.int64))


class ServerTest(unittest.TestCase):
    """The servers' plugin loaders find evenkeel installed, and none of the server's modules is loaded yet."""

    server = source = None

    def setUp(self):
        folder = servers.find_folder(self.source)
        if folder is None:
            self.skipTest(f"{self.source} is in no folder of EVENKEEL_PEERS")
        installed = tempfile.TemporaryDirectory()
        self.addCleanup(installed.cleanup)
        self.write_metadata(Path(installed.name))
        modules = {name: module for name, module in sys.modules.items() if name.split(".")[0] != self.server}
        self.enterContext(mock.patch.dict(sys.modules, modules, clear=True))
        self.enterContext(mock.patch.object(sys, "path", [installed.name, *sys.path]))
        self.enterContext(mock.patch.dict(os.environ))
        self.enterContext(mock.patch.object(evenkeel_vllm.EvenkeelPolicy, "windows", Windows()))
        self.enterContext(mock.patch.object(evenkeel_sglang, "windows", Windows()))
        os.environ.pop("EVENKEEL_REBALANCE", None)
        for package in self.empty_packages:
            self.stand_in(package).__path__ = [str(folder.joinpath(*package.split(".")))]

    def write_metadata(self, folder):
        info = folder / "evenkeel-0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evenkeel\nVersion: 0\n")
        project = tomllib.loads((peer.ROOT / "pyproject.toml").read_text())["project"]
        lines = []
        for group, points in project["entry-points"].items():
            lines += [f"[{group}]"] + [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")

    def stand_in(self, name, **content):
        module = sys.modules[name] = types.ModuleType(name)
        module.__dict__.update(content)
        return module

    def loaded(self):
        return {name for name in sys.modules if name.startswith(self.server + ".")}

    def load_plugins(self, switch=None):
        """Runs the server's own loader."""
        if switch is not None:
            os.environ["EVENKEEL_REBALANCE"] = switch
        module, load = self.loader
        getattr(importlib.import_module(module), load)()


class SwitchedOff:
    """The tests that both servers share. Each server's class defines `assert_as_it_was`."""

    def test_nothing_changes_and_nothing_is_imported_unless_asked_for(self):
        self.load_plugins()
        self.assertFalse([name for name in self.loaded() if "eplb" in name])
        self.assert_as_it_was()

    def test_nothing_changes_where_it_is_switched_off(self):
        self.load_plugins("0")
        self.assert_as_it_was()


class Sglang(SwitchedOff, ServerTest):
    server, source = "sglang", "sglang/srt/eplb/eplb_algorithms/__init__.py"
    empty_packages, loader = ("sglang",), ("sglang.srt.plugins", "load_plugins")

    def algorithms(self):
        return importlib.import_module("sglang.srt.eplb.eplb_algorithms")

    def arguments(self, algorithm, steps=3):
        return {
            "tokens_per_expert": random_weight(1, steps, 5, EXPERTS),
            "num_physical_experts": SLOTS,
            "num_local_physical_experts": SLOTS // RANKS,
            "num_groups": GROUPS,
            "num_nodes": NODES,
            "algorithm": algorithm,
        }

    def assert_as_it_was(self):
        self.assertFalse(hasattr(self.algorithms().rebalance_experts, "__wrapped__"))

    def test_every_algorithm_is_ours_with_the_shapes_and_types_of_theirs(self):
        self.load_plugins("1")
        algorithms = self.algorithms()
        self.stand_in_elastic_state(None)
        original = inspect.unwrap(algorithms.rebalance_experts)
        for algorithm in algorithms.EplbAlgorithm:
            with self.subTest(algorithm=algorithm.name):
                arguments = self.arguments(algorithm)
                ours, theirs = algorithms.rebalance_experts(**arguments), original(**arguments)
                weight = arguments["tokens_per_expert"].sum(0)
                kept = (GROUPS, NODES) if algorithm.name.endswith("_hierarchical") else (1, 1)
                for a, b in zip(ours, ek.rebalance_experts(weight, SLOTS, *kept, RANKS), strict=True):
                    self.assertTrue(torch.equal(a, b))
                for a, b in zip(ours, theirs, strict=True):
                    self.assertEqual((a.dtype, a.device.type, a.dim()), (torch.int64, "cpu", b.dim()))
                self.assertEqual(ours[0].shape, theirs[0].shape)
                self.assertEqual(ours[2].shape, theirs[2].shape)
                worst = [max_over_mean(weight, each[0].long(), RANKS) for each in (ours, theirs)]
                self.assertTrue((worst[0] <= worst[1] + 1e-6).all(), worst)

    def test_expert_locations_are_made_by_ours(self):
        self.load_plugins("1")
        self.algorithms()
        text = servers.find_source(servers.SGLANG)
        count = random_weight(2, 6, EXPERTS)
        location = servers.sglang_location_by_eplb(text, count, experts=EXPERTS, slots=SLOTS, ranks=RANKS)
        ours = ek.rebalance_experts(count, SLOTS, 1, 1, RANKS)
        self.assertTrue(torch.equal(location.physical_to_logical_map, ours[0]))
        self.assertTrue(torch.equal(location.logical_to_all_physical_map_num_valid, ours[2]))

    def test_the_map_that_sglang_keeps_is_the_start(self):
        self.load_plugins("1")
        self.algorithms()
        text = servers.find_source(servers.SGLANG)
        count = 1000 * random_weight(2, 6, EXPERTS)
        sglang = servers.sglang_locations(text, 6, EXPERTS, SLOTS, RANKS, ep_dispatch_algorithm=None)
        sys.modules["sglang.srt.eplb.expert_location"] = sglang
        resources = types.SimpleNamespace(expert_location_metadata=None)
        sglang.get_resources = lambda: resources
        first = sglang.ExpertLocationMetadata.init_by_eplb(None, count)
        sglang.set_global_expert_location_metadata(first)
        count[0, 5] += 3 * count[0].max()
        second = sglang.ExpertLocationMetadata.init_by_eplb(None, count)
        first, second = first.physical_to_logical_map, second.physical_to_logical_map
        self.assertTrue(torch.equal(first[1:], second[1:]))
        changed = int((first[0] != second[0]).sum())
        self.assertTrue(0 < changed < SLOTS / 2, changed)
        worst = [max_over_mean(count.double(), each, RANKS)[0] for each in (first, second)]
        self.assertLess(worst[1], worst[0] - 0.1)

    def stand_in_elastic_state(self, active):
        state = None if active is None else types.SimpleNamespace(active_ranks=torch.tensor(active))
        manager = types.SimpleNamespace(instance=lambda: state, healthy_rank_state=lambda: torch.ones(RANKS))
        self.stand_in("sglang.srt.elastic_ep.elastic_ep", ElasticEPStateManager=manager)

    def test_theirs_decides_while_ranks_are_missing(self):
        self.load_plugins("1")
        algorithms = self.algorithms()
        arguments = self.arguments(algorithms.EplbAlgorithm.elasticity_aware)
        original = inspect.unwrap(algorithms.rebalance_experts)
        for missing in (0, 1):
            self.stand_in_elastic_state([1] * (RANKS - missing) + [0] * missing)
            ours, theirs = algorithms.rebalance_experts(**arguments), original(**arguments)
            self.assertEqual(torch.equal(ours[0], theirs[0]), missing == 1)

    def test_another_value_ends_the_start(self):
        with self.assertRaisesRegex(SystemExit, "EVENKEEL_REBALANCE: 'yes'"):
            self.load_plugins("yes")


class Vllm(SwitchedOff, ServerTest):
    server, source = "vllm", "vllm/distributed/eplb/policy/__init__.py"
    empty_packages, loader = ("vllm", "vllm.distributed"), ("vllm.plugins", "load_general_plugins")

    def setUp(self):
        super().setUp()
        text = servers.find_source("vllm/config/parallel.py")
        (names,) = [line for line in text.splitlines() if line.startswith("EPLBPolicyOption = ")]
        option = eval(names.split("=", 1)[1], {"Literal": typing.Literal})
        self.stand_in("vllm.config.parallel", EPLBPolicyOption=option)

    def policies(self):
        return importlib.import_module("vllm.distributed.eplb.policy")

    def assert_as_it_was(self):
        policies = self.policies()
        self.assertEqual(policies.EPLB_POLICIES, {"default": policies.DefaultEplbPolicy})

    def test_the_default_policy_is_ours_with_the_shape_and_type_of_theirs(self):
        policies = self.policies()  # loaded first, as a server may also do
        self.load_plugins("1")
        self.assertEqual(list(policies.EPLB_POLICIES), ["default"])
        policy = policies.EPLB_POLICIES["default"]
        self.assertTrue(issubclass(policy, policies.AbstractEplbPolicy))
        for groups, nodes in ((GROUPS, NODES), (1, NODES), (1, 1)):
            for weight in (random_weight(3, 6, EXPERTS), torch.zeros(6, EXPERTS), torch.rand(6, EXPERTS).bfloat16()):
                with self.subTest(groups=groups, nodes=nodes, dtype=weight.dtype):
                    arguments = (weight, SLOTS, groups, nodes, RANKS)
                    ours = policy.rebalance_experts(*arguments)
                    theirs = policies.DefaultEplbPolicy.rebalance_experts(*arguments)
                    self.assertEqual((ours.shape, ours.dtype, ours.device), (theirs.shape, theirs.dtype, theirs.device))
                    self.assertTrue(torch.equal(ours, ek.rebalance_experts(*arguments)[0]))
                    if weight.any():
                        worst = [max_over_mean(weight.double(), each, RANKS) for each in (ours, theirs)]
                        self.assertTrue((worst[0] <= worst[1] + 1e-6).all(), worst)

    def worker(self):
        """The function with which vLLM's thread rebalances, and its arguments for model and state."""
        worker = servers.run_parts(
            servers.find_source("vllm/distributed/eplb/async_worker.py"),
            {"run_rebalance_experts"},
            {"torch": torch, "device_stream": lambda stream: mock.MagicMock()},
        )
        stats = types.SimpleNamespace(num_replicas=SLOTS, num_groups=GROUPS, num_nodes=NODES, num_gpus=RANKS)
        return worker, types.SimpleNamespace(eplb_stats=stats)

    def test_the_worker_that_rebalances_gets_ours_and_copies_keep_their_slots(self):
        self.load_plugins("1")
        policies = self.policies()
        state = types.SimpleNamespace(policy=policies.EPLB_POLICIES["default"])
        worker, model = self.worker()
        in_use = torch.arange(SLOTS).expand(6, -1) % EXPERTS
        kept_in_all = 0
        for seed in range(20):
            model.eplb_stats.global_expert_load_window = random_weight(seed, 6, EXPERTS)
            ours = worker.run_rebalance_experts(model, state, in_use, None)
            by_rank = ours.view(6, RANKS, -1).sort().values.view(6, -1)
            as_theirs = policies.DefaultEplbPolicy.preserve_intragpu_slots(by_rank.numpy(), RANKS, in_use.numpy())
            kept = (ours == in_use).sum()
            self.assertEqual(kept, (torch.from_numpy(as_theirs) == in_use).sum())
            kept_in_all += int(kept - (by_rank == in_use).sum())
            in_use = ours
        self.assertGreater(kept_in_all, 0)

    def test_while_traffic_stays_a_tenth_of_theirs_moves(self):
        self.load_plugins("1")
        policies = self.policies()
        moves = {}
        for name in ("ours", "theirs"):
            policy = policies.EPLB_POLICIES["default"] if name == "ours" else policies.DefaultEplbPolicy
            worker, model = self.worker()
            in_use = torch.arange(SLOTS).expand(6, -1) % EXPERTS
            moves[name] = []
            for seed in range(8):
                noise = torch.from_numpy(np.random.default_rng(seed).normal(1, 0.002, (6, EXPERTS)))
                model.eplb_stats.global_expert_load_window = (1000 * random_weight(0, 6, EXPERTS) * noise).int()
                new = worker.run_rebalance_experts(model, types.SimpleNamespace(policy=policy), in_use, None)
                moves[name].append(int((new != in_use).sum()))
                in_use = new
        self.assertLessEqual(sum(moves["ours"][1:]), sum(moves["theirs"][1:]) / 10, moves)

    def test_another_value_ends_the_start(self):
        with self.assertRaisesRegex(ek.InvalidArgument, "EVENKEEL_REBALANCE: 'yes'"):
            self.load_plugins("yes")

    def test_vllms_own_test_passes_but_where_it_demands_its_own_map_and_error(self):
        folder = servers.find_folder("tests/distributed/test_eplb_algo.py")
        if folder is None or importlib.util.find_spec("pytest") is None:
            self.skipTest("no tests/distributed/test_eplb_algo.py of vLLM's source in EVENKEEL_PEERS, or no pytest")
        import pytest

        self.load_plugins("1")
        ours = self.policies().EPLB_POLICIES["default"]
        ours.preserve_intragpu_slots = staticmethod(lambda new, ranks, old: keep_slots(new, old, ranks))
        self.enterContext(mock.patch.object(self.policies().default, "DefaultEplbPolicy", ours))
        wanted = {"_compute_eplb_load_stats", "compute_logical_maps"}
        state = servers.run_parts(servers.find_source(servers.VLLM_STATE), wanted, {"torch": torch})
        self.stand_in("vllm.distributed.eplb.eplb_state", **{name: getattr(state, name) for name in wanted})

        outcomes = {}

        class Collect:
            def pytest_runtest_logreport(self, report):
                if report.when == "call" or report.skipped:
                    outcomes[report.nodeid.split("::")[1]] = report.outcome

        with tempfile.TemporaryDirectory() as root:
            source = folder / "tests/distributed/test_eplb_algo.py"
            options = ["-q", "--noconftest", "-p", "no:cacheprovider", "--rootdir", root, "-c", os.devnull, "--tb=line"]
            pytest.main([*options, str(source)], plugins=[Collect()])
        for name, outcome in outcomes.items():
            print(f"{outcome:8}{name}")
        self.assertGreater(len(outcomes), len(THEIRS_ALONE))
        failed = {name for name, outcome in outcomes.items() if outcome == "failed"}
        self.assertEqual(failed, THEIRS_ALONE)


if __name__ == "__main__":
    unittest.main()
