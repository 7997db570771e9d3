"""evenkeel run under a budget: planners keep to it, a budget below the least is refused, and results do not change."""

from command import CommandTest

SMALL = ["--hidden", 48, "--intermediate", 40, "--min-segment", 4, "--repeat", 1, "--imbalance-threshold", 1.3]
SKEWED = ["run", "--scenario", "concentrated:0.95:1", "--ranks", 4, "--tokens", 192, "--experts", 16, *SMALL]
COST = {"format": "evenkeel.cost.v1", "flops_per_second": 1e11, "weight_bytes_per_second": 1e10,
        "link_bytes_per_second": 5e9, "chunk_seconds": 5e-5}  # fmt: skip


class Budget(CommandTest):
    def run_skewed(self, *words, most_error=1e-5):
        result = self.json(*SKEWED, *words)
        for planner in result["planners"]:
            with self.subTest(words=words, planner=planner["planner"]):
                self.assertLessEqual(planner["max_rel_error"], most_error)
                self.assertIn(planner["bitwise_equal"], [True, None])
                if result["budget"] is not None:
                    self.assertLessEqual(max(planner["peak_bytes"]), result["budget"])
        return result

    def figures(self, result, name):
        return [planner[name] for planner in result["planners"]]

    def test_without_a_budget_a_step_is_one_chunk_and_nothing_is_computed_again(self):
        for words in [[], ["--backward"], ["--backward", "--recompute", "none"], ["--chunks", "exact"]]:
            result = self.run_skewed(*words)
            self.assertIsNone(result["budget"])
            self.assertGreater(result["least_budget"], 0)
            self.assertEqual(result["chunks"], "exact")
            self.assertEqual(self.figures(result, "chunks"), [1, 1, 1])
            self.assertEqual(self.figures(result, "recomputed_fraction"), [0, 0, 0])

    def test_the_least_budget_runs_every_planner_in_chunks_and_one_byte_less_is_refused(self):
        words = ["--dtype", "bf16", "--backward"]
        least = self.run_skewed(*words, most_error=3e-2)["least_budget"]
        tight = self.run_skewed(*words, "--budget", least, most_error=3e-2)
        self.assertEqual((tight["budget"], tight["least_budget"]), (least, least))
        self.assertEqual(self.figures(tight, "reason"), ["nothing moves", "ep: no memory", "ep: no memory"])
        self.assertEqual(self.figures(tight, "recomputed_fraction"), [1] * 3)
        refused = self.assert_refused([*SKEWED, *words, "--budget", least - 1], 4, "BudgetTooSmall")
        self.assertEqual((refused["given"], refused["least"]), (least - 1, least))

    def test_chunks_are_as_many_as_asked_for_or_one_of_the_bins(self):
        for count in [1, 2, 7]:
            result = self.run_skewed("--chunks", count)
            self.assertEqual(result["chunks"], count)
            self.assertEqual(self.figures(result, "chunks"), [count] * 3)
        result = self.run_skewed("--chunks", "mact", "--bins", "1,5,25", "--budget", "600KiB")
        self.assertEqual(result["chunks"], "mact")
        self.assertEqual(self.figures(result, "chunks"), [5, 1, 1])

    def test_costs_change_the_way_but_no_number(self):
        least = self.run_skewed("--backward", "--planner", "ep")["least_budget"]
        words = ["--backward", "--budget", 10 * least, "--cost", "cost.json", "--planner", "level"]
        # With slow links nothing is borrowed, and chunks relieve the fullest rank; with fast links, weights travel.
        for link, borrows in [(1.0, False), (1e15, True)]:
            self.write("cost.json", {**COST, "link_bytes_per_second": link})
            made = self.run_skewed(*words)["planners"][0]
            self.assertEqual(made["transfers"] > 0, borrows)
            self.assertEqual(made["reason"], "as planned" if borrows else "ep: faster")

    def test_a_file_of_costs_that_is_none_is_refused_with_the_key(self):
        self.write("cost.json", COST | {"chunk_seconds": "fast"})
        error = self.assert_refused(
            [*SKEWED, "--budget", "1.5MiB", "--cost", "cost.json"], 3, "ParseError", "cost.json"
        )
        self.assertEqual((error["file"], error["where"]), ("cost.json", "chunk_seconds"))

    def test_what_has_no_meaning_is_refused(self):
        for words, message in [
            (["--bins", "1,2"], "--bins: applies only to --chunks mact"),
            (["--chunks", "mact", "--bins", "4,2"], "--bins: '4,2'; allowed: chunk counts in ascending order"),
            (["--chunks", "mact", "--bins", "0,2"], "--bins: '0'"),
            (["--chunks", "0"], "--chunks: '0'"),
            (["--chunks", "many"], "--chunks: 'many'; allowed: exact, mact, or a whole number"),
            (["--recompute", "some"], "--recompute: 'some'; allowed: none, whole, chunk, auto"),
            (["--recompute", "chunk"], "--recompute: 'chunk', but without --backward nothing is computed again"),
            (["--budget", "lots"], '--budget: "lots" is not a size'),
            (["--cost", "cost.json"], "--cost: has no effect here"),
        ]:
            with self.subTest(words=words):
                self.assert_refused([*SKEWED, *words], 2, "InvalidArgument", message)

    def test_people_see_the_budget_the_least_the_chunks_and_what_was_computed_again(self):
        text = self.shown(*SKEWED, "--backward", "--budget", "1.5MiB")
        self.assertRegex(text, r"budget 1\.5 MiB a rank \(least budget .+ KiB\), chunks exact, recompute auto\n")
        self.assertRegex(text, r"\n  chunks +\d+ +\d+ +\d+\n  recomputed +\d+ % +\d+ % +\d+ %\n")
        plain = self.call(*SKEWED).stdout
        self.assertNotIn("budget", plain)
        self.assertNotIn("recomputed", plain)
