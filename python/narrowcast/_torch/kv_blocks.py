"""Blocks of a KV cache that are encoded in host memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ..codec import decode_batch, encode_batch
from ..errors import CorruptError
from ..types import ValueType, value_type
from .arena import Arena, Piece
from .encoded import supported_codec
from .frame_reader import frame_reader
from .frame_writer import EncodedRows, FrameWriter
from .gpu_batches import to_device

_log = logging.getLogger(__name__)
# Raw bytes in staging memory of a GPU at a time. A part of a load costs the host one call for each layer; the copies of
# smaller parts waited for the host.
_STORE_BYTES = 64 << 20
_LOAD_BYTES = 128 << 20


@dataclass(frozen=True)
class Pages:
    """Where the pages of a layer are: rows of a tensor."""

    tensor: torch.Tensor  # (blocks, bytes), int8; rows may be further apart than they are long
    page_bytes: int  # the used part of a row


@dataclass(frozen=True)
class Finished:
    """A transfer that has ended."""

    job: int
    success: bool
    raw_bytes: int
    seconds: float


class _Stored(NamedTuple):
    piece: Piece
    pointer: int
    wire_bytes: int
    raw_bytes: int


class EncodedBlocks:
    """Blocks of a KV cache, encoded in host memory. A block has a page of each layer of a group.

    groups: the layers of each group. All tensors are on one device.
    dtype: the type of the values in the pages. A group whose pages are not a whole number of values is stored as bytes.
    capacity_bytes: host memory for encoded blocks. More is allocated if they do not fit, with a warning.
    threads: for encoding and decoding on the CPU; 0: the CPUs that this process may use.

    Transfers in each direction run one after another, on a thread and, on a GPU, on a stream of its own.
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
        self._types = [_type_of(group, dtype) for group in groups]
        self._pages = [_used(group) for group in groups]
        devices = {pages.tensor.device for group in groups for pages in group}
        if len(devices) > 1:
            raise ValueError(f"the KV cache is on several devices: {', '.join(sorted(map(str, devices)))}")
        self._device = devices.pop() if devices else torch.device("cpu")
        self._codec, self._threads = supported_codec(codec), threads
        self._arena = Arena(capacity_bytes, device=self._device if self._device.type == "cuda" else None)
        self._stored: dict[Any, _Stored] = {}
        self._rows: dict[int, tuple[torch.Tensor, list[torch.Tensor]]] = {}
        self._warned = False
        self._raw_bytes = 0
        self._writer = FrameWriter(self._device) if self._device.type == "cuda" else None
        self._lanes = {name: _Lane(name, self._device) for name in ("store", "load")}

    @property
    def ratio(self) -> float | None:
        """Wire bytes / raw bytes of the blocks held (smaller is better); None if there are none."""
        return self._arena.used_bytes / self._raw_bytes if self._raw_bytes else None

    @property
    def used_bytes(self) -> int:
        """Host memory of the blocks held."""
        return self._arena.used_bytes

    def store(self, job: int, blocks: Sequence[tuple[int, int, Any]]) -> None:
        """Begins to encode blocks: (group, block of the KV cache, key).

        A block with the same key is replaced; no load of it may be in progress. If the transfer fails, none of its keys
        are stored.
        """
        self._lanes["store"].submit(job, self._bytes_of(blocks), lambda: self._store(blocks))

    def load(self, job: int, blocks: Sequence[tuple[int, int, Any]]) -> None:
        """Begins to decode blocks into the KV cache: (group, block, key).

        The transfer fails if a key has not been stored, or its frame is corrupt.
        """
        self._lanes["load"].submit(job, self._bytes_of(blocks), lambda: self._load(blocks))

    def finished(self, directions: Sequence[str] = ("store", "load")) -> list[Finished]:
        """The transfers that have ended since the last call."""
        return [one for name in directions for one in self._lanes[name].finished()]

    def wait(self, jobs: set[int], directions: Sequence[str] = ("store", "load")) -> None:
        """Waits for transfers. Those that have ended or are unknown are ignored."""
        for name in directions:
            self._lanes[name].wait(jobs)

    def close(self) -> None:
        """Waits for all transfers and frees the memory."""
        for lane in self._lanes.values():
            lane.close()
        self._stored.clear()
        self._pages.clear()
        self._rows.clear()
        self._arena, self._raw_bytes = Arena(0), 0

    def _bytes_of(self, blocks: Sequence[tuple[int, int, Any]]) -> int:
        return sum(self._block_bytes[group] for group, _, _ in blocks)

    def _part_blocks(self, group: int, part_bytes: int) -> int:
        return max(1, part_bytes // max(self._block_bytes[group], 1))

    # GPU or CPU to host memory.

    def _store(self, blocks: Sequence[tuple[int, int, Any]]) -> None:
        self._forget([key for _, _, key in blocks])  # before, so that their memory can be used again
        kept: list[tuple[int, Any, Piece]] = []
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
            self._forget([key])  # if it occurs twice
            raw_bytes = self._block_bytes[group]
            self._stored[key] = _Stored(piece, piece.tensor.data_ptr(), piece.tensor.numel(), raw_bytes)
            self._raw_bytes += raw_bytes

    def _forget(self, keys: list[Any]) -> None:
        for key in keys:
            replaced = self._stored.pop(key, None)
            if replaced is not None:
                self._raw_bytes -= replaced.raw_bytes
                replaced.piece.free()

    def _rows_to_store(self, blocks: Sequence[tuple[int, int, Any]]) -> Iterator[tuple[int, torch.Tensor, list[Any]]]:
        """Blocks in parts: their group, a row for each with its pages end to end, and their keys."""
        for group in sorted({one[0] for one in blocks}):
            mine = [(block, key) for number, block, key in blocks if number == group]
            count = self._part_blocks(group, _STORE_BYTES)
            numbers = to_device([block for block, _ in mine], self._device)
            for first in range(0, len(mine), count):
                some = numbers[first : first + count]
                rows = torch.cat([pages.index_select(0, some) for pages in self._pages[group]], dim=1)
                yield group, rows.view(torch.uint8), [key for _, key in mine[first : first + count]]

    def _encoded(self, group: int, rows: torch.Tensor) -> list[Piece]:
        kind = self._types[group].name
        frames = encode_batch(list(rows), codec=self._codec, dtype=kind, threads=self._threads)
        pieces = [self._allocate(frame.size) for frame in frames]
        for piece, frame in zip(pieces, frames, strict=True):
            piece.tensor.copy_(torch.from_numpy(frame.view()))
        return pieces

    def _encode_on_gpu(
        self, writer: FrameWriter, blocks: Sequence[tuple[int, int, Any]], kept: list[tuple[int, Any, Piece]]
    ) -> None:
        """Adds what is stored to `kept`. A part is copied while the next one is encoded."""

        def copy(group: int, keys: list[Any], encoded: EncodedRows) -> None:
            pieces = [self._allocate(size) for size in encoded.sizes()]
            kept.extend((group, *one) for one in zip(keys, pieces, strict=True))
            writer.copy(encoded, [piece.tensor for piece in pieces])

        try:
            before: tuple[int, list[Any], EncodedRows] | None = None
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

    def _load(self, blocks: Sequence[tuple[int, int, Any]]) -> None:
        damaged: list[torch.Tensor] = []
        for group in sorted({one[0] for one in blocks}):
            mine = [one for one in blocks if one[0] == group]
            held = [self._stored[key] for _, _, key in mine]
            pointers = np.fromiter((one.pointer for one in held), np.int64, len(held))
            # In the order of the host memory: neighbours are copied at once.
            order = np.argsort(pointers, kind="stable")
            numbers = to_device(np.fromiter((block for _, block, _ in mine), np.int64, len(mine))[order], self._device)
            count = self._part_blocks(group, _LOAD_BYTES)
            parts = [slice(first, first + count) for first in range(0, len(mine), count)]
            if self._device.type == "cpu":
                for part in parts:
                    self._decode(group, numbers[part], [held[number].piece.tensor for number in order[part].tolist()])
                continue
            wire_bytes = np.fromiter((one.wire_bytes for one in held), np.int64, len(held))[order]
            pointers = pointers[order]
            for part in parts:
                damaged.append(self._decode_on_gpu(group, numbers[part], pointers[part], wire_bytes[part]))
        if damaged and bool(torch.stack(damaged).any()):  # waits for the stream
            raise CorruptError("an encoded KV block has been overwritten in host memory")

    def _decode(self, group: int, blocks: torch.Tensor, frames: list[torch.Tensor]) -> None:
        rows, _ = self._rows_of(group)
        decode_batch(frames, outs=list(rows[: len(frames)]), threads=self._threads)
        self._distribute(group, blocks)

    def _decode_on_gpu(
        self, group: int, blocks: torch.Tensor, pointers: npt.NDArray[np.int64], wire_bytes: npt.NDArray[np.int64]
    ) -> torch.Tensor:
        """Returns whether a frame is damaged."""
        rows, _ = self._rows_of(group)
        row_bytes = self._block_bytes[group]
        places = rows.data_ptr() + row_bytes * np.arange(len(pointers), dtype=np.int64)
        value_bytes = torch.empty(len(pointers), dtype=torch.int64, device=self._device)
        frame_reader(self._device).read_batch(pointers, wire_bytes, places, row_bytes, self._codec, value_bytes)
        self._distribute(group, blocks)
        return (value_bytes != row_bytes).any()

    def _distribute(self, group: int, blocks: torch.Tensor) -> None:
        """Copies decoded rows to the pages of blocks."""
        rows, parts = self._rows_of(group)
        whole = len(blocks) == len(rows)
        for pages, part in zip(self._pages[group], parts, strict=True):
            pages.index_copy_(0, blocks, part if whole else part[: len(blocks)])

    def _rows_of(self, group: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Memory for the decoded blocks of a part, and where the pages of each layer are in it.

        It is kept, because making these views for each part would take longer than decoding it.
        """
        if group not in self._rows:
            shape = (self._part_blocks(group, _LOAD_BYTES), self._block_bytes[group])
            rows = torch.empty(shape, dtype=torch.uint8, device=self._device)
            begin, parts = 0, []
            for pages in self._pages[group]:
                end = begin + pages.shape[1] * pages.element_size()
                parts.append(rows[:, begin:end].view(pages.dtype))
                begin = end
            self._rows[group] = rows, parts
        return self._rows[group]


class _Lane:
    """Transfers in one direction."""

    def __init__(self, name: str, device: torch.device) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"narrowcast-kv-{name}")
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._jobs: dict[int, Future[Finished]] = {}

    def submit(self, job: int, raw_bytes: int, transfer: Callable[[], None]) -> None:
        ready = None
        if self._stream is not None:
            # The model may still be writing the blocks, or zeroing those that will be loaded.
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(self._device))
        self._jobs[job] = self._thread.submit(self._run, job, raw_bytes, transfer, ready)

    def _run(self, job: int, raw_bytes: int, transfer: Callable[[], None], ready: Any) -> Finished:
        begin = time.monotonic()
        try:
            if self._stream is None:
                transfer()
            else:
                with torch.cuda.stream(self._stream):
                    self._stream.wait_event(ready)
                    transfer()
                    self._stream.synchronize()
        except Exception:
            _log.exception("a transfer of KV blocks failed (job %d)", job)
            return Finished(job, False, 0, time.monotonic() - begin)
        return Finished(job, True, raw_bytes, time.monotonic() - begin)

    def finished(self) -> list[Finished]:
        ended = [job for job, future in list(self._jobs.items()) if future.done()]
        return [self._jobs.pop(job).result() for job in ended]

    def wait(self, jobs: set[int]) -> None:
        wait([self._jobs[job] for job in jobs if job in self._jobs])

    def close(self) -> None:
        self._thread.shutdown()


def _used(group: Sequence[Pages]) -> list[torch.Tensor]:
    """The used parts of the pages, in the largest unit: copies of single bytes are slow."""
    used = [pages.tensor[:, : pages.page_bytes] for pages in group]
    whole = all(number % 8 == 0 for one in used for number in (one.data_ptr(), one.stride(0), one.shape[1]))
    return [one.view(torch.int64) for one in used] if whole else used


def _type_of(group: Sequence[Pages], dtype: Any) -> ValueType:
    try:
        kind = value_type(dtype)
    except (ValueError, TypeError):
        kind = value_type("uint8")
    return kind if all(pages.page_bytes % kind.bytes == 0 for pages in group) else value_type("uint8")
