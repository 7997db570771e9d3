"""evenkeel place: its keys, files that say what it printed, and what it refuses."""

import json
import random
import signal
import time
import unittest

from command import REPOSITORY, CommandTest

KEYS = [
    "solver", "num_layers", "layers", "num_experts", "num_ranks", "objective", "bound", "proven_optimal", "solve_ms", "before",
    "after",
]  # fmt: skip
QUALITY = {"max_over_mean_mean", "max_over_mean_worst", "crossing", "worst_pair"}


def random_profile(seed, layers, experts, tokens=400, top_k=2):
    """Loads and transitions, counted here from tokens drawn here."""
    draw = random.Random(seed)
    loads = [[0] * experts for _ in range(layers)]
    transitions = [[[0] * experts for _ in range(experts)] for _ in range(layers - 1)]
    for _ in range(tokens):
        before = None
        for layer in range(layers):
            chosen = [int(draw.random() ** 2 * experts) for _ in range(top_k)]
            for expert in chosen:
                loads[layer][expert] += 1
                for sender in before or []:
                    transitions[layer - 1][sender][expert] += 1
            before = chosen
    return {
        "format": "evenkeel.profile.v1", "num_layers": layers, "num_experts": experts, "loads": loads,
        "transitions": transitions,
    }  # fmt: skip


