"""Encodes a batch of a file into frames."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from .. import codec as _codec
from .._arrays.view import View
from .._native.codecs import codec_number, file_codecs
from .._native.frames import FRAME_HEADER_BYTES
from .._native.structures import CHECKSUM, MORE, NO_CHECKSUM
from ..types import ValueType
from .packing import SMALL_BYTES, Batch, Run
from .pipeline import Buffer, Buffers
from .segment import BYTES

_PLAIN_CODEC = "raw"
_ALIGNMENT = 16
# What a frame between plain bytes must save: the header and the padding of the plain frame after it.
_COST_BYTES = FRAME_HEADER_BYTES + _ALIGNMENT


class Encoded(NamedTuple):
    """The frames of a batch, end to end."""

    frames: npt.NDArray[np.uint8]
    frame_count: int
    raw_bytes: int


class Readable(Protocol):
    """Bytes to encode. Several threads may read them."""

    def read(self, offset: int, buffer: memoryview) -> None:
        """Fills the buffer, or raises an exception."""


class Encoder:
    """Encodes batches of a source. Several threads may use it."""

    def __init__(self, source: Readable, codec: str, checksum: bool) -> None:
        self._source, self._codecs = source, file_codecs(codec)
        self._flags = CHECKSUM if checksum else NO_CHECKSUM
        self._numbers = [codec_number(one) for one in self._codecs]
        self._plain_number = codec_number(_PLAIN_CODEC)

    def __call__(self, batch: Batch, buffers: Buffers) -> Encoded:
        """Reads a batch and encodes it. Small runs that do not shrink are stored with the plain bytes around them."""
        raw = buffers.raw.of(batch.raw_bytes)
        self._source.read(batch.offset, raw.data)
        return self.encode(batch, raw, buffers)

    def encode(self, batch: Batch, raw: npt.NDArray[np.uint8], buffers: Buffers) -> Encoded:
        """Encodes a batch whose bytes are `raw`."""
        most = sum(self._bound(run) for run in batch.runs)
        frames = buffers.frame.of(most + 2 * _COST_BYTES)
        written = count = 0
        plain = done = 0  # plain bytes up to `done` that are not written yet; bytes of the batch before the run

        def write_plain(flags: int) -> None:
            nonlocal written, count, plain
            values = raw[done - plain : done]
            written += _encode(values, BYTES, self._plain_number, flags, frames[written:])
            count += 1
            plain = 0

        for number, run in enumerate(batch.runs):
            is_end = batch.is_last and number + 1 == len(batch.runs)
            if not run.is_plain:
                # Where it belongs if the plain bytes before it are written.
                begin = written + (_plain_bytes(plain) if plain else 0)
                values = raw[done : done + run.raw_bytes]
                flags = self._flags | MORE * (not is_end)
                length = self._encode_shortest(values, run.dtype, flags, frames[begin:])
                if run.raw_bytes >= SMALL_BYTES or length + _COST_BYTES <= run.raw_bytes:
                    if plain:
                        write_plain(self._flags | MORE)
                    written += length
                    count += 1
                    done += run.raw_bytes
                    continue
            plain += run.raw_bytes
            done += run.raw_bytes
        if plain or not batch.runs:
            write_plain(self._flags | MORE * (not batch.is_last))
        return Encoded(frames[:written], count, batch.raw_bytes)

    def _encode_shortest(
        self, values: npt.NDArray[np.uint8], dtype: ValueType, flags: int, frame: npt.NDArray[np.uint8]
    ) -> int:
        """Encodes with each codec, and leaves the shortest frame. Returns its length."""
        lengths = [_encode(values, dtype, number, flags, frame) for number in self._numbers]
        shortest = min(lengths)
        if lengths[-1] != shortest:
            _encode(values, dtype, self._numbers[lengths.index(shortest)], flags, frame)
        return shortest

    def _bound(self, run: Run) -> int:
        if run.is_plain:
            return _plain_bytes(run.raw_bytes)
        elems = run.raw_bytes // run.dtype.bytes
        bounds = [_codec.bound(run.dtype.name, elems, codec=codec) for codec in self._codecs]
        return max(*bounds, _plain_bytes(run.raw_bytes))


def encode_values(
    raw: npt.NDArray[np.uint8], dtype: ValueType, codec: str, flags: int, buffer: Buffer
) -> npt.NDArray[np.uint8]:
    """The frame of bytes that hold values of `dtype`, in the buffer."""
    frame = buffer.of(_codec.bound(dtype.name, raw.size // dtype.bytes, codec=codec))
    return frame[: _encode(raw, dtype, codec_number(codec), flags, frame)]


def _encode(
    values: npt.NDArray[np.uint8], dtype: ValueType, codec: int, flags: int, frame: npt.NDArray[np.uint8]
) -> int:
    elems = values.size // dtype.bytes
    source = View(values.ctypes.data, "cpu", 0, dtype, elems, False, (elems,), values)
    return _codec.encode_into(source, codec, flags, frame.ctypes.data, frame.size)


def _plain_bytes(raw_bytes: int) -> int:
    """The size of a raw frame."""
    return FRAME_HEADER_BYTES + -(-raw_bytes // _ALIGNMENT) * _ALIGNMENT
