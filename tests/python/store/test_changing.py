"""Updated, appended and saved rows, while others read."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from functools import partial

import narrowcast
import numpy as np
import pytest
from narrowcast import store
from narrowcast._store import rows as store_rows
from store_tables import LAYOUTS, ROWS, same, table


def test_an_opened_store_has_less_space_than_a_small_file_asks_for_unless_the_caller_does(tmp_path):
    rows = np.zeros((100, 16), np.float32)
    path = tmp_path / "table.ncs"
    with store.build(rows, codec="window", layout="stride", path=path, capacity=4 << 20, spare=2 << 20) as made:
        assert (made.capacity, made.free_entries) == (4 << 20, 2 << 20)
    with store.open(path) as opened:
        assert 1 << 19 < opened.capacity < 4 << 20
        assert 1 << 19 < opened.free_entries < 2 << 20
        assert opened.memory_bytes < 150 << 20
    with store.open(path, capacity=4 << 20, spare=2 << 20) as opened:
        assert (opened.capacity, opened.free_entries) == (4 << 20, 2 << 20)


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
        for new in (rows[:1], rows[:2, :5], rows[:2].T, rows[:2].astype(np.float64)):
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


@pytest.mark.parametrize("codec", ["zeros+invariant", "trim+invariant", "zeros+trim+invariant"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_with_stages_before_invariant_can_be_changed(codec, layout, tmp_path):
    """Some of the new rows do not follow the trim, and some do not shrink."""
    values, others = table("int32", shape=(32,)), table("int64", shape=(16,), seed=1).view(np.int32)
    path = tmp_path / "table"
    store.build(values, codec, layout, path, host=None)
    expected = np.concatenate([values, others[:20]])
    expected[10:20] = others[50:60]
    for host in ("pinned", "shared"):
        with store.open(path, host, capacity=ROWS + 20, spare=64) as made:
            assert made.codec.startswith(codec + ":chunk=")
            assert same(made[:], values)
            made.update(np.arange(10, 20), others[50:60])
            made.append(others[:20])
            assert same(made[:], expected)
            assert same(made.gather([ROWS + 3, 12, 0]), expected[[ROWS + 3, 12, 0]])
            made.save(tmp_path / "saved")
        with store.open(tmp_path / "saved", "mmap") as made:
            assert same(made[:], expected)
            assert made.verify().good


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


_READER = """
import sys
import numpy as np
from narrowcast import store
with store.open("table", "shared") as made:
    print("open", flush=True)
    while True:
        rows = made[:]
        assert (rows == rows[:, :1]).all(), "a mix of two rows"
        if rows[0, 0] < 0:  # the last update
            assert (rows[1:, 0] == np.arange(1, 64, dtype=np.float32) + np.float32(99) * np.float32(1.37)).all()
            break
"""


def test_other_processes_see_whole_rows_and_the_last_ones(tmp_path):
    values = np.repeat(np.arange(64, dtype=np.float32)[:, None], 200, axis=1)
    store.build(values, "window", path=tmp_path / "table", spare=256, host=None)
    with store.open(tmp_path / "table", "shared") as made:
        start = partial(subprocess.Popen, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
        readers = [start([sys.executable, "-c", _READER]) for _ in range(2)]
        assert [reader.stdout.readline() for reader in readers] == ["open\n"] * 2
        for turn in range(1, 100):
            made.update(np.arange(64), values + turn * np.float32(1.37))
        made.update([0], np.full((1, 200), -1, np.float32))
        assert [reader.wait(timeout=60) for reader in readers] == [0, 0]


def test_a_table_that_is_saved_while_it_changes_has_whole_rows(tmp_path):
    values = np.repeat(np.arange(64, dtype=np.float32)[:, None], 200, axis=1)
    with store.build(values, "window", spare=256) as made:
        stop = threading.Event()

        def change() -> None:
            for turn in itertools.count(1):
                made.update(np.arange(64), values + turn * np.float32(1.37))
                if stop.is_set():
                    return

        writer = threading.Thread(target=change)
        writer.start()
        try:
            for number in range(5):
                made.save(tmp_path / f"saved{number}")
        finally:
            stop.set()
            writer.join()
    for number in range(5):
        with store.open(tmp_path / f"saved{number}") as saved:
            assert (saved[:] == saved[:][:, :1]).all()
            assert saved.verify().good