class Place(CommandTest):
    def setUp(self):
        super().setUp()
        self.profile = random_profile(1, 4, 16)
        self.write("profile.json", self.profile)

    def homes(self, name, ranks):
        """homes[layer][expert], from the file alone."""
        file = json.loads((self.folder / name).read_text(encoding="utf-8"))
        self.assertEqual(file["num_ranks"], ranks)
        homes = []
        for layer, row in enumerate(file["physical_to_logical"]):
            ends = file.get("rank_offsets", [[r * len(row) // ranks for r in range(ranks + 1)]] * file["num_layers"])
            of_layer = [[] for _ in range(file["num_experts"])]
            for rank in range(ranks):
                for expert in row[ends[layer][rank] : ends[layer][rank + 1]]:
                    of_layer[expert].append(rank)
            homes.append(of_layer)
        return homes

    def quality(self, homes, ranks):
        """What placement_quality says, recomputed."""
        ratios, crossing, worst = [], 0.0, 0.0
        for loads, of_layer in zip(self.profile["loads"], homes, strict=True):
            sums = [0.0] * ranks
            for load, of_expert in zip(loads, of_layer, strict=True):
                for rank in of_expert:
                    sums[rank] += load / len(of_expert)
            ratios.append(max(sums) * ranks / sum(sums))
        for layer, matrix in enumerate(self.profile["transitions"]):
            pairs = [[0.0] * ranks for _ in range(ranks)]
            for a, row in enumerate(matrix):
                for b, count in enumerate(row):
                    for sender in homes[layer][a]:
                        for receiver in homes[layer + 1][b]:
                            pairs[sender][receiver] += count / len(homes[layer][a]) / len(homes[layer + 1][b])
            between = [pairs[a][b] for a in range(ranks) for b in range(ranks) if a != b]
            crossing += sum(between)
            worst += max(between)
        return sum(ratios) / len(ratios), max(ratios), crossing, worst

    def assert_quality(self, printed, homes, ranks):
        mean, most, crossing, worst = self.quality(homes, ranks)
        self.assertAlmostEqual(printed["max_over_mean_mean"], mean)
        self.assertAlmostEqual(printed["max_over_mean_worst"], most)
        self.assertAlmostEqual(printed["crossing"], crossing, places=4)
        self.assertAlmostEqual(printed["worst_pair"], worst, places=4)

    def test_prints_exactly_the_promised_keys(self):
        result = self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
        self.assertEqual(list(result), KEYS)
        self.assertEqual([result[key] for key in KEYS[:4]], ["fast", 4, None, 16])
        self.assertEqual(set(result["objective"]), {"balance", "traffic"})
        self.assertEqual(set(result["bound"]), set(result["objective"]))
        self.assertLessEqual(QUALITY, set(result["before"]))
        self.assertLessEqual(QUALITY, set(result["after"]))
        self.assertIs(type(result["proven_optimal"]), bool)

    def test_what_it_prints_is_true_of_what_it_writes(self):
        for words in [[], ["--redundant-experts", 4], ["--redundant-experts", 4, "--groups", 4, "--nodes", 2],
                      ["--sizes", "free"], ["--objective", "joint"], ["--pairs", "total", "--nodes", 2]]:  # fmt: skip
            with self.subTest(words=words):
                result = self.json("place", "profile.json", "--ranks", 4, *words, "-o", "p.json")
                contiguous = [[[expert // 4] for expert in range(16)]] * 4
                self.assert_quality(result["before"], contiguous, 4)
                self.assert_quality(result["after"], self.homes("p.json", 4), 4)
                for name, value in result["objective"].items():
                    self.assertLessEqual(result["bound"][name], value)

    def test_a_trace_is_profiled_on_the_fly_and_its_sequences_say_where_tokens_live(self):
        trace = REPOSITORY / "data/tiny-moe/routing_step50.npz"
        self.call("profile", trace, "-o", "tiny.safetensors")
        from_profile = self.json("place", "tiny.safetensors", "--ranks", 4)
        from_trace = self.json("place", trace, "--ranks", 4)
        self.assertEqual(from_profile["after"], from_trace["after"])
        words = ["--ranks", 4, "--traffic", "dispatch-combine"]
        known = self.json("place", trace, *words)
        estimated = self.json("place", "tiny.safetensors", *words)
        self.assertNotIn("where tokens live", str(known["after"]["notes"]))
        self.assertIn("where tokens live is not known", estimated["after"]["notes"][0])
        self.assertLess(known["after"]["crossing"], estimated["after"]["crossing"])

    def test_two_runs_write_the_same_file(self):
        texts = []
        for _ in range(2):
            self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
            texts.append((self.folder / "p.json").read_bytes())
        self.assertEqual(*texts)

    def test_a_topology_comes_from_a_file_or_a_name(self):
        self.write("t.json", {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2,
                              "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50}})  # fmt: skip
        result = self.json("place", "profile.json", "--topology", "t.json")
        self.assertEqual(result["num_ranks"], 4)
        self.assertGreater(result["after"]["crossing_between_nodes"], 0)
        self.assertEqual(self.json("place", "profile.json", "--topology", "2x8xh100")["num_ranks"], 16)

    def test_a_plan_and_a_second_placement_take_the_file(self):
        self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
        plan = self.json("plan", "profile.json", "--layer", 1, "--placement", "p.json", "--planner", "ep")
        sums = [0] * 4
        for load, (rank,) in zip(self.profile["loads"][1], self.homes("p.json", 4)[1], strict=True):
            sums[rank] += load
        self.assertEqual(plan["rank_loads"], sums)

    def test_people_get_tables_and_a_heat_map_of_at_most_100_columns(self):
        for words in [["--ranks", 4], ["--ranks", 16, "--nodes", 2], ["--ranks", 4, "--redundant-experts", 4]]:
            done = self.call("place", "profile.json", *words, "-o", "p.json")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("max/mean load, worst layer", done.stdout)
            self.assertIn("contiguous", done.stdout)
            self.assertIn("█", done.stdout)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        self.write("wide.json", random_profile(2, 2, 72, tokens=100))
        done = self.call("place", "wide.json", "--topology", "gb200-nvl72")
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)

    def test_the_heat_map_is_darkest_where_most_is_sent(self):
        self.write("two.json", {"loads": [[9, 11], [1, 19]], "transitions": [[[0, 9], [1, 10]]]})
        text = self.call("place", "two.json", "--ranks", 2).stdout
        self.assertRegex(text, r"\n +0  ··██ .*\n +1    ·· .*\n")
        self.assertIn("blank from 1, █ to 9", text)

    def test_options_that_make_no_sense_are_refused_by_name(self):
        place = ["place", "profile.json"]
        for words, parts in [
            ([], ["--ranks: is not given"]),
            (["--ranks", 4, "--nodes", 3], ["--nodes: 4 ranks"]),
            (["--ranks", 4, "--topology", "8xh100"], ["--ranks: 4, but 8xh100 has 8"]),
            (["--topology", "8xh100", "--nodes", 2], ["--nodes"]),
            (["--ranks", 17], ["--ranks: 17 ranks are more than 16"]),
            (["--ranks", 4, "--redundant-experts", -1], ["--redundant-experts"]),
            (["--ranks", 4, "--redundant-experts", 4, "--sizes", "free"], ["--sizes: free"]),
            (["--ranks", 4, "--redundant-experts", 4, "--objective", "joint"], ["--objective: joint"]),
            (["--ranks", 4, "--redundant-experts", 4, "--solver", "exact"], ["--solver: exact"]),
            (["--ranks", 4, "--groups", 3], ["--groups: 16 experts"]),
            (["--ranks", 4, "--gap", "1"], ["--gap: '1'"]),
            (["--ranks", 4, "--time-limit", "0"], ["--time-limit: '0'"]),
            (["--ranks", 4, "--solver", "best"], ["--solver: 'best'", "fast, exact"]),
            (["--ranks", 4, "--format", "frob", "-o", "x"], ["--format: 'frob'", "vllm-ascend"]),
            (["--ranks", 4, "--format", "vllm"], ["--format"]),
            (["--ranks", 4, "--max-moves", 3], ["--from"]),
            (["--ranks", 4, "--moe-layers", "3-7", "-o", "x"], ["--moe-layers"]),
            (["--ranks", 4, "--assignment-us", "1"], ["--assignment-us", "joint"]),
        ]:
            with self.subTest(words=words):
                self.assert_refused(place + words, 2, "InvalidArgument", *parts)
        twice = [*place, "--ranks", 2, "--redundant-experts", 17]
        self.assert_refused(twice, 4, "Infeasible", "17 redundant experts", "at most 16")

    def test_input_that_is_wrong_names_the_file_and_writes_nothing(self):
        self.write("negative.json", {**self.profile, "loads": [[-1] + [1] * 15] * 4})
        self.write("short.json", {**self.profile, "transitions": self.profile["transitions"][:2]})
        self.write("counts.json", {key: value for key, value in self.profile.items() if key != "transitions"})
        self.write("capacity.json", {"format": "evenkeel.topology.v1", "node_of_rank": [0, 0], "rooms": [7, 8]})
        self.write("gap.json", {"format": "evenkeel.topology.v1", "node_of_rank": [0, 2]})
        before = sorted(self.folder.iterdir())
        out = ["-o", "p.json"]
        self.assert_refused(["place", "negative.json", "--ranks", 4, *out], 3, "ParseError", "negative.json: loads")
        self.assert_refused(["place", "short.json", "--ranks", 4, *out], 3, "ParseError", "short.json: transitions")
        self.assert_refused(["place", "nowhere", "--ranks", 4, *out], 3, "ParseError", "nowhere")
        joint = ["place", "counts.json", "--ranks", 4, "--objective", "joint", *out]
        self.assert_refused(joint, 2, "InvalidArgument", "--traffic: ")
        self.assert_refused(["place", "profile.json", "--topology", "gap.json", *out], 3, "ParseError", "node_of_rank")
        self.assert_refused(
            ["place", "profile.json", "--topology", "capacity.json", *out], 4, "Infeasible", "capacity for 15"
        )
        self.assert_refused(["place", "profile.json", "--ranks", 4, "-o", "nowhere/p.json"], 4, "InvalidArgument")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_few_experts_are_moved_from_a_placement(self):
        self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
        self.profile = random_profile(2, 4, 16)
        self.write("later.json", self.profile)
        words = ["place", "later.json", "--ranks", 4, "--from", "p.json", "--max-moves", 6, "-o", "q.json"]
        result = self.json(*words)
        old, new = self.homes("p.json", 4), self.homes("q.json", 4)
        moved = sum(
            rank not in old[layer][expert] for layer in range(4) for expert in range(16) for rank in new[layer][expert]
        )
        self.assertLessEqual(moved, 6)
        self.assert_quality(result["before"], old, 4)
        self.assert_quality(result["after"], new, 4)
        self.assertLessEqual(result["after"]["max_over_mean_mean"], result["before"]["max_over_mean_mean"])

    def test_with_no_move_the_placement_stays_and_is_judged(self):
        self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
        self.profile = random_profile(2, 4, 16)
        self.write("later.json", self.profile)
        words = ["place", "later.json", "--ranks", 4, "--from", "p.json", "--max-moves", 0, "-o", "q.json"]
        result = self.json(*words)
        self.assertEqual(self.homes("q.json", 4), self.homes("p.json", 4))
        self.assert_quality(result["after"], self.homes("p.json", 4), 4)
        self.assertEqual(result["before"], {key: result["after"][key] for key in result["before"]})

    def test_few_experts_are_moved_from_a_placement_with_copies_whatever_divides_what(self):
        for copies, ranks, more in [(5, 4, []), (3, 5, []), (1, 3, []), (5, 4, ["--groups", 4, "--nodes", 2])]:
            with self.subTest(copies=copies, ranks=ranks, more=more):
                words = ["--ranks", ranks, "--redundant-experts", copies, *more]
                self.json("place", "profile.json", *words, "-o", "a.json")
                self.write("later.json", random_profile(2, 4, 16))
                self.json("place", "later.json", *words, "--from", "a.json", "--max-moves", 5, "-o", "b.json")
                old, new = self.homes("a.json", ranks), self.homes("b.json", ranks)
                moved = 0
                for before, after in zip(old, new, strict=True):
                    self.assertEqual(sum(map(len, after)), 16 + copies)
                    moved += sum(rank not in before[expert] for expert in range(16) for rank in after[expert])
                self.assertLessEqual(moved, 5)

    def test_a_server_does_not_get_a_placement_whose_moves_were_too_few_for_all_copies(self):
        self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
        self.write("later.json", random_profile(2, 4, 16))
        words = ["place", "later.json", "--ranks", 4, "--redundant-experts", 4, "--from", "p.json"]
        few = self.json(*words, "--max-moves", 5, "-o", "q.json")
        copies = sum(len(homes) - 1 for layer in self.homes("q.json", 4) for homes in layer)
        missing = next(note for note in few["after"]["notes"] if "redundant experts" in note)
        self.assertIn(f"{copies} of the 16 redundant experts that were asked for, in all layers, are there", missing)
        form = ["--format", "vllm", "-o", "v.json"]
        self.assert_refused([*words, "--max-moves", 5, *form], 4, "Unsupported", "vllm needs equally many", missing)
        moves = int(missing.split("all of them take ")[1].split()[0])
        self.assertNotIn("redundant experts", str(self.json(*words, "--max-moves", moves, *form)["after"]["notes"]))

    def test_all_pairs_are_refused_where_nothing_is_sent_that_is_known(self):
        self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
        (self.folder / "counts.csv").write_text("e0,e1,e2,e3\n5,1,1,5\n2,2,9,9\n", encoding="utf-8")
        trace = REPOSITORY / "data/tiny-moe/routing_step50.npz"
        for words, part in [
            (["profile.json", "--ranks", 4, "--from", "p.json", "--max-moves", 3], "a placement to start from"),
            (["counts.csv", "--ranks", 2], "the profile has none"),
            ([trace, "--ranks", 4, "--steps", "--step-tokens", 1000], "the profile has none"),
        ]:
            with self.subTest(words=words):
                refused = ["place", *words, "--pairs", "total"]
                self.assert_refused(refused, 2, "InvalidArgument", "--pairs: total", part)

    def test_recordings_that_overflow_together_name_a_file(self):
        self.write("half.json", {"loads": [[2**61, 2**61]]})
        words = ["place", "half.json", "half.json", "half.json", "--ranks", 2]
        self.assert_refused(words, 2, "InvalidArgument", "PROFILE: the loads up to those of half.json add up to more")

    def require_exact(self):
        done = self.call("place", "profile.json", "--ranks", 2, "--solver", "exact", "--time-limit", 5)
        if (
            done.returncode == 4
            and "Unsupported" in self.call("place", "profile.json", "--ranks", 2, "--solver", "exact", "--json").stdout
        ):
            self.skipTest("built without the integer-program solver")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_exact_is_no_worse_than_fast_and_within_its_bound(self):
        self.require_exact()
        self.write("small.json", random_profile(7, 2, 8))
        fast = self.json("place", "small.json", "--ranks", 4)
        exact = self.json("place", "small.json", "--ranks", 4, "--solver", "exact", "--time-limit", 20)
        self.assertEqual(exact["solver"], "exact")
        self.assertTrue(exact["proven_optimal"])
        self.assertLessEqual(exact["objective"]["balance"], fast["objective"]["balance"] + 1e-6)
        self.assertGreaterEqual(exact["objective"]["balance"], fast["bound"]["balance"] - 1e-6)

    def test_an_interrupt_keeps_the_best_so_far(self):
        self.require_exact()
        self.write("big.json", random_profile(3, 6, 48, tokens=3000))
        words = ["place", "big.json", "--topology", "t.json", "--solver", "exact"]
        self.write("t.json", {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 4,
                              "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50}})  # fmt: skip
        command = self.start(*words, "--time-limit", 300, "--json", "-o", "p.json")
        time.sleep(3)
        self.assertIsNone(command.poll(), "the solve was over before it could be interrupted")
        command.send_signal(signal.SIGINT)
        output, errors = command.communicate(timeout=60)
        self.assertEqual((command.returncode, errors), (0, ""))
        result = json.loads(output)
        self.assertFalse(result["proven_optimal"])
        self.assertIn("interrupted", str(result["after"]["notes"]))
        self.assertEqual(len(self.homes("p.json", 8)), 6)

    def test_formats_of_servers_are_written_and_what_they_cannot_say_is_refused(self):
        place = ["place", "profile.json", "--ranks", 4]
        for form in ["sglang", "vllm", "vllm-ascend", "trtllm"]:
            with self.subTest(format=form):
                layers = ["--moe-layers", "0-3"] if form in ("sglang", "trtllm") else []
                self.json(*place, "--redundant-experts", 4, "--format", form, *layers, "-o", "p.json")
                self.assertGreater((self.folder / "p.json").stat().st_size, 0)
        (self.folder / "p.json").unlink()
        words = [*place, "--sizes", "free", "--format", "sglang", "-o", "p.json"]
        self.assert_refused(words, 2, "InvalidArgument", "--sizes: free, but sglang")
        self.assert_refused([*place, "--format", "sglang", "-o", "p"], 4, "InvalidArgument", "p: ", ".json")
        self.assertFalse((self.folder / "p.json").exists())

    def test_what_cannot_be_written_is_known_before_a_long_solve(self):
        self.require_exact()
        self.write("big.json", random_profile(3, 6, 48, tokens=3000))
        self.write("t.json", {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 4,
                              "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50}})  # fmt: skip
        (self.folder / "folder").mkdir()
        solve = ["place", "big.json", "--topology", "t.json", "--solver", "exact", "--time-limit", 8]
        before = sorted(self.folder.iterdir())
        for words, status, error, part in [
            (["-o", "nowhere/p.json"], 4, "InvalidArgument", "nowhere/p.json: cannot be written"),
            (["-o", "folder"], 4, "InvalidArgument", "folder: cannot be written: Is a directory"),
            (
                ["--format", "trtllm", "--moe-layers", "3-5", "-o", "p"],
                2,
                "InvalidArgument",
                "--moe-layers: names layers 3-5",
            ),
            (
                ["--format", "sglang", "--num-hidden-layers", 5, "-o", "p.json"],
                2,
                "InvalidArgument",
                "hidden-layers: 5",
            ),
            (["--format", "vllm", "--sizes", "free", "-o", "p"], 2, "InvalidArgument", "--sizes: free, but vllm"),
        ]:
            with self.subTest(words=words):
                begin = time.monotonic()
                self.assert_refused([*solve, *words], status, error, part)
                self.assertLess(time.monotonic() - begin, 6)
        words = ["place", "big.json", "--ranks", 8, "--redundant-experts", 2, "--format", "vllm", "-o", "p"]
        self.assert_refused(words, 4, "Unsupported", "50 physical experts are not equally many on 8 ranks")
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_counts_and_recordings_of_other_systems_are_placed(self):
        recordings = REPOSITORY / "tests" / "io" / "data"
        traffic = ["--traffic", "dispatch-combine"]  # most record no transitions
        for name, layers, experts in [
            ("sglang_stat.pt", 3, 6),
            ("sglang_per_token.pt", 3, 6),
            ("trtllm_statistics", 2, 5),
        ]:
            with self.subTest(recording=name):
                result = self.json("place", recordings / name, "--ranks", 1, *traffic, "-o", "r.json")
                self.assertEqual((result["num_layers"], result["num_experts"]), (layers, experts))
        (self.folder / "counts.csv").write_text("e0,e1,e2,e3\n5,1,1,5\n2,2,9,9\n", encoding="utf-8")
        result = self.json("place", "counts.csv", "--ranks", 2, *traffic, "-o", "c.json")
        self.assertEqual(result["num_layers"], 2)


if __name__ == "__main__":
    unittest.main()
