"""The compression backend for SGLang, in GPU memory."""

from __future__ import annotations

import time

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("this torch has no CUDA", allow_module_level=True)

from narrowcast.integrations.sglang_compression import (  # noqa: E402
    BatchSpec,
    CompressionBackend,
    EncodedBatch,
    ExecutionContext,
    PackedBatch,
)

SPEC = BatchSpec(blocks=20, block_bytes=96 << 10, dtype="bfloat16", device="cuda")


def memory(count, count_bytes):
    return list(torch.zeros(count, -(-count_bytes // 128) * 128, dtype=torch.uint8, device="cuda"))


def finished(operation):
    deadline = time.monotonic() + 30
    while (snapshot := operation.poll()).outcome == "pending":
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return snapshot


def begin(backend, operation, batch, context):
    needed = backend.buffer_requirements(operation, SPEC)
    outs, workspace = memory(SPEC.blocks, needed.output_bytes), memory(1, max(needed.workspace_bytes, 1))[0]
    for event in context.after:
        event.record()  # the buffers have been filled, and the pages
    run = backend.compress_into if operation == "compress" else backend.decompress_into
    return outs, run(batch, outs, workspace, context=context)


@pytest.fixture
def pages():
    return list((torch.randn(SPEC.blocks, SPEC.block_bytes // 2, device="cuda") / 4).bfloat16().view(torch.uint8))


def test_blocks_come_back_with_the_same_bits(pages):
    backend = CompressionBackend()
    stream, ready = torch.cuda.Stream(), torch.cuda.Event()
    expected = [one.clone() for one in pages]
    # The first call loads kernels and allocates page-locked memory, which waits for the GPU.
    finished(begin(backend, "compress", PackedBatch(SPEC, pages), ExecutionContext(stream=stream))[1])
    for one in pages:
        one.zero_()
    torch.cuda.synchronize()
    torch.cuda._sleep(400_000_000)
    for one, values in zip(pages, expected, strict=True):
        one.copy_(values)
    context = ExecutionContext(stream=stream, after=[ready])
    encoded, operation = begin(backend, "compress", PackedBatch(SPEC, pages), context)
    assert operation.poll().outcome == "pending"  # nothing waits for the GPU
    stored = finished(operation)
    assert stored.outcome == "succeeded"
    assert all(0 < length < 0.75 * SPEC.block_bytes for length in stored.lengths)
    batch = EncodedBatch(SPEC, encoded, stored.lengths)
    decoded, operation = begin(backend, "decompress", batch, ExecutionContext(stream=stream, after=[ready]))
    assert finished(operation).outcome == "succeeded"
    assert all(torch.equal(*pair) for pair in zip(decoded, expected, strict=True))


def test_a_damaged_block_fails_alone(pages):
    backend = CompressionBackend()
    encoded, operation = begin(backend, "compress", PackedBatch(SPEC, pages), ExecutionContext())
    stored = finished(operation)
    encoded[3][:64] = 0
    batch = EncodedBatch(SPEC, encoded, stored.lengths)
    decoded, operation = begin(backend, "decompress", batch, ExecutionContext())
    back = finished(operation)
    assert back.outcome == "failed"
    assert [number for number, error in enumerate(back.errors) if error] == [3]
    assert all(torch.equal(decoded[i], pages[i]) for i in range(SPEC.blocks) if i != 3)
