"""evenkeel place: its keys, files that match what it printed, the printed text, and refusals.

The quality of placements is tested in the library (tests/placement).
"""

import json
import random
import signal
import time

from command import REPOSITORY, CommandTest

KEYS = [
    "solver", "num_layers", "layers", "num_experts", "num_ranks", "objective", "bound", "proven_optimal", "solve_ms", "before",
    "after",
]  # fmt: skip
QUALITY = {"max_over_mean_mean", "max_over_mean_worst", "crossing", "worst_pair"}
TWO_NODES = {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2,
             "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50}}  # fmt: skip


def random_profile(seed, layers, experts):
    draw = random.Random(seed)
    loads = [[int(draw.lognormvariate(5, 1)) for _ in range(experts)] for _ in range(layers)]
    transitions = [[[draw.randrange(200) ** 2 for _ in range(experts)] for _ in loads[0]] for _ in loads[1:]]
    return {"format": "evenkeel.profile.v1", "num_layers": layers, "num_experts": experts, "loads": loads,
            "transitions": transitions}  # fmt: skip


class Place(CommandTest):
    def setUp(self):
        super().setUp()
        self.profile = random_profile(1, 4, 16)
        self.write("profile.json", self.profile)

    def test_prints_exactly_the_promised_keys(self):
        result = self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
        self.assertEqual(list(result), KEYS)
        self.assertEqual([result[key] for key in KEYS[:4]], ["fast", 4, None, 16])
        self.assertEqual(set(result["objective"]), {"balance", "traffic"})
        self.assertEqual(set(result["bound"]), set(result["objective"]))
        self.assertLessEqual(QUALITY, set(result["before"]))
        self.assertLessEqual(QUALITY, set(result["after"]))
        self.assertIs(type(result["proven_optimal"]), bool)

    def test_what_it_prints_evaluate_finds_in_what_it_writes(self):
        for words in [[], ["--redundant-experts", 4], ["--redundant-experts", 4, "--groups", 4, "--nodes", 2],
                      ["--sizes", "free"], ["--objective", "joint"], ["--objective", "joint", "--redundant-experts", 4], ["--pairs", "total", "--nodes", 2]]:  # fmt: skip
            with self.subTest(words=words):
                result = self.json("place", "profile.json", "--ranks", 4, *words, "-o", "p.json")
                found = self.json("evaluate", "profile.json", "--placement", "p.json")["placements"]
                for each, which in zip(found, ("before", "after"), strict=True):
                    for key in ("max_over_mean_mean", "max_over_mean_worst", "crossing"):
                        self.assertAlmostEqual(result[which][key], each["results"][0][key], places=6)

    def test_a_trace_is_profiled_on_the_fly_and_its_sequences_say_where_tokens_live(self):
        trace = REPOSITORY / "data/tiny-moe/routing_step50.npz"
        self.call("profile", trace, "-o", "tiny.safetensors")
        words = ["--ranks", 4, "--traffic", "dispatch-combine"]
        for more, same in [(words[:2], True), (words, False)]:
            known, estimated = (self.json("place", each, *more)["after"] for each in (trace, "tiny.safetensors"))
            self.assertEqual(known == estimated, same)
        self.assertNotIn("which rank each token comes from", str(known["notes"]))
        self.assertIn("it is not known which rank each token comes from", estimated["notes"][0])
        self.assertLess(known["crossing"], estimated["crossing"])

    def test_a_topology_comes_from_a_file_or_a_name(self):
        result = self.json("place", "profile.json", "--topology", self.write("t.json", TWO_NODES))
        self.assertEqual(result["num_ranks"], 4)
        self.assertGreater(result["after"]["crossing_between_nodes"], 0)
        self.assertEqual(self.json("place", "profile.json", "--topology", "2x8xh100")["num_ranks"], 16)

    def test_people_get_tables_and_a_heat_map_of_at_most_100_columns(self):
        self.write("wide.json", random_profile(2, 2, 72))
        for words in [["profile.json", "--ranks", 4, "-o", "p.json"], ["profile.json", "--ranks", 16, "--nodes", 2],
                      ["profile.json", "--ranks", 4, "--redundant-experts", 4],
                      ["wide.json", "--topology", "gb200-nvl72"]]:  # fmt: skip
            text = self.shown("place", *words)
            for part in ["max/mean load, worst layer", "contiguous", "█"]:
                self.assertIn(part, text)

    def test_the_heat_map_is_darkest_where_most_is_sent(self):
        self.write("two.json", {"loads": [[9, 11], [1, 19]], "transitions": [[[0, 9], [1, 10]]]})
        text = self.call("place", "two.json", "--ranks", 2).stdout
        self.assertRegex(text, r"\n +0  ··██ .*\n +1    ·· .*\n")
        self.assertIn("blank from 1, █ to 9", text)

    def test_options_that_make_no_sense_are_refused_by_name(self):
        copies = ["--ranks", 4, "--redundant-experts", 4]
        for words, parts in [
            ([], ["--ranks: is missing"]),
            (["--ranks", 4, "--nodes", 3], ["--nodes: 4 ranks"]),
            (["--ranks", 4, "--topology", "8xh100"], ["--ranks: 4, but 8xh100 has 8"]),
            (["--topology", "8xh100", "--nodes", 2], ["--nodes"]),
            (["--ranks", 4, "--redundant-experts", "some"], ["--redundant-experts: 'some'"]),
            ([*copies, "--dispatch", "random"], ["--dispatch: 'random'; allowed: even, static, nearest"]),
            ([*copies, "--dispatch", "static", "--format", "trtllm", "-o", "x.yaml"],
             ["--dispatch: static is a rule of SGLang, but the file is for trtllm; allowed: even, or a file for "
              "sglang"]),
            ([*copies, "--objective", "joint", "--groups", 2], ["--objective: joint does not work with expert groups"]),
            ([*copies, "--objective", "joint", "--format", "sglang", "--moe-layers", "0-3", "-o", "x.json"],
             ["--dispatch: 'static' uses copies unevenly, but objective joint assumes even use"]),
            (["--ranks", 4, "--gap", "1"], ["--gap: '1'"]),
            (["--ranks", 4, "--time-limit", "0"], ["--time-limit: '0'"]),
            (["--ranks", 4, "--solver", "best"], ["--solver: 'best'", "fast, exact"]),
            (["--ranks", 4, "--format", "frob", "-o", "x"], ["--format: 'frob'", "vllm-ascend"]),
            (["--ranks", 4, "--format", "vllm"], ["--format"]),
            (["--ranks", 4, "--max-moves", 3], ["--from"]),
            (["--ranks", 4, "--moe-layers", "3-7", "-o", "x"], ["--moe-layers"]),
            (["--ranks", 4, "--assignment-us", "1"], ["--assignment-us", "joint"]),
            (["--ranks", 4, "--across", "sum"], ["--across", "several recordings"]),
            (["--ranks", 4, "--steps"], ["does not say its steps"]),
            (["--ranks", 4, "--step-tokens", 5], ["applies only to --steps"]),
        ]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(["place", "profile.json", *words], 2, "InvalidArgument", *parts)

    def test_input_that_is_wrong_names_the_file_and_writes_nothing(self):
        self.write("negative.json", {**self.profile, "loads": [[-1] + [1] * 15] * 4})
        self.write("counts.json", {key: value for key, value in self.profile.items() if key != "transitions"})
        self.write("half.json", {"loads": [[2**61, 2**61]]})
        self.write("capacity.json", {"format": "evenkeel.topology.v1", "node_of_rank": [0, 0], "rooms": [7, 8]})
        before = sorted(self.folder.iterdir())
        ranks = ["--ranks", 4, "-o", "p.json"]
        for words, status, kind, part in [
            (["negative.json", *ranks], 3, "ParseError", "negative.json: loads"),
            (["counts.json", "--objective", "joint", *ranks], 2, "InvalidArgument", "--traffic: "),
            (["half.json", "half.json", "half.json", "--ranks", 2], 2, "InvalidArgument",
             "PROFILE: the loads up to those of half.json add up to more"),
            (["profile.json", "--topology", "capacity.json", *ranks[2:]], 4, "Infeasible", "capacity for 15"),
            (["profile.json", "--ranks", 4, "-o", "nowhere/p.json"], 4, "InvalidArgument", "nowhere/p.json"),
        ]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(["place", *words], status, kind, part)
        self.assertEqual(sorted(self.folder.iterdir()), before)

    def test_a_server_does_not_get_a_placement_whose_moves_were_too_few_for_all_copies(self):
        self.json("place", "profile.json", "--ranks", 4, "-o", "p.json")
        words = ["place", "profile.json", "--ranks", 4, "--redundant-experts", 4, "--from", "p.json", "--max-moves", 5]
        notes = self.json(*words)["after"]["notes"]
        missing = next(note for note in notes if "of the 16 requested redundant experts" in note)
        form = ["--format", "vllm", "-o", "v.json"]
        self.assert_refused([*words, *form], 4, "Unsupported", "vllm needs equally many", missing)

    def test_the_number_of_copies_is_chosen_and_told(self):
        self.write("hot.json", {"loads": [[400, 5, 5, 5, 5, 5, 5, 5]]})
        said = self.json("place", "hot.json", "--ranks", 4, "--redundant-experts", "auto")
        self.assertEqual(said["copies"]["redundant_experts"], 4)
        self.assertEqual([each["redundant_experts"] for each in said["copies"]["tried"]][:2], [0, 4])

    def require_exact(self):
        done = self.call("place", "profile.json", "--ranks", 2, "--solver", "exact", "--time-limit", 5, "--json")
        if done.returncode == 4 and "Unsupported" in done.stdout:
            self.skipTest("built without the integer-program solver")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_exact_solver_is_asked_and_an_interrupt_keeps_its_best_so_far(self):
        self.require_exact()
        self.write("small.json", random_profile(7, 2, 8))
        exact = self.json("place", "small.json", "--ranks", 4, "--solver", "exact", "--time-limit", 20)
        self.assertEqual((exact["solver"], exact["proven_optimal"]), ("exact", True))
        self.write("big.json", random_profile(3, 6, 48))
        words = ["place", "big.json", "--topology", "t.json", "--solver", "exact"]
        self.write("t.json", TWO_NODES | {"ranks_per_node": 4})
        command = self.start(*words, "--time-limit", 300, "--json", "-o", "p.json")
        time.sleep(3)
        self.assertIsNone(command.poll(), "the solve was over before it could be interrupted")
        command.send_signal(signal.SIGINT)
        output, errors = command.communicate(timeout=60)
        self.assertEqual((command.returncode, errors), (0, ""))
        result = json.loads(output)
        self.assertFalse(result["proven_optimal"])
        self.assertIn("interrupted", str(result["after"]["notes"]))
        self.assertEqual(len(self.homes("p.json")), 6)

    def test_what_cannot_be_written_is_known_before_a_long_solve(self):
        self.require_exact()
        self.write("big.json", random_profile(3, 6, 48))
        self.write("t.json", TWO_NODES | {"ranks_per_node": 4})
        (self.folder / "folder").mkdir()
        solve = ["--topology", "t.json", "--solver", "exact", "--time-limit", 8]
        before = sorted(self.folder.iterdir())
        for words, status, error, part in [
            ([*solve, "-o", "nowhere/p.json"], 4, "InvalidArgument", "nowhere/p.json: cannot be written"),
            ([*solve, "-o", "folder"], 4, "InvalidArgument", "folder: cannot be written: Is a directory"),
            ([*solve, "--format", "sglang", "-o", "p"], 4, "InvalidArgument",
             "p: sglang loads only files whose name ends in .json"),
            ([*solve, "--format", "trtllm", "--moe-layers", "3-5", "-o", "p"], 2, "InvalidArgument",
             "--moe-layers: names layers 3-5"),
            ([*solve, "--format", "sglang", "--num-hidden-layers", 5, "-o", "p.json"], 2, "InvalidArgument",
             "hidden-layers: 5"),
            ([*solve, "--format", "vllm", "--sizes", "free", "-o", "p"], 2, "InvalidArgument",
             "--sizes: free, but vllm"),
            (["--ranks", 8, "--redundant-experts", 2, "--format", "vllm", "-o", "p"], 4, "Unsupported",
             "50 physical experts cannot be divided evenly over 8 ranks"),
        ]:  # fmt: skip
            with self.subTest(words=words):
                begin = time.monotonic()
                self.assert_refused(["place", "big.json", *words], status, error, part)
                self.assertLess(time.monotonic() - begin, 6)
        self.assertEqual(sorted(self.folder.iterdir()), before)
