"""The header of an npy file. It is untrusted input."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ..errors import CorruptError
from ..types import ValueType, value_type
from .segment import BYTES, Segment, StatedTypeError, one_line, plain

MAGIC = b"\x93NUMPY"
MAX_HEADER_BYTES = 1 << 20
# NumPy type -> value type; complex numbers are pairs of floats.
_VALUE_TYPES = {
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


def check_npy(file: BinaryIO, name: str) -> None:
    """Raises CorruptError if an npy file is malformed, and TypeError if it contains Python objects."""
    if _type_of(file, file.seek(0, os.SEEK_END), name).hasobject:
        raise TypeError(f"{name} contains Python objects, not numbers")


def npy_segments(file: BinaryIO, total: int, given: ValueType | None, name: str) -> list[Segment]:
    """The segments of an npy file.

    given: the type of the values if the header does not state it, as for bfloat16, which NumPy stores as void or
        unsigned bits.

    Raises CorruptError if the header is malformed, and StatedTypeError if it states a type other than `given`.
    """
    kind = _type_of(file, total, name)
    header = file.tell()
    # Pickled objects, big-endian numbers and records are plain bytes.
    known = None if kind.hasobject or not kind.isnative else _VALUE_TYPES.get(f"{kind.kind}{kind.itemsize}")
    stated = value_type(known) if known else BYTES
    type_name = kind.name if kind.isnative else str(kind)
    if given is not None and given != stated:
        if not _may_hold(kind, given):
            raise StatedTypeError(f"{name} contains {type_name} values according to its header, not {given.name}")
        stated, type_name = given, given.name
    return [Segment(0, header, BYTES, None), *plain(header, total - header, stated, Path(name).stem, type_name)]


def _type_of(file: BinaryIO, total: int, name: str) -> np.dtype[Any]:
    """The type of the values of an npy file, which is then at its data."""
    try:
        return _read(file, total)
    except OSError:
        raise
    except Exception as error:
        # The parser of NumPy raises many kinds of exceptions.
        raise CorruptError(f"{name} is not a valid npy file: {one_line(error)}") from None


def _may_hold(kind: np.dtype[Any], given: ValueType) -> bool:
    """Whether the type may stand for the bits of another."""
    return kind.kind in "iuV" and not kind.names and kind.itemsize == given.bytes


def _read(file: BinaryIO, total: int) -> np.dtype[Any]:
    """Reads the header; the file is then at the data. Raises any exception if it is malformed."""
    file.seek(0)
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
    if length > min(MAX_HEADER_BYTES, total):
        raise ValueError(f"the header claims {length} bytes, but the file has {total}")
    file.seek(len(MAGIC) + 2)
    try:
        shape, _, kind = reader(file, max_header_size=MAX_HEADER_BYTES)
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"its header cannot be parsed: {one_line(error)}") from None
    data, needed = total - file.tell(), math.prod(shape) * kind.itemsize
    if not kind.hasobject and needed != data:
        cause = "it is truncated: " if data < needed else ""
        raise ValueError(f"{cause}shape {shape} of {kind} needs {needed} bytes of data, but it has {data}")
    return kind
