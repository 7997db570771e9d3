"""Finds the other programs that a test compares with; without them the test is skipped with a message."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "peers" / "bin" / "python"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def require(*modules):
    """Continues if the modules are found here or in build/peers; else skips the test."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if PYTHON.exists() and Path(sys.executable).absolute() != PYTHON.absolute():
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    print(f"skipped: {', '.join(missing)} not importable; tools/peers.sh installs what is needed")
    sys.exit(SKIPPED)
