"""Runs a test if torch and transformers are installed; else exits with the status that CTest reads as skipped.

usage: run_with_torch.py [--with MODULE,...] TEST [ARGUMENTS...]      (--with: other modules that the test needs)
"""

import os
import sys
from importlib.util import find_spec

SKIPPED = 77

words = sys.argv[1:]
needed = {"torch": "python", "transformers": "python"}  # the part of tools/setup.sh that installs each module
if words[0] == "--with":
    needed |= dict.fromkeys(words[1].split(","), "frameworks")
    words = words[2:]
missing = [name for name in needed if find_spec(name) is None]
if missing:
    print(f"skipped: {' and '.join(missing)} not installed here; tools/setup.sh {needed[missing[0]]} installs them")
    sys.exit(SKIPPED)
# Replaces this process, so that the test is the main module in processes that it starts.
os.execv(sys.executable, [sys.executable, *words])
