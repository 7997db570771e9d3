"""evenkeel place with several recordings: keys, figures that evaluate finds too, the printed text, refusals.

Promises about the worst recording are tested in the library (tests/placement/robust).
"""

import random

from command import REPOSITORY, CommandTest, npy
from place_test import KEYS, QUALITY

EXPERTS, RANKS = 16, 4
EARLY, LATE = (REPOSITORY / "data" / "tiny-moe" / f"routing_step{step}.npz" for step in (50, 1563))


def drawn_loads(seed, layers=3, scale=1):
    """[layers][EXPERTS]; each seed has other hot experts."""
    draw = random.Random(seed)
    return [[scale * int(draw.lognormvariate(4, 1)) + 1 for _ in range(EXPERTS)] for _ in range(layers)]


class Recordings(CommandTest):
    def setUp(self):
        super().setUp()
        # The last recording is a hundred times as long, so that it alone would decide a sum.
        self.loads = {"a.json": drawn_loads(1), "b.json": drawn_loads(2), "c.json": drawn_loads(3, scale=100)}
        for name, loads in self.loads.items():
            self.write(name, {"loads": loads})
        self.files = list(self.loads)

    def place(self, files, *words):
        return self.json("place", *files, "--ranks", RANKS, *words)

    def found(self, *recordings):
        """max/mean of contiguous homes and of p.json on each recording."""
        placements = self.json("evaluate", *recordings, "--placement", "p.json")["placements"]
        return [[result["max_over_mean_mean"] for result in each["results"]] for each in placements]

    def test_several_recordings_and_judges_each_add_their_key_and_say_what_was_measured_on_what(self):
        for files, words, keys in [
            (["a.json"], [], None),
            (self.files, [], ["per_recording"]),
            (["a.json"], ["--judge", "b.json"], ["judged"]),
            (["a.json", "b.json"], ["--judge", "c.json"], ["per_recording", "judged"]),
            (self.files, ["--across", "sum"], ["per_recording"]),
        ]:
            with self.subTest(files=files, words=words):
                said = self.place(files, *words)
                self.assertEqual(list(said), KEYS if keys is None else [*KEYS, *keys, "measured_on"])
                self.assertEqual(said.get("measured_on"), keys and "the data it was made from")
                for key in keys or []:
                    names = files if key == "per_recording" else words[1:]
                    self.assertEqual([each["recording"] for each in said[key]], names)
                    for each in said[key]:
                        self.assertEqual(list(each), ["recording", "before", "after"])
                        self.assertLessEqual(QUALITY, set(each["before"]))
                        self.assertEqual(set(each["before"]), set(each["after"]))

    def test_figures_are_those_that_evaluate_finds_in_what_was_written(self):
        self.write("d.json", {"loads": drawn_loads(4)})
        for words in [[], ["--redundant-experts", 3], ["--across", "sum"]]:
            with self.subTest(words=words):
                said = self.place(self.files, *words, "--judge", "d.json", "-o", "p.json")
                of_each = [*said["per_recording"], *said["judged"]]
                printed = [[each[w]["max_over_mean_mean"] for each in of_each] for w in ("before", "after")]
                self.assertEqual(printed, self.found(*self.files, "d.json"))
                self.assertEqual(list(said["objective"]), ["balance"] if "sum" in words else ["max_over_mean"])

    def test_steps_of_one_recording_are_recordings(self):
        steps = [[[9, 1, 1, 1], [1, 1, 1, 9]], [[1, 9, 1, 1], [1, 1, 9, 1]], [[1, 1, 1, 9], [9, 1, 1, 1]]]
        self.write("w.json", {"logical_count": steps})
        said = self.json("place", "w.json", "--ranks", 2, "--steps")
        self.assertEqual([each["recording"] for each in said["per_recording"]], [f"w.json: step {i}" for i in range(3)])
        worst = max(each["after"]["max_over_mean_mean"] for each in said["per_recording"])
        self.assertLessEqual(worst, 10 / 6 + 1e-9)
        self.assertNotIn("per_recording", self.json("place", "w.json", "--ranks", 2))

    def test_layers_are_those_of_the_recording_that_numbers_them_and_judges_are_paired_by_number(self):
        self.write("n.json", {"loads": self.loads["b.json"], "layers": [3, 4, 6]})
        self.write("part.json", {"loads": drawn_loads(6, 2), "layers": [4, 6]})
        said = self.place(["a.json", "n.json"], "--judge", "part.json", "-o", "p.json")
        self.assertEqual(said["layers"], [3, 4, 6])
        self.assertEqual([said["judged"][0]["after"]["max_over_mean_mean"]], self.found("part.json")[1])

    def test_traffic_is_known_where_all_recordings_have_it(self):
        said = self.json("place", EARLY, LATE, "--ranks", 8)
        crossing = [each["after"]["crossing"] for each in said["per_recording"]]
        self.assertEqual(said["after"]["crossing"], sum(crossing))
        self.call("profile", LATE, "--no-transitions", "-o", "loads.json")
        said = self.json("place", EARLY, "loads.json", "--ranks", 8)
        after = [said["after"], *(each["after"] for each in said["per_recording"])]
        self.assertEqual([each["crossing"] is None for each in after], [True, False, True])

    def test_people_see_each_recording_and_what_the_figures_were_measured_on(self):
        done = self.call("place", *self.files, "--ranks", RANKS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for each in self.place(self.files)["per_recording"]:
            figures = [each[which][key] for which in ("before", "after") for key in sorted(QUALITY) if "max" in key]
            self.assertRegex(done.stdout, rf"  {each['recording']} +" + " +".join(f"{x:.3f}" for x in figures))
        self.assertIn("max/mean load, made from", done.stdout)
        self.assertIn("measured on the data it was made from", done.stdout)
        done = self.call("place", "a.json", "--ranks", RANKS, "--judge", "b.json")
        self.assertIn("max/mean load, judged on", done.stdout)
        self.assertNotIn("measured on the data it was made from", done.stdout)

    def trace(self, name, layers, experts):
        ids = [(t + n + i * 3) % experts for t in range(40) for n in range(layers) for i in range(2)]
        (self.folder / name).write_bytes(npy([40, layers, 2], ids, "<i2", "h"))
        return name

    def test_recordings_of_other_models_are_refused_and_both_files_are_named(self):
        self.write("wide.json", {"loads": [[1 + e for e in range(12)]] * 3})
        self.write("short.json", {"loads": drawn_loads(1, 2)})
        self.write("n.json", {"loads": drawn_loads(1), "layers": [3, 4, 6]})
        self.write("m.json", {"loads": drawn_loads(1), "layers": [3, 4, 5]})
        small, wide, long = self.trace("s.npy", 2, 8), self.trace("w.npy", 2, 300), self.trace("l.npy", 9, 8)
        traces = ["--traffic", "dispatch-combine", "--as", "trace"]
        for words, parts in [
            (["a.json", "wide.json"], ["PROFILE", "wide.json has 3 layers", "12 experts", "a.json has 3 layers", "16 experts"]),
            (["a.json", "b.json", "short.json"], ["PROFILE", "short.json has 2 layers", "a.json has 3 layers"]),
            (["n.json", "m.json"], ["PROFILE", "m.json has layers 3-5", "n.json has layers 3-4,6"]),
            (["a.json", "--judge", "wide.json"], ["--judge: wide.json has 12 experts"]),
            *(([*pair, *traces], ["PROFILE", *pair])
              for pair in [(small, wide), (wide, small), (small, long), (long, small)]),
        ]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(["place", *words, "--ranks", RANKS, "-o", "p.json"], 2, "InvalidArgument", *parts)
                self.assertFalse((self.folder / "p.json").exists())
        self.assertEqual(len(self.place([small], *traces, "--judge", small, small)["judged"]), 2)

    def test_what_several_recordings_are_not_placed_by_is_refused(self):
        words = ["place", EARLY, LATE, "--ranks", 8]
        for more, part in [
            (["--objective", "joint"], "--objective: joint does not work with several recordings"),
            (["--solver", "exact"], "--solver: exact does not work with several recordings"),
            (["--sizes", "free"], "--sizes: free does not work with several recordings"),
            (["--across", "best"], "--across: 'best'"),
        ]:
            with self.subTest(more=more):
                self.assert_refused([*words, *more], 2, "InvalidArgument", part)
        # The sum counts as a single recording, so all options accept it.
        self.assertEqual(set(self.json(*words, "--across", "sum", "--objective", "joint")["objective"]), {"joint_ms"})
        self.assert_refused(["place", "a.json", "nowhere", "--ranks", RANKS], 3, "ParseError", "nowhere")
        self.assert_refused(["place", "a.json", "--judge", "nowhere", "--ranks", RANKS], 3, "ParseError", "nowhere")
