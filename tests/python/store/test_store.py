"""Tables in host memory behave as NumPy arrays with the same rows."""

from __future__ import annotations

import threading
from ctypes import byref, c_void_p

import narrowcast
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from narrowcast import store
from narrowcast._native.library import check, library
from narrowcast._store import rows as store_rows
from narrowcast._store import sources
from narrowcast.cuda import device_count
from narrowcast.types import VALUE_TYPES

ROWS = 97
CODECS = ["auto", "raw", "window", "zeros+trim", "zeros+trim+window", "trim+window", "invariant"]
LAYOUTS = ["stride", "packed"]


def table(kind="float32", rows=ROWS, shape=(24,), seed=0) -> np.ndarray:
    """Rows of a type, as NumPy holds it: some values are 0, and one row is random bits."""
    rng = np.random.default_rng(seed)
    found = next(one for one in VALUE_TYPES if one.name == kind)
    size = (rows, *shape)
    if found.name == "bfloat16":
        values = (rng.standard_normal(size).astype(np.float32) * 0.02).view(np.uint32) >> 16
    elif found.exponent_bits and found.numpy.startswith("float"):
        values = rng.standard_normal(size) * 0.02
    else:
        values = rng.integers(0, 50, size)
    values = values.astype(found.numpy)
    values[rng.random(size) < 0.2] = 0
    if rows > 3:
        flat = values[3].reshape(-1)
        flat[:] = np.frombuffer(rng.bytes(flat.nbytes), found.numpy)
    return values


def bits(array) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def same(found, expected) -> bool:
    return found.shape == expected.shape and np.array_equal(bits(found), bits(expected))


@pytest.fixture(scope="module")
def rows():
    return table()


@pytest.fixture(scope="module", params=LAYOUTS)
def opened(request, rows):
    with store.build(rows, layout=request.param) as made:
        yield made


# Building.


@pytest.mark.parametrize("kind", [one.name for one in VALUE_TYPES])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_every_type_keep_their_bits(kind, layout):
    values = table(kind, shape=(5, 3))
    with store.build(values, layout=layout, dtype=kind) as made:
        assert (made.shape, made.row_shape, made.dtype, len(made)) == (values.shape, (5, 3), kind, ROWS)
        assert made.row_bytes == values[0].nbytes
        assert same(made[:], values)
        out = np.empty_like(values)
        assert made.gather(np.arange(ROWS), out=out) is out
        assert same(out, values)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_codec_keeps_all_bits(codec, layout):
    values = table("float32", rows=300, shape=(16,))
    if (codec, layout) == ("raw", "packed"):
        with pytest.raises(narrowcast.InvalidArgumentError, match="the layout packed needs payloads"):
            store.build(values, codec=codec, layout=layout)
        return
    with store.build(values, codec=codec, layout=layout) as made:
        assert same(made[:], values)
        assert made.layout == layout
        assert made.codec


@pytest.mark.parametrize("shape", [(1,), (3,), (31,), (32,), (1024,), (1025,), (3000,), (2, 3, 4)])
@pytest.mark.parametrize("count", [1, 2, 200])
def test_rows_of_every_size_keep_their_bits(shape, count):
    values = table("bfloat16", rows=count, shape=shape)
    with store.build(values, dtype="bfloat16") as made:
        assert same(np.asarray(made[:]).view(np.uint16), values)


def test_long_rows_and_single_values_are_stored_too():
    long = table("float32", rows=5, shape=(40_000,))
    with store.build(long) as made:
        assert same(made[:], long)
        assert same(made.gather([4, 0]), long[[4, 0]])
    flat = table("float32", rows=5000, shape=())
    with store.build(flat) as made:
        assert made.row_shape == ()
        assert same(made[10:4000:7], flat[10:4000:7])


def test_an_empty_table_has_no_rows():
    with store.build(np.empty((0, 8), np.float32)) as made:
        assert made.shape == (0, 8)
        assert made[:].shape == (0, 8)
        assert made.gather([]).shape == (0, 8)
        with pytest.raises(IndexError):
            made.gather([0])


def test_weights_take_less_memory():
    values = table("bfloat16", rows=2000, shape=(256,))
    with store.build(values, dtype="bfloat16") as made:
        assert 0.5 < made.ratio < 0.8


def test_files_are_opened_again(rows, tmp_path):
    path = tmp_path / "table"
    store.build(rows, path=path, metadata={"name": "a"}).close()
    for host in ("pinned", "mmap", "shared"):
        with store.open(path, host) as made:
            assert same(made[:], rows)
            assert (made.host, made.metadata) == (host, {"name": "a"})


