"""Rows and indices in memory, as the C functions take them."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._arrays.view import View, byte_array, host_view
from ..errors import CorruptError
from ..types import MOVED_TYPES, DType, ValueType

# Types that NumPy lacks: their names in ml_dtypes.
_ML_DTYPES = {"bfloat16": "bfloat16", "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2"}


@functools.cache
def numpy_type(kind: ValueType) -> np.dtype[Any]:
    """The NumPy type of results: that of ml_dtypes if NumPy lacks it; without ml_dtypes, that of the bits."""
    if kind.name in _ML_DTYPES:
        with contextlib.suppress(ImportError, AttributeError):
            own: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), _ML_DTYPES[kind.name]))
            return own
    return np.dtype(kind.numpy)


class Rows(NamedTuple):
    """Rows in memory, `stride` bytes from one to the next. `owner` keeps the memory alive."""

    pointer: int
    stride: int
    number: int
    owner: object


def is_contiguous(array: Any) -> bool:
    """Whether an array of torch, NumPy or CuPy is in C order; other objects count as contiguous."""
    check = getattr(array, "is_contiguous", None)
    return bool(check() if callable(check) else getattr(getattr(array, "flags", None), "c_contiguous", True))


def contiguous(array: Any) -> Any:
    """The array, or a copy in C order."""
    if is_contiguous(array):
        return array
    return array.contiguous() if hasattr(array, "contiguous") else array.copy("C")


def input_rows(array: Any, name: str, kind: ValueType, row_shape: tuple[int, ...], count: int | None = None) -> Rows:
    """The rows of an array. Copied if they are not contiguous.

    count: the number of rows that it must have. Raises TypeError or ValueError if the array does not fit.
    """
    if isinstance(array, (list, tuple, int, float)):
        if kind.exponent_bits and numpy_type(kind).kind == "u":
            raise TypeError(f"{name} is no array: without ml_dtypes, {kind.name} values must be an array of bits")
        array = _array_of(array, name, numpy_type(kind))
    view = host_view(contiguous(plain(array)), name, holds=kind, as_bits=True)
    elems = math.prod(row_shape)
    has_row_shape = view.shape[-len(row_shape) or len(view.shape) :] == row_shape
    if count is None:
        if view.elems % elems or not has_row_shape:
            raise ValueError(f"{name} has shape {view.shape}, but rows have shape {row_shape}")
        count = view.elems // elems
    elif view.elems != count * elems or not (len(view.shape) <= 1 or has_row_shape):
        raise ValueError(f"{name} has shape {view.shape}, which is not that of {count} rows of {row_shape}")
    return Rows(view.pointer, elems * kind.bytes, count, view.owner)


def _array_of(given: Any, name: str, kind: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """NumPy's array of nested lists. The errors have the name of the argument."""
    try:
        return np.asarray(given, kind)
    except (TypeError, ValueError, OverflowError) as error:
        raise type(error)(f"{name} cannot be an array: {error}") from None


def plain(array: Any) -> Any:
    """A tensor of torch without its gradient, and with the values for which a negated view stands; any other array."""
    for method in ("detach", "resolve_conj", "resolve_neg"):
        if hasattr(array, method):
            array = getattr(array, method)()
    return array


class Output(NamedTuple):
    """Where rows are written, and what the caller gets."""

    rows: Rows
    result: Any
    complete: Callable[[], None]  #: called after the rows were written

    @contextlib.contextmanager
    def written(self) -> Iterator[Rows]:
        """The rows to write. The caller gets them if there is no error, or if some of them are damaged."""
        try:
            yield self.rows
        except CorruptError:
            self.complete()
            raise
        self.complete()


