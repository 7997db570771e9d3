"""What callers pass, made what the native module takes: arrays of numpy, torch or lists; ratios; words."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import InvalidArgument

# A numpy array, a torch tensor on any device, or nested lists.
ArrayLike: TypeAlias = Any
Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


def invalid(argument: str, why: str, allowed: str) -> InvalidArgument:
    """The same message and data that the library would give."""
    return InvalidArgument(
        f"{argument}: {why}; allowed: {allowed}", {"argument": argument, "why": why, "allowed": allowed}
    )


def is_tensor(values: object) -> bool:
    """Whether this is a torch tensor; torch is never imported for it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def as_numpy(values: ArrayLike, name: str) -> NDArray[Any]:
    """Whatever was given as a numpy array of numbers."""
    if isinstance(values, np.ma.MaskedArray):
        raise invalid(name, "has a mask, which would be passed over", "an array without one")
    if is_tensor(values):
        array: NDArray[Any] = _tensor_as_numpy(values, name)
    else:
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise invalid(name, "lists of unequal lengths", "an array of numbers") from error
    if array.dtype.kind not in "iuf" and array.size > 0:
        raise invalid(name, f"an array of {array.dtype}", "an array of numbers")
    return array


def _tensor_as_numpy(values: Any, name: str) -> NDArray[Any]:
    try:
        tensor = values.detach().cpu()
        if tensor.is_floating_point():
            tensor = tensor.double()  # numpy knows no bfloat16
        return np.asarray(tensor.numpy())
    except (NotImplementedError, RuntimeError, TypeError) as error:
        where = f"a {values.layout} tensor on device {values.device}".replace("torch.", "")
        raise invalid(name, f"{where} cannot be read", "a dense tensor that holds numbers") from error


def integers(values: ArrayLike, name: str, dimensions: int, shape: str) -> Integers:
    """Row-major int64; whole floats are taken, anything else is refused rather than rounded."""
    array = as_numpy(values, name)
    require_dimensions(array, name, dimensions, shape)
    if array.dtype.kind == "f":
        if array.dtype.itemsize < 8:
            array = array.astype(np.float64)  # 2^63 is beyond float16
        whole = np.isfinite(array) & (np.floor(array) == array)
        if not whole.all():
            raise invalid(name, f"{array[~whole].flat[0]} is not a whole number", "whole numbers")
        large = np.abs(array) >= 2.0**63
        if large.any():
            raise invalid(name, f"{array[large].flat[0]:.0f} is beyond 63 bits", "whole numbers up to 2^63-1")
    if array.dtype.kind == "u" and array.size > 0 and int(array.max()) >= 2**63:
        raise invalid(name, f"{array.max()} is above 2^63-1", "whole numbers up to 2^63-1")
    return np.ascontiguousarray(array, dtype=np.int64)


def floats(values: ArrayLike, name: str, dimensions: int, shape: str) -> Floats:
    """Row-major float64."""
    array = as_numpy(values, name)
    require_dimensions(array, name, dimensions, shape)
    return np.ascontiguousarray(array, dtype=np.float64)


def require_dimensions(array: NDArray[Any], name: str, dimensions: int, shape: str) -> None:
    """Refuses an array of other dimensions; `shape` is what its message asks for."""
    if array.ndim != dimensions:
        raise invalid(name, f"shape {list(array.shape)}", shape)


def instance(value: Any, kind: type, name: str) -> Any:
    """One of our own objects."""
    if not isinstance(value, kind):
        raise invalid(name, f"is a {type(value).__name__}", f"a {kind.__name__}")
    return value


def file_path(value: str | os.PathLike[str], name: str) -> str:
    """A path that the system can take."""
    try:
        path = os.fsdecode(value)
        os.fsencode(path)
    except TypeError as error:
        raise invalid(name, f"is a {type(value).__name__}", "a path") from error
    except UnicodeError as error:
        raise invalid(name, f"{ascii(value)} is no name that this system has", "a path") from error
    if not path:
        raise invalid(name, "is empty", "a path")
    if "\0" in path:
        raise invalid(name, f"{ascii(path)} has a NUL in it", "a path")
    return path


def thousandths(value: float, name: str) -> int:
    """A ratio in the unit that planners compute with, which every decimal of three places has exactly."""
    try:
        scaled = Decimal(str(value)) * 1000
    except ArithmeticError as error:
        raise invalid(name, repr(value), "a number with at most three decimals") from error
    if not scaled.is_finite() or scaled != scaled.to_integral_value() or abs(scaled) >= 10**15:
        raise invalid(name, str(value), "a number with at most three decimals, such as 1.25")
    return int(scaled)


def number(value: int, name: str, least: int, most: int = 2**31 - 1) -> int:
    """A whole number in a range."""
    try:
        whole = value.__index__()
    except AttributeError as error:
        raise invalid(name, repr(value), "a whole number") from error
    if isinstance(value, bool):
        raise invalid(name, repr(value), "a whole number")
    if not least <= whole <= most:
        raise invalid(name, str(whole), f"{least}..{most}")
    return whole


def real(value: float, name: str, least: float, most: float = math.inf) -> float:
    """A number in a range, never NaN."""
    try:
        given = float(value)
    except (TypeError, ValueError) as error:
        raise invalid(name, repr(value), "a number") from error
    if not least <= given <= most:
        raise invalid(name, str(given), f"{least:g} or more" if most == math.inf else f"{least:g}..{most:g}")
    return given


def choice(value: str, name: str, allowed: Sequence[str]) -> str:
    """One of a few words."""
    if value not in allowed:
        raise invalid(name, f"'{value}'", ", ".join(allowed))
    return value


def layer_list(layers: Sequence[int] | None) -> list[int] | None:
    """Layer numbers of a model, if any were given."""
    return None if layers is None else said_layers(layers)


def said_layers(layers: Sequence[int]) -> list[int]:
    """Layer numbers of a model; the library checks that they ascend."""
    numbers = integers(list(layers) if isinstance(layers, range) else layers, "layers", 1, "[layers]")
    return [int(number) for number in numbers]


MOST_RANKS = 65536
"""As many as files and the command take."""
