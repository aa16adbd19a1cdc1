"""`narrowcast bench`: the codec and collectives."""

from __future__ import annotations

import json

import narrowcast
import numpy as np
import pytest
from cli_output import assert_one_line
from narrowcast._bench.operations import names
from sample_values import normal


def test_bench_codec_on_the_host(cli_here, slices, tmp_path):
    done = cli_here("bench", "codec", slices, "--tile", "256K", "-n", "1", "-J", "speeds.json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads((tmp_path / "speeds.json").read_text())
    assert report["command"].startswith(f"narrowcast bench codec {slices} --tile 256K ")
    assert {"commit", "machine"} <= report.keys()
    assert len(report["rows"]) == 7
    for row in report["rows"]:
        assert row["exact"]
        assert row["encode_gb_per_s"] > row["reference_encode_gb_per_s"] > 0


def test_bench_codec_reports_the_frames_of_small_tensors(cli_here, tmp_path):
    values = normal("float32", 10)
    np.save(tmp_path / "small.npy", values)
    np.save(tmp_path / "large.npy", normal("float32", 100_000))
    done = cli_here("bench", "codec", "small.npy", "--tile", "256K", "-n", "1", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    frame = narrowcast.encode(values)
    assert (row["raw_bytes"], row["wire_bytes"], row["tile_bytes"]) == (40, frame.size, 256 << 10)
    assert row["ratio"] == frame.size / 40 > 2
    (large,) = json.loads(cli_here("bench", "codec", "large.npy", "--tile", "256K", "-n", "1", "--json").stdout)["rows"]
    assert large["raw_bytes"] == 400_000
    table = cli_here("bench", "codec", "small.npy", "--tile", "256K", "-n", "1", COLUMNS="80").stdout
    assert f"{frame.size / 40:.4f}" in table
    assert max(map(len, table.splitlines()[1:])) <= 80


def test_bench_codec_without_a_gpu_is_reported_in_one_line(cli_here, slices):
    if cli_here("bench", "codec", slices, "--device", "cuda", "--tile", "1K", "-n", "1").returncode == 0:
        pytest.skip("this machine has a GPU")
    assert_one_line(cli_here("bench", "codec", slices, "--device", "cuda"), 1, "GPU")


@pytest.mark.parametrize("operation", names())
def test_bench_of_a_collective(cli_here, operation):
    arguments = ["-b", "16K", "-e", "64K", "-f", "4", "-n", "2", "-w", "1", "-c", "1", "--ranks", "3"]
    report = json.loads(
        cli_here("bench", operation, *arguments, "--backend", "host", "--codec", "window", "--json").stdout
    )
    assert len(report["rows"]) == 2
    for row in report["rows"]:
        assert row["wrong"] == 0
        assert 0.6 < row["ratio"] < 0.8
        assert row["size_bytes"] <= 64 << 10
        factor = {"all_reduce": 4 / 3, "sendrecv": 1, "broadcast": 1, "reduce": 1}.get(operation, 2 / 3)
        assert row["busbw_gb_per_s"] == pytest.approx(factor * row["algbw_gb_per_s"])


def test_the_library_chooses_the_codec_of_a_benchmark(cli_here):
    options = ["-b", "8K", "-e", "8K", "-n", "1", "-w", "0", "-c", "0", "--ranks", "2"]
    report = json.loads(cli_here("bench", "all_gather", *options, "--backend", "host", "--json").stdout)
    assert [row["codec"] for row in report["rows"]] == ["auto"]


def test_bench_prints_the_columns_of_nccl_tests(cli_here):
    options = ["-n", "1", "-w", "0", "-c", "0", "--ranks", "2", "--backend", "host"]
    done = cli_here("bench", "all_reduce", "-b", "8K", "-e", "8K", *options)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    columns = next(line for line in lines if "algbw" in line).lstrip("#").split()
    assert columns == ["size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "ratio", "wire"]
    values = next(line for line in lines if not line.startswith("#")).split()
    assert values[:5] == ["8192", "4096", "bfloat16", "sum", "-1"]
    assert values[8] == "N/A"


@pytest.mark.parametrize("option", ["--tile", "--array"])
def test_sizes_below_a_value_are_bad_use(cli_here, slices, option):
    done = cli_here("bench", "codec", slices, "--device", "cuda", option, "0")
    assert done.returncode == 2
    assert f"{option} 0 is smaller than one value" in done.stderr
