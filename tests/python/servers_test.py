"""The entry points into SGLang and vLLM: off unless asked for, and tested against stand-ins for the servers.

tests/peers/server_hooks_test.py tests the same in the servers' own modules.
"""

import importlib
import os
import subprocess
import sys
import tomllib
from types import SimpleNamespace
from unittest import mock

import numpy as np
from support import REPOSITORY, PackageTest

import evenkeel as ek
from evenkeel import _live, sglang

# A server's modules by name, with the parts that `register` uses.
SGLANG = {
    "sglang.srt.plugins.hook_registry": """
        from enum import Enum
        HookType = Enum("HookType", ["BEFORE", "AFTER", "AROUND", "REPLACE"])
        class HookRegistry:
            hooks = []
            @classmethod
            def register(cls, target, hook, hook_type):
                cls.hooks.append((target, hook, hook_type))
        """,
    "sglang.srt.eplb.eplb_algorithms": """
        def rebalance_experts(
            tokens_per_expert, num_physical_experts, num_local_physical_experts, num_groups, num_nodes, algorithm
        ):
            return "SGLang's"
        """,
}
VLLM = {
    "vllm.distributed.eplb.policy": """
        class AbstractEplbPolicy:
            @classmethod
            def rebalance_experts(
                cls, weight, num_replicas, num_groups, num_nodes, num_ranks, old_global_expert_indices=None
            ): ...
        class DefaultEplbPolicy(AbstractEplbPolicy): ...
        EPLB_POLICIES = {"default": DefaultEplbPolicy}
        """,
}
SERVERS = {"sglang": SGLANG, "vllm": VLLM}
# Calls `register` with each value of the switch, then prints the server's modules that were imported.
REPORT = """
import os, sys
from evenkeel import {server}
for switch in {switches}:
    os.environ.pop("EVENKEEL_REBALANCE", None)
    if switch is not None:
        os.environ["EVENKEEL_REBALANCE"] = switch
    {server}.register()
print(sorted(name for name in sys.modules if name.split(".")[0] in ("sglang", "vllm", "torch")))
"""
IN_PLACE = {
    "sglang": """
from sglang.srt.plugins.hook_registry import HookRegistry, HookType
assert HookRegistry.hooks == [
    ("sglang.srt.eplb.eplb_algorithms.rebalance_experts", sglang.rebalance, HookType.AROUND)
], HookRegistry.hooks
""",
    "vllm": """
from vllm.distributed.eplb.policy import EPLB_POLICIES, AbstractEplbPolicy, DefaultEplbPolicy
assert list(EPLB_POLICIES) == ["default"]
assert issubclass(EPLB_POLICIES["default"], (AbstractEplbPolicy, vllm.EvenkeelPolicy))
assert EPLB_POLICIES["default"] is not DefaultEplbPolicy
""",
}


def algorithm(name):
    return SimpleNamespace(name=name)


class EntryPoints(PackageTest):
    def write_server(self, server):
        for name, text in SERVERS[server].items():
            path = self.folder.joinpath(*name.split("."))
            path.mkdir(parents=True, exist_ok=True)
            lines = text.splitlines()
            (path / "__init__.py").write_text("\n".join(line[8:] for line in lines))

    def register(self, server, *switches, more=""):
        """Runs `register` in a new process that can import what is in the folder."""
        path = os.pathsep.join([str(self.folder), os.environ.get("PYTHONPATH", "")])
        script = REPORT.format(server=server, switches=switches) + more
        command = [sys.executable, "-c", script]
        return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path})

    def test_are_declared_and_can_be_called(self):
        project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
        declared = project["entry-points"]
        self.assertEqual(sorted(declared), ["sglang.srt.plugins", "vllm.general_plugins"])
        for group in declared.values():
            module, function = group["evenkeel"].split(":")
            self.assertTrue(callable(getattr(importlib.import_module(module), function)))

    def test_are_off_and_import_nothing_unless_asked_for(self):
        for server in SERVERS:
            for written in (False, True):  # without the server and with it
                with self.subTest(server=server, written=written):
                    done = self.register(server, None, "", "0")
                    self.assertEqual((done.returncode, done.stdout.strip()), (0, "[]"), done.stderr)
                self.write_server(server)

    def test_name_the_server_that_is_not_there(self):
        for server in SERVERS:
            with self.subTest(server=server):
                done = self.register(server, "1")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(f"No module named '{server}", done.stderr)

    def test_put_ours_in_the_place_of_the_servers_when_asked_for(self):
        for server in SERVERS:
            with self.subTest(server=server):
                self.write_server(server)
                done = self.register(server, "1", more=IN_PLACE[server])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertNotIn("torch", done.stdout)

    def test_refuse_another_value_of_the_switch(self):
        for server in SERVERS:
            self.write_server(server)
            with self.subTest(server=server):
                done = self.register(server, " 1")
                self.assertNotEqual(done.returncode, 0)
                allowed = "allowed: 1 (on), or 0, empty or unset (off)"
                self.assertIn(f"EVENKEEL_REBALANCE: ' 1'; {allowed}", done.stderr)

    def test_refuse_another_value_of_an_option_before_the_first_rebalancing(self):
        for server in SERVERS:
            self.write_server(server)
            with self.subTest(server=server), mock.patch.dict(os.environ, EVENKEEL_WINDOWS="-1"):
                self.assertEqual(
                    self.register(server, "0").returncode, 0
                )  # the option is not read if the switch is off
                done = self.register(server, "1")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("EVENKEEL_WINDOWS: '-1'; allowed: a ", done.stderr)

    def test_refuse_a_server_of_a_version_without_what_they_use(self):
        for server in SERVERS:
            (self.folder / server).mkdir()
            (self.folder / server / "__init__.py").touch()
            about = self.folder / f"{server}-0.1.2.dist-info"
            about.mkdir()
            (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {server}\nVersion: 0.1.2\n")
            done = self.register(server, "1")
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, rf"evenkeel needs {server} 0\.\d+.*, and 0\.1\.2 is installed \(No module")

    def test_refuse_a_server_whose_function_takes_something_else(self):
        for server in SERVERS:
            with self.subTest(server=server):
                self.write_server(server)
                for path in self.folder.rglob("*.py"):
                    path.write_text(path.read_text().replace("num_nodes,", "num_nodes, num_racks,"))
                done = self.register(server, "1")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("rebalance_experts takes (", done.stderr)
                self.assertIn("num_racks", done.stderr)

    def test_sglang_goes_on_after_any_exception_so_ours_is_none(self):
        self.write_server("sglang")
        done = self.register("sglang", "yes")
        self.assertTrue(done.stderr.startswith("evenkeel: EVENKEEL_REBALANCE"), done.stderr)