@pytest.mark.parametrize("sizes", [[ROWS], [1] * ROWS, [50, 0, 47]])
def test_blocks_of_rows_are_a_source(rows, sizes, tmp_path):
    ends = np.cumsum(sizes)
    blocks = (rows[end - size : end] for size, end in zip(sizes, ends, strict=True))
    with store.build(blocks) as made:
        assert same(made[:], rows)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_bytes_are_a_source(wrap):
    values = table(shape=())
    with store.build(wrap(values.tobytes()), dtype="float32") as made:
        assert same(made[:], values)


def test_a_sample_of_large_rows_is_as_limited_as_one_of_small_rows(monkeypatch):
    monkeypatch.setattr(sources, "_SAMPLE_BYTES", 1 << 16)
    assert sources.source_of(np.zeros((100, 1 << 14), np.uint8), None, None).sample.nbytes == 1 << 16
    assert len(sources.source_of(np.zeros((100, 1 << 17), np.uint8), None, None).sample) == 1


def test_memory_mapped_files_are_a_source(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    with store.build(np.load(tmp_path / "rows.npy", mmap_mode="r")) as made:
        assert same(made[:], rows)


def test_transposed_and_strided_arrays_are_sources(rows):
    for values in (rows[::2], rows.T, rows[:, 3:9]):
        with store.build(values) as made:
            assert same(made[:], values)


def test_progress_is_reported():
    values, seen = table(rows=3000, shape=(64,)), []
    store.build(values, progress=lambda done, *_: seen.append(done)).close()
    assert seen


def test_a_failing_source_leaves_no_file(rows, tmp_path):
    def blocks():
        yield rows
        raise RuntimeError("the source ends")

    with pytest.raises(RuntimeError, match="the source ends"):
        store.build(blocks(), path=tmp_path / "table")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (np.ones((3, 4), np.float32), {"codec": "zip"}, "zip"),
        (np.ones((3, 4), np.float32), {"layout": "zip"}, "zip"),
        (np.float32(3), {}, ""),
        (np.ones((3, 4), np.complex64), {}, "complex64"),
        (np.ones((3, 4), np.float32), {"capacity": 2}, ""),
        ("missing.safetensors", {}, ""),
    ],
)
def test_what_cannot_be_built_is_an_error(source, options, message):
    with pytest.raises((ValueError, TypeError, OSError, narrowcast.NarrowcastError), match=message):
        store.build(source, **options)


# Reading.

indices = st.lists(st.integers(0, ROWS - 1), max_size=300)


@given(picked=indices, wide=st.booleans())
def test_gather_is_indexing(opened, rows, picked, wide):
    index = np.array(picked, np.int64 if wide else np.int32)
    assert same(opened.gather(index), rows[index])
    assert same(opened[index], rows[index])


@given(first=st.integers(0, ROWS - 1), step=st.integers(-5, 5).filter(bool), data=st.data())
def test_fetch_is_slicing(opened, rows, first, step, data):
    most = (ROWS - 1 - first) // step + 1 if step > 0 else first // -step + 1
    count = data.draw(st.integers(0, most))
    expected = rows[[first + i * step for i in range(count)]]
    assert same(opened.fetch(first, count, step), expected)
    out = np.empty_like(expected)
    opened.fetch(first, count, step, out=out)
    assert same(out, expected)


ends = st.none() | st.integers(-ROWS - 3, ROWS + 3)


@given(begin=ends, end=ends, step=st.none() | st.integers(-7, 7).filter(bool))
def test_slices_are_those_of_numpy(opened, rows, begin, end, step):
    assert same(opened[begin:end:step], rows[begin:end:step])
    assert same(opened.fetch(slice(begin, end, step)), rows[begin:end:step])


@given(index=st.integers(-ROWS, ROWS - 1))
def test_single_rows_are_those_of_numpy(opened, rows, index):
    assert same(opened[index], rows[index])


@given(picked=indices.filter(bool), bad=st.sampled_from([-1, ROWS, 1 << 31, -(1 << 40)]), data=st.data())
def test_a_bad_index_is_named_and_nothing_is_written(opened, picked, bad, data):
    place = data.draw(st.integers(0, len(picked)))
    index = np.array([*picked[:place], bad, *picked[place:]], np.int64)
    out = np.full((len(index), *opened.row_shape), 7, np.float32)
    with pytest.raises(IndexError, match=str(bad)) as caught:
        opened.gather(index, out=out)
    assert isinstance(caught.value, narrowcast.InvalidArgumentError)
    assert str(place) in str(caught.value)
    assert (out == 7).all()


