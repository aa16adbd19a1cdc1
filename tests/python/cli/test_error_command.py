"""`narrowcast error`, and other commands with lossy codecs."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest
from cli_output import assert_one_line
from narrowcast._bench import distortion
from narrowcast.codec import inspect

FIELDS = [
    "tensor",
    "dtype",
    "elems",
    "codec",
    "ratio",
    "relative_l2",
    "max_error",
    "max_error_over_bound",
    "sqnr_db",
    "nonfinite_kept",
]


@pytest.fixture
def lossy(cli_here):
    """Runs several commands."""

    def run(*commands):
        return [cli_here(*command) for command in commands]

    return run


# least: the largest error is at least this part of the bound, which is loose for `rate`.
@pytest.mark.parametrize(("name", "least"), [("int6", 0.5), ("abs:bound=0.01", 0.99), ("rate:bits=12", 0.02)])
def test_errors_are_those_of_the_decoded_values(lossy, tmp_path, name, least):
    values = np.random.default_rng(0).standard_normal(5000).astype(np.float32)
    values[[7, 4000]] = np.nan, np.inf
    np.save(tmp_path / "a.npy", values)
    codec = ["--codec", name]
    found, *others = lossy(
        ["error", "a.npy", "--json", *codec],
        ["encode", "--lossy", "a.npy", *codec],
        ["decode", "a.npy.ncast", "-o", "b.npy"],
    )
    assert [one.returncode for one in others] == [0, 0]
    (row,) = json.loads(found.stdout)
    assert list(row) == FIELDS
    size = (tmp_path / "a.npy.ncast").stat().st_size
    decoded = np.load(tmp_path / "b.npy").astype(np.float64)
    is_finite = np.isfinite(values)
    assert not np.isfinite(decoded[~is_finite]).any()
    exact = values[is_finite].astype(np.float64)
    errors = decoded[is_finite] - exact
    assert (row["tensor"], row["dtype"], row["elems"], row["codec"]) == ("a", "float32", 5000, name)
    assert abs(row["ratio"] - size / values.nbytes) < 0.05  # the file has a header
    assert row["max_error"] == pytest.approx(np.abs(errors).max())
    assert row["relative_l2"] == pytest.approx(np.linalg.norm(errors) / np.linalg.norm(exact))
    assert row["sqnr_db"] == pytest.approx(-20 * np.log10(row["relative_l2"]))
    assert least < row["max_error_over_bound"] <= 1
    assert row["nonfinite_kept"]


def test_every_codec_and_type_has_a_row(lossy, slices, tmp_path):
    np.save(tmp_path / "counts.npy", np.arange(9, dtype=np.int32))
    np.save(tmp_path / "zeros.npy", np.zeros(2, np.float32))
    options = ["--json", "--codec", "int8", "--codec", "window"]
    rows, counts, zeros = (
        json.loads(done.stdout)
        for done in lossy(*(["error", one, *options] for one in (slices, "counts.npy", "zeros.npy")))
    )
    assert [row["codec"] for row in rows[:2]] == ["int8", "window"]
    for row in rows:
        is_exact = row["codec"] == "window"
        assert (row["max_error"] == row["relative_l2"] == row["max_error_over_bound"] == 0) == is_exact, row
        assert (row["sqnr_db"] is None) == is_exact
        assert row["nonfinite_kept"]
    assert (counts[0]["max_error"], counts[0]["nonfinite_kept"]) == (0, None)
    assert (zeros[0]["relative_l2"], zeros[0]["sqnr_db"], zeros[0]["nonfinite_kept"]) == (None, None, True)


def test_errors_are_shown_and_drawn(lossy, slices, tmp_path):
    pytest.importorskip("matplotlib")
    shown, wrong_name, not_of_frames = lossy(
        ["error", slices, "--codec", "int4", "--codec", "raw", "--plot", "out.png"],
        ["error", slices, "--codec", "raw", "--plot", "out.txt"],
        ["error", slices, "--codec", "auto"],
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "relative L2" in shown.stdout
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")
    assert_one_line(wrong_name, 2, "out.txt must end in one of")
    assert_one_line(not_of_frames, 2, "auto")


def test_encoding_with_loss_must_be_allowed(lossy, slices, tmp_path):
    codec = ["--codec", "int6"]
    rejected, exact, allowed, frames, ratios = lossy(
        ["encode", slices, "-o", "a.ncast", *codec],
        ["encode", slices, "-o", "b.ncast", "--codec", "auto"],
        ["encode", slices, "-o", "c.ncast", "--lossy", *codec],
        ["inspect", "c.ncast"],
        ["ratio", slices, *codec],
    )
    assert_one_line(rejected, 2, "--codec int6 changes values: --lossy allows that")
    assert not (tmp_path / "a.ncast").exists()
    assert exact.returncode == allowed.returncode == 0
    assert "0.4065" in frames.stdout
    assert "0.4065" in ratios.stdout


def test_benchmarks_hold_codecs_to_their_error_bounds(lossy, slices):
    codec = ["--codec", "int6"]
    options = ["--backend", "host", "--ranks", 2, "-b", "8K", "-e", "8K", "-n", 1, *codec]
    *collectives, frames, demo = lossy(
        ["bench", "all_reduce", *options],
        ["bench", "sendrecv", *options],
        ["bench", "codec", slices, "--tile", "64K", "-n", 1, *codec],
        ["demo", "--ranks", 2, "-n", 1, *codec],
    )
    for done in (*collectives, frames, demo):
        assert (done.returncode, done.stderr) == (0, "")
    assert frames.stdout.count(" bound\n") == 7
    assert "within their bounds" in " ".join(demo.stdout.split())


def test_a_codec_that_loses_values_is_found(cli_here, monkeypatch, tmp_path):
    np.save(tmp_path / "a.npy", np.ones(5000, np.float32))
    monkeypatch.setattr(distortion, "_decoded", lambda frame, kind: np.zeros(inspect(frame).elems, kind.numpy))
    done = cli_here("error", "a.npy", "--codec", "window", "--json")
    assert_one_line(
        subprocess.CompletedProcess("", done.returncode, "", done.stderr), 1, "errors exceed", "a with window"
    )
    (row,) = json.loads(done.stdout)
    assert (row["max_error"], row["max_error_over_bound"], row["nonfinite_kept"]) == (1, None, False)
    assert (row["relative_l2"], row["sqnr_db"]) == (1, 0)
