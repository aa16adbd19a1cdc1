"""The drop-in for NCCL across processes: what it takes, what it forwards, and why, on fakes of the driver and of NCCL.

Taken calls run on the library's host backend.
"""

from __future__ import annotations

import json
import uuid

import pytest
from narrowcast import _launch, errors

OPERATIONS = {
    "all_gather",
    "all_to_all",
    "broadcast",
    "bcast",
    "gather",
    "scatter",
    "all_reduce",
    "reduce",
    "reduce_scatter",
    "send and recv",
}
SECONDS = 60


class Ranks:
    """Runs a job of nccl_jobs.py on ranks that have the drop-in preloaded."""

    def __init__(self, folder) -> None:
        self.folder = folder

    def __call__(self, job, ranks=3, processes=None, **arguments):
        unique_id = f"/fake-nccl-test-{uuid.uuid4()}"
        everyone = [{"rank": rank, "ranks": ranks, "unique_id": unique_id} for rank in range(ranks)]
        if processes == 1:
            everyone = [{"ranks": ranks}]
        results = []
        _launch.run_ranks(
            f"nccl_jobs:{job}",
            [{**own, **arguments} for own in everyone],
            results.extend,
            timeout_seconds=SECONDS,
        )
        return results

    def statistics(self):
        """By rank and communicator: operation -> what became of it."""
        found = {}
        for path in self.folder.glob("*.json"):
            content = json.loads(path.read_text())
            assert content["nccl"]["version"] == "2.28.9"
            assert path.stem == str(content["pid"])
            for order, one in enumerate(content["communicators"]):
                found[one["rank"] if order == 0 else (one["rank"], order)] = {
                    entry["operation"]: entry for entry in one["operations"]
                }
        return found

    def taken(self):
        """Of the first communicator: operation -> calls taken and forwarded, the same on all ranks."""
        first = [operations for rank, operations in self.statistics().items() if isinstance(rank, int)]
        counts = [{name: (one["taken"], one["forwarded"]) for name, one in operations.items()} for operations in first]
        assert all(count == counts[0] for count in counts)
        return counts[0]

    def reasons(self):
        return {
            why for operations in self.statistics().values() for one in operations.values() for why in one["reasons"]
        }


