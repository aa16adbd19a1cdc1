"""Frames from the GPU have the bytes of those from the host, and decode to the same bits."""

from __future__ import annotations

import contextlib

import narrowcast
import numpy as np
import pytest
from codec_names import EXACT
from gpu_memory import bits_of, on_gpu
from narrowcast import cuda
from narrowcast._bench import oracle, samples
from narrowcast._native.cuda_driver import MULTIPROCESSORS, DeviceBuffer, device_attribute
from narrowcast.types import VALUE_TYPES, value_type

POISON = 0xA5
HEADER_BYTES, FLAGS_BYTE = 64, 7
SIZES = (0, 1, 31, 2047, 2048, 2049, 8192, 100_003)
LONG = 3_000_017


def encode(values: DeviceBuffer, kind, elems: int, stream, *, codec="window", **options) -> DeviceBuffer:
    frame = DeviceBuffer(narrowcast.bound(kind.name, elems, codec=codec)).fill(POISON)
    needed = cuda.workspace_bytes(kind.name, elems, codec=codec)
    workspace = DeviceBuffer(needed).fill(POISON) if needed else None
    cuda.encode(values, out=frame, workspace=workspace, dtype=kind.name, codec=codec, stream=stream.handle, **options)
    return frame


@pytest.mark.parametrize("data", ["normal", "random"])
@pytest.mark.parametrize("codec", EXACT)
def test_the_gpu_encodes_what_the_host_encodes(kind, codec, data, stream, status):
    for elems in (*SIZES, LONG):
        bits = bits_of(kind, elems, data)
        frame = encode(on_gpu(bits), kind, elems, stream, codec=codec)
        host = narrowcast.encode(bits, dtype=kind.name, codec=codec, checksum=False)
        assert cuda.wire_bytes(frame, stream=stream.handle) == host.size
        assert np.array_equal(frame.read(host.size), host), (kind.name, codec, data, elems)
        out = DeviceBuffer(bits.nbytes + 64).fill(POISON)
        values = out.part(0, bits.nbytes)
        cuda.decode(frame, out=values, codec=codec, dtype=kind.name, status=status, stream=stream.handle)
        cuda.check(status, stream=stream.handle)
        read = out.read()
        assert read[: bits.nbytes].tobytes() == bits.tobytes()
        assert (read[bits.nbytes :] == POISON).all()


@pytest.mark.parametrize("slots_of_sm", [3, 14, 30, 45])
def test_a_workspace_serves_frames_of_all_lengths(kind, slots_of_sm, stream):
    slots = slots_of_sm * device_attribute(MULTIPROCESSORS) + 3
    elems = slots * cuda.slot_bytes(kind.name) // kind.bytes + 5
    frame = DeviceBuffer(narrowcast.bound(kind.name, elems))
    workspace = DeviceBuffer(cuda.workspace_bytes(kind.name, elems)).fill(POISON)
    for data in ("normal", "random", "normal"):
        bits = bits_of(kind, elems, data)
        frame.fill(POISON)
        values = on_gpu(bits)
        for _ in range(3):
            cuda.encode(values, out=frame, workspace=workspace, dtype=kind.name, stream=stream.handle)
        host = narrowcast.encode(bits, dtype=kind.name, checksum=False)
        assert cuda.wire_bytes(frame, stream=stream.handle) == host.size
        assert np.array_equal(frame.read(host.size), host)


@pytest.mark.parametrize("shift", [2, 4, 6, 8, 14])
def test_values_of_any_alignment_of_their_type_work(shift, stream, status):
    kind, elems = value_type("bfloat16"), 100_003
    bits = bits_of(kind, elems)
    frame = encode(on_gpu(bits, shift), kind, elems, stream)
    host = narrowcast.encode(bits, dtype=kind.name, checksum=False)
    assert np.array_equal(frame.read(host.size), host)
    whole = DeviceBuffer(bits.nbytes + shift + 64).fill(POISON)
    out = whole.part(shift, bits.nbytes)
    cuda.decode(frame, out=out, dtype=kind.name, status=status, stream=stream.handle)
    cuda.check(status, stream=stream.handle)
    read = whole.read()
    assert read[shift : shift + bits.nbytes].tobytes() == bits.tobytes()
    assert (read[:shift] == POISON).all()
    assert (read[shift + bits.nbytes :] == POISON).all()


