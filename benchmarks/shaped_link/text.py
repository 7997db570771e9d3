"""The texts that the model reads, as bytes: code and prose of Python's own library, in two disjoint halves."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

Requests = Literal["anywhere", "by-node"]
"""Where sequences go: any kind to any rank, or all code to node 0 and all prose to node 1."""


def kinds_of_text(half: Literal["placed", "measured"]) -> list[torch.Tensor]:
    """Half of the code (every second module of the standard library) and half of the prose (the language reference)."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = sorted(library.glob("*.py"))[half == "measured" :: 2]
    reference = (library / "pydoc_data" / "topics.py").read_bytes()
    middle = len(reference) // 2
    prose = reference[middle:] if half == "measured" else reference[:middle]
    texts = (b"".join(path.read_bytes() for path in modules), prose)
    return [torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in texts]


def kind(requests: Requests, rank: int, ranks: int, number: int) -> int:
    """The kind of text of a rank's n-th sequence."""
    return rank // (ranks // 2) if requests == "by-node" else number % 2


def draw(texts: Sequence[torch.Tensor], kinds: Sequence[int], length: int, seed: int) -> torch.Tensor:
    """Draws one sequence for each of `kinds`, from a random position of its text: `[sequences, length]`."""
    random = torch.Generator().manual_seed(seed)
    drawn = []
    for which in kinds:
        begin = int(torch.randint(len(texts[which]) - length, (), generator=random))
        drawn.append(texts[which][begin : begin + length].long())
    return torch.stack(drawn)
