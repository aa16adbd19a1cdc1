"""The drop-in for NCCL across processes: which calls it executes or forwards, and why. On fakes of the driver and NCCL.

Executed calls run on the library's host backend.
"""

from __future__ import annotations

import json
import os

import pytest
from codec_names import EXACT
from nccl_ranks import OPERATIONS, Ranks


@pytest.fixture
def on_ranks(preloaded):
    return Ranks(preloaded)


@pytest.mark.parametrize(("ranks", "codec"), [(2, "auto"), (3, "auto"), *((3, f"{one}!") for one in EXACT)])
def test_every_operation_is_executed(on_ranks, monkeypatch, ranks, codec):
    monkeypatch.setenv("NARROWCAST_CODEC", codec)
    for correct in on_ranks("every_operation", ranks, count=5000):
        assert set(correct) == OPERATIONS
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
    for raw_bytes, wire_bytes in on_ranks.links("all_gather").values():
        assert raw_bytes == (ranks - 1) * 10_000
        assert (wire_bytes < raw_bytes) == (codec not in ("auto", "raw!"))
    assert set(on_ranks.links("recv").values()) == {(0, 0)}
    reports = [json.loads(path.read_text()) for path in on_ranks.folder.glob("*.json")]
    assert all(0 < report["communicators"][0]["scratch_bytes"] <= 4 << 20 for report in reports)


@pytest.mark.parametrize("verify", ["0", "1"])
def test_all_to_all_in_place_is_correct(on_ranks, monkeypatch, verify):
    monkeypatch.setenv("NARROWCAST_VERIFY", verify)
    assert on_ranks("exchanged_in_place", 2) == [[True] * 3] * 2
    assert on_ranks.taken()["all_to_all"] == (3, 0)


@pytest.mark.parametrize("count", [0, 1])
def test_small_counts_are_correct(on_ranks, count):
    for correct in on_ranks("every_operation", 2, count=count):
        assert set(correct) == OPERATIONS


def test_calls_without_a_predicted_gain_are_forwarded(on_ranks, monkeypatch):
    monkeypatch.delenv("NARROWCAST_TAKE")
    for correct in on_ranks("every_operation", 2, count=5000):
        assert set(correct) == OPERATIONS
    assert {taken for taken, _ in on_ranks.taken().values()} == {0}
    assert "the cost model does not know this call" in on_ranks.reasons()


def test_a_cost_model_that_is_a_fifo_is_reported_and_does_not_block(on_ranks, monkeypatch, tmp_path):
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(tmp_path / "fifo"))
    for correct in on_ranks("every_operation", 2, count=100):
        assert set(correct) == OPERATIONS
    assert {taken for taken, _ in on_ranks.taken().values()} == {0}


def test_single_operations_can_be_switched_off(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "all_gather,recv")
    on_ranks("every_operation", 2, count=100)
    taken = on_ranks.taken()
    assert taken["all_gather"] == taken["send"] == taken["recv"] == (0, 1)
    assert taken["all_reduce"] == (1, 0)


def test_switched_off_the_drop_in_inspects_nothing(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "1")
    for correct in on_ranks("every_operation", 2, count=5000):
        assert set(correct) == OPERATIONS
    assert on_ranks.statistics() == {}


def test_rules_of_a_file_apply_to_matching_calls(on_ranks, monkeypatch, tmp_path):
    (tmp_path / "rules.toml").write_text(
        '[[rule]]\noperation = "all_gather"\nmax_bytes = 9999\ntake = "never"\n'
        '[[rule]]\ndtype = "int32"\ntake = "never"\n'
        '[[rule]]\ntake = "always"\n'
    )
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    on_ranks("every_operation", 2, count=5000)
    taken = on_ranks.taken()
    assert taken["all_gather"] == taken["gather"] == (1, 0)
    assert taken["all_reduce"] == (0, 1)
    assert on_ranks.reasons() == {"a setting says never"}


