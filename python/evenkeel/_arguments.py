"""Converts and checks arguments for the native module: arrays from numpy, torch or lists; ratios; words."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ._native import suggested_word
from .errors import InvalidArgument, Unsupported

# A numpy array, a torch tensor on any device, or nested lists.
ArrayLike: TypeAlias = Any
Integers: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
P = ParamSpec("P")
R = TypeVar("R")


def invalid(argument: str, why: str, allowed: str) -> InvalidArgument:
    """An InvalidArgument with the message and data that the library would give."""
    suggestion = suggested_word(*(words.encode("utf-8", "replace") for words in (why, allowed)))
    hint = f"; did you mean '{suggestion}'?" if suggestion else ""
    return InvalidArgument(
        f"{argument}: {why}; allowed: {allowed}{hint}", {"argument": argument, "why": why, "allowed": allowed}
    )


@contextmanager
def called(argument: str, *names: str) -> Iterator[None]:
    """A context in which the library's errors about its arguments `names` name our `argument` instead."""
    try:
        yield
    except InvalidArgument as error:
        if error.data["argument"] not in names:
            raise
        raise invalid(argument, str(error.data["why"]), str(error.data["allowed"])) from None


def unsupported(why: str) -> Unsupported:
    return Unsupported(why, {"why": why})


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Decorates a public function: an unknown keyword raises InvalidArgument with the name that was probably meant."""
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    called = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        for name in named:
            if name not in names:
                raise invalid(name, f"'{name}' is no argument of {called}()", ", ".join(names))
        return function(*arguments, **named)

    return call


def quoted(value: object) -> str:
    """The text of any value for a message."""
    try:
        return repr(value)
    except Exception:  # raised by its class, or for an int with too many digits to print
        return f"this {type(value).__name__}"


def is_tensor(values: object) -> bool:
    """Whether this is a torch tensor. Does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(values, torch.Tensor)


def as_given(like: object, *maps: Integers) -> Any:
    """Returns the maps as tensors if `like` is a tensor."""
    if not is_tensor(like):
        return maps
    import torch

    return tuple(torch.from_numpy(each) for each in maps)


def as_numpy(values: ArrayLike, name: str) -> NDArray[Any]:
    """Converts an array, a tensor or lists to a numpy array of numbers."""
    if isinstance(values, np.ma.MaskedArray):
        raise invalid(name, "has a mask, which would be ignored", "an array without one")
    if is_tensor(values):
        array: NDArray[Any] = _tensor_as_numpy(values, name)
    else:
        try:
            array = np.asarray(values)
        except ValueError as error:
            raise invalid(name, "lists of unequal lengths", "an array of numbers") from error
        except Exception as error:  # raised by the object's own conversion
            raise invalid(name, f"a {type(values).__name__} that numpy cannot read", "an array of numbers") from error
    if array.dtype.kind not in "iuf" and (array.size > 0 or array.dtype.kind != "O"):
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
    """Converts to row-major int64. Floats must be whole numbers; nothing is rounded."""
    array = as_numpy(values, name)
    require_dimensions(array, name, dimensions, shape)
    if array.dtype.kind == "f":
        if array.dtype.itemsize < 8:
            array = array.astype(np.float64)  # float16 cannot hold 2^63
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
    """Converts to row-major float64."""
    array = as_numpy(values, name)
    require_dimensions(array, name, dimensions, shape)
    return np.ascontiguousarray(array, dtype=np.float64)


def require_dimensions(array: NDArray[Any], name: str, dimensions: int, shape: str) -> None:
    """Refuses an array with another number of dimensions; the message asks for `shape`."""
    if array.ndim != dimensions:
        raise invalid(name, f"shape {list(array.shape)}", shape)


def instance(value: Any, kind: type, name: str) -> Any:
    """Checks that the value is one of our own objects."""
    if not isinstance(value, kind):
        raise invalid(name, f"is a {type(value).__name__}", f"a {kind.__name__}")
    return value


def words(value: str, name: str) -> str:
    """Checks that the value is a text that UTF-8 can encode."""
    instance(value, str, name)
    try:
        value.encode()
    except UnicodeError as error:
        raise invalid(name, f"{ascii(value)} has half of a surrogate pair", "a text that UTF-8 can encode") from error
    return value


def file_path(value: str | os.PathLike[str], name: str) -> str:
    """Checks and converts a path that the system can use."""
    try:
        path = os.fsdecode(value)
        os.fsencode(path)
    except TypeError as error:
        raise invalid(name, f"is a {type(value).__name__}", "a path") from error
    except UnicodeError as error:
        raise invalid(name, f"{ascii(value)} cannot be a file name on this system", "a path") from error
    if not path:
        raise invalid(name, "is empty", "a path")
    if "\0" in path:
        raise invalid(name, f"{ascii(path)} has a NUL in it", "a path")
    return path


def thousandths(value: float, name: str) -> int:
    """Converts a ratio to thousandths, the planners' unit. Exact for decimals with at most three places."""
    _require_single(value, name)
    try:
        scaled = Decimal(str(value)) * 1000
    except Exception as error:
        raise invalid(name, quoted(value), "a number with at most three decimals") from error
    if not scaled.is_finite() or scaled != scaled.to_integral_value() or abs(scaled) >= 10**15:
        raise invalid(name, str(value), "a number with at most three decimals, such as 1.25")
    return int(scaled)


def number(value: int, name: str, least: int, most: int = 2**31 - 1) -> int:
    """Checks a whole number in a range."""
    try:
        whole = operator.index(value)
    except Exception as error:
        raise invalid(name, quoted(value), "a whole number") from error
    if isinstance(value, bool) or str(getattr(value, "dtype", "")) == "torch.bool":
        raise invalid(name, quoted(value), "a whole number")
    if not least <= whole <= most:
        raise invalid(name, quoted(whole), f"{least}..{most}")
    return whole


def real(value: float, name: str, least: float, most: float = math.inf) -> float:
    """Checks a number in a range; refuses NaN."""
    _require_single(value, name)
    try:
        given = float(value)
    except Exception as error:
        raise invalid(name, quoted(value), "a number") from error
    if not least <= given <= most:
        raise invalid(name, str(given), f"{least:g} or more" if most == math.inf else f"{least:g}..{most:g}")
    return given


def _require_single(value: object, name: str) -> None:
    """Refuses a text, a bool and an array with dimensions, which Python would silently convert to a number."""
    if isinstance(value, str | bytes | bytearray | bool | np.bool_) or getattr(value, "ndim", 0) != 0:
        raise invalid(name, quoted(value), "a number")


def choice(value: str, name: str, allowed: Sequence[str]) -> str:
    """Checks that the value is one of a few words."""
    if not isinstance(value, str) or value not in allowed:
        raise invalid(name, quoted(value), ", ".join(allowed))
    return value


def layer_list(layers: Sequence[int] | None) -> list[int] | None:
    """Layer numbers of a model, or None if none were given."""
    return None if layers is None else checked_layers(layers)


def checked_layers(layers: Sequence[int]) -> list[int]:
    """Layer numbers of a model; the library checks that they ascend."""
    numbers = integers(list(layers) if isinstance(layers, range) else layers, "layers", 1, "[layers]")
    if numbers.size == 0:
        raise invalid("layers", "is empty", "the model's number of each layer")
    return [number(layer, "layers", 0) for layer in numbers]


MOST_RANKS = 65536
"""The limit that files and the command have too."""
