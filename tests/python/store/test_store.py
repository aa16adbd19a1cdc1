"""Counters, damaged files, closed stores, and calls for GPUs."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import pickle
from ctypes import byref, c_void_p

import narrowcast
import numpy as np
import pytest
from narrowcast import store
from narrowcast._native.library import check, library
from narrowcast._store import gpu
from narrowcast.cuda import device_count
from store_tables import ROWS, same, table


def test_calls_and_rows_are_counted(rows):
    with store.build(rows, spare=ROWS) as made:
        made.gather([1, 2, 3])
        made.fetch(0, 10)
        made.update([4], rows[:1])
        found = made.counters()
        assert (found.gathers, found.fetches, found.updates, found.rows_updated) == (1, 1, 1, 1)
        assert found.rows_read == 13
        assert found.raw_bytes_read == 13 * made.row_bytes


@pytest.mark.parametrize(("host", "options"), [("pinned", {"allow_damage": True}), ("mmap", {})])
@pytest.mark.parametrize("layout", ["stride", "packed"])
def test_damaged_rows_are_errors_and_zeros_and_the_others_are_unaffected(tmp_path, layout, host, options):
    values, path = table(rows=4000, shape=(128,)), tmp_path / "table"
    store.build(values, "window", layout, path, host=None)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x10
    path.write_bytes(content)
    with pytest.raises(narrowcast.CorruptError):
        store.open(path)
    with store.open(path, host, **options) as made:
        report = made.verify()
        assert not report.good
        assert 0 < report.damaged_rows < 400  # a checksum covers 64 KiB
        bad = np.arange(report.damaged[0], report.damaged[0] + report.damaged_rows)
        good = np.setdiff1d(np.arange(4000), bad)
        assert same(made.gather(good), values[good])
        picked, out = np.array([0, bad[0], 3999, bad[-1]]), np.full((4, 128), 7, np.float32)
        with pytest.raises(narrowcast.CorruptError, match="row"):
            made.gather(picked, out=out)
        assert same(out[[0, 2]], values[[0, 3999]])
        assert not out[[1, 3]].any()
        assert made.counters().damaged_rows_read == 2
        with pytest.raises(narrowcast.CorruptError):
            made.fetch(bad[0], 1)


def test_a_mapped_file_may_be_replaced_and_removed(rows, tmp_path):
    path = tmp_path / "table.ncs"
    store.build(rows, path=path, host=None)
    with store.open(path, "mmap") as opened:
        store.build(rows[:10], path=path, host=None)
        assert same(opened[:], rows)
        path.unlink()
        assert same(opened[:], rows)
        assert opened.verify().good


@pytest.mark.parametrize("function", [copy.copy, copy.deepcopy, pickle.dumps])
def test_stores_are_not_copied_or_pickled(opened, function):
    with pytest.raises(TypeError, match="a Store cannot be copied or pickled: save it to a file"):
        function(opened)


def test_a_missing_file_is_an_os_error(tmp_path):
    for use in (store.open, store.verify):
        with pytest.raises(FileNotFoundError, match="missing"):
            use(tmp_path / "missing")


def test_wrong_arguments_are_named(rows, tmp_path):
    store.build(rows, path=tmp_path / "table", host=None)
    with pytest.raises(TypeError, match="path is None, not a path"):
        store.open(None)
    with pytest.raises(ValueError, match="it has a null byte"):
        store.open(f"{tmp_path}/table\0")
    with pytest.raises(TypeError, match="codec is None, not a text"):
        store.build(rows, None)
    with pytest.raises(TypeError, match="metadata is not a JSON object: "):
        store.build(rows, metadata={"a": {1}})
    with store.open(tmp_path / "table") as made:
        with pytest.raises(ValueError, match="indices cannot be an array: "):
            made.gather([[1], [2, 3]])
        with pytest.raises(ValueError, match=r"rows has shape \(2, 3\), but rows have shape"):
            made.append(np.zeros((2, 3), rows.dtype))


def test_a_closed_store_is_an_error(rows):
    made = store.build(rows)
    made.close()
    made.close()
    assert repr(made) == "<Store '<memory>': closed>"
    for use in (lambda: made.gather([0]), lambda: made[:], lambda: made.update([0], rows[:1]), made.counters):
        with pytest.raises((ValueError, narrowcast.NarrowcastError), match="closed"):
            use()


def test_calls_for_gpus_say_that_there_is_none(opened):
    if device_count():
        pytest.skip("there is a GPU")
    for call in (opened.prepare, opened.cache, opened.cache_info):
        with pytest.raises(narrowcast.UnsupportedError, match="CUDA driver"):
            call(device=0)
    opened.check()
    assert opened.counters().bad_indices == 0
    reader = c_void_p()
    status = library().ncast_store_reader_create(opened._handle.pointer, None, byref(reader))
    with pytest.raises(narrowcast.NarrowcastError, match="ncast_store_reader_create"):
        check(status)
    assert not reader


def test_without_a_gpu_nothing_is_prepared_or_cached(opened):
    if device_count():
        pytest.skip("there is a GPU")
    opened.prepare()
    made = opened.cache(100, "static", warm=[2, 0])
    assert made == opened.cache_info()
    assert not any(dataclasses.astuple(made))
    assert opened.gather([2, 0]).tobytes() == opened.fetch(2, 2, -2).tobytes()


def test_options_of_readers_are_checked_before_a_gpu_is_needed(opened):
    with pytest.raises(ValueError, match="positive"):
        opened.prepare(0)
    with pytest.raises(ValueError, match="sms"):
        opened.prepare(sms=0)
    with pytest.raises(ValueError, match="device"):
        opened.prepare(device=-1)


def test_the_gpu_of_a_stream_is_current_when_its_state_is_asked_for(opened, monkeypatch):
    """The default stream of a thread without a current GPU is no stream."""
    current, asked = [], []

    @contextlib.contextmanager
    def on_device(device):
        current.append(device)
        yield
        current.pop()

    def call(name, *arguments):
        asked.append((name, *current))

    monkeypatch.setattr(gpu.cuda_driver, "on_device", on_device)
    monkeypatch.setattr(gpu.cuda_driver, "call", call)
    with pytest.raises(narrowcast.NarrowcastError):
        opened.prepare(device=1)
    assert asked == [("cuStreamIsCapturing", 1)]
