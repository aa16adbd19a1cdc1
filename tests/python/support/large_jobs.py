"""Rank processes of gpu/test_large.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import narrowcast
import numpy as np
from narrowcast._bench import oracle, samples
from narrowcast._native.cuda_driver import DeviceBuffer, Stream, copy_to_host, on_device
from narrowcast.types import value_type

_BF16 = value_type("bfloat16")
_TILE_ELEMS = (1 << 20) + 7  # not a power of two, so that values at an offset of 4 GiB differ
_CHECKED_BYTES = 64 << 20


def calls(*, unique_id: str, rank: int, ranks: int, device: int, elems: int, codec: str, emit: Any) -> None:
    """A message, an all_gather and an all_reduce of `elems` bfloat16 values. Emits the wrong values of each."""
    values = samples.sample("weights", "bfloat16")
    tiles = [samples.of_rank(values, one, _TILE_ELEMS) for one in range(ranks)]
    previous, following = tiles[(rank - 1) % ranks], (rank + 1) % ranks
    with on_device(device):
        stream, bytes_of_all = Stream(), elems * _BF16.bytes
        mine = DeviceBuffer(bytes_of_all).write_tiled(tiles[rank].view(np.uint8))
        received, gathered = DeviceBuffer(bytes_of_all), DeviceBuffer(ranks * bytes_of_all)
        options: dict[str, Any] = {"codec": codec, "stream": stream, "dtype": "bfloat16"}
        with narrowcast.Communicator(
            bytes.fromhex(unique_id), rank, ranks, backend="cuda", device=device, timeout_seconds=100
        ) as comm:

            def exchange() -> None:
                with narrowcast.group():
                    comm.send(mine, following, **options)
                    comm.recv(received, (rank - 1) % ranks, **options)

            def count_wrong(call: Callable[[], object], buffer: DeviceBuffer, *parts: np.ndarray) -> int:
                buffer.fill(0xA5)
                call()
                stream.synchronize()
                assert comm.async_error() is None
                return sum(_wrong_of(buffer, i * bytes_of_all, elems, part) for i, part in enumerate(parts))

            emit(
                [
                    count_wrong(exchange, received, previous),
                    count_wrong(lambda: comm.all_gather(mine, gathered, **options), gathered, *tiles),
                    count_wrong(
                        lambda: comm.all_reduce(mine, out=received, **options),
                        received,
                        oracle.reduce(tiles, "sum", _BF16),
                    ),
                ]
            )


def _wrong_of(buffer: DeviceBuffer, begin: int, elems: int, tile: np.ndarray) -> int:
    """The number of wrong values among `elems` values at byte `begin`, which should repeat the tile."""
    wrong, step = 0, _CHECKED_BYTES // tile.nbytes * tile.size
    for at in range(0, elems, step):
        count = min(step, elems - at)
        found = np.frombuffer(copy_to_host(buffer.pointer + begin + at * _BF16.bytes, count * _BF16.bytes), np.uint16)
        wrong += oracle.count_wrong(found, np.resize(tile, count), _BF16)
    return wrong
