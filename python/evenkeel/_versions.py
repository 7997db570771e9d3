"""Checks other packages' versions: if a package lacks what evenkeel imports, the error names both versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from .errors import Unsupported


class UnsupportedVersion(Unsupported, ImportError):
    """The installed version of a package lacks what evenkeel imports. `data`: `why`, `package`, `found`, `needed`.

    Also an ImportError, for programs that try the import.
    """


@contextmanager
def needs(package: str, needed: str) -> Iterator[None]:
    """Wraps imports from a package. If it is not installed, Python's own ImportError is raised."""
    try:
        yield
    except ImportError as error:
        if find_spec(package) is None:
            raise
        found = _version_of(package)
        why = f"evenkeel needs {package} {needed}, and {found} is installed ({error})"
        raise UnsupportedVersion(why, {"why": why, "package": package, "found": found, "needed": needed}) from error


def _version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "an unknown version"
