"""The header of a safetensors file: the names, types and places of its tensors.

Headers are untrusted input: every length and offset is checked against the file before it is used.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, NamedTuple

from ..errors import CorruptError
from ..types import value_type
from .segment import BYTES, Segment, one_line

# The limit of the safetensors library.
MAX_HEADER_BYTES = 100_000_000
_PREFIX = struct.Struct("<Q")


class SafetensorsType(NamedTuple):
    """A type of safetensors."""

    bits: int  #: of a value
    name: str
    dtype: str | None  #: the value type as which it is encoded; None: plain bytes


# In the order of the safetensors library. A complex value is two floats.
TYPES = {
    "BOOL": SafetensorsType(8, "bool", None),
    "F4": SafetensorsType(4, "float4_e2m1", None),
    "F6_E2M3": SafetensorsType(6, "float6_e2m3", None),
    "F6_E3M2": SafetensorsType(6, "float6_e3m2", None),
    "U8": SafetensorsType(8, "uint8", "uint8"),
    "I8": SafetensorsType(8, "int8", "int8"),
    "F8_E5M2": SafetensorsType(8, "float8_e5m2", "float8_e5m2"),
    "F8_E4M3": SafetensorsType(8, "float8_e4m3", "float8_e4m3"),
    "F8_E8M0": SafetensorsType(8, "float8_e8m0", None),
    "F8_E4M3FNUZ": SafetensorsType(8, "float8_e4m3fnuz", None),
    "F8_E5M2FNUZ": SafetensorsType(8, "float8_e5m2fnuz", None),
    "I16": SafetensorsType(16, "int16", None),
    "U16": SafetensorsType(16, "uint16", None),
    "F16": SafetensorsType(16, "float16", "float16"),
    "BF16": SafetensorsType(16, "bfloat16", "bfloat16"),
    "I32": SafetensorsType(32, "int32", "int32"),
    "U32": SafetensorsType(32, "uint32", "uint32"),
    "F32": SafetensorsType(32, "float32", "float32"),
    "C64": SafetensorsType(64, "complex64", "float32"),
    "F64": SafetensorsType(64, "float64", "float64"),
    "I64": SafetensorsType(64, "int64", "int64"),
    "U64": SafetensorsType(64, "uint64", "uint64"),
}
_VALUE_TYPES = {name: value_type(kind.dtype) if kind.dtype else BYTES for name, kind in TYPES.items()}


class TensorEntry(NamedTuple):
    """A tensor according to the header."""

    name: str
    type: str  #: such as "BF16"; may be newer than TYPES
    shape: tuple[int, ...]
    offset: int  #: of its first byte in the file
    raw_bytes: int

    @property
    def type_name(self) -> str:
        """The name of the type, such as "bfloat16"; for a type that is not in TYPES, as in the header."""
        known = TYPES.get(self.type)
        return known.name if known else self.type


class Header(NamedTuple):
    """The header of a safetensors file."""

    tensors: list[TensorEntry]  #: in the order of their bytes in the file
    metadata: dict[str, str]
    header_bytes: int  #: with the prefix that states its length


def begins_like_safetensors(start: bytes) -> bool:
    """start: at least 9 bytes of the file, unless it is shorter."""
    return len(start) >= 9 and start[8:9] == b"{" and _PREFIX.unpack_from(start)[0] <= MAX_HEADER_BYTES


def read_header(file: BinaryIO, total: int, name: str) -> Header:
    """Reads and checks the header of a file of `total` bytes. Raises CorruptError."""
    try:
        return _parse(file, total)
    except _Truncated as error:
        raise CorruptError(f"{name} is a truncated safetensors file: {error}") from None
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"{name} is not a valid safetensors file: {one_line(error)}") from None


def segments_of(header: Header, total: int) -> list[Segment]:
    """The segments of the file, in order and without gaps."""
    found = [Segment(0, header.header_bytes, BYTES, None)]
    position = header.header_bytes
    for one in header.tensors:
        if one.raw_bytes == 0:
            continue
        if one.offset > position:
            found.append(Segment(position, one.offset - position, BYTES, None))
        found.append(Segment(one.offset, one.raw_bytes, _VALUE_TYPES.get(one.type, BYTES), one.name, one.type_name))
        position = one.offset + one.raw_bytes
    if position < total:
        found.append(Segment(position, total - position, BYTES, None))
    return found


class _Truncated(ValueError):
    """The file is shorter than its header says."""


def _parse(file: BinaryIO, total: int) -> Header:
    file.seek(0)
    prefix = file.read(_PREFIX.size)
    if len(prefix) < _PREFIX.size:
        raise ValueError("it is empty" if total == 0 else f"{total} bytes are too few for a header")
    (length,) = _PREFIX.unpack(prefix)
    if length > MAX_HEADER_BYTES:
        raise ValueError("it does not begin with the length of a header")
    if not file.read(1).startswith(b"{") and length:
        raise ValueError("the header does not begin with an opening brace")
    data = _PREFIX.size + length
    if data > total:
        raise _Truncated(f"its header ends at byte {data}, but the file has {total} bytes")
    file.seek(_PREFIX.size)
    text = file.read(length)
    header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    metadata = header.pop("__metadata__", None)
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("__metadata__ does not map names to strings")
    tensors = [_tensor(name, entry, data) for name, entry in header.items()]
    tensors.sort(key=_place)
    position = 0
    for one in tensors:
        if one.raw_bytes:
            if one.offset < position:
                raise ValueError(f"tensor {one.name!r} overlaps the tensor before it")
            position = one.offset + one.raw_bytes
    if position > total:
        last = max(tensors, key=_place)
        raise _Truncated(f"tensor {last.name!r} ends at byte {position}, but the file has {total} bytes")
    return Header(tensors, metadata, data)


def _place(tensor: TensorEntry) -> tuple[int, int]:
    return tensor.offset, tensor.raw_bytes


def _tensor(name: str, entry: Any, data: int) -> TensorEntry:
    # Other keys are ignored, as by the safetensors library.
    if not isinstance(entry, dict) or not entry.keys() >= {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} does not have dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str):
        raise ValueError(f"the dtype of tensor {name!r} is not a string")
    if not _are_counts(shape):
        raise ValueError(f"the shape of tensor {name!r} is not a list of non-negative integers")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"the data_offsets of tensor {name!r} are not two ascending offsets")
    raw_bytes = offsets[1] - offsets[0]
    known = TYPES.get(kind)
    # Types newer than this list become plain bytes.
    if known is not None and _product(shape, limit=8 * raw_bytes) * known.bits != 8 * raw_bytes:
        raise ValueError(f"tensor {name!r} has {raw_bytes} bytes, which does not match its shape and dtype")
    return TensorEntry(name, kind, tuple(shape), data + offsets[0], raw_bytes)


def _are_counts(values: Any) -> bool:
    if not isinstance(values, list):
        return False
    # Not all(): a header may have 100,000 tensors.
    for value in values:  # noqa: SIM110
        if type(value) is not int or value < 0:
            return False
    return True


def _product(shape: list[int], limit: int) -> int:
    """The product of the extents, or a number above the limit. Bounds the work for untrusted extents."""
    if 0 in shape:
        return 0
    product = 1
    for extent in shape:
        product *= extent
        if product > limit:
            break
    return product


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) != len(pairs):
        raise ValueError("a name occurs twice in the header")
    return keys


def _no_constant(text: str) -> Any:
    raise ValueError(f"the header contains {text}")