@pytest.mark.parametrize("max_ctas", [1, 7, 32])
def test_few_ctas_give_the_same_bytes(max_ctas, stream, status):
    kind = value_type("bfloat16")
    bits = bits_of(kind, LONG)
    frame = encode(on_gpu(bits), kind, LONG, stream, max_ctas=max_ctas)
    host = narrowcast.encode(bits, dtype=kind.name, checksum=False)
    assert np.array_equal(frame.read(host.size), host)
    out = DeviceBuffer(bits.nbytes).fill(POISON)
    cuda.decode(frame, out=out, dtype=kind.name, status=status, stream=stream.handle, max_ctas=max_ctas)
    cuda.check(status, stream=stream.handle)
    assert out.read().tobytes() == bits.tobytes()


def test_the_more_flag_is_preserved(stream):
    kind = value_type("bfloat16")
    frame = encode(on_gpu(bits_of(kind, 5000)), kind, 5000, stream, more=True)
    info = cuda.inspect(frame, stream=stream.handle)
    assert (info.more, info.elems, info.dtype) == (True, 5000, "bfloat16")


def test_slots_round_trip(kind, stream, status):
    for elems in (*SIZES[1:], LONG):
        bits = bits_of(kind, elems)
        count, stride = cuda.slot_count(kind.name, elems), cuda.slot_bytes(kind.name)
        slots, lengths = DeviceBuffer(count * stride).fill(POISON), DeviceBuffer(4 * count).fill(POISON)
        cuda.encode_slots(on_gpu(bits), slots=slots, lengths=lengths, dtype=kind.name, stream=stream.handle)
        out = DeviceBuffer(bits.nbytes).fill(POISON)
        cuda.decode_slots(slots, lengths, out=out, dtype=kind.name, status=status, stream=stream.handle)
        cuda.check(status, stream=stream.handle)
        assert out.read().tobytes() == bits.tobytes()
        assert lengths.read().view(np.uint32).max() <= stride


@pytest.mark.parametrize("layout", ["frame", "slots"])
@pytest.mark.parametrize("op", ["sum", "prod", "min", "max"])
def test_decode_reduce_is_the_reduction(kind, op, layout, stream, status):
    elems = 50_001
    ranks = [samples.of_rank(samples.sample("normal", kind.name), rank, elems) for rank in range(3)]
    wide = value_type(cuda.accumulator_type(kind).name)
    accumulator = on_gpu(oracle.widen(ranks[0], kind))
    options = {"accumulator": accumulator, "dtype": kind.name, "op": op, "status": status, "stream": stream.handle}
    for bits in ranks[1:]:
        if layout == "frame":
            cuda.decode_reduce(encode(on_gpu(bits), kind, elems, stream), **options)
        else:
            count = cuda.slot_count(kind.name, elems)
            slots, lengths = DeviceBuffer(count * cuda.slot_bytes(kind.name)), DeviceBuffer(4 * count)
            cuda.encode_slots(on_gpu(bits), slots=slots, lengths=lengths, dtype=kind.name, stream=stream.handle)
            cuda.decode_reduce_slots(slots, lengths, **options)
    cuda.check(status, stream=stream.handle)
    found = accumulator.read().view(wide.numpy)
    with np.errstate(all="ignore"):
        expected = oracle.reduce([oracle.widen(bits, kind) for bits in ranks], op, wide)
    assert oracle.count_wrong(found, expected, wide) == 0


def test_corrupt_frames_are_a_status_and_write_nothing_outside(stream):
    kind, elems = value_type("bfloat16"), 20_000
    bits = bits_of(kind, elems)
    host = narrowcast.encode(bits, dtype=kind.name, checksum=False)
    random = np.random.default_rng(0)
    for i in range(300):
        broken = host.copy()
        at = i if i < HEADER_BYTES else int(random.integers(host.size))
        broken[at] ^= 1 << int(random.integers(8))
        whole = DeviceBuffer(bits.nbytes + 4096).fill(POISON)
        out = whole.part(2048, bits.nbytes)
        status = DeviceBuffer(16).fill(0)
        cuda.decode(on_gpu(broken), out=out, dtype=kind.name, status=status, stream=stream.handle)
        stream.synchronize()
        read = whole.read()
        assert (read[:2048] == POISON).all()
        assert (read[2048 + bits.nbytes :] == POISON).all()
        try:
            cuda.check(status, stream=stream.handle)
        except narrowcast.CorruptError:
            continue
        # A change of the header is always detected.
        assert at >= HEADER_BYTES or at == FLAGS_BYTE
        with contextlib.suppress(narrowcast.CorruptError):
            # A flipped bit may give another value: the same as on the host.
            assert out.read().tobytes() == narrowcast.decode(broken).tobytes()


