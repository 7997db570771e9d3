"""evaluate(), and place() with several recordings, give what the command gives, for files and objects.

The figures themselves are tested for the command and the library.
"""

import json
import unittest

import numpy as np
from support import COMMAND, TRACE, PackageTest, command_output, random_arrays

import evenkeel as ek

EARLY = TRACE.with_name("routing_step50.npz")
CONFIG = TRACE.with_name("config.json")


def random_profile(seed, layers=3, experts=16, scale=1):
    return ek.RoutingProfile(loads=random_arrays(seed, layers, experts)[0] * scale)


def assert_same_qualities(test, qualities, shown):
    for quality, which in zip(qualities, ("before", "after"), strict=True):
        for key, value in shown[which].items():
            test.assertEqual(getattr(quality, key), value, key)


class EvaluateTest(PackageTest):
    def written(self):
        """Writes counts of 30 steps and a file of costs; returns their paths."""
        window, cost = self.folder / "w.npz", self.folder / "c.json"
        np.savez(window, counts=np.random.default_rng(1).integers(0, 99, (30, 8, 32)))
        rates = {"flops_per_second": 3e11, "weight_bytes_per_second": 1e10, "link_bytes_per_second": 2e9}
        cost.write_text(json.dumps({"format": "evenkeel.cost.v1", **rates, "chunk_seconds": 1e-5}))
        return window, cost


class Evaluate(EvaluateTest):
    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_says_the_same_as_the_command(self):
        window, cost = self.written()
        now, then, bare = (self.folder / name for name in ("now.json", "then.json", "bare.npy"))
        ek.place(ek.RoutingProfile(EARLY), 8, redundant_experts=8).save(now)
        ek.place(ek.RoutingProfile(TRACE), 8, redundant_experts=8).save(then)
        np.save(bare, np.random.default_rng(2).integers(0, 40, (5, 8, 32)))
        priced, known = ["--model", CONFIG, "--tokens-per-step", 900], {"model": CONFIG, "tokens_per_step": 900}
        of_bare = ["--as", "counts", "--num-experts", 32, "--moe-layers", "0-7"]
        for files, words, named in [
            ([TRACE, window], ["--horizon", 5], {"horizon": 5}),
            ([EARLY, TRACE], ["--step-tokens", 4096, "--from", now], {"step_tokens": 4096, "from_": now}),
            ([TRACE], [*priced, "--tflops", 0.5, "--link", 2, "--horizon", 50], {**known, "tflops": 0.5, "link": 2, "horizon": 50}),
            ([TRACE], [*priced, "--cost", cost, "--nodes", 2], {**known, "cost": cost, "nodes": 2}),
            ([TRACE], [*priced, "--device", "B200", "--expert-bytes", 77], {**known, "device": "B200", "expert_bytes": 77}),
            ([TRACE], [*priced, "--tflops", 2, "--topology", "8xh100"], {**known, "tflops": 2, "topology": "8xh100"}),
            ([bare], of_bare, {"as_": "counts", "num_experts": 32, "layers": range(8)}),
        ]:  # fmt: skip
            with self.subTest(words=words):
                of_placements = ["--placement", now, "--placement", then, "--ranks", 8]
                printed = command_output("evaluate", *files, *of_placements, *words)
                said = ek.evaluate(files, [now, then], 8, **named)
                self.assertEqual(said, printed)
                self.assertEqual(list(said["verdict"]), list(printed["verdict"]))

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

    def test_refuses_what_cannot_be(self):
        profile, placement = random_profile(6), ek.Placement.contiguous(3, 16, 4)
        profile.save(self.folder / "r.npz")
        for arguments, named, error, message in [
            (([], placement, 4), {}, ek.InvalidArgument, "recordings: is an empty list"),
            ((profile, [], 4), {}, ek.InvalidArgument, "placements: is an empty list"),
            (([profile, 3], placement, 4), {}, ek.InvalidArgument, "recordings: is a int; allowed: a RoutingProfile"),
            ((profile, [profile], 4), {}, ek.InvalidArgument, "placements: is a RoutingProfile; allowed: a Placement"),
            ((profile, [placement, ek.Placement.contiguous(3, 16, 2)]), {}, ek.InvalidArgument, "for 2 ranks; allowed: a placement for 4"),
            ((profile, placement, 4), {"tflops": 1}, ek.InvalidArgument, "tflops: needs model"),
            ((profile, placement, 4), {"model": CONFIG, "tflops": 1}, ek.InvalidArgument, "tflops: needs tokens_per_step"),
            ((profile, placement, 4), {"model": CONFIG, "cost": "c.json", "tflops": 1}, ek.InvalidArgument, "tflops: is already given by cost"),
            ((profile, placement, 4), {"model": CONFIG, "tokens_per_step": 5}, ek.InvalidArgument, "model: has 32 experts a layer, but recording 0 has 16"),
            ((self.folder / "r.npz", placement, 4), {"step_tokens": 9}, ek.InvalidArgument, "step_tokens: applies only to traces"),
            ((profile, placement, 4), {"num_experts": 16}, ek.InvalidArgument, "num_experts: applies only to files"),
            ((profile, placement, 4), {"as_": "profile"}, ek.InvalidArgument, "as_: 'profile'"),
            ((profile, placement, 4), {"step_tokens": 0}, ek.InvalidArgument, "step_tokens: 0"),
            ((self.folder / "none.npz", placement, 4), {}, ek.ParseError, "none.npz: cannot be opened"),
            ((profile, self.folder / "none.json", 4), {}, ek.ParseError, "none.json: cannot be opened"),
        ]:  # fmt: skip
            with self.subTest(message=message):
                self.assert_raises(error, message, ek.evaluate, *arguments, **named)