def test_slices_out_of_range_are_errors(opened):
    for first, count, step in ((ROWS, 1, 1), (0, ROWS + 1, 1), (5, 7, -1), (-1, 1, 1)):
        with pytest.raises((IndexError, ValueError)):
            opened.fetch(first, count, step)
    for bad in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError):
            opened[bad]


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_any_number_of_threads_has_the_same_result(opened, rows, threads):
    index = np.random.default_rng(1).integers(0, ROWS, 5000)
    assert same(opened.gather(index, threads=threads), rows[index])


def test_outputs_of_another_size_or_type_are_errors(opened):
    for out in (np.empty((3, 24), np.float32), np.empty((2, 24), np.float64), np.empty((2, 25), np.float32)):
        with pytest.raises((ValueError, TypeError), match="out"):
            opened.gather([1, 2], out=out)
    out = np.empty((2, 24), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        opened.gather([1, 2], out=out)


def test_an_error_leaves_an_output_with_gaps_as_it_was(opened):
    out = np.full((2, 48), 7, np.float32)
    for read in (opened.gather, opened.fetch):
        with pytest.raises(TypeError, match="threads"):
            read(*([[0, 1]] if read == opened.gather else [0, 2]), out=out[:, ::2], threads="x")
    assert (out == 7).all()


@pytest.mark.parametrize("bad", [[1.5], ["a"], [True, False], np.zeros(3, np.complex64)])
def test_indices_that_are_not_integers_are_errors(opened, bad):
    with pytest.raises((TypeError, ValueError, IndexError)):
        opened.gather(np.array(bad))


def test_a_stream_needs_a_gpu(opened):
    with pytest.raises((ValueError, TypeError, narrowcast.NarrowcastError)):
        opened.gather([1], stream=1)


# Changing.


@given(
    changes=st.lists(st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=40), max_size=8),
    layout=st.sampled_from(LAYOUTS),
    codec=st.sampled_from(["auto", "raw", "window", "invariant"]),
    seed=st.integers(0, 1000),
)
def test_updates_are_assignments(rows, changes, layout, codec, seed):
    layout = "stride" if codec == "raw" else layout  # raw rows cannot be packed
    rng, expected = np.random.default_rng(seed), rows.copy()
    with store.build(rows, codec=codec, layout=layout, spare=ROWS) as made:
        for index in changes:
            new = table(rows=len(index), seed=int(rng.integers(1 << 30)))
            if rng.random() < 0.5:  # rows that do not follow the model
                new = np.frombuffer(rng.bytes(new.nbytes), np.float32).reshape(new.shape)
            made.update(index, new)
            for place, row in zip(index, new, strict=True):  # the last of several counts
                expected[place] = row
            assert same(made[:], expected)


def test_an_update_that_does_not_fit_changes_nothing():
    rows = table(shape=(256,))
    noise = np.frombuffer(np.random.default_rng(0).bytes(rows.nbytes), np.float32).reshape(rows.shape)
    with store.build(rows, codec="window", spare=2) as made:
        with pytest.raises(narrowcast.TooSmallError):
            made.update(np.arange(ROWS), noise)
        assert same(made[:], rows)
        made.update([5], noise[:1])
        assert same(made[5], noise[0])


@pytest.mark.parametrize("bad", [-1, ROWS])
def test_an_update_of_a_bad_index_changes_nothing(rows, bad):
    with store.build(rows, spare=ROWS) as made:
        with pytest.raises(IndexError, match=str(bad)):
            made.update([0, bad], rows[1:3])
        assert same(made[:], rows)


def test_lists_of_values_without_a_type_are_errors(monkeypatch):
    """Without ml_dtypes, NumPy holds bfloat16 as uint16: it would round 1.5 to the bits 1."""
    monkeypatch.setattr(store_rows, "numpy_type", lambda kind: np.dtype(kind.numpy))
    values = table("bfloat16")
    with store.build(values, dtype="bfloat16", spare=4) as made:
        with pytest.raises(TypeError, match=r"rows is no array.*bfloat16"):
            made.update([0], [[1.5] * 24])
        assert same(made[:], values)


def test_rows_of_another_shape_or_type_are_errors(rows):
    with store.build(rows, spare=ROWS, capacity=ROWS + 5) as made:
        for new in (rows[:1], rows[:2, :5], rows[:2].astype(np.float64)):
            with pytest.raises((ValueError, TypeError), match="rows"):
                made.update([0, 1], new)
        with pytest.raises((ValueError, TypeError), match="rows"):
            made.append(rows[:2, :5])
        assert same(made[:], rows)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_appended_rows_follow_the_others(rows, layout):
    with store.build(rows[:50], layout=layout, capacity=ROWS, spare=ROWS) as made:
        assert made.capacity == ROWS
        assert made.append(rows[50:60]) == 50
        assert made.append(rows[60:60]) == 60
        assert same(made[:], rows[:60])
        made.append(rows[60:])
        assert same(made[:], rows)
        with pytest.raises(narrowcast.TooSmallError):
            made.append(rows[:1])
        assert len(made) == ROWS


