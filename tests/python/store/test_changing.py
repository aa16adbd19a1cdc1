"""Updated, appended and saved rows. Native tests check them under concurrent readers."""

from __future__ import annotations

import narrowcast
import numpy as np
import pytest
from narrowcast import store
from narrowcast._store import rows as store_rows
from store_tables import LAYOUTS, ROWS, same, table


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
