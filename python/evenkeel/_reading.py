"""Reads a recording from a routing file, for all functions that take one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from . import _native
from ._arguments import choice, file_path, invalid, layer_list, number, words

FilePath = str | os.PathLike[str]
Short = Literal["counts", "trace"]


@dataclass(frozen=True)
class Reading:
    """Facts that a file does not say itself; each field is named like the argument that gives it."""

    num_experts: int | None = None
    axes: str | None = None
    columns: str | None = None
    as_: Short | None = None
    layers: Sequence[int] | None = None
    model: FilePath | None = None
    step_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("num_experts", "step_tokens"):
            if getattr(self, name) is not None:
                number(getattr(self, name), name, 1)
        for name in ("axes", "columns"):
            if getattr(self, name) is not None and not words(getattr(self, name), name):
                raise invalid(name, "is an empty text", "to leave it out")
        if self.as_ is not None:
            choice(self.as_, "as_", ("counts", "trace"))
            if self.axes is not None:
                raise invalid("as_", "cannot be combined with axes", "one of the two")

    def refuse(self, why: str, but: Sequence[str] = ()) -> None:
        """Raises InvalidArgument for the first given field, except those in `but`. Used when no file is read."""
        for name, value in vars(self).items():
            if value is not None and name not in but:
                raise invalid(name, why, "to leave it out")

    def read(
        self,
        path: FilePath,
        argument: str = "path",
        *,
        steps: Literal["", "if told", "kept"] = "",
        count: Literal["nothing", "loads", "transitions"] = "transitions",
    ) -> _native.Recording:
        """Reads the file; `count` is what to count in a trace. Raises ParseError, InvalidArgument."""
        return _native.read_recording(
            file_path(path, argument),
            None if self.num_experts is None else number(self.num_experts, "num_experts", 1),
            self.as_ or self.axes or "",
            self.columns or "",
            layer_list(self.layers),
            None if self.model is None else file_path(self.model, "model"),
            steps,
            None if self.step_tokens is None else number(self.step_tokens, "step_tokens", 1),
            count,
        )
