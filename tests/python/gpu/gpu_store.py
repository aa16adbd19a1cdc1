"""Arrays and tables of the tests of stores on GPUs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np
from gpu_memory import on_gpu
from narrowcast._native import cuda_driver
from narrowcast.store import Store

ROWS = 5003


class Array:
    """An array in GPU memory, of NumPy's types."""

    def __init__(self, values: np.ndarray, shift: int = 0) -> None:
        self._buffer, self.shape, self._type = on_gpu(values, shift), values.shape, values.dtype

    @property
    def __cuda_array_interface__(self) -> dict:
        return {
            "shape": self.shape,
            "typestr": self._type.str,
            "data": (self._buffer.pointer, False),
            "version": 3,
        }

    def read(self) -> np.ndarray:
        return self._buffer.read(self._buffer.count_bytes).view(self._type).reshape(self.shape)


class Columns:
    """The first columns of an array in GPU memory: its rows are apart, as those of a slice of CuPy."""

    def __init__(self, whole: Array, columns: int, rows: int | None = None) -> None:
        self.whole = whole
        self.shape = (whole.shape[0] if rows is None else rows, columns)
        interface = whole.__cuda_array_interface__
        item_bytes = np.dtype(interface["typestr"]).itemsize
        self.strides = (whole.shape[1] * item_bytes, item_bytes)
        self.flags = SimpleNamespace(c_contiguous=self.shape[0] <= 1)
        self.__cuda_array_interface__ = {
            **interface,
            "shape": self.shape,
            "strides": None if self.flags.c_contiguous else self.strides,
        }

    def __getitem__(self, rows: slice) -> Columns:
        return Columns(self.whole, self.shape[1], len(range(*rows.indices(self.shape[0]))))


def empty(shape, kind=np.float32, shift: int = 0) -> Array:
    return Array(np.full(shape, 7, kind), shift)


def table(rows=ROWS, shape=(128,), kind=np.float32, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = (rng.standard_normal((rows, *shape)) * 0.02).astype(kind)
    values[rng.random(values.shape) < 0.1] = 0
    values[5] = np.frombuffer(rng.bytes(values[5].nbytes), values.dtype).reshape(shape)
    return values


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.shape == expected.shape and found.tobytes() == expected.tobytes()


class Versions:
    """The rows of a table at several times. Every row differs in all versions."""

    def __init__(self, rows: int, width: int, versions: int) -> None:
        self.every = [np.stack([version_of(row, version, width) for row in range(rows)]) for version in range(versions)]
        self._possible = [{one[row].tobytes() for one in self.every} for row in range(rows)]

    def mixed(self, found: np.ndarray) -> list[int]:
        """The rows that are those of no version."""
        return [row for row, possible in enumerate(self._possible) if found[row].tobytes() not in possible]


def version_of(row: int, version: int, width: int) -> np.ndarray:
    values = np.random.default_rng(1000 * row + version).standard_normal(width)
    return (values * (0.02 if version % 3 else 2.0 ** ((row + version) % 90 - 45))).astype(np.float32)


def update_under_readers(made: Store, versions: Versions, readers: Sequence[Callable[[], Callable[[], np.ndarray]]]):
    """Writes all versions to a table while readers run, and asserts that these see whole rows, and in the end the last.

    readers: each is called in a thread of its own, and returns a function that reads all rows.
    """
    stop, faults, reads = threading.Event(), [], []

    def run(prepare: Callable[[], Callable[[], np.ndarray]]) -> None:
        try:
            with cuda_driver.on_device(0):
                read = prepare()
                while not stop.is_set():
                    faults.extend(versions.mixed(read()))
                    reads.append(1)
                if not same(read(), made[:]):
                    faults.append("the last update is not seen")
        except Exception as error:
            faults.append(error)

    threads = [threading.Thread(target=run, args=(prepare,)) for prepare in readers]
    for thread in threads:
        thread.start()
    rng = np.random.default_rng(5)
    try:
        for rows in versions.every[1:]:
            for _ in range(6):
                picked = rng.permutation(len(rows))[:50]
                made.update(picked, rows[picked])
            made.update(np.arange(50), rows[:50])
            # The first reads load kernels, and may last longer than all updates.
            wanted = len(reads) + len(readers)
            while len(reads) < wanted and all(thread.is_alive() for thread in threads):
                time.sleep(0.001)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not faults
    assert same(made[:][:50], versions.every[-1][:50])
