"""Blocks of a KV cache that are encoded into slots, from which another host reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..codec import decode_batch, encode_batch
from ..errors import CorruptError
from . import gpu_batches
from .encoded import supported_codec
from .frame_writer import FrameWriter, frame_stride
from .gpu_batches import to_device
from .host_memory import ALIGNMENT_BYTES
from .kv_blocks import Pages, device_of, gathered, scatter, type_of, used


class BlockSlots:
    """Slots in the memory of the KV cache's device. A block has a page of each layer of a group, and one frame.

    groups: the layers of each group. All tensors are on one device.
    dtype: the type of the values in the pages, as for `EncodedBlocks`.
    slot_bytes: of each slot; rounded down to whole lines.
    threads: for encoding and decoding on the CPU; 0: the CPUs that this process may use.

    On a GPU, calls use the current stream and return when it is done.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[Pages]],
        *,
        dtype: Any,
        slots: int,
        slot_bytes: int,
        codec: str = "window",
        threads: int = 0,
    ) -> None:
        self.codec, self._threads = supported_codec(codec), threads
        self.device = device_of(groups)
        self.block_bytes = [sum(pages.page_bytes for pages in group) for group in groups]
        self.types = [type_of(group, dtype) for group in groups]
        self._pages = [used(group) for group in groups]
        self._strides = [
            frame_stride(kind, size, codec) for kind, size in zip(self.types, self.block_bytes, strict=True)
        ]
        self.slots, self.slot_bytes = slots, slot_bytes - slot_bytes % ALIGNMENT_BYTES
        if max(self._strides, default=0) > self.slot_bytes:
            raise ValueError(f"a slot has {slot_bytes} bytes, but a block may need {max(self._strides)}")
        self.memory = torch.empty(slots * self.slot_bytes, dtype=torch.uint8, device=self.device)
        self._writer = FrameWriter(self.device) if self.device.type == "cuda" else None

    def stride(self, group: int) -> int:
        """The distance of frames in a slot, in bytes."""
        return self._strides[group]

    def part_blocks(self, group: int) -> int:
        """How many blocks fit into a slot."""
        return self.slot_bytes // self._strides[group]

    def encode(self, group: int, blocks: Sequence[int], slot: int) -> list[int]:
        """Encodes blocks into a slot, and returns the sizes of their frames, which are `stride` bytes apart.

        Raises ValueError for other blocks than those of the group, and if they do not fit.
        """
        self._check(group, blocks)
        rows = gathered(self._pages[group], to_device(blocks, self.device))
        places = self._frames(group, slot, len(blocks))
        if self._writer is not None:
            return self._writer.encode(rows, self.types[group], self.codec, places).sizes()
        frames = encode_batch(list(rows), codec=self.codec, dtype=self.types[group].name, threads=self._threads)
        for place, frame in zip(places, frames, strict=True):
            place[: frame.size].copy_(torch.from_numpy(frame.view()))
        return [frame.size for frame in frames]

    def decode(self, group: int, blocks: Sequence[int], slot: int, sizes: Sequence[int]) -> None:
        """Decodes frames of a slot into blocks. Raises an exception, and changes none, if a frame is corrupt."""
        self._check(group, blocks)
        frames = self._frames(group, slot, len(blocks))
        rows = torch.empty((len(blocks), self.block_bytes[group]), dtype=torch.uint8, device=self.device)
        if self._writer is not None:
            self._decode_on_gpu(frames, sizes, rows)
        else:
            decode_batch(
                [frame[:size] for frame, size in zip(frames, sizes, strict=True)],
                outs=list(rows),
                threads=self._threads,
            )
        scatter(rows, self._pages[group], to_device(blocks, self.device))
        if self._writer is not None:
            torch.cuda.current_stream(self.device).synchronize()

    def _decode_on_gpu(self, frames: torch.Tensor, sizes: Sequence[int], rows: torch.Tensor) -> None:
        order = torch.arange(len(rows), device=self.device)
        places, outs = (one.data_ptr() + order * one.stride(0) for one in (frames, rows))
        frame_bytes = to_device(sizes, self.device)
        found = gpu_batches.decode(places, frame_bytes, outs, rows.shape[1], self.codec)
        torch.cuda.current_stream(self.device).synchronize()
        if found.tolist() != [rows.shape[1]] * len(rows):
            raise CorruptError("the frame of a KV block is corrupt")

    def _frames(self, group: int, slot: int, count: int) -> torch.Tensor:
        """The places of frames in a slot."""
        begin, stride = slot * self.slot_bytes, self._strides[group]
        return self.memory[begin : begin + count * stride].view(count, stride)

    def _check(self, group: int, blocks: Sequence[int]) -> None:
        """Raises ValueError unless these are blocks of the group that fit into a slot."""
        if not 0 <= group < len(self._pages):
            raise ValueError(f"there is no group {group}, but {len(self._pages)} groups")
        limit, held = self.part_blocks(group), min(map(len, self._pages[group]))
        if not 0 < len(blocks) <= limit:
            raise ValueError(f"{len(blocks)} blocks are asked for, but a slot holds 1 to {limit}")
        for block in blocks:
            if not 0 <= block < held:
                raise ValueError(f"there is no block {block}, but {held} blocks")
