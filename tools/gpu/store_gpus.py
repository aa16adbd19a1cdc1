"""Measures gathers and slices of one table in shared host memory that several GPUs read at the same time.

    store_gpus.py --json store_gpus.json
    store_gpus.py --gpus 2 --sms 4,8 --table 4G

Each GPU has a process of its own that opens the table with host="shared". Every call is measured with one GPU after
the other ("alone"), and with all of them at once ("together"): then a GPU's speed counts only the calls of a period in
which all GPUs were calling. The table is bfloat16, normally distributed, and is compressed by the codec window; the
same rows are stored raw beside it. All rows that the measured calls yield are compared with the table's.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from narrowcast import store
from narrowcast._native import cuda_driver
from narrowcast._native.cuda_driver import DeviceBuffer, Stream
from narrowcast.cli._sizes import parse_size
from narrowcast.cuda import device_count
from narrowcast.store import Store
from provenance import commit, machine

GATHERED_ROWS = 100_000
SLICE_BYTES = 256 << 20
SAMPLE_ROWS = 1 << 16
BATCHES = 8
SECONDS = 0.5
# A process that fails or hangs must not leave the others waiting.
LIMIT_SECONDS = 240


class Array:
    """An array in GPU memory."""

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self._buffer = DeviceBuffer(values.nbytes).write(values)
        data = (self._buffer.pointer, False)
        self.__cuda_array_interface__ = {
            "shape": values.shape,
            "typestr": values.dtype.str,
            "data": data,
            "version": 3,
        }


def sample(row_bytes: int) -> npt.NDArray[np.uint8]:
    """Rows of normally distributed bfloat16 values."""
    values = np.random.default_rng(0).standard_normal((SAMPLE_ROWS, row_bytes // 2), np.float32)
    return np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)


def build(path: Path, row_bytes: int, rows: int, codec: str) -> float:
    """Writes a table whose row r is row r % SAMPLE_ROWS of the sample. Returns its ratio."""
    repeated = np.resize(sample(row_bytes).view(np.uint16), (rows, row_bytes // 2))
    reports: list[store.BuildReport] = []
    store.build(repeated, codec, "auto", path, dtype="bfloat16", host=None, report=reports.append)
    return reports[0].ratio


class Reader:
    """The calls of one GPU."""

    def __init__(self, table: Store, row_bytes: int, rows: int, seed: int) -> None:
        self.table, self.row_bytes, self.rows = table, row_bytes, rows
        self.stream = Stream()
        drawn = np.random.default_rng(seed)
        self.drawn = [drawn.integers(0, rows, GATHERED_ROWS) for _ in range(BATCHES)]
        self.indices = [Array(one) for one in self.drawn]
        self.slice_rows = min(SLICE_BYTES // row_bytes, rows)
        counts = {"gather": GATHERED_ROWS, "fetch": self.slice_rows}
        self.out = {what: DeviceBuffer(count * row_bytes) for what, count in counts.items()}
        table.prepare(GATHERED_ROWS, stream=self.stream)

    def call(self, what: str, i: int, sms: int) -> npt.NDArray[np.int64]:
        """Enqueues a call, and returns the rows that it yields."""
        if what == "gather":
            self.table.gather(self.indices[i], self.out[what], stream=self.stream, sms=sms)
            return self.drawn[i]
        first = (self.rows - self.slice_rows) * i // BATCHES
        self.table.fetch(first, self.slice_rows, out=self.out[what], stream=self.stream, sms=sms)
        return np.arange(first, first + self.slice_rows)

    def run(self, what: str, sms: int, seconds: float) -> list[tuple[float, float]]:
        """Calls for some time. Returns when each call began and ended."""
        times: list[tuple[float, float]] = []
        end = time.monotonic() + seconds
        while (begin := time.monotonic()) < end:
            self.call(what, len(times) % BATCHES, sms)
            self.stream.synchronize()
            times.append((begin, time.monotonic()))
        return times

    def exact(self, what: str, sms: int, expected: npt.NDArray[np.uint8]) -> bool:
        self.out[what].fill(0xA5)
        rows = self.call(what, 1, sms)
        self.stream.synchronize()
        found = self.out[what].read().reshape(rows.size, self.row_bytes)
        return np.array_equal(found, expected[rows % SAMPLE_ROWS])


def reader(gpu: int, gpus: int, path: str, row_bytes: int, rows: int, sms: list[int], barrier: Any, found: Any) -> None:
    """A process: measures all calls, in step with the other GPUs."""
    with cuda_driver.on_device(gpu), store.open(path, "shared") as table:
        one = Reader(table, row_bytes, rows, gpu)
        expected = sample(row_bytes)
        for limit in sms:
            for what in ("gather", "fetch"):
                one.run(what, limit, 0.1)
                barrier.wait()
                for turn in range(gpus):
                    if turn == gpu:
                        found.put((what, limit, "alone", gpu, one.run(what, limit, SECONDS)))
                    barrier.wait()
                found.put((what, limit, "together", gpu, one.run(what, limit, SECONDS)))
                found.put((what, limit, "exact", gpu, one.exact(what, limit, expected)))
        table.check()
        barrier.wait()


def speed(times: list[tuple[float, float]], call_bytes: int, begin: float, end: float) -> float:
    """GB/s of the calls that began and ended in a period."""
    inside = [(first, last) for first, last in times if first >= begin and last <= end]
    return len(inside) * call_bytes / (inside[-1][1] - inside[0][0]) / 1e9


def measure(path: Path, row_bytes: int, rows: int, gpus: int, sms: list[int]) -> list[dict[str, Any]]:
    spawn = multiprocessing.get_context("spawn")
    barrier, found = spawn.Barrier(gpus, timeout=LIMIT_SECONDS), spawn.Queue()
    common = (gpus, str(path), row_bytes, rows, sms, barrier, found)
    processes = [spawn.Process(target=reader, args=(gpu, *common)) for gpu in range(gpus)]
    for one in processes:
        one.start()
    taken: dict[tuple[Any, ...], Any] = {}
    for _ in range(len(sms) * 2 * 3 * gpus):
        *key, value = found.get(timeout=LIMIT_SECONDS)
        taken[tuple(key)] = value
    for one in processes:
        one.join(LIMIT_SECONDS)
        if one.exitcode:
            raise SystemExit(f"a process that read the table ended with status {one.exitcode}")
    results = []
    for limit in sms:
        for what in ("gather", "fetch"):
            call_bytes = (GATHERED_ROWS if what == "gather" else min(SLICE_BYTES // row_bytes, rows)) * row_bytes
            alone = [taken[what, limit, "alone", gpu] for gpu in range(gpus)]
            together = [taken[what, limit, "together", gpu] for gpu in range(gpus)]
            begin, end = max(one[0][0] for one in together), min(one[-1][1] for one in together)
            speeds = [speed(one, call_bytes, begin, end) for one in together]
            results.append(
                {
                    "call": what,
                    "sms": limit,
                    "alone_gb_per_s": [speed(one, call_bytes, one[0][0], one[-1][1]) for one in alone],
                    "together_gb_per_s": speeds,
                    "total_gb_per_s": sum(speeds),
                    "exact": all(taken[what, limit, "exact", gpu] for gpu in range(gpus)),
                }
            )
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, help="default: all")
    parser.add_argument("--row-bytes", type=int, default=2048)
    parser.add_argument("--table", type=parse_size, default=4 << 30, help="raw bytes (4G)")
    parser.add_argument("--sms", type=lambda text: [int(one) for one in text.split(",")], default=[4, 8])
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm"), help="of the table's files")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    gpus = options.gpus or device_count()
    if not 1 <= gpus <= device_count():
        parser.error(f"--gpus {gpus}: this machine has {device_count()} GPUs")
    rows = max(SAMPLE_ROWS, options.table // options.row_bytes)
    given = f"--gpus {gpus} --row-bytes {options.row_bytes} --table {options.table}"
    report: dict[str, Any] = {
        "machine": machine(),
        "command": f"tools/gpu/store_gpus.py {given} --sms {','.join(map(str, options.sms))}",
        "commit": commit(),
        "rows": rows,
        "row_bytes": options.row_bytes,
        "tables": [],
    }
    for codec in ("window", "raw"):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            path = Path(folder) / "table"
            ratio = build(path, options.row_bytes, rows, codec)
            results = measure(path, options.row_bytes, rows, gpus, options.sms)
        report["tables"].append({"codec": codec, "ratio": ratio, "results": results})
        for one in results:
            shown = ", ".join(f"{speed:.1f}" for speed in one["together_gb_per_s"])
            alone = ", ".join(f"{speed:.1f}" for speed in one["alone_gb_per_s"])
            exact = "" if one["exact"] else "; NOT EXACT"
            print(f"{codec} {one['call']} {one['sms']} SMs: together {shown} GB/s, alone {alone}{exact}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    if not all(one["exact"] for table in report["tables"] for one in table["results"]):
        raise SystemExit("rows differ from the table's")


if __name__ == "__main__":
    main()
