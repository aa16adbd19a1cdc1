"""Arrays of any framework, as a pointer, a device, a value type and a count.

Supported are NumPy arrays (ml_dtypes included), torch tensors, `__cuda_array_interface__`, DLPack and the buffer
protocol. No framework is imported: objects are recognised by their methods.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..types import ENCODED_TYPES, DType, ValueType, encoded_type, value_type
from . import dlpack
from .streams import stream_handle

# The device ordinal of arrays with __cuda_array_interface__, which does not contain it.
UNKNOWN_DEVICE = -1


class View(NamedTuple):
    """Contiguous values in memory. `owner` keeps the memory alive."""

    pointer: int
    device: str  # "cpu" or "cuda"
    device_id: int  # 0 for cpu; UNKNOWN_DEVICE if the producer does not state it
    dtype: ValueType
    elems: int
    writable: bool
    shape: tuple[int, ...]
    owner: object

    @property
    def c_count(self) -> int:
        """The number of values of the C type."""
        return self.elems * self.dtype.units

    @property
    def raw_bytes(self) -> int:
        return self.elems * self.dtype.bytes


class _Memory(NamedTuple):
    """The properties of an array according to a protocol, before validation."""

    pointer: int
    device: str
    device_id: int
    type_name: str | None
    type_text: str
    value_bytes: int
    shape: tuple[int, ...]
    contiguous: bool
    writable: bool
    owner: object


# Types that need no dtype= to be moved, as the frameworks call them. uint16 needs it: it may hold the bits of bfloat16.
_MOVED = {"bool": "bool", "bool8": "bool", "torch.bool": "bool", "int16": "int16", "torch.int16": "int16"}
# Types without a codec that can be encoded, as the frameworks call them.
_ENCODED = {prefix + kind.name: kind for kind in ENCODED_TYPES for prefix in ("", "torch.")}
_ENCODED["bool8"] = _ENCODED["bool"]
# Types of NumPy whose bytes are not values, whatever dtype= says: the starts of their names, and why.
_UNUSABLE = {">": "which are big-endian: convert them to the byte order of this machine", "object": "not numbers"}


def view(
    array: Any,
    name: str,
    *,
    dtype: DType | None = None,
    holds: ValueType | None = None,
    as_bits: bool = False,
    moved: bool = False,
    encoded: bool = False,
    writable: bool = False,
    stream: Any = None,
) -> View:
    """The memory behind `array`.

    name: the name of the argument, for messages.
    dtype: the value type, for arrays that have none (bytes, uint16 bits) or another one. The bytes are reinterpreted,
        not converted.
    holds: the required value type. Arrays of this type, of bytes, and of types that are not value types (uint16 for
        bfloat16) are accepted.
    moved: also accept values that are only moved, of bool and int16, and of uint16 if `dtype` says so.
    encoded: also accept values of types without a codec, as `types.encoded_type`; with `holds`, those that frames
        contain as values of that type.
    as_bits: with `holds`, also accept unsigned integers of the same width.
    writable: the memory will be written.
    stream: for GPU arrays, the stream that will use them. A DLPack producer orders its own work before it.

    Raises TypeError when `array` is not an array or has an unsupported type, and ValueError when it is not contiguous,
    not writable, or not a whole number of values.
    """
    memory = _memory(array, name, stream)
    for start, fault in _UNUSABLE.items():
        if memory.type_text.startswith(start):
            raise TypeError(f"{name} holds {memory.type_text} values, {fault}")
    if not memory.contiguous:
        raise ValueError(f"{name} is not contiguous (shape {memory.shape}): make a contiguous copy first")
    if writable and not memory.writable:
        raise ValueError(f"{name} is read-only, but the result must be written to it")
    without_codec = _ENCODED.get(memory.type_text) if encoded else None
    if without_codec is not None and holds is not None and without_codec.number == holds.number:
        kind = without_codec
    elif holds is not None:
        bits = (f"uint{8 * holds.bytes}",) if as_bits else ()
        if memory.type_name not in (None, holds.name, "uint8", "int8", *bits):
            raise TypeError(f"{name} holds {memory.type_text} values, not {holds.name}")
        kind = holds
    elif dtype is not None:
        try:
            kind = encoded_type(dtype) if encoded else value_type(dtype, moved=moved)
        except ValueError as error:
            raise ValueError(f"dtype of {name}: {error}") from None
    elif memory.type_name is not None:
        kind = value_type(memory.type_name)
    elif without_codec is not None:
        kind = without_codec
    elif (plain := _MOVED.get(memory.type_text)) is not None:
        if not moved:
            raise TypeError(
                f"{name} holds {plain} values, which communicators only move: they have no codec or reduction"
            )
        kind = value_type(plain, moved=True)
    else:
        raise TypeError(f"{name} holds {memory.type_text}, which is not a value type: pass the type with dtype=")
    items = math.prod(memory.shape)
    total = items * memory.value_bytes
    if kind.bytes != memory.value_bytes and memory.value_bytes != 1:
        raise TypeError(
            f"{name} holds {memory.type_text} values of {memory.value_bytes} bytes, but {kind.name} has {kind.bytes}"
        )
    if total % kind.bytes:
        raise ValueError(f"{name} has {total} bytes, not a whole number of {kind.name} values")
    elems = total // kind.bytes
    shape = memory.shape if elems == items else (elems,)
    return View(memory.pointer, memory.device, memory.device_id, kind, elems, memory.writable, shape, memory.owner)


def _memory(array: Any, name: str, stream: Any) -> _Memory:
    if isinstance(array, np.ndarray):
        return _from_numpy(array)
    if all(hasattr(array, method) for method in ("data_ptr", "is_contiguous", "element_size", "numel")):
        return _from_torch(array, name)
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return _from_dlpack(array, name, stream)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _from_cuda_array_interface(array, interface)
    try:
        buffer = memoryview(array)
    except TypeError:
        raise TypeError(
            f"{name} is of type {type(array).__name__}, not an array: "
            "it supports neither DLPack, __cuda_array_interface__ nor the buffer protocol"
        ) from None
    except (BufferError, ValueError) as error:
        raise ValueError(f"{name} does not export its buffer: {error}") from None
    return _from_buffer(buffer, array)


class _Type(NamedTuple):
    """The type of a framework, and the value type of the same name."""

    name: str | None
    text: str
    value_bytes: int


# Cached: frameworks build the names of their types on every access, which takes longer than the rest of a call.
@functools.cache
def _numpy_type(kind: np.dtype[Any]) -> _Type:
    # In ml_dtypes "float8_e4m3" is the type with infinities. Here it is e4m3fn.
    name = None if kind.name == "float8_e4m3" or not kind.isnative else _value_type_name(kind.name)
    return _Type(name, str(kind), kind.itemsize)


@functools.cache
def _type_of_text(typestr: str) -> _Type:
    return _numpy_type(np.dtype(typestr))


@functools.cache
def _torch_type(kind: Any) -> tuple[str | None, str]:
    return _value_type_name(str(kind)), str(kind)


def _value_type_name(dtype_name: str) -> str | None:
    """The value type with the name of a dtype, or None: other fp8 layouts (fnuz, infinities) are not supported."""
    try:
        return value_type(dtype_name).name
    except ValueError:
        return None


def _from_numpy(array: np.ndarray[Any, Any]) -> _Memory:
    kind = _numpy_type(array.dtype)
    return _Memory(
        pointer=array.ctypes.data,
        device="cpu",
        device_id=0,
        type_name=kind.name,
        type_text=kind.text,
        value_bytes=kind.value_bytes,
        shape=array.shape,
        contiguous=bool(array.flags.c_contiguous),
        writable=bool(array.flags.writeable),
        owner=array,
    )


def _from_torch(tensor: Any, name: str) -> _Memory:
    # Not through DLPack: older versions of torch export neither fp8 nor tensors that require a gradient.
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"{name} is on device {kind!r}: only cpu and cuda are supported")
    if getattr(tensor, "is_neg", lambda: False)() or getattr(tensor, "is_conj", lambda: False)():
        raise ValueError(f"{name} is a lazily negated or conjugated view: resolve it first")
    type_name, type_text = _torch_type(tensor.dtype)
    return _Memory(
        pointer=int(tensor.data_ptr()),
        device=kind,
        device_id=int(tensor.device.index or 0),
        type_name=type_name,
        type_text=type_text,
        value_bytes=int(tensor.element_size()),
        shape=tuple(tensor.shape),
        contiguous=bool(tensor.is_contiguous()),
        writable=True,
        owner=tensor,
    )


def _from_dlpack(array: Any, name: str, stream: Any) -> _Memory:
    device_type, _ = array.__dlpack_device__()
    device_type = int(device_type)
    if device_type in (dlpack.CUDA, dlpack.CUDA_MANAGED):
        # In DLPack 1 is the legacy default stream, and 0 is not allowed.
        capsule_stream: int | None = stream_handle(stream) or 1
        device = "cuda"
    elif device_type in (dlpack.CPU, dlpack.CUDA_HOST):
        capsule_stream, device = None, "cpu"
    else:
        known = dlpack.DEVICE_NAMES.get(device_type, f"DLPack type {device_type}")
        raise ValueError(f"{name} is on an unsupported device ({known}): only cpu and cuda are supported")
    try:
        tensor = dlpack.read(dlpack.export(array, capsule_stream))
    except (BufferError, RuntimeError, ValueError) as error:
        raise ValueError(f"{name} does not export a DLPack tensor: {error}") from None
    # JAX arrays are immutable, which capsules from before DLPack 1.0 cannot express.
    immutable = type(array).__module__.split(".")[0] in ("jax", "jaxlib")
    return _Memory(
        pointer=tensor.pointer,
        device=device,
        device_id=tensor.device_id if device == "cuda" else 0,
        type_name=tensor.type_name,
        type_text=tensor.type_text,
        value_bytes=tensor.value_bytes,
        shape=tensor.shape,
        contiguous=tensor.strides is None or _is_c_order(tensor.shape, tensor.strides, 1),
        writable=not (tensor.read_only or tensor.is_copy or immutable),
        owner=(array, tensor.capsule),
    )


def _from_cuda_array_interface(array: Any, interface: dict[str, Any]) -> _Memory:
    kind = _type_of_text(interface["typestr"])
    pointer, read_only = interface["data"]
    shape = tuple(int(extent) for extent in interface["shape"])
    strides = interface.get("strides")
    return _Memory(
        pointer=int(pointer or 0),
        device="cuda",
        device_id=UNKNOWN_DEVICE,
        type_name=kind.name,
        type_text=kind.text,
        value_bytes=kind.value_bytes,
        shape=shape,
        contiguous=strides is None or _is_c_order(shape, strides, kind.value_bytes),
        writable=not read_only,
        owner=array,
    )


def _from_buffer(buffer: memoryview, array: object) -> _Memory:
    flat = np.asarray(buffer)
    memory = _from_numpy(flat)
    # bytes and bytearray are untyped: uint8 unless the caller passes a type.
    return memory._replace(writable=not buffer.readonly, owner=(flat, buffer, array))


def _is_c_order(shape: Sequence[int], strides: Sequence[int], unit: int) -> bool:
    if 0 in shape:
        return True
    expected = unit
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent != 1 and stride != expected:
            return False
        expected *= extent
    return True


def host_view(
    array: Any,
    name: str,
    *,
    dtype: DType | None = None,
    holds: ValueType | None = None,
    as_bits: bool = False,
    moved: bool = False,
    encoded: bool = False,
    writable: bool = False,
) -> View:
    """As view(), for arrays that must be in host memory."""
    found = view(
        array, name, dtype=dtype, holds=holds, as_bits=as_bits, moved=moved, encoded=encoded, writable=writable
    )
    if found.device != "cpu":
        raise ValueError(f"{name} is in GPU memory: use narrowcast.cuda, or copy it to the host first")
    return found


def reject_overlap(**views: View | None) -> None:
    """Raises ValueError if two of the arrays share memory. The keywords are their names; None is ignored."""
    placed = sorted(
        (one.pointer, one.pointer + one.raw_bytes, name) for name, one in views.items() if one and one.raw_bytes
    )
    for (_, end, first), (begin, _, second) in itertools.pairwise(placed):
        if begin < end:
            raise ValueError(f"{first} and {second} overlap in memory")


def reject_batch_overlap(first: str, readable: Sequence[View], second: str, writable: Sequence[View]) -> None:
    """Raises ValueError if a written array of a batch shares memory with another array.

    first, second: the names of the arguments. Arrays that are only read may overlap each other.
    """
    named = {f"{second}[{i}]": one for i, one in enumerate(writable)}
    reject_overlap(**named)
    # Merges overlapping arrays that are only read into stretches.
    stretches: dict[str, View] = {}
    end = 0
    last = ""
    for begin, i in sorted((one.pointer, i) for i, one in enumerate(readable) if one.raw_bytes):
        one = readable[i]
        if last and begin < end:
            end = max(end, begin + one.raw_bytes)
            stretches[last] = stretches[last]._replace(elems=end - stretches[last].pointer, dtype=value_type("uint8"))
        else:
            last, end = f"{first}[{i}]", begin + one.raw_bytes
            stretches[last] = one
    reject_overlap(**stretches, **named)


def byte_array(pointer: int, count: int, owner: object) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A uint8 array over host memory, which keeps `owner` alive."""
    if count == 0:
        return np.empty(0, np.uint8)
    raw = (ctypes.c_uint8 * count).from_address(pointer)
    raw._owner = owner  # type: ignore[attr-defined]
    return np.ctypeslib.as_array(raw)
