"""`narrowcast ratio`: table, JSON and plots."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from cli_output import assert_one_line


def test_unwritable_plots_are_rejected_before_the_work(cli_here, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "plain").write_bytes(b"plain")
    for command in (["ratio", "plain", "--dtype", "uint8"], ["bench", "all_reduce", "--backend", "host"]):
        assert_one_line(cli_here(*command, "--plot", "nowhere/a.png"), 1, "nowhere/a.png: No such file")


def test_a_closed_pipe_is_not_an_error(slices, tmp_path):
    command = f"{sys.executable} -m narrowcast ratio --json {slices} | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=60, env=os.environ, check=False)
    assert (done.stdout, done.stderr) == ("[", "")


def test_ratio_as_table_and_json(cli_here, slices, tmp_path):
    rows = json.loads(cli_here("ratio", "--json", slices).stdout)
    assert [row["tensor"] for row in rows][:2] == ["weights_bf16", "grads_bf16"]
    for row in rows:
        assert row.keys() >= {"tensor", "dtype", "elems", "codec", "ratio", "widths", "escapes"}
        assert row["exponent_entropy"] + row["trailing_zeros"] - 1 <= row["ratio"] < 1
    np.save(tmp_path / "counts.npy", np.arange(1000, dtype=np.int32))
    np.save(tmp_path / "none.npy", np.zeros(0, np.float32))
    (row,) = json.loads(cli_here("ratio", "--json", "counts.npy").stdout)
    assert (row["dtype"], row["codec"], row["exponent_entropy"]) == ("int32", "raw", 1.0)
    assert json.loads(cli_here("ratio", "--json", "none.npy").stdout) == []
    table = cli_here("ratio", slices, "counts.npy", "--codec", "window", "--codec", "raw")
    assert (table.returncode, table.stderr) == (0, "")
    assert table.stdout.count("weights_bf16") == 2
    assert "exponents" in table.stdout
    assert "zeros" in table.stdout


def test_names_with_brackets_are_printed_unchanged(cli_here, slices, tmp_path):
    (tmp_path / "a[bold]b").write_bytes(b"four")
    assert "a[bold]b" in cli_here("ratio", "a[bold]b", "--dtype", "bf16").stdout


def test_ratio_rejects_encoded_files(cli_here, slices):
    assert cli_here("encode", slices, "-o", "model.ncast").returncode == 0
    assert_one_line(cli_here("ratio", "model.ncast"), 2, "already encoded", "inspect")


def test_ratio_writes_a_plot(cli_here, slices, tmp_path):
    pytest.importorskip("matplotlib")
    assert cli_here("ratio", slices, "--plot", "out.png").returncode == 0
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_matplotlib_is_reported_in_one_line(cli, slices, tmp_path):
    (tmp_path / "matplotlib.py").write_text("raise ImportError")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert_one_line(cli("ratio", slices, "--plot", "out.png", PYTHONPATH=path), 1, "narrowcast[plot]")
    assert not (tmp_path / "out.png").exists()
