#!/usr/bin/env python3
"""Draws into docs/architecture.md which folders of evenkeel/ include which, as found in the sources.

usage: tools/draw_folders.py [--check]

Folders above include the folders below them. An arrow is left out if its target is also reached through another folder.
"""

import sys
from pathlib import Path

from check_includes import INCLUDE, is_cuda, reached, sources

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- folders: made by tools/draw_folders.py -->\n", "<!-- end of folders -->\n"


def included_folders():
    """The folders that each folder's sources include. GPU parts are separate libraries."""
    found = {}
    for path in sources(ROOT, "evenkeel"):
        within = path.relative_to(ROOT)
        if is_cuda(within):
            continue
        folder = within.parts[1]
        others = found.setdefault(folder, set())
        for line in path.read_text(encoding="utf-8").splitlines():
            included = INCLUDE.match(line)
            if included and included[1].startswith("evenkeel/"):
                others.add(included[1].split("/")[1])
        others.discard(folder)
    return found


def drawing():
    found = included_folders()
    reach = {folder: reached(folder, found) - {folder} for folder in found}
    # Folders that reach the most others come first, so that every arrow points down.
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
        sys.exit(f"{PAGE}: the drawing of folders is out of date; run tools/draw_folders.py")


if __name__ == "__main__":
    main()
