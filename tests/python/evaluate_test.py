"""evaluate() says what the command says, of files and of objects, and place() takes several recordings."""

import json
import subprocess
import unittest

import numpy as np
from support import COMMAND, TRACE, PackageTest, random_arrays

import evenkeel as ek

OWN, OTHER = "the data it was made from", "data it was not made from"
EARLY = TRACE.with_name("routing_step50.npz")
CONFIG = TRACE.with_name("config.json")


def said_by_command(*words):
    done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def random_profile(seed, layers=3, experts=16, scale=1):
    return ek.RoutingProfile(loads=random_arrays(seed, layers, experts)[0] * scale)


def max_over_mean(profile, placement):
    """[L], an expert's load split evenly over its homes."""
    loads = np.zeros((profile.num_layers, placement.num_ranks))
    for layer in range(profile.num_layers):
        for expert in range(profile.num_experts):
            homes = placement.homes(layer, expert)
            loads[layer, homes] += profile.loads[layer, expert] / len(homes)
    return loads.max(axis=1) / loads.mean(axis=1)


class Evaluate(PackageTest):
    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_says_the_same_as_the_command(self):
        now, then, cost, bare = (self.folder / name for name in ("now.json", "then.json", "c.json", "bare.npy"))
        ek.place(ek.RoutingProfile(EARLY), 8, redundant_experts=8).save(now)
        ek.place(ek.RoutingProfile(TRACE), 8, redundant_experts=8).save(then)
        window = self.folder / "w.npz"
        np.savez(window, counts=np.random.default_rng(1).integers(0, 99, (30, 8, 32)))
        np.save(bare, np.random.default_rng(2).integers(0, 40, (5, 8, 32)))
        rates = {"flops_per_second": 3e11, "weight_bytes_per_second": 1e10, "link_bytes_per_second": 2e9}
        cost.write_text(json.dumps({"format": "evenkeel.cost.v1", **rates, "chunk_seconds": 1e-5}))
        priced, known = ["--model", CONFIG, "--tokens-per-step", 900], {"model": CONFIG, "tokens_per_step": 900}
        windows, in_windows = ["--step-tokens", 4096], {"step_tokens": 4096}
        of_bare = ["--as", "counts", "--num-experts", 32, "--moe-layers", "0-7"]
        for files, words, named in [
            ([TRACE], [], {}),
            ([TRACE, window], ["--horizon", 5], {"horizon": 5}),
            ([EARLY, TRACE], [*windows, "--from", now], {**in_windows, "from_": now}),
            ([TRACE], [*priced, "--tflops", 0.5, "--link", 2, "--horizon", 50], {**known, "tflops": 0.5, "link": 2, "horizon": 50}),
            ([TRACE], ["--model", CONFIG, "--tflops", 0.5, *windows], {"model": CONFIG, "tflops": 0.5, **in_windows}),
            ([TRACE], [*priced, "--cost", cost, "--nodes", 2], {**known, "cost": cost, "nodes": 2}),
            ([TRACE], [*priced, "--device", "B200", "--expert-bytes", 77], {**known, "device": "B200", "expert_bytes": 77}),
            ([TRACE], [*priced, "--tflops", 2, "--topology", "8xh100"], {**known, "tflops": 2, "topology": "8xh100"}),
            ([bare], of_bare, {"as_": "counts", "num_experts": 32, "layers": range(8)}),
        ]:  # fmt: skip
            with self.subTest(words=words):
                printed = said_by_command(
                    "evaluate", *files, "--placement", now, "--placement", then, "--ranks", 8, *words
                )
                said = ek.evaluate(files, [now, then], 8, **named)
                self.assertEqual(said, printed)
                self.assertEqual(list(said["verdict"]), list(printed["verdict"]))

    def test_notes_say_what_was_assumed_and_what_was_read_otherwise(self):
        recording = self.folder / "r.json"
        recording.write_text(json.dumps({"expert_counts": [[0] * 32] * 2 + [[0.5 + e for e in range(32)]] * 8}))
        placement = ek.Placement.contiguous(8, 32, 8)
        said = ek.evaluate([recording, TRACE], placement, 8)
        self.assertEqual(len(said["notes"]), 2)
        dense = f"{recording}: layers 0-1 have no assignment"
        self.assertTrue(any(note.startswith(dense) for note in said["notes"]), said["notes"])
        self.assertIn(f"{recording}: loads that are not whole numbers are scaled by 2^1", said["notes"])
        known = {"model": CONFIG, "tokens_per_step": 900}
        said = ek.evaluate(TRACE, placement, 8, device="h100", **known)
        (assumed,) = said["verdict"]["notes"]
        self.assertIn("taken for 494.75 TFLOP/s and 225 GB/s; that 50 %", assumed)
        said = ek.evaluate(TRACE, placement, 8, 2, device="a100", **known)
        self.assertIn("a link or a topology says what there is between nodes", said["verdict"]["notes"][1])
        self.assertEqual(ek.evaluate(TRACE, placement, 8)["verdict"]["notes"], [])

    def test_profiles_and_placements_are_measured_as_the_files_that_hold_them(self):
        profile, later = random_profile(1), random_profile(2)
        placed = ek.place(profile, 4, redundant_experts=4)
        now = ek.Placement.contiguous(3, 16, 4)
        for name, thing in [("profile.npz", profile), ("later.npz", later), ("placed.json", placed), ("now.json", now)]:
            thing.save(self.folder / name)
        objects = ek.evaluate([profile, later], placed, 4, from_=now, horizon=9)
        paths = [self.folder / "profile.npz", self.folder / "later.npz"]
        files = ek.evaluate(paths, self.folder / "placed.json", 4, from_=self.folder / "now.json", horizon=9)
        self.assertEqual([each["file"] for each in objects["placements"]], ["contiguous", "placement 0"])
        self.assertEqual(objects["verdict"]["against"], "from_")
        names = [each["recording"] for each in objects["placements"][0]["results"]]
        self.assertEqual(names, ["recording 0", "recording 1"])
        for of_objects, of_files in zip(objects["placements"], files["placements"], strict=True):
            for one, other in zip(of_objects["results"], of_files["results"], strict=True):
                self.assertEqual(one, other | {"recording": one["recording"]})
        named = {"placement": "placement 0", "against": "from_"}
        self.assertEqual(objects["verdict"], files["verdict"] | named)

    def test_figures_are_those_of_the_loads_and_homes(self):
        made_from, later = random_profile(3), random_profile(4)
        placed = ek.place(made_from, 4, redundant_experts=4)
        said = ek.evaluate(later, placed, 4)
        for i, placement in enumerate([ek.Placement.contiguous(3, 16, 4), placed]):
            result, ratios = said["placements"][i]["results"][0], max_over_mean(later, placement)
            self.assertAlmostEqual(result["max_over_mean_mean"], ratios.mean(), places=12)
            self.assertAlmostEqual(result["max_over_mean_worst"], ratios.max(), places=12)
            self.assertEqual(result["layers"], [0, 1, 2])
            self.assertIsNone(result["steps"])
        new = sum(len(set(placed.homes(n, e)) - {e // 4}) for n in range(3) for e in range(16))
        self.assertEqual(said["verdict"]["moved_experts"], new)
        self.assertEqual(said["verdict"]["answer"], "not_enough_data")
        self.assertEqual((said["verdict"]["gain"], said["verdict"]["measured_on"]), (None, OTHER))

    def test_twenty_recordings_bound_the_gain_and_a_placement_knows_its_own(self):
        profiles = [random_profile(7) for _ in range(20)]
        for i, profile in enumerate(profiles):
            profile.add(ek.RoutingProfile(loads=random_arrays(100 + i, 3, 16)[0] // 10))
        later = random_profile(7)
        later.add(ek.RoutingProfile(loads=random_arrays(99, 3, 16)[0] // 10))
        placed = ek.place(later, 4)
        verdict = ek.evaluate(profiles, placed, 4)["verdict"]
        gains = [
            max_over_mean(each, ek.Placement.contiguous(3, 16, 4)).mean() - max_over_mean(each, placed).mean()
            for each in profiles
        ]
        half = 2.860935 * np.std(gains, ddof=1) / 20**0.5
        for key, value in [("mean", np.mean(gains)), ("low", np.mean(gains) - half), ("high", np.mean(gains) + half)]:
            self.assertAlmostEqual(verdict["gain"][key], value, places=6)
        self.assertEqual((verdict["answer"], verdict["measured_on"]), ("depends", OTHER))
        few = ek.evaluate(profiles[:19], placed, 4)["verdict"]
        self.assertEqual((few["answer"], few["gain"]), ("not_enough_data", None))
        self.assertIn(f"about {few['tokens_needed']:,} assignments of a layer would do", few["sentence"])
        own = ek.evaluate(later, placed, 4)["verdict"]
        self.assertEqual((own["answer"], own["measured_on"]), ("not_enough_data", OWN))
        self.assertIsNone(ek.evaluate(later, ek.Placement.contiguous(3, 16, 4), 4)["verdict"]["measured_on"])

    def test_ranks_are_those_of_the_placements(self):
        profile, placed = random_profile(5), ek.place(random_profile(4), 4)
        placed.save(self.folder / "p.json")
        placed.save(self.folder / "s.json", "sglang", layers=[0, 1, 2])
        whole = ek.evaluate(profile, placed, 4, nodes=2)
        self.assertEqual(ek.evaluate(profile, placed, nodes=2), whole)
        said = ek.evaluate(profile, [self.folder / "s.json"], from_=self.folder / "p.json")
        self.assertEqual(said["verdict"]["moved_experts"], 0)
        self.assert_raises(ek.InvalidArgument, "ranks: is not given", ek.evaluate, profile, self.folder / "s.json")

    def test_a_machine_comes_by_name_too(self):
        profile = random_profile(5)
        said = ek.evaluate(profile, ek.place(profile, topology="8xh100"), topology="8xh100")
        self.assertEqual(said["placements"][1]["results"][0]["recording"], "recording 0")

    def test_refuses_what_cannot_be(self):
        profile, placement = random_profile(6), ek.Placement.contiguous(3, 16, 4)
        profile.save(self.folder / "r.npz")
        other = ek.Placement.contiguous(2, 16, 4)
        for arguments, named, error, message in [
            (([], placement, 4), {}, ek.InvalidArgument, "recordings: is an empty list"),
            ((profile, [], 4), {}, ek.InvalidArgument, "placements: is an empty list"),
            (([profile, 3], placement, 4), {}, ek.InvalidArgument, "recordings: is a int; allowed: a RoutingProfile"),
            ((profile, [profile], 4), {}, ek.InvalidArgument, "placements: is a RoutingProfile; allowed: a Placement"),
            ((profile, [placement, ek.Placement.contiguous(3, 16, 2)]), {}, ek.InvalidArgument, "for 2 ranks; allowed: one for 4"),
            ((profile, placement, 8), {}, ek.InvalidArgument, "is for 4 ranks"),
            ((profile, other, 4), {}, ek.InvalidArgument, "2 layers without numbers, but recording 0 has 3 layers"),
            ((random_profile(6, 3, 8), placement, 4), {}, ek.InvalidArgument, "placement 0 is for 16 experts; allowed: one for 8 experts, as recording 0 has"),
            ((profile, placement, 4), {"tflops": 1}, ek.InvalidArgument, "tflops: needs model"),
            ((profile, placement, 4), {"cost": "c.json"}, ek.InvalidArgument, "cost: needs model"),
            ((profile, placement, 4), {"model": CONFIG, "tflops": 1}, ek.InvalidArgument, "tflops: needs tokens_per_step"),
            ((profile, placement, 4), {"model": CONFIG, "device": "v100"}, ek.InvalidArgument, "device: there is no device 'v100'"),
            ((profile, placement, 4), {"model": CONFIG, "cost": "c.json", "tflops": 1}, ek.InvalidArgument, "tflops: is what cost says"),
            ((profile, placement, 4), {"num_experts": 16}, ek.InvalidArgument, "num_experts: is about files"),
            ((profile, placement, 4), {"as_": "profile"}, ek.InvalidArgument, "as_: 'profile'"),
            ((profile, placement, 4), {"step_tokens": 0}, ek.InvalidArgument, "step_tokens: 0"),
            ((self.folder / "r.npz", placement, 4), {"step_tokens": 9}, ek.InvalidArgument, "step_tokens: is for traces"),
            ((profile, placement, 4), {"horizon": 0}, ek.InvalidArgument, "horizon: 0"),
            ((profile, placement, 4), {"link": 1}, ek.InvalidArgument, "link: needs model"),
            ((profile, placement, 4), {"tokens_per_step": 1}, ek.InvalidArgument, "tokens_per_step: needs model"),
            ((profile, placement, 4), {"model": CONFIG, "link": 0}, ek.InvalidArgument, "link: 0"),
            ((profile, placement, 4), {"model": CONFIG, "tflops": 0}, ek.InvalidArgument, "tflops: 0"),
            ((profile, placement, 4), {"model": CONFIG, "tokens_per_step": 0}, ek.InvalidArgument, "tokens_per_step: 0"),
            ((3, placement, 4), {}, ek.InvalidArgument, "recordings: is a int"),
            ((profile, placement, 4), {"from_": ek.Placement.contiguous(3, 8, 4)}, ek.InvalidArgument, "from_: from_ is for 8"),
            ((self.folder / "none.npz", placement, 4), {}, ek.ParseError, "none.npz: cannot be opened"),
            ((profile, self.folder / "none.json", 4), {}, ek.ParseError, "none.json: cannot be opened"),
            ((profile, TRACE, 4), {}, ek.ParseError, "a placement is JSON"),
            ((profile, placement, 4), {"model": self.folder / "none.json"}, ek.ParseError, "none.json: cannot be"),
        ]:  # fmt: skip
            with self.subTest(message=message):
                self.assert_raises(error, message, ek.evaluate, *arguments, **named)


class VerdictOfPlace(PackageTest):
    def assert_says(self, placed, printed):
        self.assertEqual(placed.held_out, printed["held_out"])
        for key in ("verdict", "judged_verdict"):
            said = getattr(placed, key)
            self.assertEqual(said, printed.get(key), key)
            if said is not None:
                self.assertEqual(list(said), list(printed[key]))
        self.assertEqual(len(placed.judged), len(printed.get("judged", [])))
        for qualities, shown in zip(placed.judged, printed.get("judged", []), strict=True):
            for quality, which in zip(qualities, ("before", "after"), strict=True):
                for key, value in shown[which].items():
                    self.assertEqual(getattr(quality, key), value, key)

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_is_that_of_the_command(self):
        window, cost = self.folder / "w.npz", self.folder / "c.json"
        np.savez(window, counts=np.random.default_rng(3).integers(0, 99, (30, 8, 32)))
        rates = {"flops_per_second": 3e11, "weight_bytes_per_second": 1e10, "link_bytes_per_second": 2e9}
        cost.write_text(json.dumps({"format": "evenkeel.cost.v1", **rates, "chunk_seconds": 1e-5}))
        model = ["--model", CONFIG, "--tokens-per-step", 900]
        known = {"model": CONFIG, "tokens_per_step": 900}
        for files, words, named in [
            ([EARLY], [], {}),
            ([EARLY], ["--horizon", 9], {"horizon": 9}),
            ([EARLY], [*model, "--device", "h100", "--judge", TRACE, window], {**known, "device": "h100", "judge": [TRACE, window]}),
            ([window], [*model, "--tflops", 2, "--link", 3, "--judge", EARLY], {**known, "tflops": 2, "link": 3, "judge": EARLY}),
            ([EARLY, window], [*model, "--cost", cost, "--horizon", 40], {**known, "cost": cost, "horizon": 40}),
            ([EARLY], [*model, "--expert-bytes", 77], {**known, "expert_bytes": 77}),
            ([EARLY], ["--judge", window], {"judge": window}),
        ]:  # fmt: skip
            with self.subTest(words=words):
                printed = said_by_command("place", *files, "--ranks", 8, "--redundant-experts", 8, *words)
                self.assert_says(ek.place(files, 8, redundant_experts=8, **named), printed)

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_is_against_the_placement_that_it_starts_from(self):
        start, now = ek.place(EARLY, 8, redundant_experts=8), self.folder / "now.json"
        start.save(now)
        words = ["--ranks", 8, "--redundant-experts", 8, "--from", now, "--max-moves", 5, "--horizon", 3]
        printed = said_by_command("place", TRACE, *words)
        placed = ek.place(TRACE, 8, redundant_experts=8, from_=start, max_moves=5, horizon=3)
        self.assertEqual(placed.verdict | {"against": str(now)}, printed["verdict"])

    def test_is_that_of_evaluate_on_the_same_profiles(self):
        made_from, later = random_profile(21), random_profile(22)
        placed = ek.place(made_from, 4, redundant_experts=4, judge=later, horizon=8)
        for verdict, recordings, data in [
            (placed.verdict, made_from, OWN),
            (placed.judged_verdict, later, OTHER),
        ]:
            said = ek.evaluate(recordings, placed, 4, horizon=8)["verdict"]
            self.assertEqual(verdict, said | {"placement": "the placement"})
            self.assertEqual(verdict["measured_on"], data)
        contiguous = max_over_mean(later, ek.Placement.contiguous(3, 16, 4))
        np.testing.assert_allclose(placed.judged[0][0].max_over_mean, contiguous, rtol=1e-12)
        np.testing.assert_allclose(placed.judged[0][1].max_over_mean, max_over_mean(later, placed), rtol=1e-12)
        alone = ek.place(made_from, 4, redundant_experts=4)
        self.assertEqual((alone.verdict, alone.judged_verdict, alone.judged, alone.held_out), (None, None, [], None))
        self.assertEqual(alone, placed)

    def test_of_copies_that_are_chosen_the_number_chosen_is_held_out(self):
        auto = ek.place(EARLY, 8, redundant_experts="auto")
        copies = auto.physical_to_logical.shape[1] - 32
        self.assertEqual(auto.held_out, ek.place(EARLY, 8, redundant_experts=copies).held_out)
        self.assertEqual((auto.held_out["blocks"], auto.held_out["folds"]), (20, 10))

    def test_files_are_placed_for_as_the_profiles_that_they_hold(self):
        recording = self.folder / "r.json"
        recording.write_text(json.dumps({"expert_counts": [[0] * 8, [1, 2, 3, 4, 5, 6, 7, 8.5]]}))
        placed = ek.place(recording, 4)
        self.assertEqual(placed, ek.place(ek.RoutingProfile(recording), 4))
        self.assertIn("layers 0 have no assignment and are left out as dense ones", " ".join(placed.notes))
        self.assertEqual(placed.layers, [1])

    def test_refuses_what_cannot_be(self):
        profile, wide = random_profile(23), random_profile(24, 3, 12)
        for named, error, message in [
            ({"judge": wide}, ek.InvalidArgument, "judge: recording 0 has 12 experts; allowed: 16, as recording 0 has"),
            ({"judge": []}, ek.InvalidArgument, "judge: is an empty list"),
            ({"judge": 3}, ek.InvalidArgument, "judge: is a int"),
            ({"judge": random_profile(25, 2)}, ek.InvalidArgument, "recording 0 has 2 layers"),
            ({"judge": self.folder / "none.npz"}, ek.ParseError, "none.npz: cannot be opened"),
            ({"tflops": 1}, ek.InvalidArgument, "tflops: needs model"),
            ({"model": CONFIG}, ek.InvalidArgument, "model: has nothing to say of profiles alone"),
            ({"model": CONFIG, "tflops": 1}, ek.InvalidArgument, "tflops: needs tokens_per_step"),
            ({"model": CONFIG, "tokens_per_step": 5}, ek.InvalidArgument, "model: has 32 experts a layer, but recording 0 has 16"),
            ({"model": CONFIG, "device": "v100"}, ek.InvalidArgument, "device: there is no device 'v100'"),
            ({"horizon": 0}, ek.InvalidArgument, "horizon: 0"),
        ]:  # fmt: skip
            with self.subTest(message=message):
                self.assert_raises(error, message, ek.place, profile, 4, **named)


class PlaceOfSeveral(PackageTest):
    def setUp(self):
        super().setUp()
        # The last is a thousand times as long, so that a sum would hear of it alone.
        self.recordings = [random_profile(10), random_profile(11), random_profile(12, scale=1000)]

    def worst(self, placement):
        return max(max_over_mean(recording, placement).mean() for recording in self.recordings)

    def test_figures_of_each_recording_are_those_of_its_loads(self):
        placed = ek.place(self.recordings, 4, redundant_experts=4)
        self.assertEqual(len(placed.per_recording), 3)
        for recording, (before, after) in zip(self.recordings, placed.per_recording, strict=True):
            contiguous = max_over_mean(recording, ek.Placement.contiguous(3, 16, 4))
            np.testing.assert_allclose(before.max_over_mean, contiguous, rtol=1e-12)
            np.testing.assert_allclose(after.max_over_mean, max_over_mean(recording, placed), rtol=1e-12)
            self.assertAlmostEqual(after.max_over_mean_mean, max_over_mean(recording, placed).mean(), places=12)
        each = np.array([max_over_mean(recording, placed) for recording in self.recordings])
        self.assertAlmostEqual(placed.objective["max_over_mean"], each.max(axis=0).mean(), places=6)
        self.assertIn("worst recording", placed.bound_of["max_over_mean"])

    def test_the_worst_recording_is_lighter_than_that_of_the_sum(self):
        worst = ek.place(self.recordings, 4)
        of_sum = ek.place(self.recordings, 4, across="sum")
        self.assertLess(self.worst(worst), self.worst(of_sum) - 0.05)
        self.assertEqual(len(of_sum.per_recording), 3)
        total = self.recordings[0]
        for other in self.recordings[1:]:
            total = ek.RoutingProfile(loads=total.loads + other.loads)
        self.assertEqual(of_sum, ek.place(total, 4))

    def test_one_recording_is_placed_as_it_always_was(self):
        alone = ek.place(self.recordings[0], 4)
        self.assertEqual(alone.per_recording, [])
        self.assertEqual(ek.place([self.recordings[0]], 4), alone)

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_says_the_same_as_the_command(self):
        paths = []
        for i, recording in enumerate(self.recordings):
            paths.append(self.folder / f"{i}.npz")
            recording.save(paths[-1])
        printed = said_by_command("place", *paths, "--ranks", 4, "--redundant-experts", 4)
        placed = ek.place(self.recordings, 4, redundant_experts=4)
        self.assertEqual((placed.objective, placed.bound), (printed["objective"], printed["bound"]))
        for qualities, shown in zip(placed.per_recording, printed["per_recording"], strict=True):
            for quality, which in zip(qualities, ("before", "after"), strict=True):
                for key, value in shown[which].items():
                    self.assertEqual(getattr(quality, key), value, key)

    def test_refuses_what_cannot_be(self):
        two = self.recordings[:2]
        known = [ek.RoutingProfile(EARLY), ek.RoutingProfile(TRACE)]
        for recordings, named, message in [
            ([], {}, "profile: is an empty list"),
            ([two[0], 3], {}, "profile: is a int; allowed: a RoutingProfile"),
            ([two[0], random_profile(1, 2)], {}, "3 layers of 16 experts without transitions and 2 layers"),
            ([two[0], random_profile(1, 3, 8)], {}, "and 3 layers of 8 experts without transitions"),
            (two, {"across": "best"}, "across: 'best'; allowed: worst, sum"),
            (two, {"sizes": "free"}, "free has no meaning beside several recordings"),
            (two, {"solver": "exact"}, "exact does not solve several recordings"),
            (known, {"objective": "joint"}, "joint has no meaning beside several recordings"),
        ]:
            with self.subTest(message=message):
                self.assert_raises(ek.InvalidArgument, message, ek.place, recordings, 4, **named)


if __name__ == "__main__":
    unittest.main()
