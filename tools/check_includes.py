#!/usr/bin/env python3
"""Checks what the compiler does not: include directions, includes of public headers, and the length of files.

usage: tools/check_includes.py [ROOT]
"""

import re
import sys
from pathlib import Path

# The folders that each folder of evenkeel/ may include. It may also include whatever these may include.
MAY_INCLUDE = {
    "base": "",
    "device": "base",
    "routing": "base",
    "topology": "base",
    "model": "base",
    "plan": "routing topology",
    "placement": "plan cost model",
    "balance": "plan cost",
    "cost": "topology",
    "training_memory": "model",
    "serving_memory": "placement training_memory",
    "budget": "plan cost",
    "step": "balance budget training_memory",
    "sim": "step placement",
    "io": "plan cost model",
    "comm": "device",
    "exchange": "plan comm",
    "compute": "device",
    "layer": "exchange compute step",
    "study": "layer io placement",
    "report": "sim study serving_memory",
}

# cuda/ folders and comm/nccl may also include device/ and device/cuda/, and what those two may include. No other folder
# includes files of a cuda/ folder or of comm/nccl.
CUDA_MAY_INCLUDE = "device"

# Libraries that public headers must not include; sources may.
THIRD_PARTY = re.compile(
    r"(fmt/|nlohmann/|oneapi/|dnnl|zip\.h|zlib\.h|CLI/|mpi\.h|omp\.h|gtest/|gmock/|benchmark/|cuda|nccl|cutlass/|cute/)"
)

MOST_LINES = 600

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]')


def reached(folder, includes):
    """All folders that `folder` includes directly or through others, by `includes`, and `folder` itself."""
    reach, open_ends = set(), [folder]
    while open_ends:
        name = open_ends.pop()
        if name not in reach:
            reach.add(name)
            open_ends += includes.get(name, ())
    return reach


def permitted(folder):
    return reached(folder, {name: others.split() for name, others in MAY_INCLUDE.items()})


def sources(root, *folders):
    for folder in folders:
        yield from sorted(
            path for path in (root / folder).rglob("*") if path.suffix in {".h", ".inl", ".cpp", ".cu", ".cuh", ".py"}
        )


def is_cuda(path):
    return Path(path).parts[2:3] in {("cuda",), ("nccl",)}


def is_internal(path):
    return "internal" in Path(path).parts


class Finder:
    """Collects the problems of a source tree, each as `file:line: sentence`."""

    def __init__(self, root):
        self.root = root
        self.problems = []

    def run(self):
        for path in sources(self.root, "evenkeel", "cli", "examples", "benchmarks"):
            self.check_source(path.relative_to(self.root), path.read_text(encoding="utf-8").splitlines())
        for path in sources(self.root, "evenkeel", "cli", "examples", "tests", "benchmarks", "python", "tools"):
            self.check_length(path.relative_to(self.root), len(path.read_text(encoding="utf-8").splitlines()))
        return self.problems

    def report(self, path, line, sentence):
        self.problems.append(f"{path}:{line}: {sentence}")

    def check_length(self, path, lines):
        if lines > MOST_LINES:
            self.report(path, lines, f"{lines} lines, and {MOST_LINES} is the most; split it by concept")

    def check_source(self, path, lines):
        if path.parts[0] == "evenkeel" and path.parts[1] not in MAY_INCLUDE:
            self.report(path, 1, f"MAY_INCLUDE of tools/check_includes.py has no entry for evenkeel/{path.parts[1]}")
            return
        is_header = path.suffix in {".h", ".cuh"}
        if is_header and not any(line.strip() == "#pragma once" for line in lines):
            self.report(path, 1, "a header without #pragma once")
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if found:
                self.check_include(path, number, found[1])

    def check_include(self, path, number, included):
        is_public = path.parts[0] == "evenkeel" and path.suffix == ".h" and not is_internal(path)
        if is_public and THIRD_PARTY.match(included):
            self.report(path, number, f"a public header includes <{included}>; third-party types stay in sources")
        if not included.startswith("evenkeel/"):
            return
        if not (self.root / included).exists():
            self.report(path, number, f"there is no {included}")
        self.check_direction(path, number, included)
        if is_internal(included):
            self.check_internal(path, number, Path(included), is_public)

    def check_direction(self, path, number, included):
        if path.parts[0] != "evenkeel":
            return
        folder, other = path.parts[1], Path(included).parts[1]
        reach = permitted(folder)
        if is_cuda(path):
            reach |= permitted(CUDA_MAY_INCLUDE)
        elif is_cuda(included):
            self.report(path, number, f"{included} is only for sources that need a GPU; {path} does not")
        if other not in reach:
            allowed = ", ".join(sorted(reach - {folder})) or "nothing"
            self.report(path, number, f"{folder} may not include {other} (it may include {allowed})")

    def check_internal(self, path, number, included, is_public):
        owner = Path(*included.parts[: included.parts.index("internal")])
        if owner not in path.parents:
            self.report(path, number, f"{included} is internal to {owner}")
        elif is_public:
            self.report(path, number, f"a public header includes {included}, which is not installed")


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    problems = Finder(root).run()
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
