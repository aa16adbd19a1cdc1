"""The value types in a safetensors, npy or plain file.

The result affects the compression ratio, never the data. Headers are untrusted input: every length and offset is
checked against the file before it is used.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import CorruptError
from ..types import ValueType, value_type
from .opening import bytes_left

BYTES = value_type("uint8")
NPY_MAGIC = b"\x93NUMPY"
# The limit of the safetensors library.
MAX_SAFETENSORS_HEADER_BYTES = 100_000_000
MAX_NPY_HEADER_BYTES = 1 << 20

# Type in safetensors -> bits of a value, and the value type; None: plain bytes.
_SAFETENSORS: dict[str, tuple[int, str | None]] = {
    "BF16": (16, "bfloat16"),
    "F16": (16, "float16"),
    "F32": (32, "float32"),
    "F64": (64, "float64"),
    "F8_E4M3": (8, "float8_e4m3"),
    "F8_E5M2": (8, "float8_e5m2"),
    "I8": (8, "int8"),
    "U8": (8, "uint8"),
    "I32": (32, "int32"),
    "U32": (32, "uint32"),
    "I64": (64, "int64"),
    "U64": (64, "uint64"),
    "I16": (16, None),
    "U16": (16, None),
    "BOOL": (8, None),
    # A complex value is two floats.
    "C64": (64, "float32"),
}
# NumPy type -> value type; complex numbers are pairs of floats.
_NUMPY = {
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "c8": "float32",
    "c16": "float64",
    "i1": "int8",
    "u1": "uint8",
    "i4": "int32",
    "u4": "uint32",
    "i8": "int64",
    "u8": "uint64",
}


class UnknownValuesError(ValueError):
    """The value type of a file is unknown and must be given."""


@dataclass(frozen=True)
class Segment:
    """Consecutive bytes of a file with one value type."""

    offset: int
    raw_bytes: int
    dtype: ValueType
    tensor: str | None  #: the name of the tensor; None for headers and gaps

    @property
    def end(self) -> int:
        """The offset of the first byte after the segment."""
        return self.offset + self.raw_bytes


def segments(file: BinaryIO, name: str, dtype: str | None = None) -> list[Segment]:
    """The segments of a file, in order and without gaps, from its first byte to its last; none if it is empty.

    file: seekable, at byte 0. name: its name; a name that ends in .safetensors must be a valid safetensors file.
    dtype: the value type of a plain file, or of the data of an npy file. If given, a safetensors file is treated as
        plain.

    Raises UnknownValuesError if the file is plain and dtype is None, and CorruptError if a header is malformed.
    """
    given = value_type(dtype) if dtype else None
    path = Path(name)
    total = bytes_left(file) or 0
    start = file.read(9)
    if start.startswith(NPY_MAGIC):
        try:
            return _npy(file, total, given, path)
        except CorruptError:
            if given is None:
                raise
    elif given is None and path.suffix == ".safetensors":
        return _safetensors(file, total, name)
    elif given is None and start[8:] == b"{":
        # Model caches drop the suffix.
        try:
            return _safetensors(file, total, name)
        except CorruptError:
            pass
    if total == 0:
        return []
    if given is None:
        raise UnknownValuesError(
            f"{name} is neither safetensors nor npy: give the type of its values with --dtype (uint8: plain bytes)"
        )
    return list(_plain(0, total, given, path.name))


def _plain(offset: int, total: int, kind: ValueType, tensor: str | None) -> Iterator[Segment]:
    whole = total - total % kind.bytes
    if whole:
        yield Segment(offset, whole, kind, tensor)
    if total > whole:
        yield Segment(offset + whole, total - whole, BYTES, None)


def _npy(file: BinaryIO, total: int, given: ValueType | None, path: Path) -> list[Segment]:
    file.seek(0)
    try:
        version = np.lib.format.read_magic(file)
        reader = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(version)
        if reader is None:
            raise ValueError(f"version {version[0]}.{version[1]} is not supported")
        # Checked before NumPy reads and evaluates the header.
        width = 2 if version == (1, 0) else 4
        length = int.from_bytes(file.read(width), "little")
        if length > min(MAX_NPY_HEADER_BYTES, total):
            raise ValueError(f"the header claims {length} bytes")
        file.seek(len(NPY_MAGIC) + 2)
        shape, _, kind = reader(file, max_header_size=MAX_NPY_HEADER_BYTES)
        data = total - file.tell()
        if not kind.hasobject and math.prod(shape) * kind.itemsize != data:
            raise ValueError(f"{data} bytes of data do not match shape {shape} of {kind}")
    except (ValueError, SyntaxError, TypeError, OverflowError, RecursionError, MemoryError, EOFError) as error:
        raise CorruptError(f"{path} is not a valid npy file: {_one_line(error)}") from None
    header = file.tell()
    name = None if kind.hasobject or not kind.isnative else _NUMPY.get(f"{kind.kind}{kind.itemsize}")
    # Pickled objects, big-endian numbers and records stay plain bytes.
    ours = given or (value_type(name) if name else BYTES)
    return [Segment(0, header, BYTES, None), *_plain(header, total - header, ours, path.stem)]


def _safetensors(file: BinaryIO, total: int, name: str) -> list[Segment]:
    try:
        return _parse_safetensors(file, total)
    except (ValueError, RecursionError) as error:
        raise CorruptError(
            f"{name} is not a valid safetensors file: {_one_line(error)} (--dtype uint8 treats it as plain bytes)"
        ) from None


def _parse_safetensors(file: BinaryIO, total: int) -> list[Segment]:
    file.seek(0)
    prefix = file.read(8)
    if len(prefix) < 8:
        raise ValueError(f"{total} bytes are too few for a header")
    (length,) = struct.unpack("<Q", prefix)
    if length > MAX_SAFETENSORS_HEADER_BYTES or 8 + length > total:
        raise ValueError(f"the header claims {length} bytes, but the file has {total}")
    text = file.read(length)
    if not text.startswith(b"{"):
        raise ValueError("the header does not begin with an opening brace")
    header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique_keys, parse_constant=_no_constant)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ValueError("__metadata__ does not map names to strings")
    data = 8 + length
    tensors = sorted(
        (_tensor(name, entry, data, total) for name, entry in header.items()), key=lambda one: (one.offset, one.end)
    )
    found = [Segment(0, data, BYTES, None)]
    for tensor in tensors:
        position = found[-1].end
        if tensor.raw_bytes == 0:
            continue
        if tensor.offset < position:
            raise ValueError(f"tensor {tensor.tensor!r} overlaps the tensor before it")
        if tensor.offset > position:
            found.append(Segment(position, tensor.offset - position, BYTES, None))
        found.append(tensor)
    if found[-1].end < total:
        found.append(Segment(found[-1].end, total - found[-1].end, BYTES, None))
    return found


def _tensor(name: str, entry: Any, data: int, total: int) -> Segment:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"tensor {name!r} does not have exactly dtype, shape and data_offsets")
    kind, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(kind, str):
        raise ValueError(f"the dtype of tensor {name!r} is not a string")
    if not _are_counts(shape):
        raise ValueError(f"the shape of tensor {name!r} is not a list of non-negative integers")
    if not _are_counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1] <= total - data:
        raise ValueError(f"the data_offsets of tensor {name!r} are not two offsets within the data")
    raw_bytes = offsets[1] - offsets[0]
    bits, ours = _SAFETENSORS.get(kind, (None, None))
    # bits is None for types newer than this list, which become plain bytes.
    if bits is not None and _product(shape, limit=8 * total) * bits != 8 * raw_bytes:
        raise ValueError(f"tensor {name!r} has {raw_bytes} bytes, which does not match its shape and dtype")
    return Segment(data + offsets[0], raw_bytes, value_type(ours) if ours else BYTES, name)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


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


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
