"""A GPU builds the same table files as the CPU, from memory of the host and of the GPU."""

from __future__ import annotations

import subprocess
import sys

import narrowcast
import numpy as np
import pytest
from gpu_store import Array
from narrowcast import store


def special(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Adds rows of random bits, zeros, ones, and single NaN, -0 and denormals."""
    bits = values.view(f"u{values.itemsize}")
    bits[3] = np.frombuffer(rng.bytes(bits[3].nbytes), bits.dtype).reshape(bits[3].shape)
    bits[4], bits[5] = 0, ~bits.dtype.type(0)
    bits.reshape(-1)[::1009] = 1 << (8 * values.itemsize - 1)  # -0
    bits.reshape(-1)[7::2003] = 1  # a denormal
    return values


def dense(rows: int, elems: int, kind: str = "float32", zeros: float = 0.0, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, elems)).astype(np.float32) * 0.02
    values[rng.random(values.shape) < zeros] = 0
    if kind == "bfloat16":
        return special((values.view(np.uint32) >> 16).astype(np.uint16), rng)
    if kind.startswith("float8"):
        return special((values.view(np.uint32) >> 20).astype(np.uint8), rng)
    if kind.startswith("int"):
        return (rng.integers(0, 1000, values.shape) * (values != 0)).astype(kind)
    return special(values.astype(kind), rng)


def built(rows, path, **options) -> bytes:
    store.build(rows, path=path, host=None, **options)
    content = path.read_bytes()
    path.unlink()
    return content


def check_same(rows: np.ndarray, tmp_path, **options) -> None:
    expected = built(rows, tmp_path / "cpu.ncs", **options)
    for name, source in (("host", rows), ("gpu", Array(rows)), ("unaligned", Array(rows, 1))):
        found = built(source, tmp_path / "gpu.ncs", device=0, **options)
        assert len(found) == len(expected), name
        if found != expected:
            differs = np.flatnonzero(np.frombuffer(found, np.uint8) != np.frombuffer(expected, np.uint8))
            raise AssertionError(f"{name}: {len(differs)} bytes differ, the first at {differs[0]}")


@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32", "float64", "float8_e4m3", "float8_e5m2"])
@pytest.mark.parametrize("elems", [20, 100, 256, 1433])
def test_the_window_has_the_bytes_of_the_cpu(kind, elems, layout, tmp_path):
    for codec, zeros in (("window", 0.0), ("zeros+trim+window", 0.9)):
        rows = dense(3001, elems, kind, zeros)
        check_same(rows, tmp_path, codec=codec, layout=layout, dtype=kind)


@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "float16"])
def test_plain_has_the_bytes_of_the_cpu(kind, layout, tmp_path):
    for codec in ("plain", "trim", "zeros+trim"):
        check_same(dense(3001, 100, kind, 0.7), tmp_path, codec=codec, layout=layout)


@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("chunk", [1, 2, 4, 8])
def test_invariant_has_the_bytes_of_the_cpu(chunk, layout, tmp_path):
    rng = np.random.default_rng(3)
    centres = rng.integers(0, 256, (4, 256), np.uint8)
    rows = centres[rng.integers(0, 4, 3001)] ^ (rng.integers(0, 256, (3001, 256), np.uint8) & 0x11)
    rows[7] = rng.integers(0, 256, 256)
    for clusters in (1, 4):
        check_same(rows, tmp_path, codec=f"invariant:chunk={chunk},clusters={clusters}", layout=layout)


@pytest.mark.parametrize("layout", ["stride", "packed"])
@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "float16"])
def test_stages_before_invariant_have_the_bytes_of_the_cpu(kind, layout, tmp_path):
    for codec in ("zeros+invariant", "trim+invariant", "zeros+trim+invariant:clusters=3"):
        check_same(dense(3001, 100, kind, 0.7), tmp_path, codec=codec, layout=layout)


def test_trims_of_float16_and_float32_have_the_bytes_of_the_cpu(tmp_path):
    for kind, width, low in (("float16", 2, 3), ("float32", 4, 8), ("float32", 4, 16), ("float64", 8, 24)):
        rows = dense(3001, 96, kind)
        bits = rows.view(f"u{width}")
        bits &= ~bits.dtype.type((1 << low) - 1)
        check_same(rows, tmp_path, codec="trim+window")


@pytest.mark.parametrize("codec", ["raw", "auto"])
def test_rows_that_are_not_encoded_have_the_bytes_of_the_cpu(codec, tmp_path):
    rng = np.random.default_rng(5)
    check_same(rng.integers(0, 256, (5001, 100), np.uint8), tmp_path, codec=codec)


def test_blocks_have_the_bytes_of_the_cpu(tmp_path):
    check_same(dense(3001, 300), tmp_path, layout="blocks")


def test_many_rows_in_overflow_entries_have_the_bytes_of_the_cpu(tmp_path):
    """The codec is fitted to rows that shrink; most of the others do not."""
    rng = np.random.default_rng(7)
    rows = rng.integers(0, 1 << 32, (120_000, 64), np.uint32).view(np.float32)
    sampled = np.zeros(len(rows), bool)
    for run in range(64):
        sampled[len(rows) * run // 64 :][:160] = True
    rows[sampled] = rng.standard_normal((int(sampled.sum()), 64)).astype(np.float32)
    check_same(rows, tmp_path, codec="window", layout="stride")


def test_tables_of_several_pieces_have_the_bytes_of_the_cpu(tmp_path):
    """More than a block of 128 MiB, whose pieces do not end at segments."""
    rows = dense(1_200_007, 99, "bfloat16")
    for layout in ("stride", "packed"):
        check_same(rows, tmp_path, codec="window", layout=layout, dtype="bfloat16")


def test_tables_of_short_rows_have_the_bytes_of_the_cpu(tmp_path):
    check_same(dense(2_000_001, 2, "int32", 0.5), tmp_path, codec="zeros+trim", layout="packed")


def test_tables_of_long_rows_have_the_bytes_of_the_cpu(tmp_path):
    rows = dense(700, 32000, "bfloat16")  # more than a chunk
    for layout in ("stride", "packed"):
        check_same(rows, tmp_path, codec="window", layout=layout, dtype="bfloat16")


def test_a_table_that_a_gpu_built_can_be_read_and_changed(tmp_path):
    rows = dense(5003, 128)
    table = store.build(Array(rows), capacity=6000)
    assert table.gather(np.arange(5003)).tobytes() == rows.tobytes()
    table.append(rows[:10])
    table.update([4, 2], rows[7:9])
    assert table.gather([4, 2, 5012]).tobytes() == rows[[7, 8, 9]].tobytes()


def test_torch_tensors_on_the_gpu_are_encoded_there(tmp_path):
    torch = pytest.importorskip("torch")
    rows = torch.randn(4000, 96, device="cuda").to(torch.bfloat16)
    columns = torch.randn(96, 4000, device="cuda").t()  # not contiguous
    for tensor in (rows, columns):
        expected = built(tensor.cpu(), tmp_path / "cpu.ncs")
        assert built(tensor, tmp_path / "gpu.ncs") == expected
        assert built(tensor.cpu().pin_memory(), tmp_path / "gpu.ncs", device="cuda") == expected


def test_the_command_line_encodes_on_a_gpu(tmp_path):
    np.save(tmp_path / "rows.npy", dense(3001, 128))
    for device in ("cpu", "cuda"):
        command = [
            sys.executable,
            "-m",
            "narrowcast",
            "store",
            "build",
            "rows.npy",
            f"{device}.ncs",
            "--device",
            device,
        ]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "cpu.ncs").read_bytes() == (tmp_path / "cuda.ncs").read_bytes()


def test_a_gpu_that_does_not_exist_is_reported(tmp_path):
    with pytest.raises(narrowcast.CudaError, match="invalid device ordinal"):
        store.build(dense(10, 8), device=99)
    with pytest.raises(ValueError, match="source is on cuda:0"):
        store.build(Array(dense(10, 8)), device="cpu")