def test_calls_with_a_codec_that_is_not_exact_are_counted_and_logged_once_for_each_rule(
    on_ranks, monkeypatch, tmp_path
):
    (tmp_path / "rules.toml").write_text(
        "[[rule]]\nname = 'gathers'\noperation = ['all_gather', 'send']\nmin_bytes = 0\ncodec = 'int6!'\n"
        "[[rule]]\noperation = 'broadcast'\nmin_bytes = 0\ncodec = 'int8!'\n"
        # Without costs, a codec that is not forced is not used.
        "[[rule]]\noperation = 'gather'\nmin_bytes = 0\ncodec = 'int8'\n"
        # Calls of 10,000 bytes are too small for it.
        "[[rule]]\ncodec = 'int8!'\n"
    )
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    for correct in on_ranks("logging_operations", 2, folder=str(tmp_path), count=5000):
        assert OPERATIONS - set(correct) == {"all_gather", "send and recv", "broadcast", "bcast"}
    for operations in on_ranks.statistics().values():
        by_rule = [{"rule": "gathers", "codec": "int6", "calls": 1}]
        assert {name: one["lossy"] for name, one in operations.items() if "lossy" in one} == {
            "all_gather": by_rule,
            "send": by_rule,
            "recv": by_rule,
            "broadcast": [{"rule": "rule 2", "codec": "int8", "calls": 2}],
        }
    logged = (tmp_path / "0.log").read_text().splitlines()
    assert [line.partition("WARN ")[2].partition(". ")[0] for line in logged if "not exact" in line] == [
        "gathers: calls use the codec int6, which is not exact",
        "rule 2: calls use the codec int8, which is not exact",
    ]
    assert "not exact" not in (tmp_path / "1.log").read_text()


@pytest.mark.parametrize(
    ("names", "reasons"),
    [
        (["tensor", "tensor"], set()),
        # What torch calls the groups of a dimension "tensor".
        (["tensor:7", "tensor:8"], set()),
        (["data", "data"], {"a setting says never"}),
        (["tensor", "data"], {"the ranks have different settings of Narrowcast: names of communicators"}),
    ],
)
def test_rules_can_match_communicators_by_name(on_ranks, monkeypatch, tmp_path, names, reasons):
    (tmp_path / "rules.toml").write_text(
        "[[rule]]\ncommunicator = 'tensor'\ntake = 'always'\n[[rule]]\ntake = 'never'\n"
    )
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    assert on_ranks("named", 2, names=names) == [True] * 2
    assert on_ranks.reasons() == reasons


def test_names_may_differ_if_no_rule_uses_them(on_ranks):
    assert on_ranks("named", 2, names=["tensor", "data"]) == [True] * 2
    assert on_ranks.taken() == {"all_reduce": (1, 0)}


@pytest.mark.parametrize(
    ("name", "value", "differing"),
    [
        ("NARROWCAST_CODEC", "raw", 0),
        ("NARROWCAST_SCRATCH_BYTES", "1000000", 2),
        # Invalid values.
        ("NARROWCAST_TAKE", "perhaps", 2),
        ("NARROWCAST_PATH", "zip", 2),
        ("NARROWCAST_COST_MODEL", "/nowhere/own.costs", 0),
        ("NARROWCAST_CONFIG", "rules.toml", 2),
    ],
)
def test_different_settings_make_all_ranks_forward(on_ranks, monkeypatch, tmp_path, differing, name, value):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.toml").write_text("[[rule]]\ncommunicator = 'x'\ncodec = 'window'\n")
    for correct in on_ranks("differing_settings", differing=differing, name=name, value=value):
        assert set(correct) == OPERATIONS
    setting = {"NARROWCAST_PATH": name, "NARROWCAST_CONFIG": "rules"}.get(name, name[len("NARROWCAST_") :].lower())
    why = f"the ranks have different settings of Narrowcast: {setting}"
    assert on_ranks.reasons() == {why}
    ranks = "1, 2" if differing == 0 else "2"
    left = f"a communicator of 3 ranks is left to NCCL: {why} (other than rank 0: {ranks})\n"
    assert [left in (tmp_path / f"{rank}.log").read_text() for rank in range(3)] == [True, False, False]


def scratch_of(on_ranks):
    reports = [json.loads(path.read_text()) for path in on_ranks.folder.glob("*.json")]
    (found,) = {report["communicators"][0]["scratch_bytes"] for report in reports}
    return found


