"""What tests that compare with other programs need: those programs, or a message and a skipped test."""

import importlib.util
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "peers" / "bin" / "python"
SKIPPED = 77  # ctest's SKIP_RETURN_CODE


def require(*modules):
    """Goes on where the modules are: here, else in build/peers, else not at all."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if not missing:
        return
    if PYTHON.exists() and Path(sys.executable).absolute() != PYTHON.absolute():
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    print(f"skipped: {', '.join(missing)} not importable; tools/peers.sh installs what is needed")
    sys.exit(SKIPPED)
