#!/usr/bin/env python3
"""Compares the output of two builds of `evenkeel`, byte by byte: every command in text and with --json.

usage: tools/golden_outputs.py BEFORE AFTER [--cases DIR] [--only PATTERN] [--verbose]

Runs the groups of tools/golden_commands.txt with both binaries and compares stdout, stderr, exit status and every file
written. Measured values, such as times, are masked according to MEASURED. Prints each difference, how often each
subcommand ran, and which options and choices of its --help no command used. Exits 1 if anything differs.
"""

from __future__ import annotations

import argparse
import difflib
import itertools
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from golden_inputs import make_inputs

REPOSITORY = Path(__file__).resolve().parent.parent
COMMANDS = Path(__file__).with_name("golden_commands.txt")
INPUT_FOLDERS = ["data", "tests/data", "tests/io/data", "tests/fuzz/corpus"]
PROGRAMS = {".sh", ".py", ".cpp", ".txt"}  # suffixes of files that lie beside inputs but are no inputs
SECONDS = 300  # time limit of a command
SHOWN = 24  # most lines shown of a difference

Folder = dict[str, bytes]  # contents by file name
Group = list[list[str]]  # commands that run in order in a folder of their own


class Masks(NamedTuple):
    """The parts of a command's output that differ from run to run."""

    keys: str = ""  # keys of JSON, also in written files
    rounded: str = ""  # keys compared to 6 decimals, since threads add their values up
    text: str = ""  # patterns of text, one a line
    widths: bool = False  # column widths depend on measured numbers


STEP = Masks(
    keys="""critical_ms wall_ms wait_ms least_wait_ms phases_ms plan_us speedup share_of_ideal control_ratio control_spread
            seconds_per_assignment seconds_per_transfer seconds_per_step ts dur tdur""",
    rounded="max_abs_error max_rel_error",
    text=r"""
        -?[\d.]+ [mu]s
        -?[\d.]+x
        \+- ?[\d.]+
        -?\d+ %(?=.*\n.*critical path)""",
    widths=True,
)
MEASURED = {
    "place": Masks("solve_ms", text=r"(?<=fast, )[\d.]+ ms|(?<=exact, )[\d.]+ ms"),
    "plan": Masks("plan_us", text=r"[\d.]+ us", widths=True),
    "run": STEP,
    "demo": STEP,
    "bench": Masks(
        STEP.keys
        + """ time_ratio time_spread time_interval cpu_ratio cpu_interval tokens_per_second to_spill to_chunks to_best
            worst_to_best flops_per_second inner_half weight_bytes_per_second overlap products_seconds
            link_bytes_per_second link_seconds nic_bytes_per_second nic_seconds ramp_bytes chunk_seconds""",
        STEP.rounded,
        STEP.text
        + r"""
        (?<=best of both: ).*
        [+-]?[\d.]+ (%|GFLOP/s|GB/s)
        (?<=inner dimension of) +\d+
        (?<=fast far below) +\d+ KiB
        \d+\.\d{3}
        \b\d{5,}\b
        [█▉▊▋▌▍▎▏]+""",
        widths=True,
    ),
}


class Run(NamedTuple):
    """The results of a command."""

    status: str
    stdout: str
    stderr: str
    files: Folder


def masked(subcommand: str, text: str) -> str:
    """The text with measured values replaced by ~."""
    masks = MEASURED.get(subcommand, Masks())
    if masks.keys:
        value = r"(\[[^\]]*\]|\{[^}]*\}|-?[\d.]+(e[+-]?\d+)?)"
        text = re.sub(rf'("({"|".join(masks.keys.split())})": ?){value}', r"\1~", text)
    if masks.rounded:
        text = re.sub(rf'("({"|".join(masks.rounded.split())})": ?-?\d\.\d{{6}})\d*', r"\1~", text)
    if not text.startswith("{"):
        for pattern in filter(None, map(str.strip, masks.text.splitlines())):
            text = re.sub(pattern, "~", text)
        if masks.widths:
            text = re.sub(r" {2,}", "  ", text)
    return text