@pytest.mark.parametrize("change", ["cut", "elems", "dtype", "codec", "nonsense"])
def test_a_frame_of_other_values_is_corrupt(change, stream, status):
    kind, elems = value_type("bfloat16"), 20_000
    host = narrowcast.encode(bits_of(kind, elems), dtype=kind.name, checksum=False)
    frame = on_gpu(host)
    if change == "cut":
        frame = frame.part(0, host.size - 16)
    elif change == "nonsense":
        frame.fill(POISON)
    dtype = "float16" if change == "dtype" else kind.name
    out = DeviceBuffer(kind.bytes * (elems + (change == "elems")))
    codec = "raw" if change == "codec" else "window"
    # Errors in sizes are raised immediately.
    with pytest.raises(narrowcast.CorruptError):  # noqa: PT012
        cuda.decode(frame, out=out, codec=codec, dtype=dtype, status=status, stream=stream.handle)
        cuda.check(status, stream=stream.handle)


def test_invalid_arguments_are_rejected(stream, status):
    kind, elems = value_type("bfloat16"), 10_000
    values = on_gpu(bits_of(kind, elems))
    frame = DeviceBuffer(narrowcast.bound("bfloat16", elems))
    workspace = DeviceBuffer(cuda.workspace_bytes("bfloat16", elems) + 16)
    options = {"dtype": "bfloat16", "stream": stream.handle}
    with pytest.raises(narrowcast.TooSmallError):
        cuda.encode(values, out=frame.part(0, 128), workspace=workspace, **options)
    with pytest.raises(narrowcast.NarrowcastError):
        cuda.encode(values, out=frame.part(8, 64), workspace=workspace, **options)
    with pytest.raises(narrowcast.InvalidArgumentError):
        cuda.encode(values.part(1, 100), out=frame, workspace=workspace, **options)
    with pytest.raises(ValueError, match="lengths has"):
        cuda.encode_slots(values, slots=DeviceBuffer(1 << 20), lengths=DeviceBuffer(4), **options)
    with pytest.raises(ValueError, match="status is in host memory"):
        cuda.decode(frame, out=values, status=np.zeros(1, np.uint32), **options)
    with pytest.raises(ValueError, match="max_ctas is -1"):
        cuda.decode(frame, out=values, status=status, max_ctas=-1, **options)


@pytest.mark.parametrize("elems", [2049, LONG, 3 * LONG, 5 * LONG])
def test_a_graph_encodes_the_values_at_its_launch(elems, stream, status):
    kind = value_type("bfloat16")
    values, out = DeviceBuffer(2 * elems), DeviceBuffer(2 * elems)
    frame = DeviceBuffer(narrowcast.bound("bfloat16", elems))
    workspace = DeviceBuffer(cuda.workspace_bytes("bfloat16", elems) + 16)
    with stream.capture() as graph:
        cuda.encode(values, out=frame, workspace=workspace, dtype="bfloat16", stream=stream.handle)
        cuda.decode(frame, out=out, status=status, dtype="bfloat16", stream=stream.handle)
    for rank in range(4):
        bits = samples.of_rank(samples.sample("normal", "bfloat16"), rank, elems)
        values.write(bits)
        out.fill(POISON)
        graph.launch(stream)
        graph.launch(stream)
        cuda.check(status, stream=stream.handle)
        host = narrowcast.encode(bits, dtype="bfloat16", checksum=False)
        assert np.array_equal(frame.read(host.size), host)
        assert out.read().tobytes() == bits.tobytes()
        assert kind.bytes * elems == out.count_bytes


@pytest.mark.parametrize("name", [kind.name for kind in VALUE_TYPES if kind.is_float and kind.bytes <= 2])
def test_every_bit_pattern_survives(name, stream, status):
    kind = value_type(name)
    bits = np.resize(np.arange(1 << 8 * kind.bytes, dtype=np.uint32), 3 << 16).astype(f"uint{8 * kind.bytes}")
    for order in (bits, np.random.default_rng(0).permutation(bits)):
        frame = encode(on_gpu(order), kind, order.size, stream)
        out = DeviceBuffer(order.nbytes).fill(POISON)
        cuda.decode(frame, out=out, dtype=kind.name, status=status, stream=stream.handle)
        cuda.check(status, stream=stream.handle)
        assert out.read().tobytes() == order.tobytes()
