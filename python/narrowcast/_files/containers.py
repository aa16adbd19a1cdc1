"""The value types in a safetensors, npy or plain file.

The result affects the compression ratio, never the data.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from ..errors import CorruptError
from ..types import value_type
from .npy_header import MAGIC as NPY_MAGIC
from .npy_header import npy_segments
from .opening import bytes_left
from .safetensors_header import begins_like_safetensors, read_header, segments_of
from .segment import Segment, StatedTypeError, UnknownValuesError, plain

_START_BYTES = 64
_LFS_POINTER = b"version https://git-lfs.github.com/"
# Other files that users try to encode.
_OTHERS = (
    (b"NCST", "already encoded"),
    (_LFS_POINTER, "a Git LFS pointer, which stands for a file that was not downloaded"),
    (b"PK\3\4", "a zip archive, such as torch.save and numpy.savez write"),
    (b"\x80\2", "a pickle"),
    (b"\x80\4", "a pickle"),
    (b"GGUF", "a GGUF file"),
    (b"\x1f\x8b", "compressed by gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd"),
    (b"\x89HDF", "an HDF5 file"),
)


def segments(file: BinaryIO, name: str, dtype: str | None = None) -> list[Segment]:
    """The segments of a file, in order and without gaps, from its first byte to its last; none if it is empty.

    file: seekable, at byte 0; its content decides what it is. name: its name; a name that ends in .safetensors must be
        a valid safetensors file.
    dtype: the value type of a plain file, or of an npy file whose header does not state it.

    Raises UnknownValuesError if the file is plain and dtype is None, StatedTypeError if dtype is given and the header
    states another type, and CorruptError if a header is malformed and dtype is None.
    """
    given = value_type(dtype) if dtype else None
    total = bytes_left(file) or 0
    start = file.read(_START_BYTES)
    try:
        if start.startswith(NPY_MAGIC):
            return npy_segments(file, total, given, name)
        if begins_like_safetensors(start) or (given is None and Path(name).suffix == ".safetensors"):
            header = read_header(file, total, name)
            if given is not None:
                raise StatedTypeError(f"{name} is a safetensors file, whose header states the types of its tensors")
            return segments_of(header, total)
    except CorruptError as error:
        # Malformed files can still be encoded as plain ones.
        if given is None:
            what = _other(start)
            raise CorruptError(
                f"{error}; it is {what}" if what else f"{error} (--dtype uint8 treats it as plain bytes)"
            ) from None
    if total == 0:
        return []
    if given is None:
        raise UnknownValuesError(_unknown(name, start))
    return list(plain(0, total, given, Path(name).name, given.name))


def _other(start: bytes) -> str | None:
    return next((what for magic, what in _OTHERS if start.startswith(magic)), None)


def _unknown(name: str, start: bytes) -> str:
    what = _other(start)
    kind = "neither safetensors nor npy" if what is None else what
    return f"{name} is {kind}: give the type of its values with --dtype (uint8: plain bytes)"