class InSglang(PackageTest):
    """Calls `rebalance` with arrays, where SGLang gives tensors."""

    def setUp(self):
        super().setUp()
        self.steps = np.random.default_rng(1).integers(0, 1000, (3, 4, 16))

    def rebalance(self, name, groups=4, nodes=2):
        return sglang.rebalance(None, self.steps, 24, 3, groups, nodes, algorithm(name))

    def test_adds_steps_up_and_keeps_groups_on_nodes_where_the_algorithm_is_hierarchical(self):
        for name, groups, nodes in [
            ("deepseek", 1, 1),
            ("deepseek_vec", 1, 1),
            ("deepseek_hierarchical", 4, 2),
            ("deepseek_vec_hierarchical", 4, 2),
        ]:
            with self.subTest(algorithm=name):
                expected = ek.rebalance_experts(self.steps.sum(axis=0), 24, groups, nodes, 8)
                for ours, wanted in zip(self.rebalance(name), expected, strict=True):
                    np.testing.assert_array_equal(ours, wanted)

    def test_refuses_groups_that_cannot_be_kept_on_nodes(self):
        for groups in (None, 3):
            self.assert_raises(
                ek.InvalidArgument, "a multiple of 2, the number of", self.rebalance, "deepseek_hierarchical", groups
            )


class KeepSlots(PackageTest):
    def random_maps(self, seed):
        draw = np.random.default_rng(seed)
        layers, ranks, per_rank, experts = draw.integers(1, [4, 9, 9, 30], endpoint=True)
        old, new = draw.integers(0, experts, (2, layers, ranks * per_rank))
        old[draw.random(old.shape) < 0.1] = -1
        return old, new, int(ranks), int(per_rank)

    def test_every_rank_keeps_its_experts_and_as_many_as_possible_their_slots(self):
        for seed in range(500):
            old, new, ranks, per_rank = self.random_maps(seed)
            kept = _live.keep_slots(new, old, ranks)
            self.assertEqual((kept.shape, kept.dtype), (new.shape, np.int64))
            for layer in range(len(new)):
                for rank in range(ranks):
                    of_rank = slice(rank * per_rank, (rank + 1) * per_rank)
                    before, wanted, ours = (each[layer, of_rank].tolist() for each in (old, new, kept))
                    self.assertEqual(sorted(ours), sorted(wanted), f"seed {seed}")
                    could_stay = sum(min(before.count(e), wanted.count(e)) for e in set(wanted))
                    stayed = sum(a == b for a, b in zip(before, ours, strict=True))
                    self.assertEqual(stayed, could_stay, f"seed {seed}, layer {layer}, rank {rank}")

    def test_a_map_of_more_or_fewer_ranks_counts_as_far_as_it_goes(self):
        new = np.array([[3, 1, 5, 4]])
        for old in ([[1, 0]], [[1, 0, 4, 2]], [[1, 0, 4, 2, 9, 9]]):
            kept = _live.keep_slots(new, np.array(old), 2)
            self.assertEqual(kept.tolist(), [[1, 3, 4, 5]] if len(old[0]) > 2 else [[1, 3, 5, 4]])
