"""Writes a trace while its tokens come (docs/formats.md#trace), in memory that does not grow with the trace.

Data goes to unnamed temporary files in the trace's folder. At the end they become one file, which is renamed to the
requested name, so that no incomplete file ever appears.
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
    """An array in a file that grows in its first dimension."""

    def __init__(self, folder: str, dtype: str, row: Sequence[int]) -> None:
        self.dtype = np.dtype(dtype).newbyteorder("<")
        self.shape = [0, *row]
        self.file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  # closed by TraceWriter

    def append(self, rows: NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(rows, dtype=self.dtype).tobytes())
        self.shape[0] += len(rows)


class TraceWriter:
    """A trace being written. `shape` is a token's choices, (layers, k); `layers` is None if not known."""

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
        """The narrowest type that holds every id."""
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
        """The number of tokens so far."""
        return self._arrays["topk_ids"].shape[0]

    @property
    def has_sequences(self) -> bool:
        return "sequence_offsets" in self._arrays

    def forget_sequences(self) -> None:
        """Drops the sequence offsets from the trace, also those of earlier tokens."""
        del self._arrays["sequence_offsets"]

    def append(self, choices: Mapping[str, NDArray[Any]], lengths: NDArray[np.int64]) -> None:
        """Adds tokens, `[tokens, layers, k]` by name, that are sequences of these lengths, one after another."""
        if self.has_sequences:
            self._arrays["sequence_offsets"].append(self.tokens + np.cumsum(lengths))
        for name, array in choices.items():
            self._arrays[name].append(array)

    def finish(self) -> None:
        """Makes the file, which appears whole or not at all."""
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
        """Ends without a file."""
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