@pytest.mark.parametrize(("in_file", "variable"), [(None, "1000000"), (1_000_000, None), (3_000_000, "1000000")])
def test_scratch_memory_can_be_limited(on_ranks, monkeypatch, tmp_path, in_file, variable):
    if in_file is not None:
        (tmp_path / "own.toml").write_text(f"scratch_bytes = {in_file}\n")
        monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "own.toml"))
    if variable is not None:
        monkeypatch.setenv("NARROWCAST_SCRATCH_BYTES", variable)
    for correct in on_ranks("every_operation", 2, count=100_000):
        assert set(correct) == OPERATIONS
    assert {forwarded for _, forwarded in on_ranks.taken().values()} == {0}
    assert 0 < scratch_of(on_ranks) <= 1_000_000


def test_too_little_scratch_memory_makes_all_ranks_forward(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_SCRATCH_BYTES", "1000")
    for correct in on_ranks("every_operation", 2, count=100):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == {"a rank could not attach to the communicator"}
    assert scratch_of(on_ranks) == 0


def test_without_the_library_all_calls_are_forwarded(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_LIBRARY", "/nowhere/libnarrowcast.so")
    for correct in on_ranks("every_operation", 2, count=100):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == {"a rank has no libnarrowcast.so"}


@pytest.mark.parametrize("off", ["", "all_gather", "send"])
def test_groups_nest_and_mix_communicators_streams_and_kinds(on_ranks, monkeypatch, off):
    monkeypatch.setenv("NARROWCAST_OFF", off)
    for found in on_ranks("groups", 4):
        assert found == [[True] * 4] * 3
    taken = on_ranks.taken()
    # The collectives of a group are executed or forwarded together. The ranks attach at the first executed ones.
    assert taken["all_reduce"] == ((0, 3) if off == "all_gather" else (3, 0))
    assert taken["send"] == {"": (3, 0), "all_gather": (0, 3), "send": (0, 3)}[off]


def test_forwarded_and_executed_transfers_run_concurrently(on_ranks, monkeypatch, tmp_path):
    (tmp_path / "rules.toml").write_text("[[rule]]\nmin_bytes = 1000\ntake = 'always'\n[[rule]]\ntake = 'never'\n")
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    assert on_ranks("unequal_groups", 2) == [[True] * 3] * 2
    statistics = on_ranks.statistics()
    for operations, long_and_short in ((statistics[0], "send"), (statistics[1], "recv")):
        assert (operations[long_and_short]["taken"], operations[long_and_short]["forwarded"]) == (3, 3)


@pytest.mark.parametrize("codec", ["auto", "int8!"])
def test_each_of_the_equal_messages_of_a_group_is_decided_and_counted(on_ranks, monkeypatch, tmp_path, codec):
    (tmp_path / "rules.toml").write_text(
        f"[[rule]]\nname = 'long'\nmin_bytes = 1000\ntake = 'always'\ncodec = '{codec}'\n[[rule]]\ntake = 'never'\n"
    )
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    counts = [3000, 3000, 10, 3000, 10, 10, 10, 4000, 4000, 4000, 3000]
    for found in on_ranks("grouped_messages", 2, counts=counts):
        assert found == [codec == "auto" or count == 10 for count in counts]
    lossy = [] if codec == "auto" else [{"rule": "long", "codec": "int8", "calls": 7}]
    for operations in on_ranks.statistics().values():
        for one in (operations["send"], operations["recv"]):
            assert (one["taken"], one["forwarded"], one.get("lossy", [])) == (7, 4, lossy)


def test_one_thread_drives_all_gpus(on_ranks):
    assert on_ranks("one_thread", 3, alone=True) == [[True] * 9]
    (operations,) = [own for rank, own in on_ranks.statistics().items() if rank == 0]
    assert operations["all_reduce"]["taken"] == 3


def test_a_thread_drives_each_gpu(on_ranks):
    assert on_ranks("threads", 3, alone=True) == [[True] * 3]
    for operations in on_ranks.statistics().values():
        assert {name: one["taken"] for name, one in operations.items()} == {"all_gather": 3}


def test_a_rank_may_be_left_out_of_a_split(on_ranks):
    assert on_ranks("left_out_of_a_split") == [[True, True], [True, True], [False, True]]


def test_executed_and_forwarded_calls_keep_their_order(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "broadcast")
    for found in on_ranks("kept_order"):
        assert found == [True] * 3
    assert on_ranks.taken() == {"all_gather": (6, 0), "broadcast": (0, 6)}


def test_calls_that_nccl_makes_to_itself_pass_through(on_ranks, host_drop_in, fakes, monkeypatch):
    # With another malloc, the drop-in cannot load NCCL with RTLD_DEEPBIND.
    monkeypatch.setenv("LD_PRELOAD", f"{host_drop_in}:{fakes / 'libmalloc.so'}")
    monkeypatch.setenv("NARROWCAST_OFF", "broadcast")
    for correct in on_ranks("every_operation", 2, count=100):
        assert set(correct) == OPERATIONS
    # Bcast calls Broadcast.
    assert on_ranks.taken()["broadcast"] == (0, 2)


@pytest.mark.parametrize("grouped", [True, False])
def test_user_defined_reductions_keep_their_order(on_ranks, grouped):
    for found in on_ranks("kept_order_with_a_user_reduction", grouped=grouped):
        assert found == [True] * 3
    assert on_ranks.taken() == {"all_gather": (6, 0), "all_reduce": (0, 6)}


@pytest.mark.parametrize("before", [True, False])
def test_graphs_run_what_they_captured(on_ranks, before):
    for found in on_ranks("captured", before=before):
        assert found == [False, True, True]
    assert on_ranks.taken() == {"all_gather": (0, 1) if before else (2, 0)}
    captured = {operations["all_gather"]["captured"] for operations in on_ranks.statistics().values()}
    assert captured == {0 if before else 1}
    # One call before the capture, and two replays.
    assert set(on_ranks.links("all_gather").values()) == {(0, 0) if before else (12_000, 12_000)}


def test_user_defined_reductions_of_integers_are_forwarded_immediately(on_ranks):
    assert on_ranks("user_reduction", kind="int32") == [True] * 3
    assert on_ranks.reasons() == {"a user-defined reduction"}


@pytest.mark.parametrize("in_memory", [False, True])
def test_pre_multiplied_sums_are_executed_even_if_they_are_destroyed_before_their_group_ends(on_ranks, in_memory):
    assert on_ranks("user_reduction", kind="float32", in_memory=in_memory) == [True] * 3
    assert on_ranks.taken() == {"all_reduce": (2, 0)}


def test_nonblocking_communicators_are_forwarded(on_ranks):
    assert on_ranks("nonblocking") == [True] * 3
    assert on_ranks.reasons() == {"the communicator does not block"}


def test_profilers_see_executed_and_forwarded_calls(on_ranks, monkeypatch, tmp_path, nvtx_tool):
    monkeypatch.setenv("NVTX_INJECTION64_PATH", str(nvtx_tool))
    monkeypatch.setenv("NARROWCAST_CODEC", "all_gather=window")
    monkeypatch.setenv("NARROWCAST_OFF", "reduce")
    on_ranks("every_operation", 2, count=100)
    files = list(tmp_path.glob("*.nvtx"))
    assert len(files) == 2
    for path in files:
        domain, *lines = path.read_text().splitlines()
        assert domain == "domain narrowcast"
        assert lines[:2] == ["all_gather 200 B window (200)", "end"]
        assert lines[lines.index("reduce 400 B to NCCL: the operation is switched off (400)") + 1] == "end"
        in_a_group = ["mark send 200 B auto", "mark recv 200 B auto"]
        assert lines[-4:] == ["group of 2 calls (400)", *in_a_group, "end"]
        assert lines.count("end") == 10


def test_nvtx_ranges_can_be_switched_off(on_ranks, monkeypatch, tmp_path, nvtx_tool):
    monkeypatch.setenv("NVTX_INJECTION64_PATH", str(nvtx_tool))
    monkeypatch.setenv("NARROWCAST_NVTX", "0")
    on_ranks("every_operation", 2, count=100)
    assert list(tmp_path.glob("*.nvtx")) == []
