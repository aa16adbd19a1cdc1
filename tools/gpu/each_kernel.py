"""Runs each codec kernel once per value type, on a few blocks and a short one, and compares: for compute-sanitizer.

Every decoder also gets damaged input, in buffers that end where the input ends. It may report an error or decode other
values, but must not access memory outside.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import narrowcast
import numpy as np
from narrowcast import cuda
from narrowcast._bench import samples
from narrowcast._native.cuda_driver import DeviceBuffer, Stream, on_device
from narrowcast.cuda_batch import DecodeBatch, EncodeBatch
from narrowcast.types import VALUE_TYPES


def put(values: np.ndarray, shift: int = 0) -> DeviceBuffer:
    whole = DeviceBuffer(values.nbytes + shift)
    part = whole.part(shift, values.nbytes)
    part.write(values)
    return part


def check_type(kind: narrowcast.types.ValueType, data: str, shift: int, stream: Stream) -> None:
    elems = 9 * cuda.slot_bytes(kind.name) // kind.bytes + 37
    bits = samples.of_rank(samples.sample(data, kind.name), 1, elems)
    values, status = put(bits, shift), DeviceBuffer(16).fill(0)
    options: dict[str, Any] = {"dtype": kind.name, "stream": stream.handle}
    host = narrowcast.encode(bits, dtype=kind.name, checksum=False)
    needed = cuda.workspace_bytes(kind.name, elems)
    frame = DeviceBuffer(narrowcast.bound(kind.name, elems)).fill(0xA5)
    cuda.encode(values, out=frame, workspace=DeviceBuffer(needed).fill(0xA5) if needed else None, **options)
    count = cuda.slot_count(kind.name, elems)
    slots, lengths = DeviceBuffer(count * cuda.slot_bytes(kind.name)), DeviceBuffer(4 * count)
    cuda.encode_slots(values, slots=slots, lengths=lengths, **options)
    results = [put(np.zeros_like(bits), shift) for _ in range(2)]
    cuda.decode(frame, out=results[0], status=status, **options)
    cuda.decode_slots(slots, lengths, out=results[1], status=status, **options)
    encode_and_decode_batch(values, bits, host, kind, stream)
    wide = DeviceBuffer(elems * cuda.accumulator_type(kind).bytes).fill(0)
    cuda.decode_reduce(frame, accumulator=wide, op="sum", status=status, **options)
    cuda.decode_reduce_slots(slots, lengths, accumulator=wide, op="max", status=status, **options)
    cuda.check(status, stream=stream.handle)
    assert np.array_equal(frame.read(host.size), host), kind.name
    assert all(result.read().tobytes() == bits.tobytes() for result in results), kind.name
    decode_damaged_frames(host, results[0], wide, options)
    decode_damaged_slots(slots, lengths, results[0], wide, options)
    stream.synchronize()


def encode_and_decode_batch(
    values: DeviceBuffer, bits: np.ndarray, host: np.ndarray, kind: narrowcast.types.ValueType, stream: Stream
) -> None:
    frames = [DeviceBuffer(narrowcast.bound(kind.name, bits.nbytes // kind.bytes)) for _ in range(3)]
    encoding = EncodeBatch([values] * 3, outs=frames, dtype=kind.name)
    encoding.encode(stream=stream.handle)
    assert encoding.wire_bytes(stream=stream.handle) == [host.size] * 3, kind.name
    assert all(np.array_equal(frame.read(host.size), host) for frame in frames), kind.name
    results = [DeviceBuffer(bits.nbytes) for _ in frames]
    decoding = DecodeBatch(frames, outs=results)
    decoding.decode(stream=stream.handle)
    assert decoding.raw_bytes(stream=stream.handle) == [bits.nbytes] * 3, kind.name
    assert all(result.read().tobytes() == bits.tobytes() for result in results), kind.name
    for broken in damaged(host):
        hostile = DecodeBatch([put(broken), frames[0]], outs=results[:2])
        hostile.decode(stream=stream.handle)
        with contextlib.suppress(narrowcast.CorruptError):
            hostile.raw_bytes(stream=stream.handle)
        assert results[1].read().tobytes() == bits.tobytes(), kind.name


def damaged(frame: np.ndarray) -> Iterator[np.ndarray]:
    """Frames with flipped bits after the header, truncated frames, and frames with random payloads or random bodies."""
    random = np.random.default_rng(frame.size)
    flipped = frame.copy()
    flipped[64::97] ^= 0x5A
    yield flipped
    for cut in (64, 80, frame.size // 2 // 16 * 16, frame.size - 16):
        yield frame[:cut].copy()
    noise = frame.copy()
    noise[64 + 48 :] = random.integers(0, 256, frame.size - 64 - 48, np.uint8)
    yield noise
    yield np.concatenate((frame[:64], random.integers(0, 256, frame.size - 64, np.uint8)))


def decode_damaged_frames(host: np.ndarray, out: DeviceBuffer, wide: DeviceBuffer, options: dict[str, Any]) -> None:
    status = DeviceBuffer(16).fill(0)
    for broken in damaged(host):
        frame = put(broken)
        # Input that is too short for a frame is rejected before the launch.
        with contextlib.suppress(narrowcast.CorruptError):
            cuda.decode(frame, out=out, status=status, **options)
        with contextlib.suppress(narrowcast.CorruptError):
            cuda.decode_reduce(frame, accumulator=wide, op="sum", status=status, **options)


def decode_damaged_slots(
    slots: DeviceBuffer, lengths: DeviceBuffer, out: DeviceBuffer, wide: DeviceBuffer, options: dict[str, Any]
) -> None:
    status = DeviceBuffer(16).fill(0)
    payloads, words = slots.read(), lengths.read().view(np.uint32)
    random = np.random.default_rng(payloads.size)
    flipped = payloads.copy()
    flipped[::97] ^= 0x5A
    noise = random.integers(0, 256, payloads.size, np.uint8)
    wrong = random.integers(0, 1 << 32, words.size, np.uint32)
    shorter = (words // 32 * 16).astype(np.uint32)
    for these, those in ((flipped, words), (noise, words), (payloads, wrong), (payloads, shorter)):
        broken, claimed = put(these), put(those.view(np.uint8))
        cuda.decode_slots(broken, claimed, out=out, status=status, **options)
        cuda.decode_reduce_slots(broken, claimed, accumulator=wide, op="max", status=status, **options)


def main() -> None:
    with on_device(0):
        stream = Stream()
        for kind in VALUE_TYPES:
            for data in ("normal", "random"):
                for shift in (0, kind.bytes):
                    check_type(kind, data, shift, stream)
    print("all kernels ran and agreed")


if __name__ == "__main__":
    main()
