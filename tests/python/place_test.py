"""place() gives what the command gives, in Python types, and refuses invalid input.

The quality of placements and the meaning of figures are tested in the library (tests/placement).
"""

import json
import threading
import time
import unittest

import numpy as np
from support import COMMAND, TRACE, PackageTest, command_output, random_arrays

import evenkeel as ek


def random_profile(seed, layers=4, experts=16):
    loads, transitions = random_arrays(seed, layers, experts)
    return ek.RoutingProfile(loads=loads, transitions=transitions)


class Place(PackageTest):
    def test_figures_are_numbers_and_arrays_of_layers_and_ranks(self):
        loads, transitions = [[6, 2, 3, 1], [4, 4, 4, 4]], [[[1, 0, 2, 0]] * 4]
        placed = ek.place(ek.RoutingProfile(loads=loads, transitions=transitions), ranks=2)
        np.testing.assert_allclose(placed.before.max_over_mean, [8 / 6, 1])
        self.assertEqual((placed.before.max_over_mean_mean, placed.before.crossing), ((8 / 6 + 1) / 2, 6))
        self.assertEqual(placed.before.traffic.tolist(), [[2, 4], [2, 4]])

    def test_topologies_come_by_name_and_from_files(self):
        profile = random_profile(0)
        self.assertEqual(ek.place(profile, topology="8xh100").num_ranks, 8)
        path = self.folder / "machine.json"
        path.write_text('{"format": "evenkeel.topology.v1", "node_of_rank": [0, 0, 1, 1], '
                        '"within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50}}')  # fmt: skip
        placed = ek.place(profile, topology=path)
        self.assertEqual(placed.num_ranks, 4)
        between, within = placed.after.crossing_between_nodes, placed.after.crossing_within_nodes
        self.assertEqual(between + within, placed.after.crossing)
        self.assert_raises(ek.InvalidArgument, "8xh100", ek.place, profile, topology="8xh1000")
        self.assert_raises(ek.ParseError, "8xh100, 2x8xh100", ek.place, profile, topology=self.folder / "none.json")
        self.assert_raises(ek.InvalidArgument, "ranks: 3", ek.place, profile, 3, topology="8xh100")

    def test_sources_of_a_trace_are_counted_and_used(self):
        profile = ek.RoutingProfile(TRACE)
        sources = ek.source_counts(TRACE, 4)
        np.testing.assert_array_equal(sources.sum(axis=1), profile.loads)
        known = ek.place(profile, 4, traffic="dispatch-combine", sources=sources)
        spread = ek.place(profile, 4, traffic="dispatch-combine")
        (of_one,) = known.notes
        self.assertIn("made from one recording", of_one)
        self.assertEqual(len(spread.notes), 2)
        self.assert_raises(ek.InvalidArgument, "sources: apply only to traffic=", ek.place, profile, 4, sources=sources)

    def test_a_result_is_a_placement_and_its_file_says_who_made_it(self):
        profile = random_profile(1)
        placed = ek.place(profile, ranks=4)
        placed.save(self.folder / "placement.json")
        loaded = ek.Placement.load(self.folder / "placement.json")
        self.assertEqual(placed, loaded)
        self.assertEqual(loaded.provenance["solver"], "fast")
        text = json.loads((self.folder / "placement.json").read_text())
        self.assertEqual(text["objective"], placed.objective["traffic"])
        placed.save(self.folder / "location.json", format="sglang", layers=range(4))
        rows = json.loads((self.folder / "location.json").read_text())["physical_to_logical_map"]
        self.assertEqual(rows, placed.physical_to_logical.tolist())

    def test_a_layer_that_a_recording_lacks_is_warned_of_where_it_gets_its_row(self):
        recording, config, path = (self.folder / name for name in ("r.json", "config.json", "p.json"))
        recording.write_text(json.dumps({"logical_count": [[0, 0, 0, 0], [9, 1, 2, 1], [1, 3, 5, 1]]}))
        kinds = ["hash_moe", "moe", "moe"]
        config.write_text(json.dumps({"num_hidden_layers": 3, "num_experts": 4, "mlp_layer_types": kinds}))
        note = "no placement was made for layer 0 of the model, where a table chooses experts by token"
        placed = ek.place(recording, ranks=2, model=config)
        self.assertTrue(any(note in each for each in placed.notes), placed.notes)
        alone = ek.place(ek.RoutingProfile(recording), ranks=2)
        with self.assertWarnsRegex(UserWarning, note):
            alone.save(path, format="vllm", model=config)
        self.assertEqual(ek.Placement.load(path, num_ranks=2), placed)
        with self.assertWarnsRegex(UserWarning, "first 2 are assumed to be layers 1-2"):
            alone.save(path, format="vllm")

    def test_files_without_names_are_said_as_to_a_profile(self):
        loads = random_arrays(3, 2, 8)[0]
        path = self.folder / "r.npy"
        np.save(path, loads)
        with self.assertRaisesRegex(ek.InvalidArgument, "axes: .*layers,experts"):
            ek.place(path, ranks=2)
        placed = ek.place(path, ranks=2, axes="layers,experts", layers=[3, 4], judge=path)
        self.assertEqual((placed.layers, len(placed.judged)), ([3, 4], 1))
        with self.assertRaisesRegex(ek.InvalidArgument, "axes: applies only to files"):
            ek.place(ek.RoutingProfile(loads=loads), ranks=2, axes="layers,experts")

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_says_the_same_as_the_command(self):
        random_profile(7).save(self.folder / "profile.npz")
        printed = command_output("place", self.folder / "profile.npz", "--ranks", 4, "--nodes", 2)
        placed = ek.place(random_profile(7), ranks=4, nodes=2)
        for key in ["solver", "num_layers", "num_experts", "num_ranks", "objective", "bound", "proven_optimal"]:
            self.assertEqual(getattr(placed, key), printed[key], key)
        for which in ["before", "after"]:
            for key in printed[which].keys() - {"notes"}:
                self.assertEqual(getattr(getattr(placed, which), key), printed[which][key], key)

    def test_a_gap_that_was_asked_for_counts_as_proven_and_is_said(self):
        profile = random_profile(7, layers=4, experts=32)
        placed = ek.place(profile, 8, gap=0.99)
        self.assertTrue(placed.proven_optimal)
        self.assertNotEqual(placed.objective, placed.bound)
        self.assertIn("proven within the gap asked for", repr(placed))
        self.assertFalse(ek.place(profile, 8).proven_optimal)

    def test_milliseconds_are_of_the_times_that_were_given(self):
        profile = random_profile(2)
        placed = ek.place(profile, 4, objective="joint")
        same = ek.place(profile, 4, objective="joint", assignment_us=0.1, assignment_bytes=8192)
        self.assertEqual(placed.objective, same.objective)
        slow = ek.place(profile, 4, objective="joint", assignment_us=3)
        self.assertGreater(slow.objective["joint_ms"], placed.objective["joint_ms"])

    def test_copies_may_be_chosen_by_milliseconds_too(self):
        profile = random_profile(2)
        by_load = ek.place(profile, 4, redundant_experts=4)
        by_time = ek.place(profile, 4, redundant_experts=4, objective="joint")
        self.assertEqual([set(each.objective) for each in (by_load, by_time)], [{"max_over_mean"}, {"joint_ms"}])
        self.assertLess(by_time.after.worst_pair, by_load.after.worst_pair)
        self.assertEqual(by_time.physical_to_logical.shape, by_load.physical_to_logical.shape)

    def test_refuses_what_cannot_be(self):
        profile = random_profile(0)
        start = {"ranks": 4, "from_": ek.Placement.contiguous(4, 16, 4), "max_moves": 3}
        for named, error, message in [
            ({"ranks": 0}, ek.InvalidArgument, "ranks: 0"),
            ({}, ek.InvalidArgument, "ranks: is missing, and so is topology"),
            ({"ranks": 4, "solver": "best"}, ek.InvalidArgument, "solver: 'best'; allowed: fast, exact"),
            ({"ranks": 4, "across": "sum"}, ek.InvalidArgument, "across: applies only to several recordings"),
            ({"ranks": 4, "assignment_us": 3}, ek.InvalidArgument, 'assignment_us: applies only to objective="joint"'),
            ({"ranks": 4, "dispatch": "fixed"}, ek.InvalidArgument, "dispatch: 'fixed'; allowed: even, static, nearest"),
            ({**start, "redundant_experts": "auto"}, ek.InvalidArgument, "from_: does not work with redundant"),
            ({"ranks": 4, "time_limit": float("nan")}, ek.InvalidArgument, "time_limit: nan"),
            ({"ranks": 4, "max_moves": 3}, ek.InvalidArgument, "must be given together with max_moves"),
        ]:  # fmt: skip
            with self.subTest(message=message):
                self.assert_raises(error, message, ek.place, profile, **named)

    @unittest.skipIf(ek.has_exact_solver(), "this build has HiGHS")
    def test_exact_without_its_solver_says_so(self):
        self.assert_raises(ek.Unsupported, "no integer-program solver", ek.place, random_profile(0), 4, solver="exact")

    @unittest.skipUnless(ek.has_exact_solver(), "this build has no HiGHS")
    def test_exact_proves_what_it_finds(self):
        placed = ek.place(random_profile(5, layers=2, experts=8), 2, solver="exact")
        self.assertTrue(placed.proven_optimal)
        for name, reached in placed.objective.items():
            self.assertAlmostEqual(placed.bound[name], reached, delta=1e-6 * reached)

    @unittest.skipUnless(ek.has_exact_solver(), "this build has no HiGHS")
    def test_an_interrupt_ends_a_long_solve(self):
        profile = random_profile(6, layers=12, experts=64)
        named = {"solver": "exact", "objective": "joint", "time_limit": 60}
        self.assert_interrupted(ek.place, profile, 8, within=20, **named)

    def test_other_threads_run_while_it_solves(self):
        """Fails if the solver holds the interpreter lock: a counting thread would then hardly run during the solve."""
        profile, count, stop = random_profile(8, layers=40, experts=128), [0], threading.Event()

        def work():
            while not stop.is_set():
                count[0] += 1

        def counted(wait):
            before, begin = count[0], time.monotonic()
            wait()
            return (count[0] - before) / (time.monotonic() - begin)

        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(stop.set)
        for _ in range(4):  # retry, since another process may take the processor for a while
            solving = counted(lambda: ek.place(profile, 16, objective="joint"))
            if solving > 0.2 * counted(lambda: time.sleep(0.2)):
                return
        self.fail("no thread runs while it solves")


class LayersWithoutLoad(PackageTest):
    """Layers without load keep their place in the result, count as balanced whatever their homes, and are reported."""

    def test_are_level_and_said(self):
        for loads, empty, before in [
            ([[0] * 4, [1, 2, 3, 4]], "0", (1 + 1.4) / 2),
            ([[1, 2, 3, 4], [0] * 4, [0] * 4, [9, 1, 1, 1]], "1-2", (1.4 + 1 + 1 + 10 / 6) / 4),
            ([[0] * 4] * 3, "0-2", 1),
        ]:
            with self.subTest(empty):
                profile = ek.RoutingProfile(loads=loads)
                placed = ek.place(profile, 2)
                self.assertEqual(placed.num_layers, len(loads))
                self.assertAlmostEqual(placed.before.max_over_mean_mean, before, places=12)
                why = "any placement is level there, and their max/mean counts as 1"
                note = f"layers {empty} have no assignment: {why}"
                self.assertEqual(placed.notes[0], note)
                alone = "the profile has no transitions: traffic is not known, and balance alone decides"
                self.assertIn(alone, placed.notes)
        self.assertFalse(any("no assignment" in note for note in ek.place(ek.RoutingProfile(loads=[[0, 1]]), 2).notes))
