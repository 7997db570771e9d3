"""Writes the rank of each layer's experts as one tensor in a file, for custom initialisation to read."""

from __future__ import annotations

import itertools
import json
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, BinaryIO

from ._arguments import file_path, invalid, unsupported

if TYPE_CHECKING:
    from .placement import Placement

TENSOR = "expert_to_rank"


def write_mapping(placement: Placement, path: str | os.PathLike[str]) -> None:
    """See Placement.save_mapping."""
    if placement.has_copies:
        raise unsupported("the placement has redundant experts, and this file holds one rank for each expert")
    name = file_path(path, "path")
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
        raise unsupported("a .pt file needs torch, which is not installed; a .safetensors file does not") from error
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
    """Writes atomically: the file appears whole or not at all, with the mode of the file that it replaces."""
    path = os.path.realpath(path)  # keeps a symbolic link
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise invalid("path", f"'{path}' is no ordinary file", "a file in a folder that exists")
    try:
        replaced = _mode_of(path)
        handle, beside = _open_beside(path, replaced)
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
            if replaced is not None:
                os.chmod(beside, replaced)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    except OSError as error:
        raise invalid(
            "path", f"'{path}' cannot be written: {error.strerror}", "a file in a folder that exists"
        ) from error


def _mode_of(path: str) -> int | None:
    try:
        return stat.S_IMODE(os.stat(path).st_mode) & 0o777
    except FileNotFoundError:
        return None


def _open_beside(path: str, replaced: int | None) -> tuple[int, str]:
    """Opens a new file beside the path. It has the mode of the replaced file, else that of any new file; tempfile would
    make it readable only by its owner."""
    folder, name = os.path.split(path)
    while True:
        end = f".{os.getpid()}-{next(_numbers)}.part"
        most = os.pathconf(folder, "PC_NAME_MAX") - len(end)
        # Cuts a name that would be too long, at a whole character.
        begin = os.fsencode(name)[:most].decode(errors="ignore") if len(os.fsencode(name)) > most else name
        beside = os.path.join(folder, begin + end)
        mode = 0o666 if replaced is None else replaced | 0o600
        try:
            return os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), beside
        except FileExistsError:
            pass


_numbers = itertools.count()
