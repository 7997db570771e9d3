"""Whether another package is of a version that evenkeel knows: what is missing in it is an error that says the versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from .errors import Unsupported


class UnsupportedVersion(Unsupported, ImportError):
    """A package that is installed, in a version without what evenkeel imports. `data`: `why`, `package`, `found`, `needed`.

    An ImportError too, for programs that try an import.
    """


@contextmanager
def needs(package: str, needed: str) -> Iterator[None]:
    """Around imports from a package; one that is not installed raises what Python raises."""
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
