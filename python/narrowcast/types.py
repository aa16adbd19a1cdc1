"""Value types and reductions: their names, and their numbers in the C API."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

__all__ = ["REDUCTIONS", "VALUE_TYPES", "DType", "ValueType", "value_type"]


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class ValueType:
    """A value type and its layout."""

    name: str  #: as returned by ncast_dtype_name
    number: int  #: in the C API
    bytes: int  #: of one value
    exponent_bits: int  #: 0 for integers
    mantissa_bits: int  #: 0 for integers
    numpy: str  #: the NumPy type that holds the bits
    units: int = 1  #: how many values of the C type have the bytes of one value

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point type."""
        return self.exponent_bits > 0


DType: TypeAlias = ValueType | str | np.dtype[Any] | type[np.generic] | object
"""What `dtype=` accepts: a name such as "bfloat16", "bf16" or "torch.bfloat16", a `ValueType`, a `torch.dtype`, a
`numpy.dtype`, or a scalar type of NumPy, ml_dtypes or JAX, such as `numpy.float32` and `ml_dtypes.bfloat16`."""

VALUE_TYPES: Final = (
    ValueType("int8", 0, 1, 0, 0, "int8"),
    ValueType("uint8", 1, 1, 0, 0, "uint8"),
    ValueType("int32", 2, 4, 0, 0, "int32"),
    ValueType("uint32", 3, 4, 0, 0, "uint32"),
    ValueType("int64", 4, 8, 0, 0, "int64"),
    ValueType("uint64", 5, 8, 0, 0, "uint64"),
    ValueType("float16", 6, 2, 5, 10, "float16"),
    ValueType("float32", 7, 4, 8, 23, "float32"),
    ValueType("float64", 8, 8, 11, 52, "float64"),
    # NumPy does not have these types: arrays contain their bits.
    ValueType("bfloat16", 9, 2, 8, 7, "uint16"),
    ValueType("float8_e4m3", 10, 1, 4, 3, "uint8"),
    ValueType("float8_e5m2", 11, 1, 5, 2, "uint8"),
)
# Types that communicators only move, as bytes. The C API does not have them.
MOVED_TYPES: Final = (
    ValueType("bool", 1, 1, 0, 0, "bool"),
    ValueType("int16", 1, 2, 0, 0, "int16", units=2),
    ValueType("uint16", 1, 2, 0, 0, "uint16", units=2),
)
# Types without a codec, of which frames contain the bytes, or the parts of complex numbers.
ENCODED_TYPES: Final = (
    *MOVED_TYPES,
    ValueType("float8_e8m0fnu", 1, 1, 0, 0, "uint8"),
    ValueType("float8_e4m3fnuz", 1, 1, 0, 0, "uint8"),
    ValueType("float8_e5m2fnuz", 1, 1, 0, 0, "uint8"),
    ValueType("float4_e2m1fn_x2", 1, 1, 0, 0, "uint8"),
    ValueType("complex64", 7, 8, 0, 0, "complex64", units=2),
    ValueType("complex128", 8, 16, 0, 0, "complex128", units=2),
)
_MOVED_BY_NAME: Final = {moved.name: moved for moved in MOVED_TYPES}
_ENCODED_BY_NAME: Final = {encoded.name: encoded for encoded in ENCODED_TYPES}

BY_NAME: Final = {value_type.name: value_type for value_type in VALUE_TYPES}
BY_NUMBER: Final = {value_type.number: value_type for value_type in VALUE_TYPES}

# Names of the same types in torch, ml_dtypes, safetensors and nccl-tests.
_ALIASES: Final = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "half": "float16",
    "f16": "float16",
    "fp32": "float32",
    "float": "float32",
    "f32": "float32",
    "fp64": "float64",
    "double": "float64",
    "f64": "float64",
    "float8_e4m3fn": "float8_e4m3",
    "f8e4m3": "float8_e4m3",
    "f8e5m2": "float8_e5m2",
    "fp8_e4m3": "float8_e4m3",
    "fp8_e5m2": "float8_e5m2",
}

REDUCTIONS: Final[dict[str, int]] = {"sum": 0, "prod": 1, "max": 2, "min": 3, "avg": 4}


def value_type(dtype: DType, *, moved: bool = False) -> ValueType:
    """The value type that a `DType` describes.

    moved: also accept "bool", "int16" and "uint16", which communicators move as bytes.

    Raises ValueError for types that the library does not have, and TypeError for objects that describe no type.
    """
    if dtype.__hash__ is None:
        raise TypeError(f"{dtype!r} is not a value type: it is of type {type(dtype).__name__}")
    return _value_type(dtype, moved)


def encoded_type(dtype: DType) -> ValueType:
    """As value_type, but also accepts types without a codec.

    These have the number of the type as which frames contain them, and `units` of its values.
    """
    if isinstance(dtype, ValueType):
        return dtype
    with contextlib.suppress(ValueError, TypeError):
        name = dtype if isinstance(dtype, str) else _name_of(dtype)
        found = _ENCODED_BY_NAME.get(_plain(name))
        if found is not None:
            return found
    return value_type(dtype)


@functools.cache
def _value_type(dtype: DType, moved: bool) -> ValueType:
    if isinstance(dtype, ValueType):
        return dtype
    name = dtype if isinstance(dtype, str) else _name_of(dtype)
    plain = _plain(name)
    found = BY_NAME.get(_ALIASES.get(plain, plain))
    if found is None and plain in _MOVED_BY_NAME:
        if moved:
            return _MOVED_BY_NAME[plain]
        raise ValueError(f"{name!r} values have no codec and no reductions: communicators only move them")
    if found is None:
        raise ValueError(f"{name!r} is not a value type (known: {', '.join(BY_NAME)})")
    return found


def _plain(name: str) -> str:
    return name.lower().removeprefix("torch.").removeprefix("numpy.")


def _name_of(dtype: Any) -> str:
    """The name of a type of a framework."""
    kind = type(dtype)
    if kind.__name__ == "dtype" and kind.__module__.partition(".")[0] == "torch":
        return str(dtype)
    if isinstance(dtype, type) and issubclass(dtype, np.generic):
        described: Any = np.dtype(dtype)
    else:
        described = dtype if isinstance(dtype, np.dtype) else getattr(dtype, "dtype", None)  # JAX's types have it
    if not isinstance(described, np.dtype):
        raise TypeError(f"{dtype!r} is not a value type: it is of type {kind.__name__}")
    if not described.isnative:
        raise ValueError(f"{described!r} is not in the byte order of this machine")
    # In ml_dtypes "float8_e4m3" is the type with infinities. Here it is e4m3fn.
    return "ml_dtypes.float8_e4m3" if described.name == "float8_e4m3" else described.name


def reduction_number(op: str) -> int:
    """The number of a reduction in the C API. Raises ValueError for an unknown name."""
    if op not in REDUCTIONS:
        raise ValueError(f"{op!r} is not a reduction (known: {', '.join(REDUCTIONS)})")
    return REDUCTIONS[op]
