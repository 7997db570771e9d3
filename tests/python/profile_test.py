"""Profiles from arrays and files contain what was counted."""

import json
import pickle
import threading

import numpy as np
from support import TRACE, PackageTest, random_arrays, write_sparse_trace

import evenkeel as ek


class Profile(PackageTest):
    def test_holds_the_arrays_it_was_made_from(self):
        loads, transitions = random_arrays(1, layers=3, experts=5)
        profile = ek.RoutingProfile(loads=loads, transitions=transitions)
        np.testing.assert_array_equal(profile.loads, loads)
        np.testing.assert_array_equal(profile.transitions, transitions)
        self.assertEqual((profile.num_layers, profile.num_experts), (3, 5))
        self.assertEqual(profile.loads.dtype, np.int64)

    def test_takes_any_integer_type_lists_and_whole_floats_alike(self):
        loads, _ = random_arrays(2, layers=3, experts=5)
        expected = ek.RoutingProfile(loads=loads)
        for given in [loads.astype(np.int32), loads.astype(np.uint16), loads.astype(np.float32), loads.tolist(),
                      np.asfortranarray(loads), np.repeat(loads, 2, axis=1)[:, ::2]]:  # fmt: skip
            self.assertEqual(ek.RoutingProfile(loads=given), expected)

    def test_counts_a_trace(self):
        profile = ek.RoutingProfile(TRACE)
        with np.load(TRACE) as trace:
            counted = np.bincount(trace["topk_ids"][:, 3].ravel(), minlength=profile.num_experts)
        np.testing.assert_array_equal(profile.loads[3], counted)
        self.assertEqual(profile.transitions.sum(axis=(1, 2)).tolist(), [40960 * 16] * 7)

    def test_is_the_same_after_its_file(self):
        loads, transitions = random_arrays(3, layers=3, experts=5)
        profile = ek.RoutingProfile(loads=loads, transitions=transitions)
        profile.save(self.folder / "p.npz")
        for path in (self.folder / "p.npz", str(self.folder / "p.npz")):
            self.assertEqual(ek.RoutingProfile(path), profile)
        profile.save(self.folder / "no-ending", format="json")
        self.assertEqual(json.loads((self.folder / "no-ending").read_text())["loads"], loads.tolist())

    def test_adds_other_traces_of_the_model(self):
        loads, transitions = random_arrays(4, layers=3, experts=5)
        profile = ek.RoutingProfile(loads=loads, transitions=transitions)
        profile.add(profile)
        self.assertEqual(profile, ek.RoutingProfile(loads=2 * loads, transitions=2 * transitions))
        self.assert_raises(ek.InvalidArgument, "", profile.add, ek.RoutingProfile(loads=loads))

    def test_grows_in_several_threads_while_others_read_it_whole(self):
        """Every number starts at 1 and grows by 1 with each addition, so all numbers of a consistent read are equal."""
        one = ek.RoutingProfile(loads=np.ones((4, 256)), transitions=np.ones((3, 256, 256)))
        grows = ek.RoutingProfile(loads=one.loads, transitions=one.transitions)

        added, enough = [], threading.Event()

        def add():
            while not enough.is_set():
                grows.add(one)
                added.append(1)

        threads = [threading.Thread(target=add) for _ in range(3)]
        try:
            for thread in threads:
                thread.start()
            for _ in range(10):
                grows.save(self.folder / "p.safetensors")
                for read in (ek.RoutingProfile(self.folder / "p.safetensors"), grows):
                    transitions = read.transitions
                    self.assertEqual(transitions.min(), transitions.max())
                loads = ek.RoutingProfile(self.folder / "p.safetensors").loads
                self.assertEqual(loads.min(), loads.max())
        finally:
            enough.set()
            for thread in threads:
                thread.join()
        self.assertEqual({*grows.loads.flat, *grows.transitions.flat}, {1 + len(added)})

    def test_says_imbalance_three_ways(self):
        uneven = ek.RoutingProfile(loads=[[4, 1, 1, 2], [0, 0, 0, 0]]).imbalance
        np.testing.assert_array_equal(uneven.max_over_mean, [2, 1])
        np.testing.assert_array_equal(uneven.mean_over_max, [0.5, 1])
        np.testing.assert_array_equal(uneven.relative_excess, [1, 0])

    def test_arrays_that_it_gives_are_copies(self):
        profile = ek.RoutingProfile(loads=[[1, 2]])
        profile.loads[:] = 7
        np.testing.assert_array_equal(profile.loads, [[1, 2]])

    def test_refuses_arrays_that_are_no_profile(self):
        for loads, message in [
            ([1, 2], "loads: shape [2]; allowed: [layers, experts]"),
            ([[1.5, 2]], "loads: 1.5 is not a whole number"),
            ([[float("nan"), 2]], "loads: nan is not a whole number"),
            ([[2.0**63, 2]], "loads: 9223372036854775808 is beyond 63 bits"),
            (np.array([[0.5, 2]], dtype=np.float16), "loads: 0.5 is not a whole number"),
            (np.ma.array([[1, 2]], mask=[[True, False]]), "loads: has a mask"),
            ([[1], [2, 3]], "loads: lists of unequal lengths"),
            ([["a"]], "loads: an array of"),
            (np.array([[2**63]], np.uint64), "above 2^63-1"),
            ([[]], "loads: shape [1, 0]; allowed: [layers, experts], each 1 or more"),
            (np.zeros((0, 4), int), "loads: shape [0, 4]; allowed: [layers, experts], each 1 or more"),
        ]:
            with self.subTest(message=message):
                self.assert_raises(ek.InvalidArgument, message, ek.RoutingProfile, loads=loads)
        error = self.assert_raises(
            ek.InvalidArgument, "[L - 1, E, E]", ek.RoutingProfile, loads=[[1, 2]], transitions=[[[1, 2], [3, 4]]]
        )
        self.assertEqual(error.data["argument"], "transitions")
        self.assertIsInstance(error, ValueError)

    def test_comes_from_a_file_or_from_arrays_never_both(self):
        self.assert_raises(ek.InvalidArgument, "one of the two", ek.RoutingProfile)
        self.assert_raises(ek.InvalidArgument, "one of the two", ek.RoutingProfile, TRACE, loads=[[1]])

    def test_a_file_that_is_none_says_where_and_why(self):
        path = self.folder / "cut.npz"
        path.write_bytes(TRACE.read_bytes()[:1000])
        error = self.assert_raises(ek.ParseError, str(path), ek.RoutingProfile, path)
        self.assertEqual(error.data["file"], str(path))
        self.assertIsInstance(error, ValueError)
        error = self.assert_raises(ek.ParseError, "missing", ek.RoutingProfile, self.folder / "missing")
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.data), (ek.ParseError, str(error), error.data))

    def test_a_file_that_cannot_be_written_leaves_nothing(self):
        profile = ek.RoutingProfile(loads=[[1, 2]])
        self.assert_raises(ek.InvalidArgument, "none/p.npz", profile.save, self.folder / "none" / "p.npz")
        self.assert_raises(ek.InvalidArgument, "format: 'txt'", profile.save, self.folder / "p.txt")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_ctrl_c_ends_the_reading_of_a_long_trace(self):
        write_sparse_trace(self.folder / "t.npy", 40_000_000)
        self.assert_interrupted(ek.RoutingProfile, self.folder / "t.npy")
        self.assert_interrupted(ek.source_counts, self.folder / "t.npy", 2)

    def test_a_message_made_in_python_has_no_control_characters_and_an_end(self):
        evil = "\x1b[31m\x9b31m\u202e"
        for made_in_python in (
            lambda: ek.plan([1, 2], ranks=2, planner=evil),
            lambda: ek.Placement.contiguous(1, 2, 2).save(self.folder / evil, format=evil),
        ):
            with self.assertRaises(ek.Error) as caught:
                made_in_python()
            self.assertIn(r"\x1b[31m", str(caught.exception))
            self.assertNotIn("\x1b", str(caught.exception))
        long = self.assert_raises(ek.InvalidArgument, "...", ek.plan, [1, 2], ranks=2, planner="x" * 100000)
        self.assertLessEqual(len(str(long)), 1024)
