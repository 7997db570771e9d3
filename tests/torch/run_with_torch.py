"""Runs a test where torch and transformers are installed; elsewhere ends with the status that CTest takes for skipped.

usage: run_with_torch.py TEST [ARGUMENTS...]
"""

import os
import sys
from importlib.util import find_spec

SKIPPED = 77

missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
if missing:
    print(f"skipped: {' and '.join(missing)} not installed here; tools/setup.sh python installs them")
    sys.exit(SKIPPED)
# In this process's place: tests that start processes of their own are the main module there.
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
