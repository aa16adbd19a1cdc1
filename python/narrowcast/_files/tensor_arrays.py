"""Tensors as arrays of NumPy and of torch, by the names of their types in safetensors."""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .._arrays.view import byte_array
from .safetensors_header import TYPES

# Types that NumPy lacks: their names in ml_dtypes, and the types of their bits.
_ML_DTYPES = {
    "BF16": ("bfloat16", "uint16"),
    "F8_E4M3": ("float8_e4m3fn", "uint8"),
    "F8_E5M2": ("float8_e5m2", "uint8"),
    "F8_E8M0": ("float8_e8m0fnu", "uint8"),
    "F8_E4M3FNUZ": ("float8_e4m3fnuz", "uint8"),
    "F8_E5M2FNUZ": ("float8_e5m2fnuz", "uint8"),
}
# Names of types in NumPy, ml_dtypes and torch -> type of safetensors.
_OF_NAME = {known.name: kind for kind, known in TYPES.items() if known.bits >= 8} | {
    "float8_e4m3fn": "F8_E4M3",
    "float8_e8m0fnu": "F8_E8M0",
    "float4_e2m1fn_x2": "F4",
}
# In ml_dtypes this is the type with infinities, which safetensors does not have.
_NOT_IN_SAFETENSORS = "float8_e4m3"
_TORCH = {"float8_e4m3": "float8_e4m3fn", "float8_e8m0": "float8_e8m0fnu", "float4_e2m1": "float4_e2m1fn_x2"}


class TensorBytes(NamedTuple):
    """A tensor to write."""

    type: str  #: of safetensors
    shape: tuple[int, ...]
    content: npt.NDArray[np.uint8]


def new_array(kind: str, shape: tuple[int, ...], name: str) -> npt.NDArray[Any]:
    """An array for a tensor of a type of safetensors. Raises ValueError for types that NumPy cannot hold."""
    found = _numpy_type(kind)
    if found is None:
        raise ValueError(f"tensor {name!r} has type {kind}, which NumPy does not have")
    return np.empty(shape, found)


@functools.cache
def _numpy_type(kind: str) -> np.dtype[Any] | None:
    if kind in _ML_DTYPES:
        name, bits = _ML_DTYPES[kind]
        with contextlib.suppress(ImportError, AttributeError):
            own: np.dtype[Any] = np.dtype(getattr(importlib.import_module("ml_dtypes"), name))
            return own
        return np.dtype(bits)
    known = TYPES.get(kind)
    with contextlib.suppress(TypeError):
        return np.dtype(known.name) if known else None
    return None


def new_torch_tensor(kind: str, shape: tuple[int, ...], name: str) -> Any:
    """A tensor of torch in host memory. Raises ValueError for types that this torch does not have.

    In torch, an element of a packed type has several values, so that its last extent is smaller than `shape` says.
    """
    torch = importlib.import_module("torch")
    known = TYPES.get(kind)
    plain = known.name if known else kind
    found = getattr(torch, _TORCH.get(plain, plain), None)
    if found is None:
        raise ValueError(f"tensor {name!r} has type {kind}, which torch {torch.__version__} does not have")
    # With the device, because torch may have another default.
    return torch.empty(packed_shape(kind, shape, name), dtype=found, device="cpu")


def packed_values(kind: str) -> int:
    """The number of values in a byte of a packed type; 1 for other types."""
    known = TYPES.get(kind)
    return 8 // known.bits if known and 8 % known.bits == 0 else 1


def packed_shape(kind: str, shape: tuple[int, ...], name: str) -> tuple[int, ...]:
    """The shape in torch. Raises ValueError if rows of packed values do not end at a byte."""
    values = packed_values(kind)
    if values == 1:
        return shape
    if not shape or shape[-1] % values:
        raise ValueError(f"tensor {name!r} has shape {list(shape)}, but torch packs {values} values of {kind} per byte")
    return (*shape[:-1], shape[-1] // values)


def bytes_of(array: Any) -> npt.NDArray[np.uint8]:
    """The memory of a contiguous array of NumPy, or of a contiguous tensor of torch in host memory."""
    if isinstance(array, np.ndarray):
        return array.reshape(-1).view(np.uint8)
    return byte_array(int(array.data_ptr()), int(array.numel()) * int(array.element_size()), array)


def tensor_bytes(value: Any, name: str) -> TensorBytes:
    """The bytes of an array of NumPy (ml_dtypes included), torch, JAX, or anything that NumPy converts.

    Values that are not contiguous, on a GPU, or in the other byte order are copied. Raises TypeError for types that
    safetensors does not have.
    """
    if hasattr(value, "data_ptr") and hasattr(value, "is_contiguous"):
        if str(value.layout) != "torch.strided":
            raise TypeError(f"tensor {name!r} is sparse, which safetensors does not have: save tensor.to_dense()")
        array = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        type_name = str(array.dtype).removeprefix("torch.")
    else:
        array = np.ascontiguousarray(value).reshape(np.shape(value))
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        type_name = array.dtype.name
        if type_name == _NOT_IN_SAFETENSORS:
            type_name = "float8_e4m3 with infinities"
    kind = _OF_NAME.get(type_name)
    if kind is None:
        raise TypeError(f"tensor {name!r} has type {type_name}, which safetensors does not have")
    shape = tuple(map(int, array.shape))
    if (values := packed_values(kind)) > 1:
        if not shape:
            raise TypeError(f"tensor {name!r} is a scalar of {values} packed values, which safetensors does not have")
        shape = (*shape[:-1], shape[-1] * values)
    return TensorBytes(kind, shape, bytes_of(array))
