"""`narrowcast store`: table files from tensors, their description, damage and speed."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from cli_output import assert_one_line
from narrowcast import files, store
from narrowcast.cuda import device_count


@pytest.fixture
def built(cli_here, tmp_path):
    """A table file of 300 rows, and the rows."""
    rows = np.random.default_rng(0).standard_normal((300, 64)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    assert cli_here("store", "build", "rows.npy", "rows.ncs", "--codec", "window").returncode == 0
    return tmp_path / "rows.ncs", rows


def test_a_built_file_has_the_rows(built):
    path, rows = built
    with store.open(path) as table:
        assert np.array_equal(table[:], rows)


def test_inspect_describes_the_file(built, cli_here):
    result = cli_here("store", "inspect", "rows.ncs", "--json")
    found = json.loads(result.stdout)
    assert (found["dtype"], found["shape"], found["codec"]) == ("float32", [300, 64], "window")
    assert found["file_bytes"] == built[0].stat().st_size
    assert "window" in cli_here("store", "inspect", "rows.ncs").stdout


def test_verify_finds_damage(built, cli_here):
    path, _ = built
    assert cli_here("store", "verify", "rows.ncs").returncode == 0
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    result = cli_here("store", "verify", "rows.ncs", "--json")
    assert result.returncode == 1
    assert not json.loads(result.stdout)["good"]


def test_verify_lists_consecutive_rows_as_a_range(built, cli_here):
    """The checksum of a segment covers many rows."""
    path, _ = built
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    result = cli_here("store", "verify", "rows.ncs")
    assert re.search(r"rows\.ncs: (\d+) of 300 rows are damaged: \d+ to \d+", result.stdout.replace("\n", " "))


def test_a_wrong_codec_or_tensor_is_one_line_and_leaves_no_file(built, cli_here, tmp_path):
    for options in (["--codec", "zip"], ["--tensor", "x"], ["--layout", "zip"]):
        result = cli_here("store", "build", "rows.npy", "other.ncs", *options)
        assert result.returncode in (1, 2), result
        assert result.stderr.startswith("narrowcast: ")
        assert result.stderr.count("\n") == 1
    assert not list(tmp_path.glob("*other*"))


@pytest.mark.parametrize(
    ("codec", "message"),
    [
        ("trim+zeros+invariant", "codec 'trim+zeros+invariant': zeros must be the first stage, once"),
        ("zeros+raw", "codec 'zeros+raw': no stage can precede raw"),
        ("zeros+invariant:chunk=3", "codec 'zeros+invariant:chunk=3': chunk is '3', not 1, 2, 4 or 8"),
        ("zeros+trim+invariant:k=1", "invariant has no parameter 'k' (known: chunk, clusters)"),
    ],
)
def test_what_is_wrong_with_a_row_codec_is_said(built, cli_here, codec, message):
    assert_one_line(cli_here("store", "build", "rows.npy", "other.ncs", "--codec", codec), 1, message)


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (np.zeros((5, 4), ">f4"), ["--dtype", "float32"], "in.npy holds >f4 values, which are big-endian"),
        (np.zeros((5, 4), np.uint16), [], "in.npy holds uint16, which is not a value type: pass the type with --dtype"),
        (np.zeros((5, 0), np.float32), [], "in.npy has shape (5, 0): rows must not be empty"),
        (np.float32(3), [], "in.npy is a single value, not rows"),
        (np.array([{}]), [], "in.npy contains Python objects, not numbers"),
        (np.zeros((5, 4), np.float32), ["--tensor", "a"], "in.npy is an npy file, which has no tensor names"),
        ({"a": np.zeros((5, 4), np.float32)}, ["--dtype", "float32"], "states the types of its tensors: omit --dtype"),
        ({"a": np.zeros(5), "b": np.zeros(5)}, [], "in.npy has 2 tensors: name one (a, b)"),
    ],
)
def test_unsuitable_files_are_named_with_the_reason(cli_here, tmp_path, content, options, message):
    if isinstance(content, dict):
        files.save_file(content, tmp_path / "in.npy")
    else:
        np.save(tmp_path / "in.npy", content)
    assert_one_line(cli_here("store", "build", "in.npy", "out.ncs", *options), 2, message)
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize("size", [60, 500])
def test_truncated_npy_files_are_named(cli_here, tmp_path, size):
    np.save(tmp_path / "in.npy", np.zeros((50, 4), np.float32))
    (tmp_path / "in.npy").write_bytes((tmp_path / "in.npy").read_bytes()[:size])
    assert_one_line(cli_here("store", "build", "in.npy", "out.ncs"), 1, "in.npy is not a valid npy file")


@pytest.mark.parametrize("row_bytes", ["512", "128K"])
def test_the_benchmark_compares_bits(cli_here, tmp_path, row_bytes):
    """A NaN is not equal to itself. Rows of 128 KiB are in blocks, which cannot be changed."""
    np.save(tmp_path / "nan.npy", np.full((300, 128), np.nan, np.float32))
    sizes = ["--table", "1M", "--rows", "5", "--row-bytes", row_bytes, "-n", "1", "--threads", "1"]
    result = cli_here("store", "bench", "nan.npy", *sizes, "--json")
    assert result.returncode == 0, result.stderr
    (row,) = json.loads(result.stdout)["rows"]
    assert row["exact"]
    assert ("updates_per_s" in row) == (row_bytes == "512")


def test_the_benchmark_compares_rows(cli_here):
    sizes = ["--table", "64K", "--rows", "50", "--row-bytes", "512", "-n", "1", "--codec", "window"]
    result = cli_here("store", "bench", "--tensor", "weights_bf16", *sizes, "--threads", "1", "--json")
    report = json.loads(result.stdout)
    assert report["command"].startswith("narrowcast store bench --tensor weights_bf16 --row-bytes 512 ")
    assert report["machine"]
    assert report["commit"]
    (row,) = report["rows"]
    assert row["exact"]
    assert row["gather_gb_per_s"] > 0
    assert row["encode_gb_per_s"] > 0


@pytest.mark.parametrize(("dtype", "name"), [([], "bfloat16"), (["--dtype", "fp32"], "float32")])
def test_the_benchmark_has_rows_that_do_not_shrink(cli_here, dtype, name):
    sizes = ["--table", "4M", "--rows", "50", "--row-bytes", "512", "-n", "1", "--threads", "1"]
    result = cli_here("store", "bench", "--tensor", "random", *dtype, *sizes, "--json")
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["tensor"], row["dtype"], row["codec"], row["ratio"], row["exact"]) == ("random", name, "raw", 1.0, True)


@pytest.mark.parametrize("row_bytes", ["5732", "5736"])
@pytest.mark.parametrize("dtype", ["fp32", "bfloat16"])
def test_the_benchmark_has_a_bag_of_words(cli_here, dtype, row_bytes):
    """Few elements are not zero, and all of these are one: the zero map and a bit remain of them."""
    sizes = ["--table", "1M", "--rows", "50", "--row-bytes", row_bytes, "-n", "1", "--threads", "1"]
    result = cli_here("store", "bench", "--tensor", "words", "--dtype", dtype, *sizes, "--json")
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["tensor"], row["codec"], row["exact"]) == ("words", "zeros+trim", True)
    assert row["ratio"] < 0.08


def test_the_benchmark_has_counts(cli_here):
    sizes = ["--table", "1M", "--rows", "50", "--row-bytes", "1K", "-n", "1", "--threads", "1"]
    chosen = ["--tensor", "counts", "--dtype", "int32", "--codec", "zeros+trim+invariant"]
    result = cli_here("store", "bench", *chosen, *sizes, "--json")
    (row,) = json.loads(result.stdout)["rows"]
    assert (row["tensor"], row["exact"]) == ("counts", True)
    assert row["codec"].startswith("zeros+trim+invariant:chunk=")
    assert row["ratio"] < 0.08


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--tensor", "randm"], "there is no tensor 'randm'"),
        (["--tensor", "random", "--dtype", "zip"], "zip"),
        (["--device", "tpu"], "'tpu' is not a device"),
        (["--layout", "zip"], "'zip' is not a layout (known: auto, stride, packed, blocks)"),
        (
            ["--tensor", "weights_bf16", "--dtype", "float32"],
            "--dtype is for files, and for normal, words, counts, random",
        ),
        (["--device", "cuda", "--sms", "0"], "--sms must be positive"),
        (["--device", "cuda", "--sms", "a"], "--sms a is not a list of numbers"),
        (["--device", "cuda", "--threads", "1"], "--threads is for --device host"),
        (["--threads", "-1"], "--threads must not be negative"),
        (["--sms", "4"], "--sms is for --device cuda"),
        (["--zipf", "1"], "--zipf is for --device cuda"),
        (["--cache", "10"], "--cache is for --device cuda"),
        (["--row-bytes", "7"], "--row-bytes 7 is not a whole number of bfloat16 values"),
        (["--row-bytes", "2M", "--table", "1M"], "--row-bytes 2097152 is more than the 1048576 bytes of --table"),
        (["--zipf", "-1"], "--zipf"),
        (["--cache", "101"], "--cache"),
    ],
)
def test_options_of_the_benchmark_are_checked(cli_here, options, message):
    result = cli_here("store", "bench", *options)
    assert_one_line(result, 2, message)
    assert not result.stdout


def test_the_benchmark_needs_a_gpu_for_cuda(cli_here):
    if device_count():
        pytest.skip("there is a GPU")
    result = cli_here("store", "bench", "--device", "cuda")
    assert result.returncode != 0
    assert "needs a CUDA GPU" in result.stderr


def test_an_existing_table_is_replaced_only_with_f(cli_here, tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((10, 8), np.float32))
    (tmp_path / "rows.ncs").write_bytes(b"mine")
    assert_one_line(cli_here("store", "build", "rows.npy", "rows.ncs"), 1, "rows.ncs: exists already (-f replaces it)")
    assert (tmp_path / "rows.ncs").read_bytes() == b"mine"
    assert cli_here("store", "build", "-f", "rows.npy", "rows.ncs").returncode == 0
    assert cli_here("store", "verify", "rows.ncs").returncode == 0
