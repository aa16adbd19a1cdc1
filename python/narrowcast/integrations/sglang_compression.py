"""A backend for the KV compression that is proposed for SGLang (sgl-project/sglang#39740): transfers and HiCache.

    backend = CompressionBackend()    # module_path "narrowcast.integrations.sglang_compression"
    if backend.supports(spec):
        needed = backend.buffer_requirements("compress", spec)
        batch = PackedBatch(spec, pages)
        operation = backend.compress_into(batch, outputs, workspace, context=ExecutionContext(stream))
        snapshot = operation.poll()    # later, until its outcome is not "pending"

No release of SGLang has this interface. The methods are those of the proposal; it describes the data that they exchange
in words only, and the classes of this module follow these. SGLang is not imported.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from .. import cuda
from .._torch import gpu_batches
from ..codec import bound, codecs, decode, encode, inspect
from ..errors import CorruptError, NarrowcastError
from ..types import ValueType, value_type

__all__ = [
    "BatchSpec",
    "BufferRequirements",
    "CompressionBackend",
    "CompressionOperation",
    "EncodedBatch",
    "ExecutionContext",
    "OperationSnapshot",
    "PackedBatch",
    "SupportResult",
]

_ALIGNMENT_BYTES = 128
_FRAME_ALIGNMENT_BYTES = 16  # at least
Outcome = Literal["pending", "succeeded", "failed"]


def __dir__() -> list[str]:
    return sorted(__all__)


@dataclass(frozen=True)
class BatchSpec:
    """What a batch of blocks, such as pages of a KV cache, has in common."""

    blocks: int  #: the number of blocks
    block_bytes: int  #: decoded bytes of a block
    dtype: str  #: the value type of the blocks, such as "bfloat16"
    device: str = "cuda"  #: where all buffers are: a GPU or "cpu"


class SupportResult(NamedTuple):
    """Whether a backend can compress a batch. False in conditions if it cannot."""

    supported: bool
    reason: str  #: why not; empty if it can

    def __bool__(self) -> bool:
        return self.supported


@dataclass(frozen=True)
class BufferRequirements:
    """The memory that the caller provides for an operation."""

    output_bytes: int  #: for each block, at most
    output_alignment: int
    workspace_bytes: int  #: for the whole batch
    workspace_alignment: int


@dataclass(frozen=True)
class PackedBatch:
    """Blocks to compress: a uint8 tensor of `block_bytes` for each."""

    spec: BatchSpec
    blocks: Sequence[torch.Tensor]


@dataclass(frozen=True)
class EncodedBatch:
    """Compressed blocks. A tensor may be longer than its block, whose length is in `lengths`."""

    spec: BatchSpec
    blocks: Sequence[torch.Tensor]
    lengths: Sequence[int]


@dataclass(frozen=True)
class ExecutionContext:
    """Where and when an operation runs."""

    stream: Any = None  #: of the GPU; None: the current stream
    after: Sequence[Any] = ()  #: torch.cuda.Event: the operation waits for these
    executor: Executor | None = None  #: runs operations on the CPU; None: a thread of the backend


@dataclass(frozen=True)
class OperationSnapshot:
    """The state of an operation."""

    outcome: Outcome
    buffers_in_use: bool  #: the operation may still access the buffers of the caller
    lengths: tuple[int, ...] = ()  #: bytes of each output; when it has ended
    errors: tuple[str | None, ...] = ()  #: for each block; when it has ended


class CompressionOperation:
    """An operation that has begun. Keeps the buffers alive."""

    def __init__(self, done: Callable[[], bool], result: Callable[[], OperationSnapshot], buffers: Any) -> None:
        self._done, self._result, self._buffers = done, result, buffers
        self._snapshot: OperationSnapshot | None = None
        self._lock = threading.Lock()

    def poll(self) -> OperationSnapshot:
        """The state. Does not wait, and does not synchronize with the GPU."""
        with self._lock:
            if self._snapshot is None:
                if not self._done():
                    return OperationSnapshot("pending", True)
                self._snapshot = self._result()
                self._buffers = None
            return self._snapshot


class CompressionBackend:
    """Compresses blocks with a codec of Narrowcast. Each block is a frame, which decodes without the others.

    codec: one of `narrowcast.codecs()` that is lossless.

    Raises ValueError for other codecs.
    """

    def __init__(self, codec: str = "window") -> None:
        chosen = next((one for one in codecs() if one.name == codec.partition(":")[0]), None)
        if chosen is None or not chosen.exact:
            raise ValueError(f"codec is {codec!r}, not one that is lossless")
        self._codec = codec
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="narrowcast-compression")

    def supports(self, spec: BatchSpec) -> SupportResult:
        """Whether batches of this kind can be compressed."""
        try:
            kind, device = value_type(spec.dtype), torch.device(spec.device)
        except (ValueError, TypeError, RuntimeError) as error:
            return SupportResult(False, str(error))
        if spec.blocks < 0 or spec.block_bytes < 1:
            return SupportResult(False, f"{spec.blocks} blocks of {spec.block_bytes} bytes")
        if spec.block_bytes % kind.bytes:
            return SupportResult(False, f"{spec.block_bytes} bytes are not a whole number of {kind.name} values")
        if device.type not in ("cpu", "cuda"):
            return SupportResult(False, f"device is {device}: only cpu and cuda are supported")
        if device.type == "cuda" and not (torch.cuda.is_available() and cuda.device_count()):
            return SupportResult(False, f"device is {device}, but no CUDA GPU was found")
        return SupportResult(True, "")

    def buffer_requirements(self, operation: Literal["compress", "decompress"], spec: BatchSpec) -> BufferRequirements:
        """The memory that `compress_into` or `decompress_into` needs.

        Raises ValueError if the batch is not supported.
        """
        kind = self._kind(spec)
        elems = spec.block_bytes // kind.bytes
        on_gpu = torch.device(spec.device).type == "cuda"
        workspace_bytes = 0
        if operation == "compress":
            output_bytes = bound(kind.name, elems, codec=self._codec)
            if on_gpu:
                workspace_bytes = gpu_batches.encode_workspace_bytes(
                    spec.blocks, spec.blocks * spec.block_bytes, self._codec
                )
        elif operation == "decompress":
            output_bytes = spec.block_bytes
            if on_gpu:
                workspace_bytes = gpu_batches.decode_workspace_bytes(spec.blocks)
        else:
            raise ValueError(f"operation is {operation!r}, neither compress nor decompress")
        return BufferRequirements(output_bytes, _ALIGNMENT_BYTES, workspace_bytes, _ALIGNMENT_BYTES)

    def compress_into(
        self, src: PackedBatch, dst: Sequence[torch.Tensor], workspace: Any, *, context: ExecutionContext
    ) -> CompressionOperation:
        """Begins to compress blocks.

        dst: a uint8 tensor for each block. workspace: a uint8 tensor, or None if 0 bytes are needed.

        Raises ValueError if the buffers do not suffice.
        """
        spec, blocks = src.spec, list(src.blocks)
        needed = self._check_buffers("compress", spec, blocks, spec.block_bytes, dst, workspace)
        outs = list(dst)
        kind = self._kind(spec)
        if torch.device(spec.device).type == "cpu":
            outs = [out[: needed.output_bytes] for out in outs]
            return self._on_a_thread(
                lambda block, out: encode(block, out=out, dtype=kind, codec=self._codec).size, blocks, outs, context
            )

        def enqueue(device: torch.device) -> torch.Tensor:
            arrays, frames = (gpu_batches.addresses_of(one, device) for one in (blocks, outs))
            elems = spec.block_bytes // kind.bytes
            return gpu_batches.encode(arrays, elems, frames, needed.output_bytes, kind, self._codec, workspace)

        def result(lengths: torch.Tensor) -> OperationSnapshot:
            return _ended([length or "the block could not be compressed" for length in lengths.tolist()])

        return self._on_a_stream(enqueue, result, (blocks, outs, workspace), spec, context)

    def decompress_into(
        self, src: EncodedBatch, dst: Sequence[torch.Tensor], workspace: Any, *, context: ExecutionContext
    ) -> CompressionOperation:
        """Begins to decompress blocks, which may be damaged: the operation fails then, and the other blocks are valid.

        dst: a uint8 tensor for each block. workspace: a uint8 tensor, or None if 0 bytes are needed.

        Raises ValueError if the buffers do not suffice. Checksums are verified on the CPU only.
        """
        spec = src.spec
        if len(src.lengths) != len(src.blocks):
            raise ValueError(f"there are {len(src.lengths)} lengths for {len(src.blocks)} blocks")
        for number, (block, length) in enumerate(zip(src.blocks, src.lengths, strict=True)):
            if not 0 <= length <= block.numel():
                raise ValueError(f"block {number} has {length} bytes in a buffer of {block.numel()}")
        blocks, outs = list(src.blocks), list(dst)
        self._check_buffers("decompress", spec, blocks, 0, outs, workspace)
        kind = self._kind(spec).name
        if torch.device(spec.device).type == "cpu":
            blocks = [block[:length] for block, length in zip(blocks, src.lengths, strict=True)]
            outs = [out[: spec.block_bytes] for out in outs]
            return self._on_a_thread(lambda block, out: _decoded(block, out, kind), blocks, outs, context)

        def enqueue(device: torch.device) -> torch.Tensor:
            frames, arrays = (gpu_batches.addresses_of(one, device) for one in (blocks, outs))
            lengths = gpu_batches.to_device(src.lengths, device)
            return gpu_batches.decode(frames, lengths, arrays, spec.block_bytes, self._codec, workspace)

        def result(lengths: torch.Tensor) -> OperationSnapshot:
            return _ended([length if length == spec.block_bytes else _DAMAGED for length in lengths.tolist()])

        return self._on_a_stream(enqueue, result, (blocks, outs, workspace), spec, context)

    def close(self) -> None:
        """Waits for operations on the CPU."""
        self._thread.shutdown()

    def _kind(self, spec: BatchSpec) -> ValueType:
        found = self.supports(spec)
        if not found:
            raise ValueError(f"the batch is not supported: {found.reason}")
        return value_type(spec.dtype)

    def _check_buffers(
        self,
        operation: Literal["compress", "decompress"],
        spec: BatchSpec,
        blocks: Sequence[torch.Tensor],
        block_bytes: int,
        dst: Sequence[torch.Tensor],
        workspace: Any,
    ) -> BufferRequirements:
        needed = self.buffer_requirements(operation, spec)
        if not len(blocks) == len(dst) == spec.blocks:
            raise ValueError(f"there are {len(blocks)} blocks and {len(dst)} outputs, but the batch has {spec.blocks}")
        device = torch.device(spec.device)
        aligned_to = self._kind(spec).bytes if operation == "compress" else _FRAME_ALIGNMENT_BYTES
        _check_tensors("block", blocks, block_bytes, aligned_to, device)
        _check_tensors("output", dst, needed.output_bytes, needed.output_alignment, device)
        if needed.workspace_bytes:
            _check_tensors(
                "the workspace", [workspace], needed.workspace_bytes, needed.workspace_alignment, device, numbered=False
            )
        if operation == "compress" and any(one.numel() != block_bytes for one in blocks):
            raise ValueError(f"a block does not have {block_bytes} bytes")
        return needed

    def _on_a_thread(
        self,
        run: Callable[[torch.Tensor, torch.Tensor], int],
        blocks: Sequence[torch.Tensor],
        outs: Sequence[torch.Tensor],
        context: ExecutionContext,
    ) -> CompressionOperation:
        def run_all() -> OperationSnapshot:
            found: list[int | str] = []
            for block, out in zip(blocks, outs, strict=True):
                try:
                    found.append(run(block, out))
                except NarrowcastError as error:
                    found.append(str(error))
            return _ended(found)

        future: Future[OperationSnapshot] = (context.executor or self._thread).submit(run_all)
        return CompressionOperation(future.done, future.result, (blocks, outs))

    def _on_a_stream(
        self,
        enqueue: Callable[[torch.device], torch.Tensor],
        result: Callable[[torch.Tensor], OperationSnapshot],
        buffers: Any,
        spec: BatchSpec,
        context: ExecutionContext,
    ) -> CompressionOperation:
        device = torch.device(spec.device)
        stream = context.stream or torch.cuda.current_stream(device)
        with torch.cuda.stream(stream):
            for event in context.after:
                stream.wait_event(event)
            found = enqueue(device)
            # Results come to the host on the stream, so that nobody has to wait for them.
            on_host = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
            on_host.copy_(found, non_blocking=True)
            done = torch.cuda.Event()
            done.record(stream)
        return CompressionOperation(done.query, lambda: result(on_host), (buffers, found))


def _check_tensors(
    name: str, tensors: Sequence[Any], count_bytes: int, alignment: int, device: torch.device, *, numbered: bool = True
) -> None:
    for number, one in enumerate(tensors):
        wrong = ""
        if not isinstance(one, torch.Tensor) or one.dtype != torch.uint8 or not one.is_contiguous():
            wrong = "is not a contiguous uint8 tensor"
        elif one.is_cuda != (device.type == "cuda"):
            wrong = f"is on {one.device}, but the batch is on {device}"
        elif one.numel() < count_bytes:
            wrong = f"has {one.numel()} bytes, but needs {count_bytes}"
        elif device.type == "cuda" and one.data_ptr() % alignment:
            wrong = f"is not aligned to {alignment} bytes"
        if wrong:
            raise ValueError(f"{name} {number} {wrong}" if numbered else f"{name} {wrong}")


_DAMAGED = "the block is damaged, or not of this kind"


def _decoded(block: torch.Tensor, out: torch.Tensor, kind: str) -> int:
    header = inspect(block)
    if (header.dtype, header.raw_bytes) != (kind, out.numel()):
        raise CorruptError(_DAMAGED)
    decode(block, out=out)
    return int(out.numel())


def _ended(found: Sequence[int | str]) -> OperationSnapshot:
    """The state of an operation that has ended, from the length or the error of each block."""
    errors = tuple(one if isinstance(one, str) else None for one in found)
    lengths = tuple(0 if isinstance(one, str) else one for one in found)
    return OperationSnapshot("failed" if any(errors) else "succeeded", False, lengths, errors)
