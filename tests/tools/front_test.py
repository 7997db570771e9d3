"""The front that people call: make finds HiGHS when it comes later, and lint is not clean where it has not looked."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


class Front(unittest.TestCase):
    """A folder with the Makefile and tools of the repository, and stand-ins for what they call."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.calls = self.folder / "calls"
        for name in ["tools", "stand-ins"]:
            (self.folder / name).mkdir()

    def stand_in(self, name, script="true"):
        path = self.folder / name
        path.write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >> "{self.calls}"\n{script}\n')
        path.chmod(0o755)

    def call(self, *words):
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "EVENKEEL"))}
        environment["PATH"] = f"{self.folder / 'stand-ins'}:{environment['PATH']}"
        self.calls.write_text("")
        return subprocess.run(words, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def configured(self):
        """Whether a build configures."""
        done = self.call("make", "build")
        self.assertEqual(done.returncode, 0, done.stderr)
        return "cmake --preset release\n" in self.calls.read_text()

    @unittest.skipUnless(shutil.which("make"), "make is missing")
    def test_the_build_is_configured_again_when_highs_comes_and_when_it_goes(self):
        shutil.copy(REPOSITORY / "Makefile", self.folder)
        self.stand_in("tools/setup.sh")
        self.stand_in("stand-ins/cmake", "mkdir -p build/release")
        self.assertTrue(self.configured())
        self.assertFalse(self.configured())
        found = self.folder / "build" / "highs" / "lib" / "cmake" / "highs" / "highs-config-version.cmake"
        found.parent.mkdir(parents=True)
        found.write_text("")
        os.utime(found, (0, 0))
        self.assertTrue(self.configured())
        self.assertFalse(self.configured())
        shutil.rmtree(self.folder / "build" / "highs")
        self.assertTrue(self.configured())
        self.assertFalse(self.configured())

    @unittest.skipUnless(shutil.which("git"), "git is missing")
    def test_lint_is_not_clean_where_nothing_says_how_sources_are_compiled(self):
        shutil.copy(REPOSITORY / "tools" / "lint.sh", self.folder / "tools")
        self.stand_in("tools/check_includes.py")
        for name in ["clang-format-16", "clang-tidy-16", "ruff"]:
            self.stand_in(f"stand-ins/{name}")
        (self.folder / "cli").mkdir()
        (self.folder / "cli" / "main.cpp").write_text("")
        self.call("git", "init", "--quiet")
        done = self.call("tools/lint.sh")
        self.assertEqual(done.returncode, 1)
        self.assertIn("build/release/compile_commands.json is missing", done.stderr)
        self.assertIn("not clean: clang-tidy", done.stderr)
        commands = self.folder / "build" / "release" / "compile_commands.json"
        commands.parent.mkdir(parents=True)
        commands.write_text(f'[{{"file": "{self.folder}/cli/main.cpp"}}]')
        done = self.call("tools/lint.sh")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("clang-tidy-16 --quiet -p build/lint cli/main.cpp", self.calls.read_text())


if __name__ == "__main__":
    unittest.main()
