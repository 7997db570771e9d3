"""The command as a process: output that cannot be written, signals, and other locales."""

import contextlib
import json
import os
import random
import re
import resource
import signal
import struct
import time
import unittest
from pathlib import Path

from command import REPOSITORY, UTF8, CommandTest

SUBCOMMANDS = ["profile", "convert", "place", "permute", "plan", "memory", "run", "bench", "demo"]
ESCAPES = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")


def write_trace(path, tokens):
    """Writes ids [tokens, 4, 4] below 64 as npy, none twice in a row, so that compressing takes long."""
    header = f"{{'descr': '|i1', 'fortran_order': False, 'shape': ({tokens}, 4, 4), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    ids = bytearray(tokens * 16)
    for place in range(4):
        sixteen = bytes(16 * place + i % 16 for i in range(256))
        ids[place::4] = random.Random(place).randbytes(tokens * 4).translate(sixteen)
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        file.write(ids)


class ProcessTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.loads = self.write("loads.json", {"loads": [9000, 500, 300, 200]})

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


class Streams(ProcessTest):
    # One error for each exit status.
    ERRORS = (
        (["plan", "nowhere.json", "--ranks", 2], 3),
        (["plan", "loads.json", "--ranks", 0], 2),
        (["convert", "loads.json", "no/such/folder.json"], 4),
    )

    def assert_outlives(self, **changes):
        for words, status in self.ERRORS:
            with self.subTest(words=words):
                done = self.call(*words, "--json", **changes)
                self.assertEqual(done.returncode, status)
                self.assertIn("message", json.loads(done.stdout)["error"])

    def test_an_error_keeps_its_status_and_its_object_where_stderr_is_full_or_closed_or_not_read(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            self.assert_outlives(stderr=full)
        self.assert_outlives(preexec_fn=lambda: os.close(2))
        for action in [signal.SIG_DFL, signal.SIG_IGN]:
            reader, writer = os.pipe()
            os.close(reader)
            self.assert_outlives(
                stderr=writer, restore_signals=False, preexec_fn=lambda a=action: signal.signal(signal.SIGPIPE, a)
            )
            os.close(writer)

    def test_what_is_closed_is_not_taken_for_a_file_that_is_written(self):
        """A process that starts with closed streams gets their descriptor numbers for the next files that it opens."""

        def close_all():
            for stream in range(3):
                os.close(stream)

        for name in ["o.json", "o.npz", "o.safetensors"]:
            self.call("convert", "loads.json", name)
            expected = (self.folder / name).read_bytes()
            for words in [["convert", "loads.json", name], ["convert", "loads.json", name, "--json"]]:
                done = self.call(*words, stdout=None, stderr=None, preexec_fn=close_all)
                self.assertEqual(done.returncode, 4)  # its result could not be printed
                self.assertEqual((self.folder / name).read_bytes(), expected)

    def test_what_cannot_be_printed_is_no_success(self):
        self.write("many.json", {"loads": [[1, 2]] * 1000})
        long = ["profile", "many.json"]
        with open("/dev/full", "w", encoding="utf-8") as full:
            for words in [["--help"], ["--version"], ["plan", "--help"], long, [*long, "--json"]]:
                done = self.call(*words, stdout=full)
                self.assertEqual(done.returncode, 4)
                self.assertRegex(done.stderr, r"\Aevenkeel: standard output: cannot be written: [^\n]+\n\Z")
        self.assertEqual(self.call("--version", preexec_fn=lambda: os.close(1)).returncode, 4)

    def test_a_reader_that_has_gone_ends_it_by_sigpipe_unless_the_parent_ignored_that(self):
        for action, status in [(signal.SIG_DFL, -signal.SIGPIPE), (signal.SIG_IGN, 4)]:
            reader, writer = os.pipe()
            os.close(reader)
            done = self.call("plan", "loads.json", "--ranks", 2, stdout=writer, restore_signals=False,
                             preexec_fn=lambda a=action: signal.signal(signal.SIGPIPE, a))  # fmt: skip
            os.close(writer)
            self.assertEqual(done.returncode, status, done.stderr)


class Printing(unittest.TestCase):
    def test_one_place_prints(self):
        """Printing elsewhere would throw at closed outputs, and pass control characters on to the terminal."""
        for path in sorted((REPOSITORY / "cli").glob("*.cpp")):
            if path.name != "output.cpp":
                found = re.findall(r"fmt::print|std::c(?:out|err)\b|\bf?printf\(|\bfputs\(", path.read_text())
                self.assertEqual(found, [], path.name)


def has_open(process, name):
    """Whether the process has a file of this name open or mapped, as far as /proc shows it."""
    opened = Path(f"/proc/{process}")
    with contextlib.suppress(OSError):
        return name in (opened / "maps").read_text() or any(
            os.readlink(file).endswith(f"/{name}") for file in (opened / "fd").iterdir()
        )
    return False


class Endings(ProcessTest):
    def is_writing(self):
        return bool(list(self.folder.glob("*.part")))

    def start_and_signal(self, words, *signs, **changes):
        """Sends the signals once the command writes; for a profile once it reads, since writing one is too short."""
        process = self.start(*words, **changes)
        begun = (lambda: has_open(process.pid, words[1])) if words[0] == "profile" else self.is_writing
        while not begun():
            self.assertIsNone(process.poll())
            time.sleep(0.001)
        for sign in signs:
            process.send_signal(sign)
        _, errors = process.communicate(timeout=60)
        return process.returncode, errors

    def test_a_signal_leaves_nothing_and_ends_it_as_ever(self):
        write_trace(self.folder / "t.npy", 1_000_000)
        write_trace(self.folder / "long.npy", 4_000_000)  # a profile reads quickly
        before = self.names()
        to_npz = ["convert", "t.npy", "--as", "trace", "o.npz"]
        for sign, words in [
            (signal.SIGHUP, to_npz),
            (signal.SIGINT, to_npz),
            (signal.SIGTERM, to_npz),
            (signal.SIGTERM, [*to_npz[:-1], "o.safetensors"]),
            (signal.SIGINT, ["profile", "long.npy", "--as", "trace", "-o", "o.json"]),
        ]:
            with self.subTest(sign=sign, words=words):
                status, errors = self.start_and_signal([*words, "--json"], sign)
                self.assertEqual(status, -sign)
                said = f"evenkeel: interrupted; {words[-1]} was not made\n"
                # A profile first checks that its file can be made, then reads, and writes at the end.
                self.assertIn(errors, ("", said) if words[0] == "profile" else (said,))
                self.assertEqual(self.names(), before)

    def test_a_signal_ends_long_reading_at_once(self):
        write_trace(self.folder / "t.npy", 2_000_000)
        for words in (["profile", "t.npy"], ["place", "t.npy", "--ranks", 2]):
            process = self.start(*words, "--as", "trace")
            time.sleep(0.1)
            begin = time.monotonic()
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(), -signal.SIGINT)
            self.assertLess(time.monotonic() - begin, 1)
            process.communicate()

    def test_signals_that_the_parent_had_ignored_stay_ignored(self):
        def ignore():
            for sign in [signal.SIGHUP, signal.SIGINT, signal.SIGTERM]:
                signal.signal(sign, signal.SIG_IGN)

        write_trace(self.folder / "t.npy", 1_000_000)
        signs = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM]
        words = ["convert", "t.npy", "o.npz", "--as", "trace"]
        status, errors = self.start_and_signal(words, *signs, preexec_fn=ignore)
        self.assertEqual(status, 0)
        self.assertIn("read as tokens,layers,k", errors)
        self.assertIn("o.npz", self.names())

    def test_a_file_above_the_size_limit_is_an_error_and_leaves_nothing(self):
        def small_files():
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100 << 10, 100 << 10))

        write_trace(self.folder / "t.npy", 100_000)
        before = self.names()
        for name in ["o.npz", "o.safetensors", "o.npy"]:
            done = self.call("convert", "t.npy", name, "--as", "trace", preexec_fn=small_files, restore_signals=False)
            self.assertEqual((done.returncode, done.stdout), (4, ""))
            self.assertEqual(done.stderr, f"evenkeel: {name}: cannot be written: File too large\n")
            self.assertEqual(self.names(), before)


