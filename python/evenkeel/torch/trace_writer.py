"""A trace written while its tokens come (docs/formats.md#trace), in memory that does not grow with it.

What comes goes to files without a name, in the folder of the trace. At the end they become one file, which is renamed to
what was asked for: whatever happens before, nothing is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from .._arguments import invalid

_SAFETENSORS_TYPES = {"int8": "I8", "int16": "I16", "int32": "I32", "int64": "I64", "float32": "F32"}


class _Array:
    """An array that grows by its first dimension, in a file."""

    def __init__(self, folder: str, dtype: str, row: Sequence[int]) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.shape = [0, *row]
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by TraceWriter

    def append(self, rows: NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(rows, dtype=self.dtype).tobytes())
        self.shape[0] += len(rows)


class TraceWriter:
    """A trace in the making. `shape` is (layers, k), what a token chooses; `layers` are None where nobody knows them."""

    def __init__(
        self,
        path: str,
        layers: Sequence[int] | None,
        shape: tuple[int, int],
        num_experts: int,
        weights: bool,
        metadata: Mapping[str, str],
    ) -> None:
        self._path = path
        self._metadata = {**metadata, "format": "evenkeel.trace.v1", "num_experts": str(num_experts)}
        self.ids_type = "int8" if num_experts <= 2**7 else "int16" if num_experts <= 2**15 else "int32"
        """The narrowest that holds every id."""
        self._files = contextlib.ExitStack()
        # Wide types come first, so that every array begins at a multiple of its type.
        self._arrays = {"sequence_offsets": self._array("int64", ())}
        if layers is not None:
            self._arrays["layers"] = self._array("int64", ())
            self._arrays["layers"].append(np.asarray(layers))
        if weights:
            self._arrays["topk_weights"] = self._array("float32", shape)
        self._arrays["topk_ids"] = self._array(self.ids_type, shape)
        self._arrays["sequence_offsets"].append(np.zeros(1))

    def _array(self, dtype: str, row: Sequence[int]) -> _Array:
        array = _Array(os.path.dirname(self._path) or ".", dtype, row)
        self._files.enter_context(array.file)
        return array

    @property
    def tokens(self) -> int:
        """How many there are so far."""
        return self._arrays["topk_ids"].shape[0]

    @property
    def has_sequences(self) -> bool:
        return "sequence_offsets" in self._arrays

    def forget_sequences(self) -> None:
        """Leaves where sequences begin out of the trace, that of earlier tokens too."""
        del self._arrays["sequence_offsets"]

    def append(self, choices: Mapping[str, NDArray[Any]], lengths: NDArray[np.int64]) -> None:
        """Adds tokens, `[tokens, layers, k]` by name, that are sequences of these lengths, one after another."""
        if self.has_sequences:
            self._arrays["sequence_offsets"].append(self.tokens + np.cumsum(lengths))
        for name, array in choices.items():
            self._arrays[name].append(array)

    def finish(self) -> None:
        """Makes the file, which is there whole or not at all."""
        part = f"{self._path}.{os.getpid()}.part"
        try:
            with self._files, open(part, "xb") as file:
                file.write(self._header())
                for array in self._arrays.values():
                    array.file.seek(0)
                    shutil.copyfileobj(array.file, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._path)
        except OSError as error:
            raise invalid("path", f"{self._path} cannot be written: {error.strerror}", "a file to write") from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)

    def drop(self) -> None:
        """Leaves no file."""
        self._files.close()

    def _header(self) -> bytes:
        header: dict[str, Any] = {"__metadata__": self._metadata}
        end = 0
        for name, array in self._arrays.items():
            begin, end = end, end + int(np.prod(array.shape)) * array.dtype.itemsize
            header[name] = {
                "dtype": _SAFETENSORS_TYPES[array.dtype.name],
                "shape": array.shape,
                "data_offsets": [begin, end],
            }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text
