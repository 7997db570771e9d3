"""Every error that evenkeel raises of its own: what is wrong as a sentence, and by name in `data`."""

from __future__ import annotations

from collections.abc import Mapping

from ._native import printable_message


class Error(Exception):
    """Any error of evenkeel.

    The sentence can be shown as it is: names in it have no control characters, and it is 1 KiB at most.

    Attributes:
        data: what the sentence says, by name: numbers and words that a program can act on.
    """

    data: dict[str, int | float | str]

    def __init__(self, message: str, data: Mapping[str, int | float | str] | None = None) -> None:
        super().__init__(printable_message(message.encode("utf-8", "backslashreplace")))
        self.data = dict(data or {})


class InvalidArgument(Error, ValueError):
    """An argument that no call can take. `data`: `argument`, `why`, `allowed`."""


class ParseError(Error, ValueError):
    """A file that is not what it should be. `data`: `file`, `where` (byte or key), `why`."""


class Infeasible(Error):
    """What was asked for cannot exist. `data`: `why`."""


class Unsupported(Error):
    """Something this build, machine or format cannot do. `data`: `why`."""


class BudgetTooSmall(Error):
    """A budget below the least that runs every routing. `data`: `given`, `least`, `shape`.

    From `evenkeel.torch` instead of `shape` what `ExpertParallel.budgets` says: `step` and `even`.
    """


class CommError(Error):
    """A peer that failed, or did not answer in time. `data`: `peer`, `operation`, `after_seconds`, `why`.

    From `evenkeel.torch` also `layer` and `direction`; `peer` is a rank of the layer's process group.
    """


__all__ = ["BudgetTooSmall", "CommError", "Error", "Infeasible", "InvalidArgument", "ParseError", "Unsupported"]
