"""Runs docs/tutorial.md as a reader would: its commands in order in one shell, and its programs from files.

usage: tutorial.py CLONE

A python block is written to the file that its first line names, in the shell's current folder. The page's virtual
environment also sees this interpreter's packages, so torch is not downloaded again, and the paths of pip's build
requirements are known to the compiler cache.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import readme_snippets


def script(page, packages):
    """The page as one bash script."""
    lines = ["set -euo pipefail"]
    for block in readme_snippets.blocks(page):
        if block.language == "python":
            name = re.match(r"# (\w+\.py)\n", block.text)[1]
            lines.append(f"cat >{name} <<'END_OF_FILE'\n{block.text}END_OF_FILE")
        if block.language == "sh":
            lines.append(block.text)
            if "-m venv" in block.text:
                lines.append(
                    f'echo {shlex.quote(packages)} >"$(echo "$VIRTUAL_ENV"/lib/python3*/site-packages)/seen.pth"'
                )
    return "\n".join(lines) + "\n"


def check(said, work, environment):
    """Checks the page's promises: a placement that is better on other text, and steps that balance and learn."""
    words = ["evenkeel", "evaluate", "other.safetensors", "--placement", "placement.json", "--ranks", "2", "--json"]
    judged = subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, check=True)
    verdict = json.loads(judged.stdout)["verdict"]
    assert verdict["max_over_mean_after"] < verdict["max_over_mean_before"], verdict

    steps = re.findall(r"step (\d): loss ([\d.]+), at home \[(\d+), (\d+)\], computed \[(\d+), (\d+)\]", said)
    assert [step[0] for step in steps] == list("01234"), said
    assert float(steps[-1][1]) < float(steps[0][1]), steps
    for _, _, *loads in steps:
        a, b, c, d = (int(load) for load in loads)
        assert a + b == c + d, loads
        assert max(c, d) <= 1.05 * (c + d) / 2, loads  # the threshold that the page sets
    assert any(step[2] != step[4] for step in steps), "nothing moved"


def main(clone):
    packages = str(Path(__import__("torch").__file__).parents[1])
    shutil.rmtree(clone / "build/tutorial", ignore_errors=True)
    # Like a fresh shell: without the build folder's package, and without the variables of the make that runs the tests.
    environment = {
        name: os.environ[name] for name in os.environ if name not in ("PYTHONPATH", "MAKEFLAGS", "MAKELEVEL")
    }
    environment["PIP_NO_BUILD_ISOLATION"] = "0"  # this value makes pip not isolate builds
    environment = {"CC": "cc", "CXX": "c++"} | environment  # the names that CMake itself would find
    page = (clone / "docs/tutorial.md").read_text(encoding="utf-8")
    done = subprocess.run(
        ["bash", "-c", script(page, packages)],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout)
    if done.returncode != 0:
        raise SystemExit(f"docs/tutorial.md: its commands ended with {done.returncode}")
    path = f"{clone}/build/release/bin:{environment['PATH']}"
    check(done.stdout, clone / "build/tutorial/work", environment | {"PATH": path})


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