@pytest.fixture
def on_ranks(drop_in, fakes, rank_jobs, tmp_path, monkeypatch):
    for name, value in {
        "LD_PRELOAD": str(drop_in),
        "LD_LIBRARY_PATH": str(fakes),
        "NARROWCAST_NCCL_LIBRARY": str(fakes / "libnccl.so.2"),
        "NARROWCAST_TEST_BACKEND": "host",
        "NARROWCAST_TAKE": "always",
        "NARROWCAST_STATS": str(tmp_path / "%p.json"),
        "NCCL_NVLS_ENABLE": "0",
        "TEST_FOLDER": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    return Ranks(tmp_path)


@pytest.mark.parametrize("codec", ["auto", "raw", "window"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_every_operation_is_taken(on_ranks, monkeypatch, ranks, codec):
    monkeypatch.setenv("NARROWCAST_CODEC", codec)
    for right in on_ranks("every_operation", ranks, count=5000):
        assert set(right) == OPERATIONS
    taken = on_ranks.taken()
    assert taken.pop("broadcast") == (2, 0)
    assert set(taken) == {
        "all_gather",
        "all_to_all",
        "gather",
        "scatter",
        "all_reduce",
        "reduce",
        "reduce_scatter",
        "send",
        "recv",
    }
    assert set(taken.values()) == {(1, 0)}
    for operations in on_ranks.statistics().values():
        gathered = operations["all_gather"]
        assert gathered["raw_bytes"] == (ranks - 1) * 10_000
        assert (gathered["wire_bytes"] < gathered["raw_bytes"]) == (codec == "window")


@pytest.mark.parametrize("count", [0, 1])
def test_small_counts_are_right(on_ranks, count):
    for right in on_ranks("every_operation", count=count):
        assert set(right) == OPERATIONS


def test_what_is_not_known_to_be_faster_is_forwarded(on_ranks, monkeypatch):
    monkeypatch.delenv("NARROWCAST_TAKE")
    for right in on_ranks("every_operation", count=5000):
        assert set(right) == OPERATIONS
    assert {taken for taken, _ in on_ranks.taken().values()} == {0}
    assert "not measured against NCCL with so many ranks" in on_ranks.reasons()


def test_operations_are_switched_off_alone(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "all_gather,recv")
    on_ranks("every_operation", count=100)
    taken = on_ranks.taken()
    assert taken["all_gather"] == taken["send"] == taken["recv"] == (0, 1)
    assert taken["all_reduce"] == (1, 0)


def test_switched_off_nothing_is_looked_at(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "1")
    for right in on_ranks("every_operation", count=5000):
        assert set(right) == OPERATIONS
    assert on_ranks.statistics() == {}


def test_rules_of_a_file_decide_by_call(on_ranks, monkeypatch, tmp_path):
    (tmp_path / "rules.toml").write_text(
        '[[rule]]\noperation = "all_gather"\nmax_bytes = 9999\ntake = "never"\n'
        '[[rule]]\ndtype = "int32"\ntake = "never"\n'
        '[[rule]]\ntake = "always"\n'
    )
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    on_ranks("every_operation", count=5000)
    taken = on_ranks.taken()
    assert taken["all_gather"] == taken["gather"] == (1, 0)
    assert taken["all_reduce"] == (0, 1)
    assert on_ranks.reasons() == {"a setting says never"}


def test_ranks_with_other_settings_leave_all_to_nccl(on_ranks):
    for right in on_ranks("differing_settings", codec="raw"):
        assert set(right) == OPERATIONS
    assert on_ranks.reasons() == {"the ranks have different settings of Narrowcast"}


def test_without_the_library_all_is_left_to_nccl(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_LIBRARY", "/nowhere/libnarrowcast.so")
    for right in on_ranks("every_operation", count=100):
        assert set(right) == OPERATIONS
    assert on_ranks.reasons() == {"a rank has no libnarrowcast.so"}


@pytest.mark.parametrize("off", ["", "all_gather", "send"])
def test_groups_nest_and_mix_communicators_streams_and_kinds(on_ranks, monkeypatch, off):
    monkeypatch.setenv("NARROWCAST_OFF", off)
    for found in on_ranks("groups", 4):
        assert found == [[True] * 4] * 3
    taken = on_ranks.taken()
    # A group's collectives are taken or forwarded together. The first transfers come before the ranks have attached.
    assert taken["all_reduce"] == ((0, 3) if off == "all_gather" else (3, 0))
    assert taken["send"] == {"": (2, 1), "all_gather": (0, 3), "send": (0, 3)}[off]


def test_transfers_that_are_forwarded_run_beside_those_that_are_taken(on_ranks, monkeypatch, tmp_path):
    (tmp_path / "rules.toml").write_text("[[rule]]\nmin_bytes = 1000\ntake = 'always'\n[[rule]]\ntake = 'never'\n")
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    assert on_ranks("unequal_groups", 2) == [[True] * 3] * 2
    statistics = on_ranks.statistics()
    assert [statistics[0]["send"][which] for which in ("taken", "forwarded")] == [3, 3]
    assert [statistics[1]["recv"][which] for which in ("taken", "forwarded")] == [3, 3]


def test_one_thread_drives_all_gpus(on_ranks):
    assert on_ranks("one_thread", 3, processes=1) == [[True] * 9]
    (operations,) = [own for rank, own in on_ranks.statistics().items() if rank == 0]
    assert operations["all_reduce"]["taken"] == 3


def test_taken_and_forwarded_calls_keep_their_order(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "broadcast")
    for found in on_ranks("kept_order"):
        assert found == [True] * 3
    assert on_ranks.taken() == {"all_gather": (6, 0), "broadcast": (0, 3)}


@pytest.mark.parametrize("before", [True, False])
def test_graphs_run_what_they_captured(on_ranks, before):
    for found in on_ranks("captured", before=before):
        assert found == [False, True, True]
    assert on_ranks.taken() == {"all_gather": (0, 1) if before else (2, 0)}


def test_reductions_of_the_user_are_forwarded_at_once(on_ranks):
    assert on_ranks("user_reduction") == [True] * 3
    assert on_ranks.reasons() == {"a reduction of the user's"}


def test_communicators_that_do_not_block_are_left_to_nccl(on_ranks):
    assert on_ranks("not_blocking") == [[7, 7, True]] * 3
    assert on_ranks.reasons() == {"the communicator does not block"}


def test_an_abort_ends_taken_calls(on_ranks):
    assert max(on_ranks("aborted")) < 10


def test_the_death_of_a_peer_is_an_asynchronous_error(on_ranks, tmp_path):
    with pytest.raises(errors.RemoteError, match="signal 9"):
        on_ranks("a_peer_dies")
    for rank in range(2):
        assert (tmp_path / str(rank)).read_text().startswith("[0, 6] ")


@pytest.mark.parametrize("in_place", [True, False])
def test_values_are_verified_on_demand(on_ranks, monkeypatch, tmp_path, in_place):
    monkeypatch.setenv("NARROWCAST_VERIFY", "1")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    on_ranks("verified", in_place=in_place)
    for rank in range(3):
        said = [line.partition("verify: ")[2] for line in (tmp_path / f"{rank}.log").read_text().splitlines()]
        assert [line for line in said if line] == [
            "all_gather of 5000 values has arrived",
            "all_reduce of 5000 values has arrived",
            "scatter of 5000 values has arrived",
            *["broadcast of 5000 values: rank 0 has not what came from rank 1"] * (rank == 0),
            *["broadcast of 5000 values has arrived"] * (rank != 0),
        ]
