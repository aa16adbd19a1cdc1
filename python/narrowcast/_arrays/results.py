"""New arrays for results: of the framework and type of the caller's array, and on its device."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


def framework_of(array: Any) -> str:
    """The package that an array comes from: "numpy", "torch", "cupy", "jax" or another one."""
    name = type(array).__module__.split(".")[0]
    return "jax" if name == "jaxlib" else name


def shape_of(array: Any) -> tuple[int, ...]:
    """The shape, also of objects that only have the buffer protocol."""
    return tuple(array.shape if hasattr(array, "shape") else np.asarray(memoryview(array)).shape)


def item_bytes_of(array: Any) -> int:
    """The size of an item, also of objects that only have the buffer protocol."""
    if hasattr(array, "element_size"):
        return int(array.element_size())
    return np.dtype(array.dtype).itemsize if hasattr(array, "dtype") else memoryview(array).itemsize


def scaled(shape: tuple[int, ...], times: int, parts: int) -> tuple[int, ...]:
    """The shape of `times` arrays of a shape, end to end along the first axis, or of one of `parts` equal parts.

    If the first axis cannot be divided into the parts, the result has one axis.
    """
    first, *rest = shape or (1,)
    whole = first * times
    return (whole // parts, *rest) if whole % parts == 0 else (math.prod(shape) * times // parts,)


class Result(NamedTuple):
    """Where a call writes its result: the array of the caller, or a new one."""

    array: Any
    like: Any = None  #: the array that a new one resembles

    @classmethod
    def of(cls, out: Any, like: Any, shape: Callable[[], tuple[int, ...]], *, completes: bool) -> Result:
        """The caller's array `out` or, if it is None, a new one with undefined values, whose shape is then computed.

        like: an array. A new one is of its framework and type, on its device; a NumPy array if it only has a buffer.
        completes: whether the call has ended when it returns.

        Raises ValueError if there cannot be such an array of the framework.
        """
        return cls(out) if out is not None else cls(_empty(like, shape(), completes), like)

    def get(self) -> Any:
        """The result, once the call has returned."""
        if framework_of(self.like) != "jax":
            return self.array
        return sys.modules["jax"].device_put(self.array, next(iter(self.like.devices())))


def _empty(like: Any, shape: tuple[int, ...], completes: bool) -> Any:
    if isinstance(like, np.ndarray):
        return np.empty(shape, like.dtype)
    if hasattr(like, "new_empty"):
        return like.new_empty(shape)
    framework = framework_of(like)
    if framework == "cupy":
        with like.device:
            return sys.modules["cupy"].empty(shape, like.dtype)
    if framework == "jax":
        if not completes:
            raise ValueError("out is needed: JAX arrays are immutable, and this call has not ended when it returns")
        return np.empty(shape, like.dtype)
    if not hasattr(like, "__dlpack__") and not hasattr(like, "__cuda_array_interface__"):
        return np.empty(shape, np.asarray(memoryview(like)).dtype)
    raise ValueError(f"out is needed: no {framework} array can be created for the result")
