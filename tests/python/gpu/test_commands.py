"""Commands that use a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from narrowcast import cuda

EXAMPLES = Path(__file__).parents[3] / "examples" / "plans"


def test_bench_codec_on_the_gpu(cli, slices):
    done = cli("bench", "codec", slices, "--device", "cuda", "--tile", "16M", "--ctas", "32", "-n", "3", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["device"]
    assert [row["layout"] for row in report["rows"]] == ["frame", "slots"] * 7
    for row in report["rows"]:
        assert row["exact"]
        assert row["encode_gb_per_s"] > 0


def test_bench_store_on_the_gpu(cli):
    sizes = ["--row-bytes", "512", "--table", "64M", "--rows", "5000", "-n", "2", "--sms", "2,8", "--device", "cuda"]
    sizes += ["--tensor", "weights_bf16"]
    done = cli("store", "bench", *sizes, "--cache", "10", "--zipf", "1.05", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert row["exact"]
    assert [one["sms"] for one in row["speeds"]] == [2, 8]
    for speeds in row["speeds"]:
        assert all(speed > 0 for name, speed in speeds.items() if name.endswith("_gb_per_s"))
        assert [one["policy"] for one in speeds["cached"]] == ["static", "lru"]
        for encoded, raw in zip(speeds["cached"], speeds["raw_cached"], strict=True):
            assert encoded["capacity"] > raw["capacity"]
    assert row["host_gather_and_copy_gb_per_s"] > 0
    assert row["encode_gb_per_s"] > 0
    assert row["encode_on_cpus_gb_per_s"] > 0
    selects = [row["index_select_gb_per_s"], row["index_select_sorted_gb_per_s"]]
    assert selects == [None, None] or min(selects) > 0  # without torch there are none
    assert "fetch" in cli("store", "bench", *sizes, "--layout", "blocks").stdout


def test_random_bytes_are_gathered_as_raw_rows_are(cli):
    sizes = ["--row-bytes", "512", "--table", "64M", "--rows", "5000", "-n", "2", "--device", "cuda"]
    (row,) = json.loads(cli("store", "bench", "--tensor", "random", *sizes, "--json").stdout)["rows"]
    assert (row["codec"], row["ratio"], row["exact"]) == ("raw", 1.0, True)


# An all-gather is measured with pieces of whole 16 bytes.
@pytest.mark.parametrize(("name", "least"), [("two_shot", 1000), ("put", 992)])
def test_plans_run_between_gpus(cli, name, least):
    if cuda.device_count() < 2:
        pytest.skip("one GPU")
    options = ("--ranks", "2", "--backend", "cuda", "--bytes", "1000,1M", "-n", "2", "--json")
    done = cli("plan", "run", EXAMPLES / f"{name}.py", *options)
    assert (done.returncode, done.stderr) == (0, "")
    rows = json.loads(done.stdout)
    assert {row["wrong"] for row in rows} == {0}
    assert {row["nbytes"] for row in rows} == {least, 1 << 20}
