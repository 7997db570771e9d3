"""Every error gives one line on stderr, an object on stdout with --json, and the exit status of its kind."""

import json
import shutil

from command import REPOSITORY, CommandTest

RECORDINGS = REPOSITORY / "tests" / "io" / "data"


class Errors(CommandTest):
    def setUp(self):
        super().setUp()
        self.loads = self.write("loads.json", {"loads": [9000, 500, 300, 200]})

    def assert_usage(self, words, *parts):
        return self.assert_refused(words, 2, "InvalidArgument", *parts)

    def test_an_unknown_option_or_word_is_named(self):
        self.assert_usage(["plan", self.loads, "--ranks", 2, "--foo"], "'--foo' not expected", "evenkeel plan --help")
        self.assert_usage(["plan", self.loads, "more", "--ranks", 2], "'more' not expected")
        self.assert_usage(["frob"], "no subcommand 'frob'", "plan")
        alone = self.call()
        self.assertEqual((alone.returncode, alone.stdout), (2, ""))
        self.assertIn("subcommand", alone.stderr)

    def test_numbers_that_are_none_or_out_of_range_name_the_option_and_what_it_takes(self):
        for option, values in [
            ("--ranks", ["0", "2x", "99999999999999999999"]),
            ("--min-segment", ["-1"]),
            ("--capacity-factor", ["0.9", "1.0001"]),
            ("--imbalance-threshold", ["-1", "nan"]),
            ("--planner", ["best", "ep,level"]),
        ]:
            for value in values:
                words = ["plan", self.loads, option, value, *([] if option == "--ranks" else ["--ranks", 2])]
                error = self.assert_usage(words, f"{option}: '{value}'", "allowed: ")
                self.assertEqual(error["argument"], option)
        for subcommand, more in [("plan", []), ("place", []), ("profile", []), ("convert", ["o"])]:
            words = [subcommand, self.loads, *more, "--ranks", 65537]
            self.assert_usage(words, "--ranks: '65537'", "allowed: a whole number in 1..65536")

    def test_options_that_would_be_ignored_are_refused(self):
        self.write("profile.json", {"loads": [[9000, 500, 300, 200]]})
        self.json("place", "profile.json", "--ranks", 2, "-o", "p.json")
        small = ["--ranks", 2, "--tokens", 4, "--hidden", 16, "--intermediate", 16, "--experts", 4]
        for words, parts in [
            (["plan", self.loads, "--ranks", 2, "--ranks", 3], ["--ranks"]),
            (["plan", self.loads, "--ranks", 2, "--layer", 3], ["--layer: 3", "one layer"]),
            (["plan", self.loads, "--placement", "p.json", "--layer", 3], ["--layer: 3", "one layer"]),
            (["run", "--scenario", "balanced", "--layer", 0, *small], ["--layer", "but neither is given"]),
            (["run", "--scenario", "balanced", "--sequences", "0:1", *small], ["--sequences"]),
            (["run", "--scenario", "balanced", "--trace", "t.npz", *small], ["cannot be combined with --trace"]),
            (["run", *small], ["--scenario", "--trace"]),
            (["run", "--scenario", "balanced", "--planner", "level,level", *small], ["'level' twice"]),
            (["bench", "--ablation", "tokens", "--scenarios", "balanced"], ["--scenarios"]),
        ]:
            with self.subTest(words=words):
                self.assert_usage(words, *parts)

    def test_an_option_without_its_value_does_not_take_the_next_option_for_it(self):
        place = ["place", self.loads, "--ranks", 2]
        for words in ([*place, "-o"], [*place, "--judge"], ["plan", self.loads, "--ranks"]):
            done = self.call(*words, "--json")
            self.assertEqual(done.returncode, 2)
            self.assertIn("has no value before --json", json.loads(done.stdout)["error"]["message"])
        self.assertFalse((self.folder / "--json").exists())

    def test_without_json_the_line_on_stderr_is_all_that_is_printed(self):
        for words, status in [
            (["frob"], 2),
            (["plan", self.loads, "--ranks", 0], 2),
            (["place", self.loads, "--ranks", 2, "--redundant-experts", 5], 4),
            (["profile", "nowhere.json"], 3),
            (["convert", self.loads, "nowhere/x.json"], 4),
        ]:
            with self.subTest(words=words):
                plain, as_object = self.call(*words), self.call(*words, "--json")
                self.assertEqual((plain.returncode, plain.stdout), (status, ""))
                self.assertEqual(plain.stderr, as_object.stderr)
                self.assertRegex(plain.stderr, r"\Aevenkeel: [^\n]+\n\Z")

    def test_a_result_is_not_written_over_a_file_that_is_read(self):
        self.json("place", self.loads, "--ranks", 2, "-o", "p.json")
        self.write("config.json", {"num_experts": 4, "num_hidden_layers": 1})
        self.write("cost.json", {})
        folder = shutil.copytree(RECORDINGS / "trtllm_statistics", self.folder / "statistics")
        (self.folder / "link.json").symlink_to(self.loads)
        (self.folder / "hard.json").hardlink_to(self.folder / self.loads)
        before = {path: path.read_bytes() for path in self.folder.glob("**/*") if path.is_file()}
        place = ["place", self.loads, "--ranks", 2, "-o"]
        for argument, words in [
            ("--output", [*place, f"./{self.loads}"]),
            ("--output", [*place, "p.json", "--judge", "p.json"]),
            ("--output", [*place, "config.json", "--model", "."]),
            ("--output", [*place, "cost.json", "--model", ".", "--cost", "cost.json", "--tokens-per-step", 8]),
            ("--output", ["place", self.loads, "--topology", "p.json", "-o", "p.json"]),
            ("--output", ["profile", self.loads, "-o", f"./{self.loads}"]),
            ("--output", ["profile", folder, "-o", next(folder.glob("rank*"))]),
            ("output", ["convert", self.loads, self.folder / self.loads]),
            ("output", ["convert", self.loads, "link.json"]),
            ("output", ["convert", "link.json", "hard.json"]),
            ("output", ["convert", self.loads, "config.json", "--model", "."]),
        ]:
            with self.subTest(words=words):
                self.assert_usage(words, f"{argument}: ", "is a file that is read")
        after = {path: path.read_bytes() for path in self.folder.glob("**/*") if path.is_file()}
        self.assertEqual(after, before)

    def test_a_wrong_parameter_is_no_misspelt_word(self):
        error = self.assert_usage(["run", "--scenario", "concentrated:0.95", "--ranks", 2], "concentrated:F:N")
        self.assertNotIn("did you mean", str(error))

    def test_what_the_library_refuses_about_an_option_is_usage_in_the_words_typed(self):
        run = ["run", "--ranks", 2, "--tokens", 4, "--hidden", 16, "--intermediate", 16, "--scenario"]
        for words, parts in [
            ([*run, "frob"], ["--scenario: ", "no such workload"]),
            ([*run, "balanced", "--experts", 2, "--top-k", 3], ["--top-k"]),
            ([*run, "balanced", "--activation", "relu"], ["--activation", "swiglu"]),
            ([*run, "balanced", "--dtype", "f16"], ["--dtype: 'f16'", "bf16"]),
            (["convert", self.loads, "loads.txt"], ["output", ".safetensors"]),
        ]:
            with self.subTest(words=words):
                self.assert_usage(words, *parts)

    def test_inputs_that_are_wrong_name_the_file(self):
        error = self.assert_refused(["plan", "nowhere.json", "--ranks", 2], 3, "ParseError", "nowhere.json")
        self.assertEqual(error["file"], "nowhere.json")
        self.assert_refused(["run", "--trace", self.loads, "--ranks", 2], 3, "ParseError", self.loads)

    def test_help_and_version_succeed_and_help_shows_a_command_to_paste(self):
        self.assertRegex(self.call("--version").stdout, r"\Aevenkeel \d+\.\d+\.\d+\n\Z")
        for subcommand in ["profile", "convert", "plan", "run", "bench", "demo"]:
            done = self.call(subcommand, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn(f"  evenkeel {subcommand} ", done.stdout)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 120)
