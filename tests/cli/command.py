"""Runs the command under test, whose path is the first argument of the test program."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND = Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else Path("build/release/bin/evenkeel").resolve()
REPOSITORY = Path(__file__).resolve().parent.parent.parent


class CommandTest(unittest.TestCase):
    """Each test has a folder of its own, where the command runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def call(self, *words):
        return subprocess.run([COMMAND, *map(str, words)], cwd=self.folder, capture_output=True, text=True, check=False)

    def json(self, *words):
        done = self.call(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return json.loads(done.stdout)

    def write(self, name, value):
        (self.folder / name).write_text(json.dumps(value), encoding="utf-8")
        return name

    def assert_refused(self, words, status, error_type, *parts):
        """The exit status, one line on stderr that has all parts, and with --json the error as an object."""
        done = self.call(*words)
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertRegex(done.stderr, r"\Aevenkeel: [^\n]+\n\Z")
        for part in parts:
            self.assertIn(part, done.stderr)
        done = self.call(*words, "--json")
        self.assertEqual(done.returncode, status)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["type"], error_type)
        self.assertEqual(f"evenkeel: {error['message']}\n", done.stderr)
        return error