def test_readers_see_the_old_or_the_new_row(rows):
    """Every row has one value throughout; a mix would have two."""
    values = np.repeat(np.arange(64, dtype=np.float32)[:, None], 200, axis=1)
    with store.build(values, codec="window", spare=256) as made:
        stop, mixed = threading.Event(), []

        def read() -> None:
            while not stop.is_set():
                found = made.gather(np.arange(64), threads=1)
                if (found != found[:, :1]).any():
                    mixed.append(found)

        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        try:
            for turn in range(1, 200):
                made.update(np.arange(64), values + turn * np.float32(1.37))
        finally:
            stop.set()
            for reader in readers:
                reader.join()
        assert mixed == []
        assert same(made[:], values + 199 * np.float32(1.37))


def test_a_saved_table_has_all_changes(rows, tmp_path):
    with store.build(rows, spare=ROWS, capacity=ROWS + 3) as made:
        made.update([3, 9], rows[:2])
        made.append(rows[:3])
        expected = made[:]
        made.save(tmp_path / "saved")
    with store.open(tmp_path / "saved") as made:
        assert same(made[:], expected)
    assert [one.name for one in tmp_path.iterdir()] == ["saved"]


def test_a_mapped_file_cannot_be_changed(rows, tmp_path):
    store.build(rows, path=tmp_path / "table").close()
    with store.open(tmp_path / "table", "mmap") as made:
        with pytest.raises(narrowcast.UnsupportedError):
            made.update([0], rows[1:2])
        assert same(made[:], rows)


def test_two_handles_of_a_shared_table_see_the_same_rows(rows, tmp_path):
    store.build(rows, path=tmp_path / "table", spare=ROWS).close()
    with store.open(tmp_path / "table", "shared") as first, store.open(tmp_path / "table", "shared") as second:
        first.update([7], rows[8:9])
        assert same(second[7], rows[8])


# Counters, damage, and the end.


def test_calls_and_rows_are_counted(rows):
    with store.build(rows, spare=ROWS) as made:
        made.gather([1, 2, 3])
        made.fetch(0, 10)
        made.update([4], rows[:1])
        found = made.counters()
        assert (found.gathers, found.fetches, found.updates, found.rows_updated) == (1, 1, 1, 1)
        assert found.rows_read == 13
        assert found.raw_bytes_read == 13 * made.row_bytes


@pytest.mark.parametrize("place", [0.0, 0.3, 0.6, 0.9, 1.0])
def test_a_damaged_file_is_found(rows, tmp_path, place):
    path = tmp_path / "table"
    store.build(rows, path=path).close()
    content = bytearray(path.read_bytes())
    content[min(int(place * len(content)), len(content) - 1)] ^= 0x10
    path.write_bytes(content)
    try:
        made = store.open(path)
    except narrowcast.CorruptError:
        return
    # The changed byte was padding.
    with made:
        assert same(made[:], rows)


@pytest.mark.parametrize("kept", [0, 10, 4096, 5000])
def test_a_cut_file_is_corrupt(rows, tmp_path, kept):
    path = tmp_path / "table"
    store.build(rows, path=path).close()
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(narrowcast.CorruptError):
        store.open(path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="missing"):
        store.open(tmp_path / "missing")


def test_a_closed_store_is_an_error(rows):
    made = store.build(rows)
    made.close()
    made.close()
    for use in (lambda: made.gather([0]), lambda: made[:], lambda: made.update([0], rows[:1]), made.counters):
        with pytest.raises((ValueError, narrowcast.NarrowcastError), match="closed"):
            use()


def test_calls_for_gpus_say_that_there_is_none(opened):
    if device_count():
        pytest.skip("there is a GPU")
    for call in (opened.prepare, lambda: opened.cache(100), opened.cache_info):
        with pytest.raises(narrowcast.UnsupportedError, match="CUDA driver"):
            call()
    opened.check()
    assert opened.counters().bad_indices == 0
    reader = c_void_p()
    status = library().ncast_store_reader_create(opened._handle.pointer, None, byref(reader))
    with pytest.raises(narrowcast.NarrowcastError, match="ncast_store_reader_create"):
        check(status)
    assert not reader


def test_options_of_readers_are_checked_before_a_gpu_is_needed(opened):
    with pytest.raises(ValueError, match="positive"):
        opened.prepare(0)
    with pytest.raises(ValueError, match="sms"):
        opened.prepare(sms=0)
    with pytest.raises(ValueError, match="device"):
        opened.prepare(device=-1)