class VerdictOfPlace(EvaluateTest):
    def assert_says(self, placed, printed):
        self.assertEqual(placed.held_out, printed["held_out"])
        for key in ("verdict", "judged_verdict"):
            self.assertEqual(getattr(placed, key), printed.get(key), key)
        for qualities, shown in zip(placed.judged, printed.get("judged", []), strict=True):
            assert_same_qualities(self, qualities, shown)

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_is_that_of_the_command(self):
        window, cost = self.written()
        start, now = ek.place(EARLY, 8, redundant_experts=8), self.folder / "now.json"
        start.save(now)
        model, known = ["--model", CONFIG, "--tokens-per-step", 900], {"model": CONFIG, "tokens_per_step": 900}
        for files, words, named in [
            ([EARLY], [], {}),
            ([EARLY], [*model, "--device", "h100", "--judge", TRACE, window], {**known, "device": "h100", "judge": [TRACE, window]}),
            ([window], [*model, "--tflops", 2, "--link", 3, "--judge", EARLY], {**known, "tflops": 2, "link": 3, "judge": EARLY}),
            ([EARLY, window], [*model, "--cost", cost, "--horizon", 40], {**known, "cost": cost, "horizon": 40}),
            ([TRACE], [*model, "--expert-bytes", 77, "--judge", window], {**known, "expert_bytes": 77, "judge": window}),
            ([TRACE], ["--from", now, "--max-moves", 5, "--horizon", 3], {"from_": start, "max_moves": 5, "horizon": 3}),
        ]:  # fmt: skip
            with self.subTest(words=words):
                printed = command_output("place", *files, "--ranks", 8, "--redundant-experts", 8, *words)
                if "from_" in named:
                    printed["verdict"]["against"] = "from_"
                self.assert_says(ek.place(files, 8, redundant_experts=8, **named), printed)

    def test_of_copies_that_are_chosen_the_number_chosen_is_held_out(self):
        auto = ek.place(EARLY, 8, redundant_experts="auto")
        copies = auto.physical_to_logical.shape[1] - 32
        self.assertEqual(auto.held_out, ek.place(EARLY, 8, redundant_experts=copies).held_out)
        self.assertEqual((auto.held_out["blocks"], auto.held_out["folds"]), (20, 10))

    def test_refuses_what_cannot_be(self):
        profile, wide = random_profile(23), random_profile(24, 3, 12)
        for named, error, message in [
            ({"judge": wide}, ek.InvalidArgument, "judge: recording 0 has 12 experts; allowed: 16, as recording 0 has"),
            ({"judge": self.folder / "none.npz"}, ek.ParseError, "none.npz: cannot be opened"),
            ({"model": CONFIG}, ek.InvalidArgument, "model: has no effect on RoutingProfile objects alone"),
        ]:  # fmt: skip
            with self.subTest(message=message):
                self.assert_raises(error, message, ek.place, profile, 4, **named)


class PlaceOfSeveral(PackageTest):
    def setUp(self):
        super().setUp()
        # The last recording is a thousand times as long, so that it alone would decide a sum.
        self.recordings = [random_profile(10), random_profile(11), random_profile(12, scale=1000)]

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_says_the_same_as_the_command(self):
        paths = []
        for i, recording in enumerate(self.recordings):
            paths.append(self.folder / f"{i}.npz")
            recording.save(paths[-1])
        for words, named in [([], {}), (["--across", "sum"], {"across": "sum"})]:
            printed = command_output("place", *paths, "--ranks", 4, "--redundant-experts", 4, *words)
            placed = ek.place(self.recordings, 4, redundant_experts=4, **named)
            self.assertEqual((placed.objective, placed.bound), (printed["objective"], printed["bound"]))
            for qualities, shown in zip(placed.per_recording, printed["per_recording"], strict=True):
                assert_same_qualities(self, qualities, shown)

    def test_refuses_what_cannot_be(self):
        two = self.recordings[:2]
        for recordings, named, message in [
            ([], {}, "profile: is an empty list"),
            ([two[0], random_profile(1, 2)], {}, "3 layers of 16 experts without transitions and 2 layers"),
            (two, {"across": "best"}, "across: 'best'; allowed: worst, sum"),
        ]:
            with self.subTest(message=message):
                self.assert_raises(ek.InvalidArgument, message, ek.place, recordings, 4, **named)
