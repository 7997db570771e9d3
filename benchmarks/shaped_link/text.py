"""What the model reads, as bytes: code and prose of Python's own library, in halves that share no text."""

from __future__ import annotations

import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

Requests = Literal["anywhere", "by-node"]
"""Which rank a sequence is on: any, whatever its kind, or node 0 has all the code and node 1 all the prose."""


def kinds_of_text(half: Literal["placed", "measured"]) -> list[torch.Tensor]:
    """Code, the modules of the standard library, every second one; prose, the language reference, half of it."""
    library = Path(sysconfig.get_path("stdlib"))
    modules = sorted(library.glob("*.py"))[half == "measured" :: 2]
    reference = (library / "pydoc_data" / "topics.py").read_bytes()
    middle = len(reference) // 2
    prose = reference[middle:] if half == "measured" else reference[:middle]
    texts = (b"".join(path.read_bytes() for path in modules), prose)
    return [torch.frombuffer(bytearray(text), dtype=torch.uint8) for text in texts]


def kind(requests: Requests, rank: int, ranks: int, number: int) -> int:
    """Which text a rank's sequence of this number is from."""
    return rank // (ranks // 2) if requests == "by-node" else number % 2


def draw(texts: Sequence[torch.Tensor], kinds: Sequence[int], length: int, seed: int) -> torch.Tensor:
    """A sequence of each kind that is asked for, from anywhere in its text: `[sequences, length]`."""
    random = torch.Generator().manual_seed(seed)
    drawn = []
    for which in kinds:
        begin = int(torch.randint(len(texts[which]) - length, (), generator=random))
        drawn.append(texts[which][begin : begin + length].long())
    return torch.stack(drawn)
