#!/usr/bin/env python3
"""Compiles and runs the fenced code blocks of a Markdown page, so that the page stays correct.

usage: readme_snippets.py extract PAGE FOLDER    writes each ```cpp block as a program, prints the files' names
       readme_snippets.py run PAGE BIN           runs all ```sh blocks in order, in one empty folder beside the
                                                 repository's data/, with BIN first on PATH
       readme_snippets.py run-python PAGE PYTHON runs all ```python blocks in order, as one program of that
                                                 interpreter, in such a folder

A block directly after `<!-- not run: why -->` is left out. ```text blocks show output. A block in any other language
or without a language is an error, so every shown block is checked.
"""

import os
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

NOT_RUN = re.compile(r"<!--\s*not run: \S.*-->\s*\Z")
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)

LANGUAGES = ("cpp", "python", "sh", "text")


class PageError(Exception):
    pass


@dataclass
class Block:
    language: str
    text: str
    line: int  # line number of the block's first line of code


def blocks(page):
    """The blocks of a page to check, in order."""
    found = []
    for match in FENCE.finditer(page):
        language, text = match.groups()
        line = page.count("\n", 0, match.start(2)) + 1
        if NOT_RUN.search(page[: match.start()]):
            continue
        if language not in LANGUAGES:
            raise PageError(f"line {line - 1}: a block of language '{language}'; known are {', '.join(LANGUAGES)}")
        found.append(Block(language, text, line))
    return found


def program(block, page_name):
    """A cpp block as a whole program; if it has no main, its statements become one."""
    location = f'#line {block.line} "{page_name}"\n'
    if "int main(" in block.text:
        return location + block.text
    lines = block.text.splitlines(keepends=True)
    body = next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("#include")), len(lines))
    return (
        location
        + "".join(lines[:body])
        + "using namespace evenkeel;\nint main() {\n"
        + f'#line {block.line + body} "{page_name}"\n'
        + "".join(lines[body:])
        + "}\n"
    )


def write_if_changed(path, text):
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def extract(page_path, folder):
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    for block in blocks(page_path.read_text(encoding="utf-8")):
        if block.language == "cpp":
            number += 1
            path = folder / f"{page_path.stem.lower()}_program_{number}.cpp"
            write_if_changed(path, program(block, page_path.as_posix()))
            print(path.as_posix())


def chosen(page_path, language):
    """All blocks of one language; an error if there is none."""
    found = [b for b in blocks(page_path.read_text(encoding="utf-8")) if b.language == language]
    if not found:
        raise PageError(f"there is no {language} block to run")
    return found


@contextmanager
def scratch_folder():
    """A folder that contains only the repository's data."""
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(__file__).resolve().parents[2] / "data"
        if data.exists():
            Path(scratch, "data").symlink_to(data)
        yield scratch


def run(page_path, bin_folder):
    environment = os.environ | {"PATH": f"{bin_folder}:{os.environ['PATH']}"}
    with scratch_folder() as scratch:
        for block in chosen(page_path, "sh"):
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text], cwd=scratch, env=environment, stdin=subprocess.DEVNULL
            )
            if done.returncode != 0:
                raise PageError(f"line {block.line}: the block ended with {done.returncode}:\n{block.text}")


def run_python(page_path, python):
    source = ""
    for block in chosen(page_path, "python"):
        source += "\n" * (block.line - 1 - source.count("\n")) + block.text  # keeps the page's line numbers
    with scratch_folder() as scratch:
        Path(scratch, page_path.name).write_text(source, encoding="utf-8")
        done = subprocess.run([python, page_path.name], cwd=scratch, stdin=subprocess.DEVNULL)
        if done.returncode != 0:
            raise PageError(f"the python blocks ended with {done.returncode}")


def main(arguments):
    actions = {"extract": extract, "run": run, "run-python": run_python}
    if len(arguments) != 3 or arguments[0] not in actions:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        actions[arguments[0]](Path(arguments[1]), Path(arguments[2]).absolute())
    except PageError as error:
        print(f"{arguments[1]}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
