#!/usr/bin/env python3
"""Runs clang-tidy over sources in groups, so that each group reads the headers only once.

usage: tools/tidy.py CLANG_TIDY COMPILE_COMMANDS FILE...

Reading the headers takes most of clang-tidy's time, so sources of one folder with equal compile flags are checked as
one unit. Files that define types of the same name go into different groups. A group with findings is checked again file
by file, and only those findings count. Files without a compile command are left out.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

GROUP = 12

# Flags to drop: those for precompiled headers, which clang cannot read, for the compiler's output, and for
# warnings.
LEFT_OUT = {"-Winvalid-pch", "-fpch-preprocess", "-c", "-Werror", "-Wshadow"}
LEFT_OUT_WITH_VALUE = {"-include", "-o"}


def flags_of(command, source):
    words = iter(shlex.split(command)[1:])
    flags = []
    for word in words:
        if word in LEFT_OUT_WITH_VALUE:
            next(words)
        elif word not in LEFT_OUT and not word.endswith(source):
            flags.append(word)
    # g++'s omp.h, since clang-tidy's package lacks clang's own.
    return (*flags, *(["-idirafter", os.path.dirname(omp_header())] if "-fopenmp" in flags else []))


def omp_header():
    return subprocess.run(["g++", "-print-file-name=include/omp.h"], capture_output=True, text=True).stdout.strip()


def groups_of(database, wanted):
    alike = defaultdict(set)
    for entry in database:
        source = os.path.relpath(os.path.join(entry["directory"], entry["file"]))
        if source in wanted:
            alike[os.path.dirname(source), flags_of(entry["command"], source)].add(source)
    for (_, flags), sources in alike.items():
        for group in without_clashes(sorted(sources)):
            yield flags, group


TYPE = re.compile(r"^(?:struct|class|enum class) (\w+)[^;{]*(?:\{|$)", re.MULTILINE)


def without_clashes(sources):
    groups = []
    for source in sources:
        types = set(TYPE.findall(Path(source).read_text()))
        for group, taken in groups:
            if len(group) < GROUP and not types & taken:
                group.append(source)
                taken |= types
                break
        else:
            groups.append(([source], types))
    return [group for group, _ in groups]


def tidy(program, flags, source):
    return subprocess.run([program, "--quiet", source, "--", *flags], capture_output=True, text=True)


# Returns nothing if the group is clean, else the findings of its files, checked one by one.
def findings(program, folder, number, flags, sources):
    if len(sources) > 1:
        unit = folder / f"group{number}.cpp"
        unit.write_text("".join(f'#include "{Path(source).resolve()}"\n' for source in sources))
        if tidy(program, flags, str(unit)).returncode == 0:
            return ""
    found = (tidy(program, flags, source) for source in sources)
    return "".join(run.stdout + run.stderr for run in found if run.returncode != 0)


def main():
    program, database, *wanted = sys.argv[1:]
    entries = json.loads(Path(database).read_text())
    if any("/Unity/" in entry["file"] for entry in entries):
        sys.exit(f"tidy: {database} has sources compiled together; configure with -DEVENKEEL_UNITY=OFF")
    groups = list(groups_of(entries, set(wanted)))
    # Inside build/, so that clang-tidy finds the project's configuration in a parent folder.
    with tempfile.TemporaryDirectory(dir="build") as folder, ThreadPoolExecutor(os.cpu_count()) as workers:
        runs = [workers.submit(findings, program, Path(folder), i, *group) for i, group in enumerate(groups)]
        found = "".join(run.result() for run in runs)
    print(found, end="")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
