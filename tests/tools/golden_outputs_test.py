"""tools/golden_outputs.py finds no difference between a binary and itself, and finds a difference of one digit.

usage: golden_outputs_test.py [EVENKEEL]
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "golden_outputs.py"
COMMAND = sys.argv.pop(1) if len(sys.argv) > 1 else None

# Prints 1.5 ms and 25 moves, and writes 3 to the file after -o.
STAND_IN = """#!/bin/sh
case "$*" in *--help*) printf '  -o,--output FILE\\n  --kind old|new=old\\n  --never N\\n'; exit ;; esac
case "$*" in
  *--json*) echo '{"solve_ms":1.5,"moves":25}' ;;
  *) echo 'solver fast, 1.5 ms; 25 moves' ;;
esac
echo 'a warning' >&2
while [ $# -gt 0 ]; do case $1 in -o) echo '3' >"$2" ;; esac; shift; done
exit 4
"""


class GoldenOutputs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def compare(self, before, after, only):
        words = [sys.executable, TOOL, before, after, "--only", only]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def stand_in(self, name, old="", new=""):
        path = self.folder / name
        path.write_text(STAND_IN.replace(old, new) if old else STAND_IN, encoding="utf-8")
        path.chmod(0o755)
        return path

    def compare_stand_ins(self, old="", new="", only="^place .*eplb|^place .*loads.json.* exact .*equal"):
        return self.compare(self.stand_in("before"), self.stand_in("after", old, new), only)

    def test_a_program_is_like_itself_but_for_what_is_measured(self):
        for old, new in [("", ""), ("1.5", "12.75")]:
            done = self.compare_stand_ins(old, new)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"\n[1-9]\d* commands, 0 of them differ\n\Z")

    def test_one_digit_is_found_wherever_it_is(self):
        for old, new, parts in [
            ("25", "26", ["  stdout\n", '-"moves":25}', '+"moves":26}', "-solver fast, ~; 25 moves"]),
            ("a warning", "1 warning", ["  stderr\n", "+1 warning"]),
            ("exit 4", "exit 3", ["  exit status 4 before, 3 after\n"]),
            ("'3'", "'2'", ["  q.json\n", "    -3\n    +2\n"]),
            ("'3'", "'\\377'", ["  q.json\n", "differs from byte 0 on; "]),
            ('>"$2"', '>"$2.part"', ["q.json: written only before", "q.json.part: written only after"]),
        ]:
            with self.subTest(old=old):
                done = self.compare_stand_ins(old, new)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                for part in parts:
                    self.assertIn(part, done.stdout)
                self.assertNotIn(" 0 of them differ", done.stdout)

    def test_says_which_options_and_choices_no_command_used(self):
        said = self.compare_stand_ins().stdout
        self.assertIn("3 options; never used: --kind, --never\n", said)

    @unittest.skipUnless(COMMAND, "no command was given")
    def test_the_command_is_like_itself(self):
        done = self.compare(COMMAND, COMMAND, "^plan .*loads.json --ranks 2|^run .*:spread|--version")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"\n[1-9]\d* commands, 0 of them differ\n\Z")


if __name__ == "__main__":
    unittest.main()