class Files(ProcessTest):
    def writers(self):
        self.write("profile.json", {"loads": [[9, 5, 3, 2], [1, 2, 3, 4]], "transitions": [[[1] * 4] * 4]})
        for end in ["json", "npz", "safetensors"]:
            yield ["convert", "profile.json", f"o.{end}"]
            yield ["profile", "profile.json", "-o", f"o.{end}"]
        for form in ["evenkeel", "sglang", "vllm", "vllm-ascend", "trtllm"]:
            name = "o.yaml" if form == "trtllm" else "o.placed.json"
            yield ["place", "profile.json", "--ranks", 2, "--format", form, "--moe-layers", "0-1", "-o", name]

    def test_what_every_writer_makes_is_open_to_nobody_who_cannot_read_its_source(self):
        before = os.umask(0o022)
        self.addCleanup(os.umask, before)
        for words in self.writers():
            for umask, of_source, made in [(0o027, 0o644, 0o640), (0o022, 0o600, 0o600), (0o022, 0o755, 0o644)]:
                with self.subTest(words=words, of_source=of_source):
                    os.umask(umask)
                    (self.folder / "profile.json").chmod(of_source)
                    done = self.call(*words)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(oct((self.folder / words[-1]).stat().st_mode & 0o7777), oct(made))
                    (self.folder / words[-1]).unlink()