def output_rows(
    out: Any,
    kind: ValueType,
    shape: tuple[int, ...],
    row_shape: tuple[int, ...],
    view_of: Callable[..., View] = host_view,
) -> Output:
    """Memory for results of a shape, which ends with that of a row.

    out: None for a new array in host memory.
    view_of: as `host_view`, for the place where the memory must be.
    """
    row_bytes = math.prod(row_shape) * kind.bytes
    count = math.prod(shape[: len(shape) - len(row_shape)])
    if out is None:
        array: npt.NDArray[Any] = np.empty(shape, numpy_type(kind))
        return Output(Rows(array.ctypes.data, row_bytes, count, array), array, lambda: None)
    held = tuple(getattr(out, "shape", shape))
    if held != shape and math.prod(held) != math.prod(shape):
        raise ValueError(f"out has shape {held}, but the result has {shape}")
    if is_contiguous(out):
        view = view_of(out, "out", holds=kind, as_bits=True, writable=True)
        if view.elems != math.prod(shape):
            raise ValueError(f"out holds {view.elems} {kind.name} values, but the result has {math.prod(shape)}")
        return Output(Rows(view.pointer, row_bytes, count, view.owner), out, lambda: None)
    if held != shape:
        raise ValueError(f"out is not contiguous and has shape {held}, but the result has {shape}")
    stride = _row_stride(out) if len(shape) == len(row_shape) + 1 and is_contiguous(out[:1]) else 0
    if stride >= row_bytes:
        # Rows that are contiguous, at a larger distance.
        view = view_of(out[:1], "out", holds=kind, as_bits=True, writable=True)
        return Output(Rows(view.pointer, stride, count, out), out, lambda: None)
    if not isinstance(out, np.ndarray):
        raise ValueError("the rows of out are not contiguous: gather to a contiguous array, and copy")
    if not out.flags.writeable:
        raise ValueError("out is read-only, but the result must be written to it")
    if out.dtype not in (numpy_type(kind), np.dtype(kind.numpy)):
        raise TypeError(f"out holds {out.dtype} values, not {kind.name}")
    copy: npt.NDArray[Any] = np.empty(shape, out.dtype)
    return Output(Rows(copy.ctypes.data, row_bytes, count, copy), out, lambda: np.copyto(out, copy))


def _row_stride(array: Any) -> int:
    """Bytes from one row of an array of torch, NumPy or CuPy to the next."""
    if hasattr(array, "element_size"):
        return int(array.stride(0)) * int(array.element_size())
    return int(array.strides[0])


def index_array(indices: Any, name: str = "indices") -> npt.NDArray[Any]:
    """Indices as a contiguous array of int32 or int64, in their shape. Raises TypeError if they are not integers."""
    if hasattr(indices, "data_ptr") and hasattr(indices, "numpy"):
        if indices.device.type != "cpu":
            raise ValueError(f"{name} is in GPU memory: copy it to the host first")
        indices = plain(indices).numpy()
    array = _array_of(indices, name)
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)  # an empty list
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} has type {array.dtype}, not integers")
    if array.dtype == np.uint64 and array.size and int(array.max()) >> 63:
        raise ValueError(f"{name} has a value of 2^63 or more")
    wanted = np.int32 if array.dtype == np.int32 else np.int64
    return np.ascontiguousarray(array, wanted).reshape(array.shape)


def stored_type(kind: ValueType, name: str) -> ValueType:
    """The type. Raises TypeError if tables do not have it."""
    if kind in MOVED_TYPES:
        raise TypeError(f"{name} holds {kind.name} values, which tables do not have: view it as uint8")
    return kind


def bytes_of_rows(
    array: Any, name: str, dtype: DType | None
) -> tuple[ValueType, tuple[int, ...], npt.NDArray[np.uint8]]:
    """The value type, the shape and the bytes, one row each, of a contiguous array in host memory."""
    view = host_view(plain(array), name, dtype=dtype, moved=True)
    stored_type(view.dtype, name)
    if not view.shape:
        raise ValueError(f"{name} is a single value, not rows")
    row_bytes = math.prod(view.shape[1:]) * view.dtype.bytes
    if not row_bytes:
        raise ValueError(f"{name} has shape {view.shape}: rows must not be empty")
    flat = byte_array(view.pointer, view.raw_bytes, view.owner)
    return view.dtype, view.shape, flat.reshape(view.shape[0], row_bytes)
