"""Building tables: killed builders, and tables larger than memory."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time

import narrowcast
import numpy as np
import pytest
from narrowcast import store
from narrowcast._store.gpu import build_device

# Builds a table of rows whose values are `version`, and says when blocks have been added.
_BUILD = """
import sys
import numpy as np
from narrowcast import store
version = int(sys.argv[1])
def blocks():
    for number in range(40):
        print("block", flush=True)
        yield np.full((4000, 64), version, np.float32) + np.arange(64, dtype=np.float32) / 64
store.build(blocks(), "window", path="table", host=None)
print("built", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_builder_leaves_no_partial_file(tmp_path, number):
    chosen = random.Random(number)
    expected = None
    for version in range(1, 7):
        process = subprocess.Popen(
            [sys.executable, "-c", _BUILD, str(version)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        # Between the first block and the end of the file; a build that is not disturbed in time succeeds.
        for _ in range(chosen.choice([1, 5, 20, 40])):
            process.stdout.readline()
        time.sleep(chosen.random() * 0.05)
        process.send_signal(number)
        rest, _ = process.communicate(timeout=60)
        names = [path.name for path in tmp_path.iterdir()]
        assert names in ([], ["table"])
        assert names or "built" not in rest
        if not names:
            continue
        with store.open(tmp_path / "table") as table:
            assert table.verify().good
            assert len(table) == 160_000
            found = int(table[0][0])
        # The table that was there before, or a complete new one.
        assert found in (expected, version)
        expected = found


_BOUNDED = """
import resource, sys
import numpy as np
from narrowcast import store
rows = np.memmap("source", np.uint16, "r", shape=(1 << 19, 1024))
used = int(open("/proc/self/statm").read().split()[5]) * resource.getpagesize()
limit = used + (400 << 20)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
store.build(rows, sys.argv[1], sys.argv[2], "table", dtype="bfloat16", threads=2, host=None)
with store.open("table", "mmap") as table:
    assert len(table) == len(rows)
    for first in (0, 1000, len(rows) - 3):
        assert (np.asarray(table[first : first + 3]).view(np.uint16) == rows[first : first + 3]).all()
"""


@pytest.mark.parametrize(("codec", "layout"), [("zeros+trim", "stride"), ("auto", "packed"), ("auto", "blocks")])
def test_a_source_may_be_larger_than_the_memory_of_the_process(tmp_path, codec, layout):
    # 1 GiB, most of it a hole, while the process may allocate 400 MiB.
    source = np.memmap(tmp_path / "source", np.uint16, "w+", shape=(1 << 19, 1024))
    for first in (1000, len(source) - 3):
        source[first : first + 3] = np.random.default_rng(first).integers(0, 1 << 16, (3, 1024))
    source.flush()
    done = subprocess.run(
        [sys.executable, "-c", _BOUNDED, codec, layout],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_number_of_threads_does_not_change_the_file(tmp_path):
    rows = np.random.default_rng(1).standard_normal((20_000, 60), np.float32) * 0.02
    rows[::50] = np.random.default_rng(2).integers(0, 1 << 32, (400, 60), np.uint32).view(np.float32)
    for codec, layout in (("auto", "stride"), ("window", "packed")):
        for threads in (1, 5):
            store.build(rows, codec, layout, tmp_path / f"{layout}{threads}", threads=threads, host=None)
        assert (tmp_path / f"{layout}1").read_bytes() == (tmp_path / f"{layout}5").read_bytes()


def test_rows_are_encoded_where_they_are_unless_a_device_is_named():
    assert build_device(None, None) is None
    assert build_device(None, 2) == 2
    assert build_device("cpu", None) is None
    assert build_device("cuda", None) == 0
    assert build_device("cuda", 3) == 3
    assert build_device("cuda:1", None) == 1
    assert build_device(1, 1) == 1


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpu:0", "", -1])
def test_an_unknown_device_is_rejected(device, tmp_path):
    with pytest.raises(ValueError, match="device"):
        store.build(np.zeros((10, 4), np.float32), path=tmp_path / "table", device=device)
    assert not list(tmp_path.iterdir())


def test_rows_on_a_gpu_are_not_encoded_elsewhere():
    for device in ("cpu", 0, "cuda:0"):
        with pytest.raises(ValueError, match="source is on cuda:1"):
            build_device(device, 1)


def test_a_gpu_that_does_not_exist_leaves_no_file(tmp_path):
    with pytest.raises(narrowcast.CudaError, match="ncast_store_builder"):
        store.build(np.zeros((10, 4), np.float32), path=tmp_path / "table", device=99)
    assert not list(tmp_path.iterdir())
