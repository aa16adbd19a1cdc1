"""DLPack capsules read with ctypes: pointer, device, type, shape and strides of another framework's tensor.

The layouts are those of dlpack.h (`DLManagedTensor` and, since 1.0, `DLManagedTensorVersioned`). Capsules are read but
not consumed: the memory of the producer stays valid as long as the capsule exists, and the destructor of the capsule
releases it.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
DEVICE_NAMES = {4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm", 11: "ROCm host", 14: "oneAPI", 15: "WebGPU"}
_MAX_VERSION = (1, 1)
_READ_ONLY, _IS_COPY = 1, 2

# (type code, bits) -> value type. DLPack 1.1 added the fp8 codes.
_TYPES = {
    (0, 8): "int8",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (1, 32): "uint32",
    (1, 64): "uint64",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (10, 8): "float8_e4m3",
    (12, 8): "float8_e5m2",
}
_CODE_NAMES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _Device(Structure):
    _fields_ = [("type", c_int32), ("id", c_int32)]


class _Type(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [
        ("data", c_void_p),
        ("device", _Device),
        ("ndim", c_int32),
        ("dtype", _Type),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


class _Versioned(Structure):
    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", c_void_p),
        ("flags", c_uint64),
        ("tensor", _Tensor),
    ]


_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]


@dataclass(frozen=True)
class DlpackTensor:
    """The tensor in a capsule. `strides` are in values; None means C order."""

    pointer: int
    device_type: int
    device_id: int
    type_name: str | None  # None: not a value type of this library
    type_text: str  # for messages
    value_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    read_only: bool
    is_copy: bool
    capsule: object


def export(producer: Any, stream: int | None) -> object:
    """A capsule from the producer, versioned if it supports that. `stream` is the consumer's, numbered as in DLPack."""
    arguments: dict[str, Any] = {} if stream is None else {"stream": stream}
    try:
        capsule: object = producer.__dlpack__(max_version=_MAX_VERSION, **arguments)
    except TypeError:
        # A producer from before DLPack 1.0 does not know max_version.
        capsule = producer.__dlpack__(**arguments)
    return capsule


def read(capsule: object) -> DlpackTensor:
    """Reads a capsule. ValueError if the object is not a capsule, was consumed, or has an unknown major version."""
    flags = 0
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if managed.major != _MAX_VERSION[0]:
            raise ValueError(f"DLPack version {managed.major}.{managed.minor} is not supported (known: 1.x)")
        tensor, flags = managed.tensor, managed.flags
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    else:
        raise ValueError("__dlpack__ returned something that is not an unused DLPack capsule")
    code, bits, lanes = tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes
    name = _TYPES.get((code, bits)) if lanes == 1 else None
    text = name or f"{_CODE_NAMES.get(code, f'DLPack type {code}, ')}{bits}{f'x{lanes}' if lanes != 1 else ''}"
    dimensions = range(tensor.ndim)
    return DlpackTensor(
        pointer=(tensor.data or 0) + tensor.byte_offset,
        device_type=tensor.device.type,
        device_id=tensor.device.id,
        type_name=name,
        type_text=text,
        value_bytes=bits * lanes // 8,
        shape=tuple(tensor.shape[i] for i in dimensions),
        strides=tuple(tensor.strides[i] for i in dimensions) if tensor.strides else None,
        read_only=bool(flags & _READ_ONLY),
        is_copy=bool(flags & _IS_COPY),
        capsule=capsule,
    )
