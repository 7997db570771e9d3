"""Runs a test where torch and transformers are installed; elsewhere ends with the status that CTest takes for skipped.

usage: run_with_torch.py [--with MODULE,...] TEST [ARGUMENTS...]      (--with: other modules that the test needs)
"""

import os
import sys
from importlib.util import find_spec

SKIPPED = 77

words = sys.argv[1:]
needed = {"torch": "python", "transformers": "python"}  # and the part of tools/setup.sh that installs it
if words[0] == "--with":
    needed |= dict.fromkeys(words[1].split(","), "frameworks")
    words = words[2:]
missing = [name for name in needed if find_spec(name) is None]
if missing:
    print(f"skipped: {' and '.join(missing)} not installed here; tools/setup.sh {needed[missing[0]]} installs them")
    sys.exit(SKIPPED)
# In this process's place: tests that start processes of their own are the main module there.
os.execv(sys.executable, [sys.executable, *words])
