"""Communicators of two levels on the host backend."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import narrowcast
import numpy as np
import pytest
from conformance.suite import ConformanceOfLevels, Setting, failures, links, report  # noqa: F401
from hosts.forked_ranks import Report as TellParent
from hosts.test_detection import run
from narrowcast import Communicator
from narrowcast.errors import InvalidArgumentError, NarrowcastError, UnsupportedError
from narrowcast.plan import build

_HOSTS = {"2x3": (0, 0, 0, 1, 1, 1), "3x2-rounded": (0, 0, 1, 1, 2, 2)}


@pytest.fixture(scope="class", params=_HOSTS)
def setting(request: pytest.FixtureRequest) -> Iterator[Setting]:
    hosts = _HOSTS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
        patch.setenv("NARROWCAST_LEVELS", "2")
        if request.param.endswith("rounded"):
            patch.setenv("NARROWCAST_PARTIAL_SUMS", "rounded")
        yield Setting("host", len(hosts), tuple(range(len(hosts))), "few", 120, hosts, two_levels=True)


class TestTheHostBackend(ConformanceOfLevels):
    @pytest.mark.parametrize(("levels", "link"), [("auto", "network"), ("1", "network"), ("2", "two_levels")])
    def test_has_two_levels_if_a_setting_says_so(self, setting: Setting, monkeypatch, levels: str, link: str) -> None:
        monkeypatch.setenv("NARROWCAST_LEVELS", levels)
        assert links(setting) == [link] * setting.ranks


def _start(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setenv("NARROWCAST_LEVELS", "2")
    return {"NARROWCAST_SOCKET_IFNAME": "lo"}


_TWO_BY_TWO = ["one", "one", "two", "two"]
_THREE_BY_THREE = [f"host {rank // 3}" for rank in range(9)]
# 9 groups, which form 3 groups of 3.
_NINE_BY_TWO = [f"host {rank // 2}" for rank in range(18)]
_NINE_BY_ONE = [f"host {rank}" for rank in range(9)]
_NINE_BY_EIGHT = [f"host {rank // 8}" for rank in range(72)]


def _of_message(sender: int, receiver: int) -> float:
    return float(100 * sender + receiver)


def _send(comm: Communicator, count: int, receiver: int) -> None:
    comm.send(np.full(count, _of_message(comm.rank, receiver), np.float32), receiver)


def _receive(comm: Communicator, count: int, sender: int) -> bool:
    values = np.zeros(count, np.float32)
    comm.recv(values, sender)
    return bool((values == _of_message(sender, comm.rank)).all())


@pytest.mark.parametrize(("hosts", "count"), [(_TWO_BY_TWO, 300_000), (_NINE_BY_TWO, 10), (_NINE_BY_ONE, 40_000)])
def test_any_ranks_exchange_messages_in_groups_of_any_order(monkeypatch, hosts, count) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        order = np.random.default_rng(comm.rank)
        for number in range(3):
            received = np.zeros((comm.ranks, count), np.float32)
            calls = [(what, peer) for what in (comm.send, comm.recv) for peer in range(comm.ranks)]
            order.shuffle(calls)
            with narrowcast.group():
                for what, peer in calls:
                    sent = np.full(count, _of_message(comm.rank, peer), np.float32)
                    what(received[peer] if what == comm.recv else sent, peer)
            right = [_of_message(sender, comm.rank) for sender in range(comm.ranks)]
            tell({f"group {number}": bool((received == np.array(right)[:, None]).all())})
        tell({"sum": float(comm.all_reduce(np.ones(1, np.float32))[0])})

    for rank in run(monkeypatch, _start(monkeypatch), hosts, body):
        assert [rank.of(f"group {number}") for number in range(3)] == [True] * 3, rank.reports
        assert rank.of("sum") == len(hosts)


@pytest.mark.parametrize("connected", [False, True])
def test_messages_of_a_group_wait_for_no_other(monkeypatch, connected: bool) -> None:
    """Rank 4 receives before it connects to rank 0, whose group sends to it, and needs what rank 8 sends first."""
    count = 1_000_000  # more than is on its way

    def body(comm: Communicator, tell: TellParent) -> None:
        others = [peer for peer in (0, 4, 8) if peer != comm.rank]
        if connected and comm.rank in (0, 4, 8):
            with narrowcast.group():
                received = [np.zeros(1, np.float32) for _ in others]
                for peer, values in zip(others, received, strict=True):
                    _send(comm, 1, peer)
                    comm.recv(values, peer)
        if comm.rank == 0:
            values = np.zeros(count, np.float32)
            with narrowcast.group():
                _send(comm, count, 4)
                comm.recv(values, 8)
            tell({"right": bool((values == _of_message(8, 0)).all())})
        elif comm.rank == 4:
            tell({"right": _receive(comm, count, 8) and _receive(comm, count, 0)})
        elif comm.rank == 8:
            _send(comm, count, 0)
            _send(comm, count, 4)
            tell({"right": True})

    ranks = run(monkeypatch, _start(monkeypatch), _THREE_BY_THREE, body)
    assert [ranks[number].of("right") for number in (0, 4, 8)] == [True] * 3, [rank.reports for rank in ranks]


def test_a_rank_that_never_connects_is_a_timeout_that_names_it(monkeypatch) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        begin = time.monotonic()
        try:
            if comm.rank == 0:
                _send(comm, 1, 3)
            else:
                time.sleep(3)  # longer than rank 0 waits
                comm.all_reduce(np.ones(1, np.float32))
        except NarrowcastError as error:
            tell({"failure": type(error).__name__, "message": str(error), "seconds": time.monotonic() - begin})

    for rank in run(monkeypatch, _start(monkeypatch), _TWO_BY_TWO, body, timeout_seconds=1):
        assert rank.of("failure") == "PeerTimeoutError", rank.reports
        assert "rank 0 waited 1 s for rank 3 to connect" in rank.of("message")
        assert rank.of("seconds") < 15


def test_an_abort_ends_connecting(monkeypatch) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        if comm.rank == 0:
            threading.Timer(0.3, comm.abort).start()
        begin = time.monotonic()
        try:
            if comm.rank in (0, 1):
                _send(comm, 1, 3 - comm.rank)  # which do not receive it
            else:
                comm.all_reduce(np.ones(1, np.float32))
        except NarrowcastError as error:
            tell({"failure": type(error).__name__, "seconds": time.monotonic() - begin})

    for rank in run(monkeypatch, _start(monkeypatch), _TWO_BY_TWO, body):
        assert rank.of("failure") == "AbortedError", rank.reports
        assert rank.of("seconds") < 10


@pytest.mark.parametrize("new_pairs", [1, 2])
def test_an_interrupt_ends_connecting(monkeypatch, new_pairs: int) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        begin = time.monotonic()
        try:
            if comm.rank == 0:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
                with narrowcast.group():
                    for peer in (4, 5)[:new_pairs]:
                        _send(comm, 1, peer)  # which do not receive it
            else:
                comm.all_reduce(np.ones(1, np.float32))
        except (NarrowcastError, KeyboardInterrupt) as error:
            tell({"failure": type(error).__name__, "seconds": time.monotonic() - begin})

    first, *others = run(monkeypatch, _start(monkeypatch), _THREE_BY_THREE, body)
    assert first.of("failure") == "KeyboardInterrupt", first.reports
    for rank in others:
        assert rank.of("failure") == "AbortedError", rank.reports
    assert max(rank.of("seconds") for rank in (first, *others)) < 10


@pytest.mark.parametrize("milliseconds", [0, 20, 100, 300])
def test_a_rank_that_is_killed_while_all_connect_is_named(monkeypatch, milliseconds: int) -> None:
    victim = 11

    def body(comm: Communicator, tell: TellParent) -> None:
        if comm.rank == victim:
            threading.Timer(milliseconds / 1000, lambda: os._exit(0)).start()
        received = np.zeros((comm.ranks, 100_000), np.float32)
        begin = time.monotonic()
        try:
            while True:
                with narrowcast.group():
                    for peer in range(comm.ranks):
                        comm.send(received[comm.rank], peer)
                        comm.recv(received[peer], peer)
        except NarrowcastError as error:
            tell({"failure": str(error), "seconds": time.monotonic() - begin})

    for number, rank in enumerate(run(monkeypatch, _start(monkeypatch), _NINE_BY_TWO, body)):
        assert number == victim or f"rank {victim}" in rank.of("failure"), rank.reports
        assert number == victim or rank.of("seconds") < 15


def test_a_rank_that_has_left_is_named(monkeypatch) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        if comm.rank != 0:
            return
        try:
            _send(comm, 1, 3)
        except NarrowcastError as error:
            tell({"failure": str(error)})

    assert "because rank 3 has left" in run(monkeypatch, _start(monkeypatch), _TWO_BY_TWO, body)[0].of("failure")


def test_different_messages_of_two_ranks_are_a_mismatch(monkeypatch) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        try:
            if comm.rank == 0:
                _send(comm, 10, 3)
            if comm.rank == 3:
                _receive(comm, 11, 0)
            comm.all_reduce(np.ones(1, np.float32))
        except NarrowcastError as error:
            tell({"failure": type(error).__name__, "message": str(error)})

    for rank in run(monkeypatch, _start(monkeypatch), _TWO_BY_TWO, body):
        assert rank.of("failure") == "MismatchError", rank.reports


@pytest.mark.parametrize("hosts", [["one", "one"], ["one", "two"], ["one", "two", "two"], ["one", "two", "one", "two"]])
def test_ranks_that_do_not_form_two_levels_have_one(monkeypatch, hosts: list[str]) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        explained = comm.explain("all_reduce", 4096, dtype="float32")
        tell({"sum": float(comm.all_reduce(np.ones(10, np.float32))[0]), "link": explained.link})

    for rank in run(monkeypatch, _start(monkeypatch), hosts, body):
        assert rank.of("sum") == len(hosts), rank.reports
        assert rank.of("link") in ("shm", "network")


def test_what_only_one_level_has_is_refused_without_harm(monkeypatch) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        stream, values = narrowcast.Stream(), np.ones(4, np.float32)
        refused = {
            "explain": lambda: comm.explain("all_to_all_v", 4096, dtype="float32"),
            "stream": lambda: comm.all_reduce(values, stream=stream),
            "plan": lambda: comm.load_plan(build("ring", "all_gather", 4), "float32"),
        }
        for name, call in refused.items():
            try:
                call()
            except UnsupportedError as error:
                tell({name: str(error)})
        tell({"sum": float(comm.all_reduce(values)[0])})
        with comm.split(comm.rank % 2) as part:
            tell({"ranks": part.ranks, "part": float(part.all_reduce(np.ones(4, np.float32))[0])})

    for rank in run(monkeypatch, _start(monkeypatch), _TWO_BY_TWO, body):
        assert "two level" in rank.of("explain"), rank.reports
        for name in ("stream", "plan"):
            assert "two level" in rank.of(name)
            assert "set NARROWCAST_LEVELS=1 for one level" in rank.of(name)
        assert rank.of("sum") == 4.0
        assert (rank.of("ranks"), rank.of("part")) == (2, 2.0)


@pytest.mark.parametrize(("name", "value"), [("NARROWCAST_LEVELS", "1"), ("NARROWCAST_PARTIAL_SUMS", "rounded")])
@pytest.mark.parametrize("hosts", [_TWO_BY_TWO, ["one", "two", "three", "four"]])
def test_ranks_with_different_settings_of_levels_are_a_mismatch(monkeypatch, hosts, name: str, value: str) -> None:
    for rank in run(monkeypatch, _start(monkeypatch), hosts, lambda *_: None, own={2: {name: value}}):
        assert rank.of("error") == "MismatchError", rank.reports
        assert name in rank.of("message")
        assert "rank 2" in rank.of("message")


def test_more_than_8_gpus_cannot_have_one_level(monkeypatch) -> None:
    monkeypatch.setenv("NARROWCAST_LEVELS", "1")
    with pytest.raises(InvalidArgumentError, match="ranks is 9, not 1 to 8, because NARROWCAST_LEVELS is 1"):
        Communicator(narrowcast.unique_id(), 0, 9, backend="cuda")


@pytest.mark.parametrize("levels", ["auto", "1", "2"])
@pytest.mark.parametrize(("sums", "total"), [("exact", 1 + 2**-7), ("rounded", 1.0)])
def test_the_sums_of_a_host_are_rounded_if_the_user_prefers_it(monkeypatch, levels, sums, total) -> None:
    """1 + 2^-8 is halfway between two numbers of bfloat16, and rounded down."""
    values = [1.0, 2**-8, 2**-8, 0.0]

    def body(comm: Communicator, tell: TellParent) -> None:
        bits = (np.full(2000, values[comm.rank], np.float32).view(np.uint32) >> 16).astype(np.uint16)
        for count in (10, 100_000):
            found = comm.all_reduce(np.resize(bits, count), dtype="bfloat16")
            tell({f"of {count}": np.unique(found.astype(np.uint32) << 16).view(np.float32).tolist()})

    monkeypatch.setenv("NARROWCAST_LEVELS", levels)
    monkeypatch.setenv("NARROWCAST_PARTIAL_SUMS", sums)
    for rank in run(monkeypatch, {"NARROWCAST_SOCKET_IFNAME": "lo"}, _TWO_BY_TWO, body):
        assert rank.of("of 10") == rank.of("of 100000") == [total], rank.reports


@pytest.mark.parametrize(
    ("hosts", "count"), [(_NINE_BY_TWO, 10), (_NINE_BY_TWO, 40_000), (_NINE_BY_ONE, 40_000), (_NINE_BY_EIGHT, 10)]
)
def test_more_than_8_hosts_have_the_results_that_the_operations_define(monkeypatch, hosts, count) -> None:
    ranks, root = len(hosts), 5
    values = np.random.default_rng(count).integers(-1000, 1000, (ranks, ranks * count)).astype(np.int32)
    sums = values.sum(0, dtype=np.int32)

    def body(comm: Communicator, tell: TellParent) -> None:
        own, is_root = values[comm.rank], comm.rank == root
        piece, empty = slice(comm.rank * count, (comm.rank + 1) * count), np.empty_like(own)
        results = {
            "broadcast": (comm.broadcast(own if is_root else None, empty, root=root), values[root]),
            "reduce": (comm.reduce(own.copy(), root=root), sums if is_root else None),
            "gather": (comm.gather(own[:count], root=root), values[:, :count] if is_root else None),
            "scatter": (comm.scatter(own if is_root else None, empty[:count].copy(), root=root), values[root, piece]),
            "all_gather": (comm.all_gather(own[:count]), values[:, :count]),
            "all_to_all": (comm.all_to_all(own), values[:, piece]),
            "reduce_scatter": (comm.reduce_scatter(own), sums[piece]),
            "all_reduce": (comm.all_reduce(own.copy()), sums),
        }
        explained = comm.explain("all_reduce", count, dtype="float32")
        tell({"wrong": [name for name, (found, right) in results.items() if not _is_same(found, right)]})
        tell({"link": explained.link})

    for rank in run(monkeypatch, _start(monkeypatch), hosts, body):
        assert rank.of("wrong") == [], rank.reports
        assert rank.of("link") == "two_levels"


def _is_same(found: np.ndarray | None, right: np.ndarray | None) -> bool:
    return right is None or (found is not None and np.array_equal(found.ravel(), right.ravel()))


def test_a_rank_that_ends_is_named_on_more_than_8_hosts(monkeypatch) -> None:
    def body(comm: Communicator, tell: TellParent) -> None:
        if comm.rank == 11:
            os._exit(0)
        try:
            comm.all_reduce(np.ones(100_000, np.float32))
        except NarrowcastError as error:
            tell({"failure": str(error)})

    for number, rank in enumerate(run(monkeypatch, _start(monkeypatch), _NINE_BY_TWO, body)):
        assert number == 11 or "rank 11" in rank.of("failure"), rank.reports


_LEVEL_COSTS = """narrowcast-costs 2 test
network_gbps 8
reduce_scatter 2 shm frames:raw 1000:10 1000000:10
all_reduce 2 shm frames:raw 1000:20 1000000:20
all_gather 2 shm frames:raw 1000:30 1000000:30
"""
_MEASURED = """all_reduce 4 two_levels steps 1000:50 1000000:50
all_reduce 4 two_levels nccl 1000:60 1000000:60
"""


def test_a_call_is_predicted_to_take_as_long_as_its_steps(monkeypatch, tmp_path) -> None:
    """The network carries 1000 bytes in a microsecond."""
    (tmp_path / "levels.costs").write_text(_LEVEL_COSTS)

    def body(comm: Communicator, tell: TellParent) -> None:
        def predicted(operation: str, count: int, codec: str) -> float:
            one = comm.explain(operation, count, dtype="float32", codec=codec)
            assert one.link == "two_levels"
            assert one.candidate == "steps"
            return one.predicted.chosen or 0

        # Reduces within and between hosts.
        tell({"short": predicted("all_reduce", 1000, "raw")})
        # Of 400,000 bytes each rank of a host has a half, of which it exchanges a half with the other host, twice.
        tell({"long": predicted("all_reduce", 100_000, "raw")})
        tell({"sentence": comm.explain("all_reduce", 100_000, dtype="float32", codec="raw").sentence})
        tell({"send": predicted("send", 1000, "raw")})
        tell({"codec": str(comm.explain("all_gather", 1 << 25, dtype="bfloat16").codec)})
        tell({"unknown": predicted("broadcast", 100_000, "raw")})

    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(tmp_path / "levels.costs"))
    for rank in run(monkeypatch, _start(monkeypatch), _TWO_BY_TWO, body):
        assert rank.of("short") == pytest.approx(20 + 4), rank.reports
        assert rank.of("long") == pytest.approx(10 + 100 + 100 + 30)
        assert rank.of("send") == pytest.approx(4)
        assert rank.of("codec") == "window"
        assert rank.of("unknown") == 0
        assert "reduce_scatter within groups (frames:raw, 10.0 us), reduce_scatter between" in rank.of("sentence")


def test_measured_calls_are_predicted_to_take_as_long(monkeypatch, tmp_path) -> None:
    (tmp_path / "levels.costs").write_text(_LEVEL_COSTS + _MEASURED)

    def body(comm: Communicator, tell: TellParent) -> None:
        measured = comm.explain("all_reduce", 100_000, dtype="bfloat16")
        # As many bytes: half the values, so that the sums of fp32 have half the bytes.
        other = comm.explain("all_reduce", 100_000, dtype="float32", codec="raw")
        tell({"measured": measured.predicted.chosen, "nccl": measured.predicted.nccl})
        tell({"other": other.predicted.chosen, "warning": measured.costs_warning})

    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(tmp_path / "levels.costs"))
    for rank in run(monkeypatch, _start(monkeypatch), _TWO_BY_TWO, body):
        assert rank.of("measured") == pytest.approx(50), rank.reports
        assert rank.of("nccl") == pytest.approx(60)
        assert rank.of("other") == pytest.approx(50 * (10 + 100 + 100 + 30) / (10 + 200 + 100 + 30))
