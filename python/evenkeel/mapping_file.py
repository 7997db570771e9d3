"""The ranks by layer and expert as one tensor in a file, which custom initialisation reads."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from ._arguments import invalid
from .errors import Unsupported

if TYPE_CHECKING:
    from .placement import Placement

TENSOR = "expert_to_rank"


def write_mapping(placement: Placement, path: str | os.PathLike[str]) -> None:
    """See Placement.save_mapping."""
    if placement.has_copies:
        why = "the placement has redundant experts, and this file holds one rank for each expert"
        raise Unsupported(why, {"why": why})
    name = os.fspath(path)
    _write_beside(
        name,
        (lambda file: _torch(placement, file))
        if name.endswith((".pt", ".pth"))
        else (lambda file: _safetensors(placement, file)),
    )


def _torch(placement: Placement, file: BinaryIO) -> None:
    try:
        import torch
    except ImportError as error:
        why = "a .pt file needs torch, which is not installed; a .safetensors file does not"
        raise Unsupported(why, {"why": why}) from error
    torch.save(torch.from_numpy(placement.owners), file)


def _safetensors(placement: Placement, file: BinaryIO) -> None:
    owners = placement.owners.astype("<i8")
    header = json.dumps(
        {
            "__metadata__": {"format": "evenkeel.mapping.v1", "num_ranks": str(placement.num_ranks)},
            TENSOR: {"dtype": "I64", "shape": list(owners.shape), "data_offsets": [0, owners.nbytes]},
        }
    ).encode()
    header += b" " * (-len(header) % 8)
    file.write(len(header).to_bytes(8, "little") + header + owners.tobytes())


def _write_beside(path: str, write: Callable[[BinaryIO], None]) -> None:
    """The file appears whole or not at all."""
    try:
        handle, beside = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=os.path.basename(path))
    except OSError as error:
        raise invalid(
            "path", f"'{path}' cannot be written: {error.strerror}", "a file in a folder that exists"
        ) from error
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(beside, 0o666 & ~_umask())
        os.replace(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
