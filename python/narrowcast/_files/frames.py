"""The frames of an encoded file: where they are, and their bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from .. import codec as _codec
from .._native.frames import FRAME_HEADER_BYTES, FrameInfo, inspect_memory
from ..errors import CorruptError, NarrowcastError, SystemFailure, error_of
from .opening import Source, bytes_left
from .pipeline import Buffers

_MAGIC = b"NCST"
# The step by which the buffer of a frame from a pipe grows.
_STEP_BYTES = 16 << 20


class Frame(NamedTuple):
    """A frame of an encoded file whose header is valid and whose bytes are in the file."""

    number: int  #: from 0
    offset: int
    info: FrameInfo
    content: npt.NDArray[np.uint8] | None  #: its bytes, if the file is a pipe

    @property
    def memory_bytes(self) -> int:
        """What decoding holds in memory."""
        return self.info.raw_bytes + self.info.wire_bytes


class FrameReader:
    """Reads an encoded file from the position of the file object."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self.name = name
        self._file = file
        # A pipe, or a file in /proc, has no size.
        self._source = Source(file, name) if bytes_left(file) else None

    def frames(self) -> Iterator[Frame]:
        """All frames in order. Reads only the headers, unless the file is a pipe.

        Raises CorruptError where a frame has no valid header or is truncated, and if bytes follow the last frame.
        """
        number = offset = 0
        more = True
        while more:
            with located(self.name, number, offset):
                frame = self._frame_of_pipe(number, offset) if self._source is None else self._frame_at(number, offset)
            yield frame
            offset += frame.info.wire_bytes
            number += 1
            more = frame.info.more
        self._check_end(number - 1, offset)

    def read(self, frame: Frame, buffers: Buffers) -> npt.NDArray[np.uint8]:
        """The bytes of a frame. Several threads may call this."""
        if frame.content is not None:
            return frame.content
        assert self._source is not None
        content = buffers.frame.of(frame.info.wire_bytes)
        self._source.read(frame.offset, content.data)
        return content

    def decode(self, frame: Frame, buffers: Buffers, out: npt.NDArray[np.uint8] | None = None) -> npt.NDArray[np.uint8]:
        """The bytes of the values of a frame, in `out` or in the buffers. Several threads may call this."""
        content = self.read(frame, buffers)
        with located(self.name, frame.number, frame.offset):
            values = buffers.raw.of(frame.info.raw_bytes) if out is None else out
            _codec.decode_into(content.ctypes.data, content.size, 0, values.ctypes.data, values.size)
        return values

    def _frame_at(self, number: int, offset: int) -> Frame:
        assert self._source is not None
        left = self._source.size_bytes - offset
        header = np.empty(min(left, FRAME_HEADER_BYTES), np.uint8)
        self._source.read(offset, header.data)
        if left < FRAME_HEADER_BYTES:
            raise CorruptError(_no_header(header))
        info = inspect_memory(header.ctypes.data, header.size)
        if info.wire_bytes > left:
            raise CorruptError(_truncated(left, info.wire_bytes))
        return Frame(number, offset, info, None)

    def _frame_of_pipe(self, number: int, offset: int) -> Frame:
        content: npt.NDArray[np.uint8] = np.empty(FRAME_HEADER_BYTES, np.uint8)
        filled = _read_into(self._file, content)
        if filled < FRAME_HEADER_BYTES:
            raise CorruptError(_no_header(content[:filled]))
        info = inspect_memory(content.ctypes.data, filled)
        while filled < info.wire_bytes:
            # The buffer grows with the data, whatever the header claims.
            grown = np.empty(min(info.wire_bytes, 2 * filled + _STEP_BYTES), np.uint8)
            grown[:filled] = content[:filled]
            content = grown
            filled += _read_into(self._file, content[filled:])
            if filled < content.size:
                raise CorruptError(_truncated(filled, info.wire_bytes))
        return Frame(number, offset, info, content)

    def _check_end(self, last: int, offset: int) -> None:
        if self._source is None:
            many = "more" if self._file.read(1) else ""
        else:
            # The size now, because the file may have grown.
            rest = self._source.seek(offset)
            many = str(rest) if rest else ""
        if many:
            raise CorruptError(f"{self.name}: {many} bytes follow frame {last}, the last, at byte {offset}")


@contextlib.contextmanager
def located(name: str, number: int, offset: int) -> Iterator[None]:
    """Adds the file and the frame to the message of an error."""
    where = f"{name}: frame {number} at byte {offset}"
    try:
        yield
    except NarrowcastError as error:
        # Drops the name of the C function.
        function, _, message = str(error).partition(": ")
        raise error_of(error.status, f"{where}: {message if function.startswith('ncast_') else error}") from None
    except MemoryError:
        raise SystemFailure(f"{where}: not enough memory for its values") from None


def _no_header(found: npt.NDArray[np.uint8]) -> str:
    """What is wrong if the file ends before the header does."""
    if not found.size:
        return "the file ends where a frame should begin"
    if found[: len(_MAGIC)].tobytes() != _MAGIC[: found.size]:
        return f"not a frame: it does not begin with {_MAGIC.decode()}"
    return _truncated(found.size, FRAME_HEADER_BYTES)


def _truncated(present: int, needed: int) -> str:
    return f"the file is truncated: it has {present} of {needed} bytes"


def _read_into(file: BinaryIO, buffer: npt.NDArray[np.uint8]) -> int:
    """Reads until the buffer is full or the file ends. Returns the number of bytes."""
    rest = buffer.data
    filled = 0
    while filled < len(rest):
        count = file.readinto(rest[filled:])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled
