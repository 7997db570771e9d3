#!/usr/bin/env python3
"""Checks that a step of evenkeel.torch waits for a device only in to_host(), which counts its reads.

usage: tools/check_reads.py [ROOT]

Sources on a step's path must not call functions that read a device's tensor, that have a result whose size only the
device knows, or that copy from unpinned memory.
"""

import ast
import sys
from pathlib import Path

FOLDER = "python/evenkeel/torch"
STEP = [
    "_agreement",
    "_ahead",
    "_chunk",
    "_cut",
    "_exchange",
    "_levels",
    "_loan",
    "_nodes",
    "_routes",
    "_slots",
    "_step",
    "expert_parallel",
    "routes_ahead",
    "slots",
]
ALLOWED_FUNCTIONS = {"to_host", "to_device", "_checked"}
"""Exceptions: they read and copy for the others, or take a caller's array."""

READS = {"cpu", "item", "numpy", "nonzero", "masked_select", "unique", "argwhere", "bincount", "is_nonzero"}
COPIES = {"tensor", "as_tensor", "from_numpy", "new_tensor"}
SIZED = {"repeat_interleave"}  # the size is known if output_size= is given
OF_HOST = {"np"}  # calls on numpy arrays do not count


def found_in(tree):
    """The line and name of each such call."""
    allowed = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in ALLOWED_FUNCTIONS]
    skipped = {inner for function in allowed for inner in ast.walk(function)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node in skipped:
            continue
        of, name = node.func.value, node.func.attr
        if isinstance(of, ast.Name) and of.id in OF_HOST:
            continue
        copies = name in COPIES and (name == "new_tensor" or (isinstance(of, ast.Name) and of.id == "torch"))
        unsized = name in SIZED and all(keyword.arg != "output_size" for keyword in node.keywords)
        if name in READS or copies or unsized:
            yield node.lineno, name


def main(root):
    problems = []
    for name in STEP:
        path = Path(root) / FOLDER / f"{name}.py"
        for line, call in sorted(found_in(ast.parse(path.read_text()))):
            problems.append(
                f"{path}:{line}: {call}() waits for the device or copies unpinned memory; use to_host() or to_device()"
            )
    print("\n".join(problems) or f"{len(STEP)} sources of a step read devices only through to_host()")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or ["."]))
