"""What the library finds in frames in memory."""

from __future__ import annotations

from ctypes import byref, c_uint64, sizeof
from dataclasses import dataclass

from ..types import BY_NUMBER
from .codecs import codec_of, codec_text
from .library import check, library
from .structures import CHECKSUM, MORE, FrameInfoC

FRAME_HEADER_BYTES = 64


@dataclass(frozen=True)
class FrameInfo:
    """The header of a frame."""

    elems: int  #: number of values
    raw_bytes: int  #: bytes of the decoded values
    wire_bytes: int  #: bytes of the frame, including header and padding
    codec: str  #: such as "window" or "raw", with parameters that are not the default
    dtype: str  #: name of the value type
    blocks: int  #: blocks in the frame; 0 for a codec with fixed payloads, such as raw
    block_elems: int  #: values in every block but the last; 0 as for `blocks`
    checksum: int | None  #: XXH3 of the frame, None when it carries none
    more: bool  #: another frame of the same stream follows
    version: int  #: of the frame format

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes (smaller is better); None when there are no values."""
        return self.wire_bytes / self.raw_bytes if self.raw_bytes else None


@dataclass(frozen=True)
class BlockStats:
    """How the blocks of a frame were coded: the counters of its codec by name. Raw frames have none."""

    counters: dict[str, int]  #: those that are not 0

    @property
    def blocks_of_width(self) -> dict[int, int]:
        """Bits of a code -> blocks; 0: blocks stored raw. Empty if the codec does not count them."""
        names = {name: name.removesuffix("_blocks").removeprefix("width_") for name in self.counters}
        widths = {name: "0" if text == "raw" else text for name, text in names.items() if name.endswith("_blocks")}
        return {int(width): self.counters[name] for name, width in widths.items() if width.isdigit()}

    @property
    def escapes(self) -> int:
        """Values stored out of line."""
        return self.counters.get("escapes", 0)

    @property
    def far_escapes(self) -> int:
        """Escapes that needed a full exponent."""
        return self.counters.get("far_escapes", 0)


def inspect_memory(frame: int, frame_bytes: int) -> FrameInfo:
    """ncast_inspect: the header at `frame`."""
    info = FrameInfoC(sizeof(FrameInfoC))
    check(library().ncast_inspect(frame, frame_bytes, byref(info)))
    dtype = BY_NUMBER.get(info.dtype)
    return FrameInfo(
        elems=info.elems,
        raw_bytes=info.raw_bytes,
        wire_bytes=info.wire_bytes,
        codec=codec_text(info.codec),
        dtype=dtype.name if dtype else f"type {info.dtype}",
        blocks=info.blocks,
        block_elems=info.block_elems,
        checksum=info.checksum if info.flags & CHECKSUM else None,
        more=bool(info.flags & MORE),
        version=info.version,
    )


def inspect_blocks_memory(frame: int, frame_bytes: int) -> BlockStats:
    """ncast_inspect_blocks: how the blocks of the frame at `frame` were coded."""
    names = codec_of(inspect_memory(frame, frame_bytes).codec).counters
    counts = (c_uint64 * max(len(names), 1))()
    check(library().ncast_inspect_blocks(frame, frame_bytes, counts, len(names)))
    return BlockStats({name: count for name, count in zip(names, counts, strict=False) if count})
