"""Pages of a KV cache are compressed and restored as SGLang's proposed interface asks for. On a GPU if there is one."""

import time

import torch
from narrowcast.integrations.sglang_compression import (
    BatchSpec,
    CompressionBackend,
    EncodedBatch,
    ExecutionContext,
    PackedBatch,
)


def buffers(count: int, count_bytes: int) -> list[torch.Tensor]:
    """Tensors that are aligned as the backend demands."""
    return list(torch.empty(count, -(-count_bytes // 128) * 128, dtype=torch.uint8, device=device))


def wait(operation):
    """A server would do other work meanwhile."""
    while (snapshot := operation.poll()).outcome == "pending":
        time.sleep(0.0001)
    return snapshot


device = "cuda" if torch.cuda.is_available() else "cpu"
spec = BatchSpec(blocks=32, block_bytes=64 << 10, dtype="bfloat16", device=device)
pages = list((torch.randn(32, 32 << 10, device=device) / 4).bfloat16().view(torch.uint8))
backend = CompressionBackend()
assert backend.supports(spec)

needed = backend.buffer_requirements("compress", spec)
encoded = buffers(spec.blocks, needed.output_bytes)
(workspace,) = buffers(1, needed.workspace_bytes)
context = ExecutionContext()
stored = wait(backend.compress_into(PackedBatch(spec, pages), encoded, workspace, context=context))

needed = backend.buffer_requirements("decompress", spec)
restored = buffers(spec.blocks, needed.output_bytes)
(workspace,) = buffers(1, needed.workspace_bytes)
batch = EncodedBatch(spec, encoded, stored.lengths)
assert wait(backend.decompress_into(batch, restored, workspace, context=context)).outcome == "succeeded"
assert all(torch.equal(*pair) for pair in zip(pages, restored, strict=True))
print(f"{sum(stored.lengths) / (spec.blocks * spec.block_bytes):.2f} of the bytes, and the same bits")
backend.close()
