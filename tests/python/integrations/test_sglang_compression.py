"""The compression backend for SGLang, driven as its transfer worker would: without waiting for operations."""

from __future__ import annotations

import importlib
import time
from concurrent.futures import Executor, Future

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from narrowcast.integrations import sglang_compression as interface  # noqa: E402
from narrowcast.integrations.sglang_compression import (  # noqa: E402
    BatchSpec,
    CompressionBackend,
    EncodedBatch,
    ExecutionContext,
    PackedBatch,
)

SPEC = BatchSpec(blocks=6, block_bytes=32 << 10, dtype="bfloat16", device="cpu")


class ManualExecutor(Executor):
    """Runs a task when the test says so."""

    def __init__(self):
        self.tasks = []

    def submit(self, run, /, *arguments, **options):
        future = Future()
        self.tasks.append((future, run))
        return future

    def run(self):
        for future, run in self.tasks:
            future.set_result(run())
        self.tasks.clear()


class Worker:
    """Owns the buffers, begins operations and polls them."""

    def __init__(self, backend, spec):
        self.backend, self.spec = backend, spec
        self.context = ExecutionContext()

    def buffers(self, operation, exact=False):
        needed = self.backend.buffer_requirements(operation, self.spec)
        spare = 0 if exact else 100
        outs = [torch.full((needed.output_bytes + spare,), 7, dtype=torch.uint8) for _ in range(self.spec.blocks)]
        return outs, torch.empty(needed.workspace_bytes, dtype=torch.uint8)

    def finished(self, operation):
        deadline = time.monotonic() + 60
        while (snapshot := operation.poll()).outcome == "pending":
            assert snapshot.buffers_in_use
            assert time.monotonic() < deadline
            time.sleep(0.001)
        assert not snapshot.buffers_in_use
        assert operation.poll() == snapshot
        return snapshot

    def compress(self, blocks):
        outs, workspace = self.buffers("compress")
        operation = self.backend.compress_into(PackedBatch(self.spec, blocks), outs, workspace, context=self.context)
        return outs, self.finished(operation)

    def decompress(self, encoded, lengths):
        outs, workspace = self.buffers("decompress")
        batch = EncodedBatch(self.spec, encoded, lengths)
        operation = self.backend.decompress_into(batch, outs, workspace, context=self.context)
        return outs, self.finished(operation)


def pages(spec, seed=0):
    made = torch.randn(spec.blocks, spec.block_bytes // 2, generator=torch.Generator().manual_seed(seed)) * 0.3
    return list(made.bfloat16().view(torch.uint8))


@pytest.fixture
def worker():
    # As SGLang loads backends by the path of their module.
    backend = importlib.import_module("narrowcast.integrations.sglang_compression").CompressionBackend()
    yield Worker(backend, SPEC)
    backend.close()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "float8_e4m3", "uint8"])
@pytest.mark.parametrize("blocks", [0, 1, 6])
def test_blocks_come_back_with_the_same_bits(worker, dtype, blocks):
    worker.spec = BatchSpec(blocks, 12_288, dtype, "cpu")
    given = pages(worker.spec)
    encoded, snapshot = worker.compress(given)
    assert snapshot.outcome == "succeeded"
    assert snapshot.errors == (None,) * blocks
    decoded, back = worker.decompress(encoded, snapshot.lengths)
    assert back.outcome == "succeeded"
    assert back.lengths == (worker.spec.block_bytes,) * blocks
    for before, after in zip(given, decoded, strict=True):
        assert torch.equal(after[: len(before)], before)
        assert (after[len(before) :] == 7).all()  # beyond the block nothing is written
    if dtype == "bfloat16":
        assert all(length < 0.75 * worker.spec.block_bytes for length in snapshot.lengths)


def test_blocks_decode_without_the_others(worker):
    given = pages(SPEC)
    encoded, snapshot = worker.compress(given)
    worker.spec = BatchSpec(2, SPEC.block_bytes, SPEC.dtype, SPEC.device)
    chosen = [4, 1]
    decoded, back = worker.decompress([encoded[i] for i in chosen], [snapshot.lengths[i] for i in chosen])
    assert back.outcome == "succeeded"
    assert all(torch.equal(one[: SPEC.block_bytes], given[i]) for one, i in zip(decoded, chosen, strict=True))


