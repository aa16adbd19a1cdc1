"""The record of calls that the drop-in writes, on the fakes of the driver and NCCL."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest
from narrowcast._native.operations import operations
from narrowcast._try.record import CAPTURED, EXECUTED, NAME, read_folder
from nccl_ranks import Ranks


@pytest.fixture
def on_ranks(preloaded, monkeypatch):
    monkeypatch.setenv("NARROWCAST_RECORD", str(preloaded / NAME))
    return Ranks(preloaded)


def one_communicator(process):
    (communicator,) = process.communicators
    return communicator


@pytest.mark.parametrize("take", ["always", "never"])
def test_every_call_is_recorded_and_who_executed_it(on_ranks, monkeypatch, take):
    monkeypatch.setenv("NARROWCAST_TAKE", take)
    on_ranks("every_operation", ranks=2, count=5000)
    names = list(operations())
    records = [one_communicator(process) for process in read_folder(on_ranks.folder)]
    assert {one.rank: one.ranks for one in records} == {0: 2, 1: 2}
    assert len({one.id for one in records} - {0}) == 1
    for one in records:
        executed = one.calls[(one.calls["flags"] & EXECUTED) != 0]
        forwarded = one.calls[(one.calls["flags"] & EXECUTED) == 0]
        counted = on_ranks.statistics()[one.rank]
        assert {name: (entry["taken"], entry["forwarded"]) for name, entry in counted.items()} == {
            name: tuple(int(np.count_nonzero(some["operation"] == names.index(name))) for some in (executed, forwarded))
            for name in counted
        }
        assert len(forwarded) == (0 if take == "always" else len(one.calls))
        assert set(one.calls["count"]) == {5000}
        assert (np.diff(one.calls["time_ns"].astype(np.int64)) >= 0).all()


def test_the_calls_of_a_group_are_one_launch(on_ranks):
    on_ranks("groups")
    for process in read_folder(on_ranks.folder):
        whole, half = process.communicators
        assert [int(one) for one in whole.calls["launch"]] == [0] * 4 + [1] * 4 + [2] * 4
        assert [int(one) for one in half.calls["launch"]] == [0, 1, 2]


@pytest.mark.parametrize("before", [True, False])
def test_calls_in_graphs_are_marked(on_ranks, before):
    on_ranks("captured", ranks=2, before=before)
    for process in read_folder(on_ranks.folder):
        communicator = one_communicator(process)
        assert 0 < communicator.captured == len(communicator.calls) - (not before)
        captured = communicator.calls[(communicator.calls["flags"] & CAPTURED) != 0]["launch"]
        assert not set(captured) & set(communicator.launches["launch"])


@pytest.mark.parametrize("take", ["always", "never"])
def test_a_sample_of_the_launches_is_timed_and_the_same_on_all_ranks(on_ranks, monkeypatch, take):
    monkeypatch.setenv("NARROWCAST_TAKE", take)
    Ranks(on_ranks.folder, "nccl_rare_jobs")("repeated", ranks=2, calls=100)
    first, second = (one_communicator(process).launches for process in read_folder(on_ranks.folder))
    assert 8 <= len(first) <= 16
    assert list(first["launch"]) == list(second["launch"])
    assert (np.diff(first["time_ns"].astype(np.int64)) > 0).all()
    assert (first["count"] > 0).all()


MARKS = """
import ctypes, sys
mark = ctypes.CDLL(None).narrowcast_nccl_mark_step
for _ in range(int(sys.argv[1])):
    mark()
"""


def mark(count):
    return subprocess.run(
        [sys.executable, "-c", MARKS, str(count)], capture_output=True, text=True, check=True
    ).stderr.splitlines()


def test_a_full_record_keeps_its_beginning(on_ranks):
    assert len(mark(2_100_000)) == 1
    (path,) = on_ranks.folder.glob("*.calls")
    (process,) = read_folder(on_ranks.folder)
    assert path.stat().st_size == 64 << 20
    assert len(process.marks_ns) == (64 << 20) // 32 - 1


@pytest.mark.parametrize(
    ("name", "reason"), [("own", "File exists"), ("nowhere/own", "No such file"), ("link", "File exists")]
)
def test_a_record_that_cannot_be_created_is_reported_once(on_ranks, monkeypatch, name, reason):
    (on_ranks.folder / "own").write_text("precious")
    (on_ranks.folder / "link").symlink_to(on_ranks.folder / "own")
    monkeypatch.setenv("NARROWCAST_RECORD", str(on_ranks.folder / name))
    (line,) = mark(3)
    assert f"{on_ranks.folder / name} cannot be created: {reason}" in line
    assert (on_ranks.folder / "own").read_text() == "precious"


def test_nothing_is_recorded_unless_a_setting_says_so(on_ranks, monkeypatch):
    monkeypatch.delenv("NARROWCAST_RECORD")
    Ranks(on_ranks.folder, "nccl_rare_jobs")("repeated", ranks=2, calls=3)
    assert mark(2) == []
    assert not list(on_ranks.folder.glob("*.calls"))
    assert json.loads(next(on_ranks.folder.glob("*.json")).read_text())["communicators"]
