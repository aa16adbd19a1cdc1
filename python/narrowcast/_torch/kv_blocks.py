"""Blocks of a KV cache that are encoded in host memory."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from .._native.library import check, library
from ..codec import decode_batch, encode_batch
from ..errors import CorruptError
from ..types import ValueType, value_type
from .arena import Arena, Piece
from .encoded import supported_codec
from .frame_index import FrameIndex
from .frame_reader import Batch, frame_reader
from .frame_writer import EncodedRows, FrameWriter
from .gpu_batches import to_device
from .kv_transfers import Finished, Lane, OnStream, StreamLane, ThreadLane

_log = logging.getLogger(__name__)
_Numbers = npt.NDArray[np.int64]
# Raw bytes in staging memory of a GPU at a time. A part of a load costs the host one call for each layer; the copies of
# smaller parts waited for the host.
_STORE_BYTES = 64 << 20
_LOAD_BYTES = 128 << 20
_LAST_LOAD_BYTES = 8 << 20  # of the last part, which nothing hides


@dataclass(frozen=True)
class Pages:
    """Where the pages of a layer are: rows of a tensor."""

    tensor: torch.Tensor  # (blocks, bytes), int8; rows may be further apart than they are long
    page_bytes: int  # the used part of a row


def pages_of(cache: torch.Tensor) -> Pages:
    """The pages of a layer, whose blocks are the first dimension. Raises ValueError if a page has gaps."""
    page, item = cache[0], cache.element_size()
    if not page.permute(sorted(range(page.dim()), key=page.stride, reverse=True)).is_contiguous():
        raise ValueError(f"pages of shape {list(page.shape)} and strides {list(page.stride())} have gaps")
    shape, strides = (len(cache), page.numel() * item), (cache.stride(0) * item, 1)
    rows = torch.empty(0, dtype=torch.int8, device=cache.device)
    return Pages(rows.set_(cache.untyped_storage(), cache.storage_offset() * item, shape, strides), shape[1])


class Blocks(NamedTuple):
    """Blocks of a group."""

    group: int
    numbers: _Numbers  # of the blocks in the KV cache
    keys: _Numbers  # from 0; memory is kept for all numbers up to the largest one


class EncodedBlocks:
    """Blocks of a KV cache, encoded in host memory. A block has a page of each layer of a group.

    groups: the layers of each group. All tensors are on one device.
    dtype: the type of the values in the pages. A group whose pages are not a whole number of values is stored as bytes.
    capacity_bytes: host memory for encoded blocks. More is allocated if they do not fit, with a warning.
    threads: for encoding and decoding on the CPU; 0: the CPUs that this process may use.

    Transfers in each direction run one after another, on a thread and, on a GPU, on a stream of its own. On a GPU the
    caller enqueues the first part of a load.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Pages]],
        *,
        dtype: Any,
        capacity_bytes: int,
        codec: str = "window",
        threads: int = 0,
    ) -> None:
        self._block_bytes = [sum(pages.page_bytes for pages in group) for group in groups]
        self._types = [type_of(group, dtype) for group in groups]
        self._pages = [used(group) for group in groups]
        self._device = device_of(groups)
        self._codec, self._threads = supported_codec(codec), threads
        self._arena = Arena(capacity_bytes, device=self._device if self._device.type == "cuda" else None)
        self._frames = FrameIndex()
        self._rows: dict[int, torch.Tensor] = {}
        self._layouts: dict[int, torch.Tensor] = {}
        self._warned = False
        self._writer = FrameWriter(self._device) if self._device.type == "cuda" else None
        self._stores = ThreadLane("store", self._device)
        self._loads = (StreamLane if self._device.type == "cuda" else ThreadLane)("load", self._device)
        self._lanes: dict[str, Lane] = {"store": self._stores, "load": self._loads}

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes of the blocks held (smaller is better); None if there are none."""
        return self._arena.used_bytes / self._frames.raw_bytes if self._frames.raw_bytes else None

    @property
    def used_bytes(self) -> int:
        """Host memory of the blocks held."""
        return self._arena.used_bytes

    def store(self, job: int, blocks: Sequence[Blocks]) -> None:
        """Begins to encode blocks.

        A block with the same key is replaced; no load of it may be in progress. If the transfer fails, none of its keys
        are stored.
        """
        self._stores.submit(job, self._bytes_of(blocks), lambda: self._store(blocks))

    def load(self, job: int, blocks: Sequence[Blocks]) -> None:
        """Begins to decode blocks into the KV cache.

        The transfer fails if a key has not been stored, or its frame is corrupt.
        """
        raw_bytes = self._bytes_of(blocks)
        if isinstance(self._loads, StreamLane):
            # The lane keeps the sizes, also of a transfer that fails: a GPU may still write them.
            sizes = _Sizes(sum(len(some.keys) for some in blocks), self._device)
            self._loads.submit(job, raw_bytes, lambda on_stream: self._load_on_gpu(blocks, sizes, on_stream))
        else:
            self._loads.submit(job, raw_bytes, lambda: self._load(blocks))

    def finished(self) -> list[Finished]:
        """The transfers that have ended since the last call."""
        return [one for lane in self._lanes.values() for one in lane.finished()]

    def wait(self, jobs: set[int]) -> None:
        """Waits for transfers. Those that have ended or are unknown are ignored."""
        for lane in self._lanes.values():
            lane.wait(jobs)

    def close(self) -> None:
        """Waits for all transfers and frees the memory."""
        for lane in self._lanes.values():
            lane.close()
        for kept in (self._pages, self._rows, self._layouts):
            kept.clear()
        self._arena, self._frames = Arena(0), FrameIndex()

    def _bytes_of(self, blocks: Sequence[Blocks]) -> int:
        return sum(len(some.keys) * self._block_bytes[some.group] for some in blocks)

    def _part_blocks(self, group: int, part_bytes: int) -> int:
        return max(1, part_bytes // max(self._block_bytes[group], 1))

    # GPU or CPU to host memory.

    def _store(self, blocks: Sequence[Blocks]) -> None:
        for some in blocks:
            self._frames.free(some.keys.tolist())  # before, so that their memory can be used again
        kept: list[tuple[int, int, Piece]] = []
        try:
            if self._writer is None:
                for group, rows, keys in self._rows_to_store(blocks):
                    kept += [(group, *one) for one in zip(keys, self._encoded(group, rows), strict=True)]
            else:
                self._encode_on_gpu(self._writer, blocks, kept)
        except BaseException:
            for _, _, piece in kept:
                piece.free()
            raise
        for group, key, piece in kept:
            self._frames.free([key])  # if it occurs twice
            self._frames.add(key, piece, self._block_bytes[group])

    def _rows_to_store(self, blocks: Sequence[Blocks]) -> Iterator[tuple[int, torch.Tensor, list[int]]]:
        """Blocks in parts: their group, a row for each with its pages end to end, and their keys."""
        for group, numbers, keys in blocks:
            count = self._part_blocks(group, _STORE_BYTES)
            on_device = to_device(numbers, self._device)
            for first in range(0, len(keys), count):
                part = slice(first, first + count)
                yield group, gathered(self._pages[group], on_device[part]), keys[part].tolist()

    def _encoded(self, group: int, rows: torch.Tensor) -> list[Piece]:
        kind = self._types[group].name
        frames = encode_batch(list(rows), codec=self._codec, dtype=kind, threads=self._threads)
        pieces = [self._allocate(frame.size) for frame in frames]
        for piece, frame in zip(pieces, frames, strict=True):
            piece.tensor.copy_(torch.from_numpy(frame.view()))
        return pieces

    def _encode_on_gpu(self, writer: FrameWriter, blocks: Sequence[Blocks], kept: list[tuple[int, int, Piece]]) -> None:
        """Adds what is stored to `kept`. A part is copied while the next one is encoded."""

        def copy(group: int, keys: list[int], encoded: EncodedRows) -> None:
            pieces = [self._allocate(size) for size in encoded.sizes()]
            kept.extend((group, *one) for one in zip(keys, pieces, strict=True))
            writer.copy(encoded, [piece.tensor for piece in pieces])

        try:
            before: tuple[int, list[int], EncodedRows] | None = None
            for group, rows, keys in self._rows_to_store(blocks):
                encoded = writer.encode(rows, self._types[group], self._codec)
                if before:
                    copy(*before)
                before = group, keys, encoded
            if before:
                copy(*before)
        finally:
            writer.synchronize()

    def _allocate(self, count_bytes: int) -> Piece:
        piece = self._arena.allocate(count_bytes)
        if piece.is_outside and not self._warned:
            self._warned = True
            _log.warning(
                "encoded KV blocks do not fit into the host memory that was set aside: they take %.2f of their size, "
                "more than expected_ratio. More memory is allocated, which transfers slower",
                self.ratio or 1.0,
            )
        return piece

    # Back.

    def _load(self, blocks: Sequence[Blocks]) -> None:
        for group, numbers, keys in blocks:
            frames = [self._frames[key].piece.tensor for key in keys.tolist()]
            places = torch.from_numpy(numbers)
            count = self._part_blocks(group, _LOAD_BYTES)
            rows = self._rows_of(group)
            for first in range(0, len(keys), count):
                some = frames[first : first + count]
                decode_batch(some, outs=list(rows[: len(some)]), threads=self._threads)
                scatter(rows[: len(some)], self._pages[group], places[first : first + count])

    def _load_on_gpu(
        self, blocks: Sequence[Blocks], sizes: _Sizes, on_stream: OnStream
    ) -> Iterator[Callable[[], None] | None]:
        """Enqueues a part at each step. On the host, what is done before the first copy takes as long as copying some
        MB, so most is left until after it.
        """
        for some in blocks:
            held = self._held(some)
            begin = 0
            for end in _ends_of_parts(len(held.order), self._block_bytes[held.group]):
                self._decode_on_gpu(held, slice(begin, end), sizes, on_stream)
                begin = end
                yield None
        yield sizes.verify

    def _held(self, blocks: Blocks) -> _Held:
        pointers, wire_bytes = self._frames.places(blocks.keys)
        # In the order of the host memory: neighbours are copied at once.
        order = pointers.argsort()
        return _Held(blocks.group, blocks.numbers, order, pointers.take(order), wire_bytes.take(order))

    def _decode_on_gpu(self, held: _Held, part: slice, sizes: _Sizes, on_stream: OnStream) -> None:
        row_bytes, count = self._block_bytes[held.group], part.stop - part.start

        def prepare() -> Batch:
            with on_stream() as stream:
                rows = self._rows_of(held.group).data_ptr()
                layout = self._layout_of(held.group).data_ptr()
                value_bytes = sizes.some(count, row_bytes)
            places = rows + row_bytes * np.arange(count, dtype=np.int64)
            blocks = held.numbers[held.order[part]]
            cache_blocks = min(len(pages) for pages in self._pages[held.group])
            absent = blocks[(blocks < 0) | (blocks >= cache_blocks)]
            if len(absent):
                raise IndexError(f"the KV cache has {cache_blocks} blocks, and no block {absent[0]}")
            pages = len(self._pages[held.group])

            def scatter(numbers: int) -> None:
                strides, offsets = layout + 8 * pages, layout + 16 * pages
                check(
                    library().ncast_cuda_scatter_pages(
                        count, rows, numbers, pages, layout, strides, offsets, None, stream.cuda_stream
                    )
                )

            return Batch(places, row_bytes, value_bytes, blocks, scatter, stream)

        frame_reader(self._device).read_batch(held.pointers[part], held.wire_bytes[part], self._codec, prepare)

    def _rows_of(self, group: int) -> torch.Tensor:
        """Memory for the decoded blocks of a part."""
        if group not in self._rows:
            shape = (self._part_blocks(group, _LOAD_BYTES), self._block_bytes[group])
            self._rows[group] = torch.empty(shape, dtype=torch.uint8, device=self._device)
        return self._rows[group]

    def _layout_of(self, group: int) -> torch.Tensor:
        """The addresses of the layers on the GPU, the distances of their pages, and where these are in a block."""
        if group not in self._layouts:
            pages = self._pages[group]
            ends = np.cumsum([one.shape[1] * one.element_size() for one in pages])
            strides = [one.stride(0) * one.element_size() for one in pages]
            self._layouts[group] = to_device([one.data_ptr() for one in pages] + strides + [0, *ends], self._device)
        return self._layouts[group]


class _Held(NamedTuple):
    """Blocks of a group that are loaded."""

    group: int
    numbers: _Numbers  # of the blocks in the KV cache, as the caller listed them
    order: _Numbers  # of the host memory
    pointers: _Numbers  # in this order
    wire_bytes: _Numbers


class _Sizes:
    """The sizes of decoded blocks, which are 0 if a frame is damaged. A GPU writes them to host memory."""

    def __init__(self, count: int, device: torch.device) -> None:
        self._count, self._device = count, device
        self._memory: torch.Tensor | None = None
        self._used = 0

    def some(self, count: int, block_bytes: int) -> torch.Tensor:
        """Memory for the sizes of the next blocks."""
        if self._memory is None:
            self._memory = torch.empty(self._count, dtype=torch.int64, pin_memory=self._device.type == "cuda")
            self._found: _Numbers = self._memory.numpy()
            self._expected = np.empty(self._count, np.int64)
        here = slice(self._used, self._used + count)
        self._expected[here] = block_bytes
        self._used += count
        return self._memory[here]

    def verify(self) -> None:
        """Raises CorruptError unless the sizes are those expected."""
        if self._memory is not None and (self._found != self._expected).any():
            raise CorruptError("an encoded KV block has been overwritten in host memory")


def _ends_of_parts(blocks: int, block_bytes: int) -> list[int]:
    """Where the parts of a load end. The last one is small, unless there is only a small one."""
    count, last = (max(1, size // max(block_bytes, 1)) for size in (_LOAD_BYTES, _LAST_LOAD_BYTES))
    ends = list(range(count, blocks, count))
    begin = ends[-1] if ends else 0
    if blocks - begin > 2 * last:
        ends.append(blocks - last)
    return [*ends, blocks]


def device_of(groups: Sequence[Sequence[Pages]]) -> torch.device:
    """The device of all groups. Raises ValueError if there are several."""
    devices = {pages.tensor.device for group in groups for pages in group}
    if len(devices) > 1:
        raise ValueError(f"the KV cache is on several devices: {', '.join(sorted(map(str, devices)))}")
    return devices.pop() if devices else torch.device("cpu")


def gathered(pages: Sequence[torch.Tensor], numbers: torch.Tensor) -> torch.Tensor:
    """The pages of blocks of a group, end to end: a row of bytes for each block. `numbers` is on the same device."""
    return torch.cat([one.index_select(0, numbers) for one in pages], dim=1).view(torch.uint8)


def scatter(rows: torch.Tensor, pages: Sequence[torch.Tensor], numbers: torch.Tensor) -> None:
    """Copies such rows back into the blocks."""
    begin = 0
    for one in pages:
        end = begin + one.shape[1] * one.element_size()
        one.index_copy_(0, numbers, rows[:, begin:end].view(one.dtype))
        begin = end


def used(group: Sequence[Pages]) -> list[torch.Tensor]:
    """The used parts of the pages, in the largest unit: copies of single bytes are slow."""
    parts = [pages.tensor[:, : pages.page_bytes] for pages in group]
    whole = all(number % 8 == 0 for one in parts for number in (one.data_ptr(), one.stride(0), one.shape[1]))
    return [one.view(torch.int64) for one in parts] if whole else parts


def type_of(group: Sequence[Pages], dtype: Any) -> ValueType:
    """How the values of a group are encoded: as bytes if `dtype` is not a value type or does not divide the pages."""
    try:
        kind = value_type(dtype)
    except (ValueError, TypeError):
        kind = value_type("uint8")
    return kind if all(pages.page_bytes % kind.bytes == 0 for pages in group) else value_type("uint8")
