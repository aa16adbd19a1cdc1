"""Tables keep the bits of every source, type and layout. Native tests check codecs and sizes."""

from __future__ import annotations

from pathlib import Path

import narrowcast
import numpy as np
import pytest
from narrowcast import store
from narrowcast._store import sources
from narrowcast.files import encode_file
from narrowcast.types import VALUE_TYPES
from store_tables import LAYOUTS, ROWS, same, table, write_safetensors


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


def test_memory_mapped_files_are_a_source(rows, tmp_path):
    np.save(tmp_path / "rows.npy", rows)
    with store.build(np.load(tmp_path / "rows.npy", mmap_mode="r")) as made:
        assert same(made[:], rows)


def test_transposed_and_strided_arrays_are_sources(rows):
    for values in (rows[::2], rows.T, rows[:, 3:9]):
        with store.build(values) as made:
            assert same(made[:], values)


@pytest.mark.parametrize("layout", ["stride", "packed", "blocks"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_progress_reports_all_raw_bytes(is_stream, layout, monkeypatch):
    values, seen = table(rows=3001, shape=(64,)), []
    monkeypatch.setattr(sources, "BLOCK_BYTES", 1 << 16)
    source = iter(np.array_split(values, 7)) if is_stream else values
    store.build(source, layout=layout, progress=seen.append).close()
    assert sum(seen) == values.nbytes
    assert len(seen) == (7 if is_stream else 12)
    assert min(seen) > 0


def test_a_failing_source_leaves_no_file(rows, tmp_path):
    def blocks():
        yield rows
        raise RuntimeError("the source ends")

    with pytest.raises(RuntimeError, match="the source ends"):
        store.build(blocks(), path=tmp_path / "table")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "name"), [("bool", "BOOL"), ("int16", "I16"), ("uint16", "U16")])
def test_types_that_tables_do_not_have_are_viewed_as_bytes(kind, name, tmp_path):
    values = np.arange(64).reshape(16, 4).astype(kind)
    path = tmp_path / "rows.safetensors"
    write_safetensors(path, {"rows": (name, values)})
    for source, dtype, what in ((values, kind, "source"), (path, None, "tensor 'rows'")):
        with pytest.raises(TypeError, match=f"{what} holds {kind} values, which tables do not have: view it as uint8"):
            store.build(source, dtype=dtype)
    with store.build(values.view(np.uint8)) as made:
        assert same(made[:].view(kind), values)


@pytest.mark.parametrize("is_encoded", [False, True])
def test_a_tensor_of_a_safetensors_file_is_a_source(is_encoded, tmp_path):
    path, rows = tmp_path / "model.safetensors", table(rows=1000)
    bits = table("bfloat16", shape=(6, 4))
    write_safetensors(path, {"a": ("F32", rows), "b": ("BF16", bits)})
    if is_encoded:
        encoded = tmp_path / "encoded.safetensors"
        encode_file(path, encoded)
        path = encoded
    with store.build(path, tensor="a") as made:
        assert same(made[:], rows)
    with store.build(path, tensor="b") as made:
        assert (made.dtype, made.row_shape) == ("bfloat16", (6, 4))
        assert same(made[:].view(np.uint16), bits)
    with pytest.raises(ValueError, match=r"2 tensors: name one \(a, b\)"):
        store.build(path)
    with pytest.raises(ValueError, match="no tensor 'c'"):
        store.build(path, tensor="c")


@pytest.mark.parametrize("host", ["pinned", "shared"])
def test_a_numa_node_can_be_chosen(rows, host, tmp_path):
    path = tmp_path / "table"
    store.build(rows, path=path, host=None)
    try:
        made = store.open(path, host, numa=0)
    except OSError as error:
        pytest.skip(f"this system does not let memory be bound to a node: {error}")
    with made:
        assert same(made[:], rows)
        # The kernel lists the policy of each mapping: that of the rows is bound to node 0.
        assert any(line.split()[1] == "bind:0" for line in Path("/proc/self/numa_maps").read_text().splitlines())


def test_numa_nodes_that_do_not_exist_are_errors(rows, tmp_path):
    path = tmp_path / "table"
    store.build(rows, path=path, host=None)
    for node in (900, 1 << 20):
        with pytest.raises(narrowcast.InvalidArgumentError, match=f"there is no node {node}"):
            store.open(path, numa=node)
    with pytest.raises(narrowcast.NarrowcastError, match="numa"):
        store.open(path, "mmap", numa=0)
    with pytest.raises(ValueError, match="numa"):
        store.open(path, numa=-1)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        (np.ones((3, 4), np.float32), {"codec": "zip"}, "zip"),
        (np.ones((3, 4), np.float32), {"layout": "zip"}, "zip"),
        (np.float32(3), {}, "source is a single value"),
        (np.ones((3, 4), np.complex64), {}, "complex64"),
        (np.ones((3, 4), np.float32), {"capacity": 2}, "the capacity is 2"),
        (np.ones((3, 4), np.float32), {"host": "zip"}, "host is 'zip' .known: pinned, mmap, shared"),
        (np.ones((3, 4), np.float32), {"host": "shared"}, "without a path"),
        ("missing.safetensors", {}, "missing.safetensors"),
    ],
)
def test_what_cannot_be_built_is_an_error(source, options, message):
    with pytest.raises((ValueError, TypeError, OSError, narrowcast.NarrowcastError), match=message):
        store.build(source, **options)
