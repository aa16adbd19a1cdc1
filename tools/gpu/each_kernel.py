"""Runs each codec kernel once a value type, on a few blocks and a short one, and compares: for compute-sanitizer."""

from typing import Any

import narrowcast
import numpy as np
from narrowcast import _samples, cuda
from narrowcast._cuda_driver import DeviceBuffer, Stream, on_device
from narrowcast.types import VALUE_TYPES


def put(values: np.ndarray, shift: int = 0) -> DeviceBuffer:
    whole = DeviceBuffer(values.nbytes + shift)
    part = whole.part(shift, values.nbytes)
    part.write(values)
    return part


def check_type(kind: narrowcast.types.ValueType, data: str, shift: int, stream: Stream) -> None:
    elems = 9 * cuda.slot_bytes(kind.name) // kind.bytes + 37
    bits = _samples.of_rank(_samples.sample(data, kind.name), 1, elems)
    values, status = put(bits, shift), DeviceBuffer(16).fill(0)
    options: dict[str, Any] = {"dtype": kind.name, "stream": stream.handle}
    host = narrowcast.encode(bits, dtype=kind.name)
    needed = cuda.workspace_bytes(kind.name, elems)
    frame = DeviceBuffer(narrowcast.bound(kind.name, elems)).fill(0xA5)
    cuda.encode(values, out=frame, workspace=DeviceBuffer(needed).fill(0xA5) if needed else None, **options)
    count = cuda.slot_count(kind.name, elems)
    slots, lengths = DeviceBuffer(count * cuda.slot_bytes(kind.name)), DeviceBuffer(4 * count)
    cuda.encode_slots(values, slots=slots, lengths=lengths, **options)
    results = [put(np.zeros_like(bits), shift) for _ in range(2)]
    cuda.decode(frame, out=results[0], status=status, **options)
    cuda.decode_slots(slots, lengths, out=results[1], status=status, **options)
    wide = DeviceBuffer(elems * cuda.accumulator_type(kind).bytes).fill(0)
    cuda.decode_reduce(frame, accumulator=wide, op="sum", status=status, **options)
    cuda.decode_reduce_slots(slots, lengths, accumulator=wide, op="max", status=status, **options)
    cuda.check(status, stream=stream.handle)
    assert np.array_equal(frame.read(host.size), host), kind.name
    assert all(result.read().tobytes() == bits.tobytes() for result in results), kind.name
    # A damaged frame: a verdict or other values, and nothing outside.
    damaged = np.frombuffer(frame.read(host.size), np.uint8).copy()
    damaged[64::97] ^= 0x5A
    frame.part(0, host.size).write(damaged)
    cuda.decode(frame, out=results[0], status=status, **options)
    stream.synchronize()


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
