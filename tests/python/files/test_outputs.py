"""Outputs are private if their inputs are, and killed runs leave nothing that stays."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from narrowcast._files import atomic
from narrowcast._files.atomic import new_file, write_file
from narrowcast.files import decode_file, encode_file


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def values(tmp_path: Path) -> Path:
    path = tmp_path / "values"
    path.write_bytes(bytes(10_000))
    return path


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o660, 0o444])
def test_new_files_have_the_permissions_of_their_input(values, tmp_path, mode):
    values.chmod(mode)
    encode_file(values, tmp_path / "encoded", dtype="uint8")
    decode_file(tmp_path / "encoded", tmp_path / "decoded")
    assert [mode_of(tmp_path / name) for name in ("encoded", "decoded")] == [mode, mode]


def test_replaced_files_keep_their_permissions(values, tmp_path):
    encoded, decoded = tmp_path / "encoded", tmp_path / "decoded"
    for path, mode in ((encoded, 0o600), (decoded, 0o620)):
        path.write_bytes(b"old")
        path.chmod(mode)
    encode_file(values, encoded, dtype="uint8")
    decode_file(encoded, decoded)
    assert (mode_of(encoded), mode_of(decoded)) == (0o600, 0o620)
    write_file(encoded, b"report")
    assert mode_of(encoded) == 0o600


def test_open_inputs_pass_their_permissions_on(values, tmp_path):
    values.chmod(0o600)
    with values.open("rb") as file:
        encode_file(file, tmp_path / "encoded", dtype="uint8")
    assert mode_of(tmp_path / "encoded") == 0o600


def test_a_file_has_no_name_before_it_is_complete(tmp_path):
    write_file(tmp_path / "out", b"old")
    with new_file(tmp_path / "out") as file:
        file.write(b"new")
        assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out", b"old")]
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out", b"new")]


def test_a_private_output_is_private_while_it_is_written(values, tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_create_unnamed", lambda folder, mode: None)
    values.chmod(0o600)
    with new_file(tmp_path / "out", like=values.stat()) as file:
        file.write(b"secret")
        (partial,) = tmp_path.glob(".out.*.partial")
        assert mode_of(partial) == 0o600


def test_files_without_an_input_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "report", b"report")
    finally:
        os.umask(before)
    assert mode_of(tmp_path / "report") == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change owners")
def test_the_owner_of_a_replaced_file_stays(values, tmp_path):
    out = tmp_path / "out"
    out.write_bytes(b"old")
    os.chown(out, 12345, 54321)
    encode_file(values, out, dtype="uint8")
    assert (out.stat().st_uid, out.stat().st_gid) == (12345, 54321)


# Encodes a long file, on a system that cannot create files without names.
_ENCODE_NAMED = """
from narrowcast._files import atomic
from narrowcast.files import encode_file
atomic._create_unnamed = lambda folder, mode: None
encode_file("long", "out", dtype="bfloat16")
"""


@pytest.mark.timeout(30)
def test_a_partial_file_that_another_process_locks_does_not_block(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_create_unnamed", lambda folder, mode: None)
    lock, others = fcntl.flock, []

    def locked_by_another_first(file, how):
        if not others:
            others.append(os.open(file.name, os.O_RDONLY))
            lock(others[0], fcntl.LOCK_EX)
        lock(file, how)

    monkeypatch.setattr(atomic.fcntl, "flock", locked_by_another_first)
    with atomic.new_file(tmp_path / "out") as file:
        file.write(b"content")
    os.close(others[0])
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"out": b"content"}


def test_the_partial_file_of_a_killed_run_is_removed_by_the_next(values, tmp_path):
    with (tmp_path / "long").open("wb") as file:
        file.truncate(8 << 30)  # a hole: nothing on the disk
    process = subprocess.Popen([sys.executable, "-c", _ENCODE_NAMED], cwd=tmp_path)
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob(".out.*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)
    # The file of a run that is still alive stays.
    encode_file(values, tmp_path / "out", dtype="uint8")
    (partial,) = tmp_path.glob(".out.*")
    process.send_signal(signal.SIGKILL)
    process.wait(30)
    assert partial.exists()
    other = tmp_path / ".outer.01234567.partial"
    other.write_bytes(b"of another target")
    encode_file(values, tmp_path / "out", dtype="uint8")
    assert sorted(path.name for path in tmp_path.iterdir()) == [other.name, "long", "out", "values"]


def test_only_files_are_removed_as_stale(values, tmp_path):
    pipe, link = tmp_path / ".out.00000000.partial", tmp_path / ".out.11111111.partial"
    os.mkfifo(pipe)
    link.symlink_to(values)
    encode_file(values, tmp_path / "out", dtype="uint8")
    assert sorted(path.name for path in tmp_path.iterdir()) == [pipe.name, link.name, "out", "values"]


def test_names_of_255_bytes_can_be_written(values, tmp_path):
    for name in ("x" * 255, "ä" * 127):
        encode_file(values, tmp_path / name, dtype="uint8")
        assert (tmp_path / name).stat().st_size == 10_064


def no_links(source, target, **options):
    raise PermissionError(errno.EPERM, "Operation not permitted", source, None, target)


@pytest.mark.parametrize("way", ["unnamed", "named", "without links"])
def test_a_file_that_appears_in_the_meantime_is_not_replaced(tmp_path, monkeypatch, way):
    if way != "unnamed":
        monkeypatch.setattr(atomic, "_create_unnamed", lambda folder, mode: None)
    if way == "without links":
        monkeypatch.setattr(atomic.os, "link", no_links)
    out = tmp_path / "out"
    with new_file(out, replace=False) as file:
        file.write(b"first")
    assert out.read_bytes() == b"first"
    with pytest.raises(FileExistsError), new_file(out, replace=False):
        pytest.fail("it exists before the body")
    out.unlink()
    with pytest.raises(FileExistsError) as caught, new_file(out, replace=False):
        out.write_bytes(b"other")
    assert (caught.value.filename, caught.value.filename2) == (str(out), None)
    assert out.read_bytes() == b"other"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