class Words(ProcessTest):
    def options(self, subcommand):
        """Every option that takes a value, and every positional, as --help lists them."""
        text = self.call(subcommand, "--help").stdout
        found = re.findall(r"^  (?:-\w,)?(--[\w-]+) \S", text, re.MULTILINE)
        flags = re.findall(r"^  (?:-\w,)?(--[\w-]+)  ", text, re.MULTILINE)
        positionals = re.findall(r"^  ([A-Z]+) ", text, re.MULTILINE)
        return [option for option in found if option not in flags], positionals

    def test_an_empty_value_is_refused_by_every_option(self):
        for subcommand in SUBCOMMANDS:
            options, positionals = self.options(subcommand)
            self.assertGreater(len(options), 1)
            for option in options:
                with self.subTest(subcommand=subcommand, option=option):
                    self.assert_refused([subcommand, option, ""], 2, "InvalidArgument", f"{option}: ''; allowed: ")
            self.assert_refused([subcommand, f"{option}="], 2, "InvalidArgument", f"'{option}=' has no value")
            if positionals:
                words = [subcommand, *[""] * len(positionals)]
                self.assert_refused(words, 2, "InvalidArgument", "''; allowed: the name of a f")

    def test_a_word_that_is_nearly_known_gets_a_suggestion(self):
        self.write("p.json", {"loads": [[9, 5, 3, 2]]})
        for words, meant in (
            (["plcae", "p.json"], "place"),
            (["plan", self.loads, "--rnaks", 2], "--ranks"),
            (["plan", self.loads, "--rank=2"], "--ranks"),
            (["run", "--scenario", "balanced", "--planner", "ep,leastloaded"], "least-loaded"),
            (["place", "p.json", "--ranks", 2, "-o", "o", "--format", "sgland"], "sglang"),
            (["convert", "p.json", "o.json", "--as", "Counts"], "counts"),
            (["run", "--scenario", "concentratd:0.9:1", "--ranks", 2], "concentrated"),
        ):
            with self.subTest(words=words):
                error = self.assert_refused(words, 2, "InvalidArgument", f"did you mean '{meant}'?")
                self.assertNotIn("did you mean", error["why"] + error["allowed"])

    def test_a_word_that_is_far_from_all_gets_none(self):
        for words in (["frob"], ["plan", self.loads, "--wxyz"], ["plan", self.loads, "--planner", "best"]):
            self.assertNotIn("did you mean", self.call(*words).stderr)