def stamps_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {name: (at.st_ino, at.st_mtime_ns) for name in files_in(folder) for at in [(folder / name).stat()]}


def files_in(folder: Path) -> Folder:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def run(binary: Path, words: list[str], folder: Path) -> Run:
    """Runs a command in a folder; returns its output with measured values masked, and the files it wrote."""
    before = stamps_in(folder)
    try:
        done = subprocess.run(
            [binary, *words],
            cwd=folder,
            env=os.environ | {"LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )
        status, printed = str(done.returncode), (done.stdout, done.stderr)
    except subprocess.TimeoutExpired:
        status, printed = f"none within {SECONDS} s", (b"", b"")
    subcommand = words[0] if words else ""
    stdout, stderr = (
        masked(subcommand, each.decode("utf-8", "backslashreplace").replace(f"{folder}/", "")) for each in printed
    )
    after, stamps = files_in(folder), stamps_in(folder)
    changed = {name: data for name, data in after.items() if before.get(name) != stamps[name]}
    changed |= {f"{name} (removed)": b"" for name in before.keys() - after.keys()}
    return Run(status, stdout, stderr, changed)


def as_lines(text: str) -> list[str]:
    """Splits one-line JSON so that each key has its own line."""
    return text.replace(',"', ',\n"').splitlines() if text.startswith("{") else text.splitlines()


def text_difference(before: str, after: str) -> list[str]:
    lines = list(difflib.unified_diff(as_lines(before), as_lines(after), "before", "after", lineterm="", n=1))
    return lines[:SHOWN] + ["..."] * (len(lines) > SHOWN) or ["only line ends differ"]


def file_difference(subcommand: str, before: bytes, after: bytes) -> list[str]:
    """Describes the difference of two files; empty if they are equal."""
    if before == after:
        return []
    try:
        texts = [masked(subcommand, each.decode()) for each in (before, after)]
        return [] if texts[0] == texts[1] else text_difference(*texts)
    except UnicodeDecodeError:
        pairs = enumerate(zip(before, after, strict=False))
        at = next((i for i, (one, other) in pairs if one != other), min(len(before), len(after)))
        return [f"differs from byte {at} on; {len(before)} bytes before, {len(after)} after"]


def differences(words: list[str], before: Run, after: Run) -> Iterator[str]:
    """Each difference, with an indented text under its title."""
    found: list[tuple[str, list[str]]] = []
    if before.status != after.status:
        found.append((f"exit status {before.status} before, {after.status} after", []))
    for stream in ("stdout", "stderr"):
        texts = getattr(before, stream), getattr(after, stream)
        if texts[0] != texts[1]:
            found.append((stream, text_difference(*texts)))
    for name in sorted(before.files.keys() | after.files.keys()):
        if name not in before.files or name not in after.files:
            found.append((f"{name}: written only {'after' if name in after.files else 'before'}", []))
        elif lines := file_difference(words[0], before.files[name], after.files[name]):
            found.append((name, lines))
    for title, lines in found:
        yield "\n".join([f"  {title}", *(f"    {line}" for line in lines)])


def compare_group(group: Group, before: Path, after: Path) -> list[str]:
    """The differences of a group, each under its command."""
    said = []
    with tempfile.TemporaryDirectory(prefix="golden") as folder:
        folders = [Path(folder, name) for name in ("before", "after")]
        for each in folders:
            each.mkdir()
        for words in group:
            runs = [run(binary, words, each) for binary, each in zip((before, after), folders, strict=True)]
            if found := list(differences(words, *runs)):
                said.append("\n".join([f"evenkeel {shlex.join(words)}", *found]))
    return said


def expanded(line: str) -> list[str]:
    """All lines that a line with choices such as {one|two} results in."""
    parts = re.split(r"\{([^}]*)\}", line)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def in_text_and_json(line: str) -> Iterator[list[str]]:
    words = shlex.split(line)
    yield words
    if words and not {"--help", "-h", "--version", "--json"} & set(words):
        yield [*words, "--json"]


def read_groups(inputs: list[Path], made: Path) -> list[Group]:
    """Reads the groups of golden_commands.txt; groups with $FILE are repeated for each input."""
    groups: list[Group] = []
    text = re.sub(r"^#.*\n", "", COMMANDS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    known = {"$TINY": f"{REPOSITORY}/data/tiny-moe", "$TESTS": f"{REPOSITORY}/tests", "$MADE": str(made)}
    for block in filter(None, map(str.strip, text.replace("\\\n", " ").split("\n\n"))):
        for name, value in known.items():
            block = block.replace(name, value)
        for path in inputs if "$FILE" in block else [None]:
            lines = [each for line in block.splitlines() for each in expanded(line)]
            lines = [line.replace("$FILE", shlex.quote(str(path))).replace("$NOTHING", "") for line in lines]
            groups.append([words for line in lines for words in in_text_and_json(line)])
    return groups


def find_inputs(folders: list[Path]) -> list[Path]:
    """Every input file, and every folder that contains only input files."""
    paths = [path for folder in folders for path in sorted(folder.rglob("*"))]
    files = {path for path in paths if path.is_file() and path.suffix not in PROGRAMS and path.name != "README"}
    return [path for path in paths if path in files or path.is_dir() and files.issuperset(path.iterdir())]


def coverage(binary: Path, subcommand: str, commands: list[list[str]]) -> str:
    """Reports how often a subcommand ran, and which options and choices of its --help no command used."""
    said = subprocess.run([binary, subcommand, "--help"], capture_output=True, text=True, check=False).stdout
    options = re.findall(r"^  (?:(-\w),)?(--[\w-]+)(?: (\S*\|\S*))?", said, re.MULTILINE)
    never = []
    for short, option, allowed in options:
        places = [(words, i + 1) for words in commands for i, word in enumerate(words) if word in (option, short)]
        values = {words[i] for words, i in places if i < len(words)}
        choices, _, usual = allowed.partition("=")
        if not places and option != "--help":
            never.append(option)
        elif choices.islower():
            never += [f"{option} {choice}" for choice in choices.split("|") if choice not in values | {usual}]
    return f"{subcommand:10} {len(commands):6} runs, {len(options)} options; never used: {', '.join(never) or 'none'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=lambda path: Path(path).resolve())
    parser.add_argument("after", type=lambda path: Path(path).resolve())
    parser.add_argument("--cases", type=Path, help="a folder with more inputs")
    parser.add_argument("--only", default="", help="run only commands that contain this pattern")
    parser.add_argument("--verbose", action="store_true", help="print each command")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="golden") as made:
        make_inputs(Path(made))
        folders = [REPOSITORY / name for name in INPUT_FOLDERS] + ([options.cases.resolve()] if options.cases else [])
        groups = read_groups(find_inputs(folders), Path(made))
        groups = [[words for words in group if re.search(options.only, shlex.join(words))] for group in groups]
        commands = [words for group in groups for words in group]
        if options.verbose:
            print(*(f"evenkeel {shlex.join(words)}" for words in commands), sep="\n")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            found = pool.map(lambda group: compare_group(group, options.before, options.after), groups)
            differing = 0
            for said in itertools.chain.from_iterable(found):
                print(said, flush=True)
                differing += 1
        by_name: dict[str, list[list[str]]] = {}
        for words in commands:
            if words and words[0].isalpha():
                by_name.setdefault(words[0], []).append(words)
        for name, of_name in by_name.items():
            print(coverage(options.before, name, of_name))
    print(f"{len(commands)} commands, {differing} of them differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
