"""Commands that use a GPU."""

from __future__ import annotations

import json


def test_bench_codec_on_the_gpu(cli, slices):
    done = cli("bench", "codec", slices, "--device", "cuda", "--tile", "16M", "--ctas", "32", "-n", "3", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report["device"]
    assert [row["layout"] for row in report["rows"]] == ["frame", "slots"] * 7
    for row in report["rows"]:
        assert row["exact"]
        assert row["encode_gb_per_s"] > 0
