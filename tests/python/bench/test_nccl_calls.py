"""The calls of NCCL that the benchmark makes, without NCCL."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from narrowcast._bench.nccl_library import VARIANTS, Nccl, NcclCommunicator
from narrowcast._bench.operations import Call, names
from narrowcast.cli.bench import checks
from narrowcast.types import value_type

_SEND, _RECV = 1000, 2000


class Recorder:
    """A fake communicator of NCCL. missing: functions that this NCCL does not have."""

    def __init__(self, *missing: str) -> None:
        self.calls: list[tuple[object, ...]] = []
        self._comm = "comm"
        self._nccl = SimpleNamespace(has=lambda function: function not in missing)

    def _call(self, function: str, *arguments: object) -> None:
        assert arguments[-2:] == ("comm", "stream")
        self.calls.append((function, *arguments[:-2]))

    @contextlib.contextmanager
    def group(self):
        yield

    def run(self, operation: str, rank: int) -> list[tuple[object, ...]]:
        call = Call(operation, value_type("float32"), 10, rank, 3, op="max", root=1)
        buffers = (SimpleNamespace(pointer=pointer) for pointer in (_SEND, _RECV))
        NcclCommunicator.run(self, call, *buffers, SimpleNamespace(handle="stream"))
        return self.calls


@pytest.mark.parametrize(
    ("operation", "function", "rest"),
    [
        ("broadcast", "ncclBroadcast", [1]),
        ("reduce", "ncclReduce", [2, 1]),
        ("gather", "ncclGather", [1]),
        ("scatter", "ncclScatter", [1]),
        ("all_gather", "ncclAllGather", []),
        ("all_to_all", "ncclAlltoAll", []),
        ("reduce_scatter", "ncclReduceScatter", [2]),
        ("all_reduce", "ncclAllReduce", [2]),
    ],
)
def test_an_operation_is_one_call(operation, function, rest):
    assert operation in names()
    assert Recorder().run(operation, rank=0) == [(function, _SEND, _RECV, 10, 7, *rest)]


def test_sendrecv_is_a_send_and_a_receive():
    assert Recorder().run("sendrecv", rank=0) == [("ncclSend", _SEND, 10, 7, 1), ("ncclRecv", _RECV, 10, 7, 2)]


def parts(function: str, address: int) -> list[tuple[object, ...]]:
    return [(function, address + 40 * peer, 10, 7, peer) for peer in range(3)]


def test_an_nccl_that_lacks_an_operation_exchanges_its_parts():
    def run(operation: str, rank: int) -> list[tuple[object, ...]]:
        return Recorder("ncclGather", "ncclScatter", "ncclAlltoAll").run(operation, rank)

    to_root, from_root = ("ncclSend", _SEND, 10, 7, 1), ("ncclRecv", _RECV, 10, 7, 1)
    assert run("gather", 0) == [to_root]
    assert run("gather", 1) == [to_root, *parts("ncclRecv", _RECV)]
    assert run("scatter", 0) == [from_root]
    assert run("scatter", 1) == [*parts("ncclSend", _SEND), from_root]
    assert run("all_to_all", 2) == [*parts("ncclSend", _SEND), *parts("ncclRecv", _RECV)]


def test_symmetric_windows_are_left_out_where_peer_access_is_forbidden(monkeypatch):
    nccl = SimpleNamespace(version=22903, version_text="2.29.3", has=lambda _: True)
    monkeypatch.delenv("NCCL_P2P_DISABLE", raising=False)
    assert [name for name in VARIANTS if Nccl.lacks(nccl, name, "all_gather") is None] == list(VARIANTS)
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    assert [name for name in VARIANTS if Nccl.lacks(nccl, name, "all_gather") is None] == ["nccl"]
    assert "NCCL_P2P_DISABLE" in Nccl.lacks(nccl, "nccl-ce", "all_gather")


def test_default_is_another_name_of_plain_nccl():
    assert checks.opponents("all_gather", ["default"], True, windows=False) == ["nccl"]
