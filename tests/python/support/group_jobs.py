"""Rank processes of gpu/test_groups.py."""

from __future__ import annotations

from typing import Any

import narrowcast
import numpy as np
from narrowcast._native.cuda_driver import DeviceBuffer, Stream, copy_to_host, on_device

_ELEMS = 1 << 20
_DELAYING_BYTES, _DELAYS = 256 << 20, 50  # some milliseconds


def two_streams(*, unique_id: str, rank: int, ranks: int, device: int, emit: Any) -> None:
    """A group on two streams. The first needs the input of the second and reads its result."""
    with on_device(device):
        first, second = Stream(), Stream()
        ones = np.full(_ELEMS, rank + 1, np.float32)
        given, late, twos = DeviceBuffer(ones.nbytes).write(ones), DeviceBuffer(ones.nbytes), DeviceBuffer(ones.nbytes)
        sums, others, read = (DeviceBuffer(ones.nbytes).fill(0xA5) for _ in range(3))
        twos.write(2 * ones)
        late.fill(0)
        there, back = DeviceBuffer(_DELAYING_BYTES).fill(0), DeviceBuffer(_DELAYING_BYTES)
        with narrowcast.Communicator(
            bytes.fromhex(unique_id), rank, ranks, backend="cuda", device=device, timeout_seconds=60
        ) as comm:
            options: dict[str, Any] = {"dtype": "float32", "codec": "raw"}
            comm.all_reduce(given, out=sums, stream=first, **options)
            first.synchronize()
            for _ in range(_DELAYS):
                back.copy_from(there, 0, second)
            late.copy_from(given, 0, second)
            with narrowcast.group():
                comm.all_reduce(late, out=sums, stream=first, **options)
                comm.all_reduce(twos, out=others, stream=second, **options)
            read.copy_from(others, 0, first)
            total = ranks * (ranks + 1) / 2
            found = [
                np.frombuffer(copy_to_host(one.pointer, ones.nbytes, first.handle), np.float32) for one in (sums, read)
            ]
            emit([bool((found[0] == total).all()), bool((found[1] == 2 * total).all())])
            second.synchronize()