def test_nothing_waits_for_the_worker(worker):
    executor = ManualExecutor()
    outs, workspace = worker.buffers("compress", exact=True)
    operation = worker.backend.compress_into(
        PackedBatch(SPEC, pages(SPEC)), outs, workspace, context=ExecutionContext(executor=executor)
    )
    assert operation.poll() == interface.OperationSnapshot("pending", True)
    executor.run()
    assert operation.poll().outcome == "succeeded"


def test_a_damaged_block_fails_alone(worker):
    given = pages(SPEC)
    encoded, snapshot = worker.compress(given)
    encoded[2][200] ^= 1
    encoded[3][:64] = 0
    lengths = list(snapshot.lengths)
    lengths[5] = 10
    decoded, back = worker.decompress(encoded, lengths)
    assert back.outcome == "failed"
    assert [error is None for error in back.errors] == [True, True, False, False, True, False]
    assert [length > 0 for length in back.lengths] == [True, True, False, False, True, False]
    for i in (0, 1, 4):
        assert torch.equal(decoded[i][: SPEC.block_bytes], given[i])


def test_blocks_of_another_kind_are_errors(worker):
    encoded, snapshot = worker.compress(pages(SPEC))
    for other in (
        BatchSpec(6, SPEC.block_bytes, "float16", "cpu"),
        BatchSpec(6, 2 * SPEC.block_bytes, "bfloat16", "cpu"),
    ):
        worker.spec = other
        assert worker.decompress(encoded, snapshot.lengths)[1].outcome == "failed"


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (BatchSpec(1, 64, "bfloat15", "cpu"), "bfloat15"),
        (BatchSpec(1, 65, "bfloat16", "cpu"), "65 bytes are not a whole number of bfloat16"),
        (BatchSpec(1, 0, "bfloat16", "cpu"), "0 bytes"),
        (BatchSpec(-1, 64, "bfloat16", "cpu"), "-1 blocks"),
        (BatchSpec(1, 64, "bfloat16", "meta"), "only cpu and cuda"),
        (BatchSpec(1, 64, "bfloat16", "nowhere"), "nowhere"),
    ],
)
def test_what_is_not_supported_has_a_reason(worker, spec, reason):
    found = worker.backend.supports(spec)
    assert not found
    assert reason in found.reason
    with pytest.raises(ValueError, match=reason):
        worker.backend.buffer_requirements("compress", spec)


def test_buffers_that_do_not_suffice_are_named(worker):
    given = pages(SPEC)
    outs, workspace = worker.buffers("compress", exact=True)

    def compress(blocks=given, outs=outs):
        worker.backend.compress_into(PackedBatch(SPEC, blocks), outs, workspace, context=worker.context)

    with pytest.raises(ValueError, match=r"output 5 has \d+ bytes, but needs"):
        compress(outs=[*outs[:5], outs[5][:-1]])
    with pytest.raises(ValueError, match="5 blocks and 6 outputs, but the batch has 6"):
        compress(given[:5])
    with pytest.raises(ValueError, match="block 0 has 10 bytes"):
        compress([given[0][:10], *given[1:]])
    with pytest.raises(ValueError, match="block 1 is not a contiguous uint8"):
        compress([given[0], given[1].view(torch.bfloat16), *given[2:]])
    with pytest.raises(ValueError, match="block 3 has 99 bytes in a buffer of 9"):
        worker.backend.decompress_into(
            EncodedBatch(SPEC, [torch.zeros(9, dtype=torch.uint8)] * 6, [0, 0, 0, 99, 0, 0]),
            outs,
            workspace,
            context=worker.context,
        )
    with pytest.raises(ValueError, match="neither compress nor decompress"):
        worker.backend.buffer_requirements("expand", SPEC)


@pytest.mark.parametrize("codec", ["nonsense", "uniform:bits=4"])
def test_codecs_that_lose_bits_are_errors(codec):
    with pytest.raises(ValueError, match="not one that is lossless"):
        CompressionBackend(codec)
