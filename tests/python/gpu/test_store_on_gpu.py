"""Stores are read on a GPU as on the host: the same rows, from every place, codec and layout."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import narrowcast
import numpy as np
import pytest
from gpu_store import ROWS, Array, Versions, empty, same, table, update_under_readers
from narrowcast import store
from narrowcast._native.cuda_driver import DeviceBuffer, Stream
from narrowcast.store import RowIndexError


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return table()


@pytest.fixture(params=["pinned", "shared", "mmap"])
def host(request) -> str:
    return request.param


def opened(rows, tmp_path, host="pinned", **options):
    path = tmp_path / "table.ncs"
    more = {name: options.pop(name) for name in ("capacity", "spare") if name in options}
    store.build(rows, path=path, host=None, **options)
    try:
        made = store.open(path, host, **more)
        made.prepare(8)
    except narrowcast.CudaError as error:
        if host != "mmap":
            raise
        pytest.skip(f"this system cannot register the pages of a file: {error}")
    return made


@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("codec", ["window", "raw", "zeros+trim+window", "invariant", "zeros+invariant"])
def test_gather_is_indexing(rows, tmp_path, host, codec, layout, stream):
    if codec == "raw" and layout == "packed":
        codec = "plain"  # raw rows are not packed
    picked = np.random.default_rng(1).integers(0, ROWS, 9000)
    picked[:4] = [0, ROWS - 1, ROWS - 1, 5]
    with opened(rows, tmp_path, host, codec=codec, layout=layout) as made:
        for kind in (np.int32, np.int64):
            for where in (Array, np.asarray):
                out = empty((9000, 128))
                assert made.gather(where(picked.astype(kind)), out=out, stream=stream) is out
                stream.synchronize()
                assert same(out.read(), rows[picked])
        made.check()
        assert made.counters().rows_read == 4 * 9000
        assert made.counters().raw_bytes_read == 4 * 9000 * 512
        assert made.counters().gathers == 4


@pytest.mark.parametrize("layout", ["stride", "packed", "blocks"])
def test_fetch_is_slicing(rows, tmp_path, host, layout, stream):
    codec = "window" if layout != "stride" else "auto"
    with opened(rows, tmp_path, host, codec=codec, layout=layout) as made:
        for cut in (slice(None), slice(17, 4000), slice(3, 4), slice(100, 90, -1), slice(0, 2000, 7), slice(5, 5)):
            expected = rows[cut]
            out = empty(expected.shape)
            assert made.fetch(cut, out=out, stream=stream) is out
            stream.synchronize()
            assert same(out.read(), expected)
        made.check()
        assert made.counters().fetches == 5
        assert made.counters().fetched_bytes > 0


@pytest.mark.parametrize("codec", ["window", "raw"])
@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("width", [16, 256])
def test_large_slices_are_fetched(codec, layout, width, stream):
    if codec == "raw" and layout == "packed":
        codec = "plain"
    rows = table(45_000_000 // (4 * width), (width,))
    with store.build(rows, codec=codec, layout=layout) as made:
        for cut in (slice(None), slice(3, len(rows) - 100)):
            out = empty(rows[cut].shape)
            made.fetch(cut, out=out, stream=stream)
            stream.synchronize()
            assert same(out.read(), rows[cut])
        made.check()


def test_tables_of_blocks_gather_with_indices_of_the_host(tmp_path, stream):
    rows = table(7, (100, 1000))
    with opened(rows, tmp_path, layout="blocks") as made:
        picked = np.array([6, 0, 0, 3])
        out = empty((4, 100, 1000))
        made.gather(picked, out=out, stream=stream)
        stream.synchronize()
        assert same(out.read(), rows[picked])
        with pytest.raises(narrowcast.UnsupportedError, match="blocks"):
            made.gather(Array(picked), out=out, stream=stream)
    values = np.arange(1_000_003, dtype=np.int64) % 1000
    with opened(values, tmp_path) as made:
        assert made.layout == "blocks"
        for cut in (slice(None), slice(123_457, 777_777), slice(99, 60, -3)):
            out = empty(values[cut].shape, np.int64)
            made.fetch(cut, out=out, stream=stream)
            stream.synchronize()
            assert same(out.read(), values[cut])


def test_bad_indices_on_the_gpu_are_zeros_and_reported_once(rows, tmp_path, stream):
    picked = np.array([3, -1, ROWS, 4, 1 << 40, -(1 << 40)])
    expected = np.zeros((6, 128), np.float32)
    expected[[0, 3]] = rows[[3, 4]]
    for codec in ("window", "raw"):
        with opened(rows, tmp_path, codec=codec) as made:
            out = empty((6, 128))
            made.gather(Array(picked), out=out, stream=stream)
            with pytest.raises(RowIndexError, match="4 indices"):
                made.check()
            assert same(out.read(), expected)
            made.check()
            made.gather(Array(picked.astype(np.int32)), out=out, stream=stream)
            assert made.counters().bad_indices == 6
            with pytest.raises(IndexError, match="2 indices"):
                made.check()


def test_bad_indices_on_the_host_are_rejected_before_anything_is_written(rows, tmp_path, stream):
    with opened(rows, tmp_path) as made:
        for bad in (-1, ROWS):
            out = empty((3, 128))
            with pytest.raises(RowIndexError, match=rf"indices\[1\] is {bad}"):
                made.gather([0, bad, 2], out=out, stream=stream)
            with pytest.raises(RowIndexError):
                made.fetch(ROWS - 2, 3, out=out, stream=stream)
            stream.synchronize()
            assert (out.read() == 7).all()
        made.check()


@pytest.mark.parametrize("shift", [0, 4, 8])
@pytest.mark.parametrize("layout", ["stride", "packed", "blocks"])
def test_outputs_may_be_aligned_to_a_value(rows, tmp_path, layout, shift, stream):
    with opened(rows, tmp_path, codec="window", layout=layout) as made:
        out = empty((900, 128), shift=shift)
        made.fetch(50, 900, out=out, stream=stream)
        stream.synchronize()
        assert same(out.read(), rows[50:950])
        made.gather(np.arange(900), out=out, stream=stream)
        stream.synchronize()
        assert same(out.read(), rows[:900])


def test_more_rows_than_prepared_are_gathered_in_pieces(rows, tmp_path, stream):
    picked = np.random.default_rng(2).integers(0, ROWS, 1001)
    with opened(rows, tmp_path) as made:
        made.prepare(100, stream=stream)
        for where in (Array, np.asarray):
            out = empty((1001, 128))
            made.gather(where(picked), out=out, stream=stream)
            stream.synchronize()
            assert same(out.read(), rows[picked])


@pytest.mark.parametrize("sms", [1, 4, 1000])
def test_the_number_of_sms_does_not_change_rows(rows, tmp_path, sms, stream):
    picked = np.random.default_rng(3).integers(0, ROWS, 3000)
    with opened(rows, tmp_path) as made:
        made.prepare(3000, stream=stream, sms=sms)
        for limit in (None, 2):
            out = empty((3000, 128))
            made.gather(Array(picked), out=out, stream=stream, sms=limit)
            stream.synchronize()
            assert same(out.read(), rows[picked])


@pytest.mark.parametrize("layout", ["stride", "packed", "blocks"])
def test_captured_calls_read_the_table_at_each_launch(rows, tmp_path, layout, stream):
    gathers = layout != "blocks"
    with opened(rows, tmp_path, codec="window", layout=layout, spare=100 if gathers else None) as made:
        gathered, fetched = empty((100, 128)), empty((4000, 128))
        index = Array(np.arange(100) + 7)
        made.prepare(100, stream=stream)
        with stream.capture() as graph:
            if gathers:
                made.gather(index, out=gathered, stream=stream)
            made.fetch(9, 4000, out=fetched, stream=stream)
        for attempt in range(3):
            expected = rows.copy()
            if gathers:
                expected[7:57] = table(50, seed=attempt + 10)
                made.update(np.arange(7, 57), expected[7:57])
            graph.launch(stream)
            stream.synchronize()
            assert same(fetched.read(), expected[9:4009])
            if gathers:
                assert same(gathered.read(), expected[7:107])
        graph.close()
        made.check()


def test_indices_of_the_host_and_first_calls_cannot_be_captured(rows, tmp_path, stream):
    with opened(rows, tmp_path) as made:
        out, index = empty((2, 128)), Array(np.array([1, 2]))
        with pytest.raises(narrowcast.UnsupportedError, match="prepare"), stream.capture():
            made.gather(index, out=out, stream=stream)
        made.prepare(2, stream=stream)
        with pytest.raises(narrowcast.UnsupportedError, match="captured"), stream.capture():
            made.gather([1, 2], out=out, stream=stream)
        made.gather(index, out=out, stream=stream)
        stream.synchronize()
        assert same(out.read(), rows[[1, 2]])


@pytest.mark.parametrize("host", ["pinned", "shared"])
@pytest.mark.parametrize("codec", ["window", "raw"])
@pytest.mark.parametrize("width", [128, 3000])
def test_readers_see_the_old_or_the_new_row(tmp_path, host, codec, width, stream):
    count, versions = 300, Versions(300, width, 12)
    with opened(versions.every[0], tmp_path, host, codec=codec, layout="stride", spare=60) as made:

        def gathers():
            index, out = Array(np.arange(count)), empty((count, width))

            def read() -> np.ndarray:
                made.gather(index, out=out, stream=stream)
                stream.synchronize()
                return out.read()

            return read

        def fetches():
            own, out = Stream(), empty((count, width))

            def read() -> np.ndarray:
                made.fetch(0, count, out=out, stream=own)
                own.synchronize()
                return out.read()

            return read

        update_under_readers(made, versions, [gathers, fetches])
        made.check()


@pytest.mark.parametrize("layout", ["stride", "packed"])
def test_appended_rows_are_read_at_once(rows, tmp_path, layout, stream):
    with opened(rows[:1000], tmp_path, codec="window", layout=layout, capacity=ROWS, spare=50) as made:
        made.prepare(1000, stream=stream)
        for first in range(1000, ROWS, 997):
            more = rows[first : first + 997]
            made.append(more)
            out = empty(more.shape)
            made.gather(Array(np.arange(first, first + len(more))), out=out, stream=stream)
            stream.synchronize()
            assert same(out.read(), more)
        whole = empty(rows.shape)
        made.fetch(0, out=whole, stream=stream)
        stream.synchronize()
        assert same(whole.read(), rows)
        made.check()


def test_other_processes_read_and_change_a_shared_store(rows, tmp_path, stream):
    program = textwrap.dedent(
        """
        import sys
        import numpy as np
        from narrowcast import store
        from narrowcast._native import cuda_driver
        from narrowcast._native.cuda_driver import DeviceBuffer, Stream

        with cuda_driver.on_device(0), store.open(sys.argv[1], "shared") as made:
            stream, out = Stream(), DeviceBuffer(len(made) * 512)
            for attempt in range(20):
                made.update([attempt], np.full((1, 128), attempt + 1, np.float32))
                made.fetch(0, len(made), out=out, stream=stream)
                stream.synchronize()
                found = out.read().view(np.float32).reshape(-1, 128)
                assert all((found[row] == row + 1).all() for row in range(attempt + 1))
            made.check()
        """
    )
    with opened(rows, tmp_path, "shared", spare=10) as made:
        child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "table.ncs")])
        out, reads = empty(rows.shape), 0
        while child.poll() is None or not reads:
            made.fetch(0, ROWS, out=out, stream=stream)
            stream.synchronize()
            found = out.read()
            for row in range(20):
                assert same(found[row], rows[row]) or (found[row] == row + 1).all()
            assert same(found[20:], rows[20:])
            reads += 1
        assert child.returncode == 0
        made.fetch(0, ROWS, out=out, stream=stream)
        stream.synchronize()
        assert all((out.read()[row] == row + 1).all() for row in range(20))


def test_damaged_stores_are_only_read_on_the_host(rows, tmp_path, stream):
    path = tmp_path / "table.ncs"
    store.build(rows, path=path, host=None, codec="window")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)
    for host, options in (("pinned", {"allow_damage": True}), ("mmap", {})):
        with store.open(path, host, **options) as made:
            with pytest.raises(narrowcast.CorruptError, match="damaged"):
                made.gather(Array(np.array([1])), out=empty((1, 128)), stream=stream)
            assert same(made[0], rows[0])


def test_arrays_of_a_call_are_in_one_place(rows, tmp_path, stream):
    with opened(rows, tmp_path) as made:
        index = Array(np.array([1, 2]))
        with pytest.raises(ValueError, match="out is needed"):
            made.gather(index, stream=stream)
        with pytest.raises(ValueError, match="host memory"):
            made.gather(index, out=np.empty((2, 128), np.float32), stream=stream)
        with pytest.raises(TypeError, match="int32 or int64"):
            made.gather(Array(np.array([1, 2], np.int16)), out=empty((2, 128)), stream=stream)
        with pytest.raises(TypeError, match="out holds"):
            made.gather(index, out=empty((2, 128), np.float64), stream=stream)
        with pytest.raises(ValueError, match="out"):
            made.gather(index, out=empty((3, 128)), stream=stream)
        assert made.gather(Array(np.zeros(0, np.int64)), out=empty((0, 128)), stream=stream).shape == (0, 128)


def test_stores_are_closed_while_calls_are_running(rows, tmp_path):
    for _ in range(5):
        made = opened(rows, tmp_path)
        own, out = Stream(), empty(rows.shape)
        for _ in range(20):
            made.fetch(0, ROWS, out=out, stream=own)
        made.close()
        assert same(out.read(), rows)
        with pytest.raises(narrowcast.InvalidArgumentError, match="closed"):
            made.gather([1], out=empty((1, 128)), stream=Stream())


def test_every_stream_has_its_own_reader(rows, tmp_path):
    with opened(rows, tmp_path) as made:
        streams = [Stream() for _ in range(20)]
        outs = [empty((3000, 128)) for _ in streams]
        picked = np.random.default_rng(4).integers(0, ROWS, (20, 3000))
        index = [Array(one) for one in picked]
        for _ in range(3):
            for own, out, one in zip(streams, outs, index, strict=True):
                made.gather(one, out=out, stream=own)
        for own, out, one in zip(streams, outs, picked, strict=True):
            own.synchronize()
            assert same(out.read(), rows[one])
        assert made.counters().gathers == 60


def test_rows_of_bytes_are_written_to_untyped_memory(rows, tmp_path, stream):
    with opened(rows, tmp_path) as made:
        out = DeviceBuffer(rows.nbytes)
        made.fetch(0, out=out, stream=stream)
        stream.synchronize()
        assert out.read().tobytes() == rows.tobytes()


def test_stores_with_different_rows_are_read_in_turns(stream):
    tables = [table(300, (width,), seed=width) for width in (2000, 16, 128, 4000, 64)]
    opened_stores = [store.build(rows, codec="window") for rows in tables]
    for _ in range(2):
        for rows, made in zip(tables, opened_stores, strict=True):
            out = empty(rows.shape)
            made.gather(Array(np.arange(300)), out=out, stream=stream)
            stream.synchronize()
            assert same(out.read(), rows)
    for made in opened_stores:
        made.close()
