"""Reading a table is indexing an array of NumPy with the same rows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import narrowcast
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from narrowcast import store
from narrowcast._arrays.view import view
from narrowcast._store.rows import output_rows
from narrowcast.types import value_type
from store_properties import *  # noqa: F403  # the tests
from store_properties import ends, steps, without_gaps
from store_tables import LAYOUTS, ROWS, same, table

LONG_ROW = (6000,)  # so that a table of blocks has several frames


class OnTheHost:
    """Indices and results of NumPy."""

    checks_indices = True
    options: ClassVar[dict] = {}

    def indices(self, values):
        return values

    def out(self, shape, gap=0):
        return np.full((*shape[:-1], shape[-1] + gap), 7, np.float32)[..., : shape[-1]]

    def content(self, out):
        return out if out.base is None else without_gaps(out.base, out.shape[-1])


@pytest.fixture(scope="module")
def reads():
    return OnTheHost()


@pytest.fixture(scope="module", params=[*LAYOUTS, "blocks"])
def layout(request):
    return request.param


@pytest.fixture(scope="module")
def rows(layout):
    return table(shape=LONG_ROW if layout == "blocks" else (24,))


@pytest.fixture(scope="module")
def opened(rows, layout):
    with store.build(rows, layout=layout) as made:
        yield made


@given(picked=st.lists(st.integers(0, ROWS - 1), max_size=100))
def test_new_arrays_have_the_rows(opened, rows, picked):
    assert same(opened.gather(picked), rows[picked])
    assert same(opened[np.array(picked, np.int64)], rows[picked])


@given(begin=ends, end=ends, step=st.none() | steps)
def test_indexing_is_that_of_numpy(opened, rows, begin, end, step):
    assert same(opened[begin:end:step], rows[begin:end:step])


@given(index=st.integers(-ROWS, ROWS - 1))
def test_single_rows_are_those_of_numpy(opened, rows, index):
    assert same(opened[index], rows[index])


def test_a_slice_to_the_end_begins_in_the_table_or_at_its_end(opened):
    assert len(opened.fetch(len(opened))) == 0
    for first in (-1, len(opened) + 1):
        with pytest.raises(IndexError, match="not among"):
            opened.fetch(first)


@pytest.mark.parametrize("index", [True, np.False_])
def test_a_single_bool_is_not_an_index(opened, index):
    with pytest.raises(TypeError, match="bool"):
        opened[index]


def test_slices_out_of_range_are_errors(opened):
    for first, count, step in ((ROWS, 1, 1), (0, ROWS + 1, 1), (5, 7, -1), (-1, 1, 1)):
        with pytest.raises((IndexError, ValueError)):
            opened.fetch(first, count, step)
    for bad in (ROWS, -ROWS - 1):
        with pytest.raises(IndexError):
            opened[bad]


@pytest.mark.parametrize("threads", [0, 1, 2])
def test_any_number_of_threads_has_the_same_result(opened, rows, threads):
    index = np.random.default_rng(1).integers(0, ROWS, 1000)
    assert same(opened.gather(index, threads=threads), rows[index])


def test_outputs_of_another_size_or_type_are_errors(opened):
    width = opened.row_shape[0]
    for out in (np.empty((3, width), np.float32), np.empty((2, width)), np.empty((2, width + 1), np.float32)):
        with pytest.raises((ValueError, TypeError), match="out"):
            opened.gather([1, 2], out=out)
    out = np.empty((2, width), np.float32)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        opened.gather([1, 2], out=out)


def test_an_error_leaves_an_output_with_gaps_as_it_was(opened):
    out = np.full((2, 2 * opened.row_shape[0]), 7, np.float32)
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


class LikeCupy:
    """Rows that are apart in GPU memory, described as CuPy does."""

    def __init__(self, shape, row_stride):
        self.shape, self.strides = shape, (row_stride, 4)
        self.flags = SimpleNamespace(c_contiguous=shape[0] <= 1)
        strides = None if self.flags.c_contiguous else self.strides
        described = {"shape": shape, "typestr": "<f4", "data": (4096, False), "strides": strides, "version": 3}
        self.__cuda_array_interface__ = described

    def __getitem__(self, rows):
        return LikeCupy((len(range(*rows.indices(self.shape[0]))), self.shape[1]), self.strides[0])


def test_rows_in_gpu_memory_may_be_apart():
    out = LikeCupy((5, 24), 112)
    found = output_rows(out, value_type("float32"), (5, 24), (24,), view)
    assert found.rows == (4096, 112, 5, out)
    assert found.result is out
    with pytest.raises(ValueError, match="not contiguous"):
        output_rows(LikeCupy((5, 24), 88), value_type("float32"), (5, 24), (24,), view)  # they overlap
