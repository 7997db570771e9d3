#!/usr/bin/env python3
"""Draws who includes whom among the folders of evenkeel/, as the sources do it, into docs/architecture.md.

usage: tools/draw_folders.py [--check]

Folders above include those below them. What a folder reaches through another is left out.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- folders: made by tools/draw_folders.py -->\n", "<!-- end of folders -->\n"
INCLUDE = re.compile(r'^\s*#\s*include\s+"evenkeel/([^/"]+)/', re.MULTILINE)


def included_folders():
    """By folder, those that its sources include."""
    found = {}
    for path in (ROOT / "evenkeel").rglob("*"):
        folder, *within = path.relative_to(ROOT / "evenkeel").parts
        # What needs a GPU is in libraries of its own.
        if path.suffix in {".h", ".inl", ".cpp"} and within[:1] not in (["cuda"], ["nccl"]):
            others = found.setdefault(folder, set())
            others |= set(INCLUDE.findall(path.read_text(encoding="utf-8"))) - {folder}
    return found


def reached(found, folder):
    """Everything that a folder includes, directly or through others."""
    reach, ahead = set(), [folder]
    while ahead:
        for other in found.get(ahead.pop(), set()) - reach:
            reach.add(other)
            ahead.append(other)
    return reach


def drawing():
    found = included_folders()
    reach = {folder: reached(found, folder) for folder in found}
    # Those that reach most come first, so that every arrow points down.
    order = sorted(found, key=lambda folder: (-len(reach[folder]), folder))
    width = max(map(len, order))
    lines = []
    for folder in order:
        direct = [other for other in found[folder] if not any(other in reach[between] for between in found[folder])]
        arrows = " ".join(sorted(direct, key=order.index))
        lines.append(f"{folder:{width}}  -> {arrows}" if arrows else folder)
    return "```\n" + "\n".join(lines) + "\n```\n"


def main():
    page = PAGE.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE}: the lines {BEGIN.strip()} and {END.strip()} are missing")
    made = before + begin + drawing() + end + after
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    elif made != page:
        sys.exit(f"{PAGE}: the folders are not those of the sources; tools/draw_folders.py draws them")


if __name__ == "__main__":
    main()
