"""All errors that evenkeel raises. The message says what is wrong; `data` has the same facts by name."""

from __future__ import annotations

from collections.abc import Mapping

from ._native import printable_message


class Error(Exception):
    """Any error of evenkeel.

    The message can be shown as it is: it has no control characters and at most 1 KiB.

    Attributes:
        data: the message's facts by name: numbers and words that a program can act on.
    """

    data: dict[str, int | float | str]

    def __init__(self, message: str, data: Mapping[str, int | float | str] | None = None) -> None:
        super().__init__(printable_message(message.encode("utf-8", "backslashreplace")))
        self.data = dict(data or {})


class InvalidArgument(Error, ValueError):
    """An argument is invalid. `data`: `argument`, `why`, `allowed`."""


class ParseError(Error, ValueError):
    """A file has wrong content. `data`: `file`, `where` (byte or key), `why`."""


class Infeasible(Error):
    """The request has no solution. `data`: `why`."""


class Unsupported(Error):
    """Something this build, machine or format cannot do. `data`: `why`."""


class BudgetTooSmall(Error):
    """A budget is below the least that runs every routing. `data`: `given`, `least`, `shape`.

    From `evenkeel.torch`, `data` has `step` and `even` of `ExpertParallel.budgets` instead of `shape`.
    """


class CommError(Error):
    """A peer failed, or did not answer in time. `data`: `peer`, `operation`, `after_seconds`, `why`.

    From `evenkeel.torch`, `data` also has `layer` and `direction`; `peer` is a rank of the layer's process group.
    """


__all__ = ["BudgetTooSmall", "CommError", "Error", "Infeasible", "InvalidArgument", "ParseError", "Unsupported"]
