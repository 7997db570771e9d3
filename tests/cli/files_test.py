"""evenkeel profile, convert, and run on the shipped trace."""

from pathlib import Path

from command import CommandTest

DATA = Path(__file__).resolve().parents[2] / "data" / "tiny-moe"
TRACE = DATA / "routing_step1563.npz"
LAYER = DATA / "layer.safetensors"
RECORDINGS = DATA.parents[1] / "tests" / "io" / "data"


class Files(CommandTest):
    def test_a_profile_says_the_imbalance_that_a_plan_of_its_layer_finds(self):
        profile = self.json("profile", TRACE, "--ranks", 8, "-o", "p.safetensors")
        keys = ["traces", "tokens", "num_layers", "layer_numbers", "num_experts", "transitions", "output", "layers"]
        self.assertEqual(list(profile), keys)
        self.assertEqual(list(profile["layers"][0]), ["layer", "assignments", "experts", "ranks"])
        self.assertEqual(list(profile["layers"][0]["ranks"]), ["max_over_mean", "mean_over_max", "relative_excess"])
        self.assertEqual((profile["num_layers"], profile["num_experts"], profile["tokens"]), (8, 32, 40960))
        self.assertEqual(round(profile["layers"][4]["experts"]["max_over_mean"], 2), 1.53)
        self.assertEqual(round(profile["layers"][4]["ranks"]["max_over_mean"], 2), 1.15)
        plan = self.json("plan", "p.safetensors", "--layer", 4, "--ranks", 8, "--planner", "ep")
        self.assertEqual(round(plan["max_over_mean"], 2), 1.15)

    def test_two_traces_add_up(self):
        once = self.json("profile", TRACE, "--no-transitions")
        twice = self.json("profile", TRACE, TRACE, "--no-transitions")
        for one, two in zip(once["layers"], twice["layers"], strict=True):
            self.assertEqual(2 * one["assignments"], two["assignments"])

    def test_convert_says_what_it_found_and_the_formats(self):
        for source, name, expected in [
            (TRACE, "trace.safetensors", ("trace", "npz", "safetensors", None)),
            (RECORDINGS / "sglang_stat.pt", "p.npz", ("recording", "sglang", "npz", [1, 2, 3])),
        ]:
            converted = self.json("convert", source, name)
            self.assertEqual(list(converted)[:5], ["input", "output", "what", "from", "to"])
            self.assertEqual(tuple(converted.get(key) for key in ("what", "from", "to", "layers")), expected)

    def test_of_what_is_no_trace_tokens_and_transitions_are_not_known(self):
        tokens = self.json("profile", RECORDINGS / "sglang_per_token.pt")
        self.assertEqual((tokens["tokens"], tokens["num_layers"], tokens["num_experts"]), (5, 3, 6))
        counts = self.json("profile", RECORDINGS / "trtllm_statistics")
        self.assertEqual((counts["tokens"], counts["transitions"]), (None, False))

    def test_a_placement_is_converted_for_other_systems_and_back(self):
        rows = [[0, 3, 1, 2], [2, 3, 0, 1]]
        ours = {"format": "evenkeel.placement.v1", "num_layers": 2, "num_experts": 4, "num_ranks": 2}
        self.write("ours.json", ours | {"physical_to_logical": rows})
        layers = ["--moe-layers", "1-2", "--num-hidden-layers", 4]
        self.json("convert", "ours.json", "s.json", "--to", "sglang", *layers)
        back = self.json("convert", "s.json", "again.json", "--ranks", 2, "--moe-layers", "1,2")
        self.assertEqual((back["what"], back["from"], back["to"]), ("placement", "sglang", "evenkeel"))
        self.assertEqual(self.file("again.json")["physical_to_logical"], rows)
        self.assert_refused(["convert", "ours.json", "s.json", "--to", "nemo"], 2, "InvalidArgument", "--to")
        self.assert_refused(["convert", "s.json", "again.json"], 2, "InvalidArgument", "--ranks")

    def test_convert_refuses_what_means_nothing_for_its_input(self):
        convert, counts = ["convert", TRACE, "o.npz"], RECORDINGS / "trtllm_statistics"
        for words, message in [
            ([*convert, "--moe-layers", "3-60"], "--moe-layers: "),
            ([*convert, "--ranks", 8], "--ranks: "),
            ([*convert, "--to", "sglang"], "--to: "),
            (["profile", counts, "--as", "trace"], "--as: trace, but the file has counts"),
            (["place", TRACE, "--ranks", 2, "--as", "counts"], "--as: counts, but"),
        ]:
            with self.subTest(words=words):
                self.assert_refused(words, 2, "InvalidArgument", message)

    def test_the_trained_layer_runs_on_the_trace_it_was_recorded_with(self):
        result = self.json("run", "--trace", TRACE, "--layer", 4, "--sequences", "128:160:8", "--weights", LAYER,
                           "--ranks", 4, "--backward", "--min-segment", 32, "--repeat", 1)  # fmt: skip
        self.assertEqual(result["tokens_per_rank"], 256)
        for planner in result["planners"]:
            self.assertEqual(sum(planner["rank_loads"]), 1024 * 4)
            self.assertLessEqual(planner["max_rel_error"], 1e-5)
            self.assertIn(planner["bitwise_equal"], [True, None])

    def test_options_that_contradict_a_file_are_refused(self):
        run = ["run", "--trace", TRACE, "--ranks", 2]
        for words, parts in [
            ([], ["--layer", "0..7"]),
            (["--layer", 8], ["--layer: 8", "0..7"]),
            (["--layer", 4, "--top-k", 2], ["--top-k: 2"]),
            (["--layer", 4, "--weights", LAYER, "--hidden", 64], ["--hidden: 64"]),
            (["--layer", 4, "--tokens", 100000], ["--tokens", "0..20480"]),
            (["--layer", 4, "--sequences", "0:161"], ["160 sequences"]),
        ]:
            with self.subTest(words=words):
                self.assert_refused([*run, *words], 2, "InvalidArgument", *parts)
        self.assert_refused([*run, "--layer", 4, "--experts", 16], 3, "ParseError", "expert id")
