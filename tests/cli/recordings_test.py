"""evenkeel place of several recordings: keys, figures recomputed from loads and homes, what is promised, refusals."""

import json
import random
import unittest

from command import REPOSITORY, CommandTest, npy
from place_test import KEYS, QUALITY

EXPERTS, RANKS = 16, 4
CONTIGUOUS = [[expert // 4] for expert in range(EXPERTS)]
EARLY, LATE = (REPOSITORY / "data" / "tiny-moe" / f"routing_step{step}.npz" for step in (50, 1563))


def drawn_loads(seed, layers=3, scale=1):
    """[layers][EXPERTS]; the hot experts of one seed are not those of another."""
    draw = random.Random(seed)
    return [[scale * int(draw.lognormvariate(4, 1)) + 1 for _ in range(EXPERTS)] for _ in range(layers)]


def rank_loads(homes, loads, ranks=RANKS):
    """Of one layer: an expert's load is split evenly over its homes."""
    sums = [0.0] * ranks
    for of_expert, load in zip(homes, loads, strict=True):
        for rank in of_expert:
            sums[rank] += load / len(of_expert)
    return sums


def max_over_mean(homes, loads, ranks=RANKS):
    return max(rank_loads(homes, loads, ranks)) * ranks / sum(loads)


def level(homes, loads, ranks=RANKS):
    """Mean over layers and the worst layer."""
    ratios = [max_over_mean(of_layer, each, ranks) for of_layer, each in zip(homes, loads, strict=True)]
    return sum(ratios) / len(ratios), max(ratios)


def moves(before, after):
    """Homes that were none before."""
    return sum(
        len(set(new) - set(old))
        for layer, later in zip(before, after, strict=True)
        for old, new in zip(layer, later, strict=True)
    )


class Recordings(CommandTest):
    def setUp(self):
        super().setUp()
        # The last is a hundred times as long, so that a sum would hear of it alone.
        self.loads = {"a.json": drawn_loads(1), "b.json": drawn_loads(2), "c.json": drawn_loads(3, scale=100)}
        for name, loads in self.loads.items():
            self.write(name, {"loads": loads})
        self.files = list(self.loads)

    def place(self, files, *words):
        return self.json("place", *files, "--ranks", RANKS, *words)

    def homes(self, name):
        """homes[layer][expert], from the file alone; ranks without offsets have as many slots each."""
        file = json.loads((self.folder / name).read_text(encoding="utf-8"))
        ranks, rows = file["num_ranks"], file["physical_to_logical"]
        even = [[rank * len(row) // ranks for rank in range(ranks + 1)] for row in rows]
        homes = []
        for row, ends in zip(rows, file.get("rank_offsets", even), strict=True):
            slots = [(rank, row[at]) for rank in range(ranks) for at in range(ends[rank], ends[rank + 1])]
            homes.append([[rank for rank, held in slots if held == e] for e in range(file["num_experts"])])
        return homes

    def assert_level(self, quality, homes, loads):
        mean, worst = level(homes, loads)
        self.assertAlmostEqual(quality["max_over_mean_mean"], mean, places=12)
        self.assertAlmostEqual(quality["max_over_mean_worst"], worst, places=12)

    def worst_recording(self, homes):
        return max(level(homes, loads)[0] for loads in self.loads.values())

    def test_one_recording_prints_the_keys_that_it_always_did(self):
        self.assertEqual(list(self.place(["a.json"])), KEYS)
        self.assert_refused(
            ["place", "a.json", "--ranks", 4, "--across", "sum"], 2, "InvalidArgument", "--across", "several recordings"
        )

    def test_a_judge_that_does_not_fit_is_refused_before_anything_is_written(self):
        self.write("wide.json", {"loads": [[1] * 12] * 3})
        words = ["place", "a.json", "--ranks", 4, "--judge", "wide.json", "-o", "o.json"]
        self.assert_refused(words, 2, "InvalidArgument", "--judge: wide.json has 12 experts")
        self.assertFalse((self.folder / "o.json").exists())

    def test_traces_of_other_sizes_are_refused_or_judged_whatever_their_order(self):
        def trace(name, layers, experts):
            ids = [[[(t + l + i * 3) % experts for i in range(2)] for l in range(layers)] for t in range(40)]
            values = [value for token in ids for row in token for value in row]
            (self.folder / name).write_bytes(npy([40, layers, 2], values, "<i2", "h"))
            return name

        small, wide, long = trace("small.npy", 2, 8), trace("wide.npy", 2, 300), trace("long.npy", 9, 8)
        words = ["--ranks", 4, "--traffic", "dispatch-combine", "--as", "trace"]
        for files in [(small, wide), (wide, small), (small, long), (long, small)]:
            self.assert_refused(["place", *files, *words], 2, "InvalidArgument", "PROFILE", *files)
        said = self.json("place", small, *words, "--judge", small, small)
        self.assertEqual(len(said["judged"]), 2)

    def test_steps_of_one_recording_are_recordings(self):
        steps = [[[9, 1, 1, 1], [1, 1, 1, 9]], [[1, 9, 1, 1], [1, 1, 9, 1]], [[1, 1, 1, 9], [9, 1, 1, 1]]]
        self.write("w.json", {"logical_count": steps})
        said = self.json("place", "w.json", "--ranks", 2, "--steps")
        self.assertEqual([each["recording"] for each in said["per_recording"]], [f"w.json: step {i}" for i in range(3)])
        worst = max(each["after"]["max_over_mean_mean"] for each in said["per_recording"])
        together = self.json("place", "w.json", "--ranks", 2)
        self.assertNotIn("per_recording", together)
        self.assertLessEqual(worst, 10 / 6 + 1e-9)
        self.assert_refused(
            ["place", "a.json", "--ranks", 4, "--steps"], 2, "InvalidArgument", "does not say its steps"
        )
        self.assert_refused(
            ["place", "a.json", "--ranks", 4, "--step-tokens", 5], 2, "InvalidArgument", "is for --steps"
        )

    def test_the_number_of_copies_is_chosen_and_told(self):
        self.write("hot.json", {"loads": [[400, 5, 5, 5, 5, 5, 5, 5]]})
        said = self.json("place", "hot.json", "--ranks", 4, "--redundant-experts", "auto")
        self.assertEqual(said["copies"]["redundant_experts"], 4)
        self.assertEqual([each["redundant_experts"] for each in said["copies"]["tried"]][:2], [0, 4])
        self.assertLess(said["after"]["max_over_mean_mean"], 1.02)
        self.assert_refused(
            ["place", "hot.json", "--ranks", 4, "--redundant-experts", "some"], 2, "InvalidArgument", "'some'"
        )

    def test_several_recordings_and_judges_each_add_their_key_and_say_what_was_measured_on_what(self):
        for files, words, keys in [
            (self.files, [], ["per_recording"]),
            (["a.json"], ["--judge", "b.json"], ["judged"]),
            (["a.json", "b.json"], ["--judge", "c.json"], ["per_recording", "judged"]),
            (self.files, ["--across", "sum"], ["per_recording"]),
        ]:
            with self.subTest(files=files, words=words):
                said = self.place(files, *words)
                self.assertEqual(list(said), [*KEYS, *keys, "measured_on"])
                self.assertEqual(said["measured_on"], "the data it was made from")
                for key in keys:
                    names = files if key == "per_recording" else words[1:]
                    self.assertEqual([each["recording"] for each in said[key]], names)
                    for each in said[key]:
                        self.assertEqual(list(each), ["recording", "before", "after"])
                        self.assertLessEqual(QUALITY, set(each["before"]))
                        self.assertEqual(set(each["before"]), set(each["after"]))

    def test_figures_are_those_of_the_homes_that_were_written(self):
        self.write("d.json", {"loads": drawn_loads(4)})
        for words in [[], ["--redundant-experts", 4], ["--redundant-experts", 3], ["--across", "sum"],
                      ["--redundant-experts", 4, "--groups", 4, "--nodes", 2]]:  # fmt: skip
            with self.subTest(words=words):
                said = self.place(self.files, *words, "--judge", "d.json", "-o", "p.json")
                homes = self.homes("p.json")
                for each in said["per_recording"]:
                    self.assert_level(each["before"], [CONTIGUOUS] * 3, self.loads[each["recording"]])
                    self.assert_level(each["after"], homes, self.loads[each["recording"]])
                self.assert_level(said["judged"][0]["before"], [CONTIGUOUS] * 3, drawn_loads(4))
                self.assert_level(said["judged"][0]["after"], homes, drawn_loads(4))
                total = [
                    [sum(each) for each in zip(*rows, strict=True)] for rows in zip(*self.loads.values(), strict=True)
                ]
                self.assert_level(said["after"], homes, total)
                if "sum" in words:
                    continue
                worst = [max(max_over_mean(homes[n], loads[n]) for loads in self.loads.values()) for n in range(3)]
                self.assertAlmostEqual(said["objective"]["max_over_mean"], sum(worst) / 3, places=6)
                self.assertLessEqual(said["bound"]["max_over_mean"], said["objective"]["max_over_mean"])
                self.assertGreaterEqual(said["bound"]["max_over_mean"], 1 - 1e-9)
                if not words:  # whoever has the hottest expert has its load
                    hottest = [
                        max(max(loads[n]) * RANKS / sum(loads[n]) for loads in self.loads.values()) for n in range(3)
                    ]
                    self.assertGreaterEqual(said["bound"]["max_over_mean"], sum(hottest) / 3 - 1e-9)

    def test_the_worst_recording_is_never_behind_that_of_the_sum(self):
        gains = []
        for seed in range(4):
            self.loads = {name: drawn_loads(10 * seed + i, scale=10**i) for i, name in enumerate(self.files)}
            for name, loads in self.loads.items():
                self.write(name, {"loads": loads})
            for words in [[], ["--redundant-experts", 4], ["--redundant-experts", 4, "--groups", 4, "--nodes", 2]]:
                with self.subTest(seed=seed, words=words):
                    self.place(self.files, *words, "-o", "worst.json")
                    self.place(self.files, *words, "--across", "sum", "-o", "sum.json")
                    worst, of_sum = (self.worst_recording(self.homes(name)) for name in ("worst.json", "sum.json"))
                    self.assertLessEqual(worst, of_sum + 1e-9)
                    gains.append(of_sum - worst)
        # Recordings are unlike and of unlike length, so being level on their sum is being level on the last.
        self.assertGreater(max(gains), 0.2)

    def test_a_recording_counts_by_shares_however_long_it_is(self):
        self.place(self.files, "-o", "p.json")
        self.write("c.json", {"loads": [[load * 1000 for load in row] for row in self.loads["c.json"]]})
        self.place(self.files, "-o", "q.json")
        self.assertEqual(self.homes("p.json"), self.homes("q.json"))

    def test_the_same_recording_twice_is_worth_as_much_as_once_for_balance(self):
        twice = self.place(["a.json", "a.json"], "--redundant-experts", 4)
        once = self.place(["a.json"], "--redundant-experts", 4)
        for each in twice["per_recording"]:
            after, alone = each["after"]["max_over_mean_mean"], once["after"]["max_over_mean_mean"]
            self.assertLessEqual(after, alone + 1e-9)

    def test_groups_stay_in_a_node(self):
        self.place(self.files, "--redundant-experts", 4, "--groups", 4, "--nodes", 2, "-o", "p.json")
        for homes in self.homes("p.json"):
            for group in range(4):
                nodes = {rank // 2 for expert in range(4 * group, 4 * group + 4) for rank in homes[expert]}
                self.assertEqual(len(nodes), 1)

    def test_copies_and_slots_are_as_many_as_were_asked_for(self):
        self.place(self.files, "--redundant-experts", 6, "-o", "p.json")
        for homes in self.homes("p.json"):
            self.assertEqual(sum(map(len, homes)), EXPERTS + 6)
            self.assertTrue(all(homes))
            on_rank = [sum(rank in of_expert for of_expert in homes) for rank in range(RANKS)]
            self.assertEqual(sorted(on_rank), [5, 5, 6, 6])

    def test_moves_are_within_the_budget_and_no_layer_s_worst_recording_gets_worse(self):
        self.place(["a.json"], "--redundant-experts", 4, "-o", "now.json")
        before = self.homes("now.json")
        reached = [self.worst_recording(before)]
        for most in (1, 4, 12, 1000):
            said = self.place(self.files, "--redundant-experts", 4, "--from", "now.json", "--max-moves", most,
                              "--judge", "a.json", "-o", "p.json")  # fmt: skip
            after = self.homes("p.json")
            moved = moves(before, after)
            self.assertLessEqual(moved, most)
            self.assertIn(
                f"{moved} experts are where they were not before; {most} were allowed", said["after"]["notes"]
            )
            for each in [*said["per_recording"], *said["judged"]]:
                self.assert_level(each["before"], before, self.loads[each["recording"]])
                self.assert_level(each["after"], after, self.loads[each["recording"]])
            for layer in range(3):
                worst = [max(max_over_mean(homes[layer], loads[layer]) for loads in self.loads.values())
                         for homes in (before, after)]  # fmt: skip
                self.assertLessEqual(worst[1], worst[0] + 1e-9)
            reached.append(self.worst_recording(after))
        self.assertLess(reached[-1], reached[0] - 0.1)

    def test_layers_are_those_of_the_recording_that_numbers_them_and_judges_are_paired_by_number(self):
        numbered = {"loads": self.loads["b.json"], "layers": [3, 4, 6]}
        self.write("n.json", numbered)
        self.write("judge.json", {"loads": drawn_loads(5), "layers": [3, 4, 6]})
        self.write("part.json", {"loads": drawn_loads(6)[1:], "layers": [4, 6]})
        said = self.place(["a.json", "n.json"], "--judge", "judge.json", "-o", "p.json")
        self.assertEqual(said["layers"], [3, 4, 6])
        self.assert_level(said["judged"][0]["after"], self.homes("p.json"), drawn_loads(5))
        said = self.place(["a.json", "n.json"], "--judge", "part.json", "-o", "p.json")
        self.assert_level(said["judged"][0]["after"], self.homes("p.json")[1:], drawn_loads(6)[1:])

    def test_traffic_is_known_where_all_recordings_have_it(self):
        said = self.json("place", EARLY, LATE, "--ranks", 8)
        crossing = [each["after"]["crossing"] for each in said["per_recording"]]
        self.assertEqual(said["after"]["crossing"], sum(crossing))
        self.call("profile", LATE, "--no-transitions", "-o", "loads.json")
        said = self.json("place", EARLY, "loads.json", "--ranks", 8)
        self.assertIsNone(said["after"]["crossing"])
        self.assertIsNotNone(said["per_recording"][0]["after"]["crossing"])
        self.assertIsNone(said["per_recording"][1]["after"]["crossing"])

    def test_two_runs_say_and_write_the_same(self):
        for words in [[], ["--redundant-experts", 4], ["--redundant-experts", 4, "--groups", 4, "--nodes", 2]]:
            texts = []
            for _ in range(2):
                said = self.place(self.files, *words, "-o", "p.json")
                del said["solve_ms"]
                texts.append((said, (self.folder / "p.json").read_bytes()))
            self.assertEqual(*texts)

    def test_people_see_each_recording_and_what_the_figures_were_measured_on(self):
        done = self.call("place", *self.files, "--ranks", RANKS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = self.place(self.files)
        for each in said["per_recording"]:
            figures = [each[which][key] for which in ("before", "after") for key in sorted(QUALITY) if "max" in key]
            self.assertRegex(done.stdout, rf"  {each['recording']} +" + " +".join(f"{x:.3f}" for x in figures))
        self.assertIn("max/mean load, made from", done.stdout)
        self.assertIn("measured on the data it was made from", done.stdout)
        done = self.call("place", "a.json", "--ranks", RANKS, "--judge", "b.json")
        self.assertIn("max/mean load, judged on", done.stdout)
        self.assertNotIn("measured on the data it was made from", done.stdout)

    def test_recordings_of_other_models_are_refused_and_both_files_are_named(self):
        self.write("wide.json", {"loads": [[1 + e for e in range(12)]] * 3})
        self.write("short.json", {"loads": drawn_loads(1, 2)})
        self.write("n.json", {"loads": drawn_loads(1), "layers": [3, 4, 6]})
        self.write("m.json", {"loads": drawn_loads(1), "layers": [3, 4, 5]})
        for files, parts in [
            (["a.json", "wide.json"], ["wide.json has 3 layers", "12 experts", "a.json has 3 layers", "16 experts"]),
            (["a.json", "b.json", "short.json"], ["short.json has 2 layers", "a.json has 3 layers"]),
            (["n.json", "m.json"], ["m.json has layers 3-5", "n.json has layers 3-4,6"]),
        ]:
            with self.subTest(files=files):
                words = ["place", *files, "--ranks", RANKS, "-o", "p.json"]
                self.assert_refused(words, 2, "InvalidArgument", "PROFILE", *parts)
                self.assertFalse((self.folder / "p.json").exists())

    def test_what_several_recordings_are_not_placed_by_is_refused(self):
        words = ["place", EARLY, LATE, "--ranks", 8]
        for more, part in [
            (["--objective", "joint"], "--objective: joint has no meaning beside several recordings"),
            (["--solver", "exact"], "--solver: exact does not solve several recordings"),
            (["--sizes", "free"], "--sizes: free has no meaning beside several recordings"),
            (["--across", "best"], "--across: 'best'"),
        ]:
            with self.subTest(more=more):
                self.assert_refused([*words, *more], 2, "InvalidArgument", part)
        # What they add up to is one recording, which takes them all.
        self.assertEqual(set(self.json(*words, "--across", "sum", "--objective", "joint")["objective"]), {"joint_ms"})
        self.assert_refused(["place", "a.json", "nowhere", "--ranks", RANKS], 3, "ParseError", "nowhere")
        self.assert_refused(["place", "a.json", "--judge", "nowhere", "--ranks", RANKS], 3, "ParseError", "nowhere")


if __name__ == "__main__":
    unittest.main()