class Names(ProcessTest):
    EVIL = "\x1b]0;owned\x07\x1b[31m\x9b31m\u202e"

    def assert_harmless(self, done):
        for text in [done.stdout, done.stderr]:
            self.assertIsNone(ESCAPES.search(text), text)
            self.assertNotIn("\u202e", text)
        self.assertLess(len(done.stderr.encode()), 1100)

    def test_no_escape_sequence_of_a_file_reaches_a_terminal(self):
        twice = json.dumps(self.EVIL)
        (self.folder / "e.json").write_text(f"{{{twice}: 1, {twice}: 1}}")
        for form in [[], ["--json"]]:
            done = self.call("profile", "e.json", *form)
            self.assertEqual(done.returncode, 3)
            self.assert_harmless(done)
        shown = "e.json: \\x1b]0;owned\\x07\\x1b[31m\\u009b31m\\u202e: is given twice"
        error = self.assert_refused(["plan", "e.json", "--ranks", 2], 3, "ParseError", shown)
        self.assertEqual(error["where"], self.EVIL)  # the error's data are not escaped

    def test_names_in_results_and_notes_are_harmless_too(self):
        self.write("p.json", {"loads": [[9, 5, 3, 2], [1, 2, 3, 4]], "transitions": [[[1] * 4] * 4]})
        for words in (["convert", "p.json", f"{self.EVIL}.json"], ["profile", "p.json", "-o", f"{self.EVIL}.json"],
                      ["place", "p.json", "--ranks", 2, "-o", self.EVIL]):  # fmt: skip
            done = self.call(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assert_harmless(done)
            self.assert_harmless(self.call(*words, "--json"))

    def test_a_name_makes_no_line_of_its_own(self):
        name = "x\nevenkeel: forged\t.json"
        self.write(name, {"loads": [[9, 5, 3, 2], [1, 2, 3, 4]], "transitions": [[[1] * 4] * 4]})
        self.assertEqual(self.call("place", name, "--ranks", 2, "-o", f"placed {name}").returncode, 0)
        for words in (["convert", name, f"o {name}"], ["profile", name, "-o", f"o {name}"],
                      ["place", name, name, "--ranks", 2, "--judge", name, "-o", f"o {name}"],
                      ["place", name, "--ranks", 2, "--from", f"placed {name}", "--max-moves", 1],
                      ["evaluate", name, "--placement", f"placed {name}", "--ranks", 2],
                      ["plan", name, "--ranks", 2, "--layer", 0]):  # fmt: skip
            with self.subTest(words=words):
                done = self.call(*words)
                self.assertEqual(done.returncode, 0, done.stderr)
                for line in (done.stdout + done.stderr).splitlines():
                    self.assertFalse(line.startswith("evenkeel: forged"), done.stdout)
                    self.assertNotIn("\t", line)
                json.loads(self.call(*words, "--json").stdout)

    def test_no_message_about_words_is_longer_than_a_screen(self):
        for words in (["x" * 100000], ["plan", "--" + "y" * 100000], ["plan", self.loads, "--planner", "z" * 100000]):
            self.assertLess(len(self.call(*words).stderr), 1100)


class Locales(ProcessTest):
    def pictures(self, env):
        self.write("p.json", {"loads": [[9, 5, 3, 2]] * 2, "transitions": [[[9, 5, 3, 2]] * 4]})
        small = ["--tokens", 64, "--hidden", 16, "--intermediate", 16, "--experts", 4, "--top-k", 1, "--repeat", 1]
        for words in (
            ["plan", self.loads, "--ranks", 2],
            ["place", "p.json", "--ranks", 4, "--nodes", 2],
            ["run", "--scenario", "balanced", "--ranks", 2, *small],
        ):
            done = self.call(*words, env=env, text=False)
            if b"no subcommand" in done.stderr:
                continue  # a build without the layer
            self.assertEqual(done.returncode, 0, done.stderr)
            yield words, done.stdout

    def test_pictures_are_ascii_where_the_locale_is_not_utf8(self):
        drawn = {words[0]: picture.decode() for words, picture in self.pictures(UTF8)}
        plain = {words[0]: picture.decode("ascii") for words, picture in self.pictures(UTF8 | {"LC_ALL": "C"})}
        for subcommand, picture in plain.items():
            self.assertRegex(drawn[subcommand], "[█▁-▇]")
            self.assertNotIn("\\x", picture)
            self.assertIn("#", picture)
        self.assertEqual(drawn["place"].count("█"), plain["place"].count("#"))

    def test_the_first_variable_that_is_set_says_it(self):
        names = {name: value for name, value in os.environ.items() if not name.startswith("LC_") and name != "LANG"}
        for changes, utf8 in (
            ({}, False),
            ({"LANG": "C.UTF-8"}, True),
            ({"LANG": "C.UTF-8", "LC_CTYPE": "C"}, False),
            ({"LANG": "C", "LC_ALL": "C.utf8"}, True),
            ({"LANG": "xx_YY.UTF-8"}, True),  # a locale that is not installed, as in most containers
        ):
            done = self.call("plan", self.loads, "--ranks", 2, env=names | changes, text=False)
            self.assertEqual("█".encode() in done.stdout, utf8, changes)

    def test_a_name_that_the_locale_cannot_show_is_shown_as_numbers(self):
        done = self.call("plan", "é.json", "--ranks", 2, env=UTF8 | {"LC_ALL": "C"}, text=False)
        self.assertIn(rb"\xc3\xa9.json: cannot be opened", done.stderr)
