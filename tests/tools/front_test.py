"""What developers call: make installs and finds HiGHS if wanted; lint checks every file and reports its findings."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


class Front(unittest.TestCase):
    """A folder with the repository's Makefile and tools, and stand-ins for the programs that they call."""

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
        """Whether `make build` configures."""
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

    @unittest.skipUnless(shutil.which("make"), "make is missing")
    def test_highs_is_set_up_for_the_tests_before_they_are_configured_and_not_for_the_demo(self):
        shutil.copy(REPOSITORY / "Makefile", self.folder)
        for tool in ["tools/setup.sh", "tools/demo.sh", "stand-ins/ctest"]:
            self.stand_in(tool)
        self.stand_in("stand-ins/cmake", "mkdir -p build/release")
        self.assertEqual(self.call("make", "demo").returncode, 0)
        self.assertNotIn("highs", self.calls.read_text())
        shutil.rmtree(self.folder / "build")
        self.assertEqual(self.call("make", "--jobs", "4", "test").returncode, 0)
        calls = self.calls.read_text().splitlines()
        self.assertLess(calls.index("setup.sh highs"), calls.index("cmake --preset release"))

    def test_wheels_say_which_python_is_missing(self):
        shutil.copy(REPOSITORY / "tools" / "wheel.sh", self.folder / "tools")
        for version in ["", ".11", ".12", ".13", ".14", ".15"]:
            self.stand_in(f"stand-ins/python3{version}", "exit 1")
        done = self.call("env", "PYENV_ROOT=/nowhere", "tools/wheel.sh")
        self.assertEqual(done.returncode, 1)
        self.assertIn("no Python 3.11 with headers here", done.stdout)
        self.assertIn("no Python 3.12 or later with headers here", done.stdout)
        self.assertIn("no Python to build for", done.stderr)

    def lint(self):
        return self.call("tools/lint.sh")

    def sources(self, **texts):
        """Writes sources to be linted, by name, with the same compile command."""
        for tool in ["lint.sh", "tidy.py"]:
            shutil.copy(REPOSITORY / "tools" / tool, self.folder / "tools")
        for check in ["check_includes.py", "check_reads.py", "draw_folders.py", "sentence_lengths.py"]:
            self.stand_in(f"tools/{check}")
        self.stand_in("stand-ins/clang-format-16")
        self.stand_in("stand-ins/cmake")
        (self.folder / "build" / "tools" / "bin").mkdir(parents=True)
        (self.folder / "build" / "lint").mkdir()
        for tool in ["clang-tidy", "ruff"]:
            self.stand_in(f"build/tools/bin/{tool}")
        (self.folder / "cli").mkdir()
        commands = []
        for name, text in texts.items():
            source = self.folder / "cli" / f"{name}.cpp"
            source.write_text(text)
            command = f"c++ -O2 -Werror -o {name}.o -c {source}"
            commands.append({"directory": str(self.folder), "file": str(source), "command": command})
        self.commands = self.folder / "build" / "lint" / "compile_commands.json"
        self.commands.write_text(json.dumps(commands))
        self.call("git", "init", "--quiet")

    def tidied(self):
        """The arguments of clang-tidy's calls, sorted."""
        calls = self.calls.read_text().splitlines()
        return sorted(call.removeprefix("clang-tidy ") for call in calls if call.startswith("clang-tidy "))

    @unittest.skipUnless(shutil.which("git"), "git is missing")
    def test_lint_is_not_clean_where_nothing_says_how_sources_are_compiled(self):
        self.sources(main="")
        self.commands.unlink()
        done = self.lint()
        self.assertEqual(done.returncode, 1)
        self.assertIn("build/lint/compile_commands.json is missing", done.stderr)
        self.assertIn("not clean: clang-tidy", done.stderr)

    @unittest.skipUnless(shutil.which("git"), "git is missing")
    def test_lint_is_not_clean_where_sources_are_written_down_as_one(self):
        self.sources(main="")
        together = {"directory": str(self.folder), "file": "/any/Unity/unity_0_cxx.cxx", "command": "c++"}
        self.commands.write_text(json.dumps([together]))
        done = self.lint()
        self.assertEqual(done.returncode, 1)
        self.assertIn("has sources compiled together", done.stderr)

    @unittest.skipUnless(shutil.which("git"), "git is missing")
    def test_lint_names_the_tool_that_is_missing(self):
        self.sources(main="")
        (self.folder / "build" / "tools" / "bin" / "clang-tidy").unlink()
        done = self.lint()
        self.assertEqual(done.returncode, 1)
        self.assertIn("clang-tidy is missing; tools/setup.sh lint installs it", done.stderr)

    @unittest.skipUnless(shutil.which("git"), "git is missing")
    def test_sources_are_tidied_together_but_for_those_that_define_one_type(self):
        self.sources(run="struct Options {};", plan="struct Options {};", main="struct Later;")
        done = self.lint()
        self.assertEqual(done.returncode, 0, done.stderr)
        together, alone = self.tidied()
        self.assertEqual(alone, "--quiet cli/run.cpp -- -O2")
        self.assertRegex(together, r"--quiet build/\w+/group\d+\.cpp -- -O2")

    @unittest.skipUnless(shutil.which("git"), "git is missing")
    def test_lint_shows_a_finding_once_as_its_file_alone_has_it(self):
        self.sources(first="", second="")
        self.stand_in("build/tools/bin/clang-tidy", 'case "$2" in *first*) ;; *) echo "found in $2"; exit 1 ;; esac')
        done = self.lint()
        self.assertEqual(done.returncode, 1)
        self.assertIn("not clean: clang-tidy", done.stderr)
        self.assertEqual(done.stdout.count("found in"), 1)
        self.assertIn("found in cli/second.cpp", done.stdout)
