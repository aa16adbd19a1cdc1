"""Rarely used functions of NCCL, and ranks that do not join or cannot attach. On the fakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from nccl_ranks import OPERATIONS, Ranks

COSTS = Path(__file__).parents[3] / "data/costs/h200.costs"


@pytest.fixture
def on_ranks(preloaded):
    return Ranks(preloaded, "nccl_rare_jobs")


@pytest.mark.parametrize("given", [True, False])
def test_calls_with_a_configuration_are_forwarded_immediately(on_ranks, given):
    for correct in on_ranks("every_variant", given=given, count=5000):
        assert set(correct) == OPERATIONS
    taken = on_ranks.taken()
    # ncclBcast, ncclSend and ncclRecv have no variant with a configuration.
    assert taken.pop("broadcast") == ((1, 1) if given else (2, 0))
    assert taken.pop("send") == taken.pop("recv") == (1, 0)
    assert len(taken) == 7
    assert set(taken.values()) == {(0, 1) if given else (1, 0)}
    assert on_ranks.reasons() == ({"the call has settings of its own"} if given else set())


def test_a_call_with_a_configuration_makes_its_group_forwarded(on_ranks):
    assert on_ranks("settings_in_a_group") == [[True] * 2] * 3
    assert on_ranks.taken() == {"all_gather": (0, 2), "all_reduce": (0, 2), "broadcast": (0, 2)}
    assert on_ranks.reasons() == {"the call has settings of its own", "its group has a call that cannot wait"}


def test_simulated_groups_run_nothing(on_ranks):
    assert on_ranks("simulated") == [[True] * 4] * 3
    assert on_ranks.taken() == {"all_reduce": (2, 2)}
    assert on_ranks.reasons() == {"the group is only simulated"}


@pytest.mark.parametrize("name", ["tensor", "data"])
def test_a_scalable_communicator_has_its_name(on_ranks, monkeypatch, tmp_path, name):
    (tmp_path / "rules.toml").write_text("[[rule]]\ncommunicator = 'tensor'\ntake = 'always'\n")
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    assert on_ranks("scalable", name=name) == [True] * 3
    assert on_ranks.taken() == {"all_reduce": (1, 0) if name == "tensor" else (0, 1)}


def test_shrunk_communicators_and_their_parents_are_executed(on_ranks):
    assert on_ranks("shrunk") == [[True] * 3, [True] * 3, [True] * 2]
    statistics = on_ranks.statistics()
    assert [statistics[rank]["all_reduce"]["taken"] for rank in range(3)] == [2, 2, 2]
    assert [statistics[rank, 1]["all_reduce"]["taken"] for rank in range(2)] == [1, 1]
    assert on_ranks.reasons() == set()


def test_shrunk_communicators_have_their_own_name(on_ranks, monkeypatch, tmp_path):
    (tmp_path / "rules.toml").write_text("[[rule]]\ncommunicator = 'part'\ntake = 'always'\n")
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    assert on_ranks("shrunk") == [[True] * 3, [True] * 3, [True] * 2]
    statistics = on_ranks.statistics()
    assert [statistics[rank]["all_reduce"]["taken"] for rank in range(3)] == [0, 0, 0]
    assert [statistics[rank, 1]["all_reduce"]["taken"] for rank in range(2)] == [1, 1]


@pytest.mark.parametrize("by_name", [True, False])
def test_grown_communicators_and_their_parents_are_known(on_ranks, monkeypatch, tmp_path, by_name):
    if by_name:
        (tmp_path / "rules.toml").write_text("[[rule]]\ncommunicator = 'whole'\ntake = 'always'\n")
        monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
        monkeypatch.delenv("NARROWCAST_TAKE")
    assert on_ranks("grown") == [[True] * 3, [True] * 3, [True]]
    statistics = on_ranks.statistics()
    # For the new rank this is the first communicator.
    parents, whole = [statistics[0], statistics[1]], [statistics[0, 1], statistics[1, 1], statistics[2]]
    assert [one["all_reduce"]["taken"] for one in parents] == [0 if by_name else 2] * 2
    assert [one["all_reduce"]["taken"] for one in whole] == [1] * 3


@pytest.mark.parametrize("revoke", [True, False])
def test_ranks_continue_without_one_that_does_not_join(on_ranks, revoke):
    first, second, last = on_ranks("recovered", revoke=revoke)
    assert last is None
    for seconds, status, correct in (first, second):
        assert seconds < 10
        assert status == (5 if revoke else 0)
        assert correct
    statistics = on_ranks.statistics()
    assert [statistics[rank, 1]["all_reduce"]["taken"] for rank in range(2)] == [1, 1]
    assert [statistics[rank]["all_reduce"]["taken"] for rank in range(3)] == [2, 2, 1]
    assert on_ranks.reasons() == ({"the communicator was aborted"} if revoke else set())


def test_memory_is_registered_with_nccl(on_ranks):
    assert on_ranks("registered") == [[True] * 5] * 3
    assert on_ranks.taken() == {"all_gather": (1, 0)}


@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_that_attach_at_a_group_of_one_call_execute_the_same_calls(on_ranks, ranks):
    assert on_ranks("first_group", ranks) == [[True] * 4] * ranks
    assert on_ranks.reasons() == set()


@pytest.mark.parametrize("same", [True, False])
def test_different_cost_models_at_the_same_path_are_detected(on_ranks, monkeypatch, tmp_path, same):
    monkeypatch.setenv("NARROWCAST_COST_MODEL", "own.costs")
    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
        costs = COSTS.read_text().replace("NVIDIA", f"machine {0 if same else rank}", 1)
        (tmp_path / str(rank) / "own.costs").write_text(costs)
    for correct in on_ranks("in_separate_folders", 2):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == (set() if same else {"the ranks have different settings of Narrowcast: cost_model"})


@pytest.mark.usefixtures("before_the_engine")
@pytest.mark.parametrize(("unable", "refused"), [(0, True), (2, False)])
def test_all_calls_are_forwarded_if_a_rank_cannot_attach(on_ranks, monkeypatch, unable, refused):
    monkeypatch.setenv("NARROWCAST_OFF", "broadcast")
    found = on_ranks("one_cannot_attach", unable=unable, refused=refused)
    assert [correct for correct, _ in found] == [True] * 3
    # The drop-in waits a minute for the others, which the interposer reduces to two seconds.
    assert max(seconds for _, seconds in found) < 20
    assert on_ranks.taken() == {"broadcast": (0, 1), "all_reduce": (0, 2)}
    assert on_ranks.reasons() == {"the operation is switched off", "a rank could not attach to the communicator"}


@pytest.mark.usefixtures("before_the_engine")
def test_predicted_savings_are_counted(preloaded):
    on_ranks = Ranks(preloaded)
    on_ranks("every_operation", 2, count=1000)
    for operations in on_ranks.statistics().values():
        saved = {name: (one["predicted"], one["saved_seconds"]) for name, one in operations.items()}
        # The interposer has no times for broadcasts. A transfer counts at its sender.
        assert saved.pop("broadcast") == saved.pop("recv") == (0, 0)
        assert set(saved.values()) == {(1, 3e-6)}


@pytest.mark.usefixtures("before_the_engine")
@pytest.mark.parametrize(("calls", "predicted", "is_timed"), [(100, "60", True), (40, "60", False), (100, "40", False)])
def test_a_sample_of_long_calls_is_timed(on_ranks, monkeypatch, calls, predicted, is_timed):
    monkeypatch.setenv("TEST_MICROSECONDS", predicted)
    on_ranks("repeated", 2, calls=calls)
    for operations in on_ranks.statistics().values():
        assert operations["all_gather"]["taken"] == calls
        assert (operations["all_gather"].get("time_ratio", 0) > 0) == is_timed


@pytest.mark.usefixtures("before_the_engine")
def test_the_fastest_nccl_variant_counts_with_windows(preloaded):
    on_ranks = Ranks(preloaded)
    on_ranks.module = "nccl_rare_jobs"
    assert on_ranks("windowed") == [True] * 3
    for operations in on_ranks.statistics().values():
        # Savings of 3 us over NCCL's default, and 2 us over NCCL with windows.
        assert operations["all_gather"]["saved_seconds"] == 5e-6


@pytest.mark.usefixtures("before_the_engine")
def test_no_savings_are_reported_for_graphs(preloaded):
    on_ranks = Ranks(preloaded)
    on_ranks("captured", before=False)
    for operations in on_ranks.statistics().values():
        gathered = operations["all_gather"]
        assert [gathered[name] for name in ("taken", "captured", "predicted", "saved_seconds")] == [2, 1, 1, 3e-6]


@pytest.mark.usefixtures("before_the_engine")
@pytest.mark.parametrize(
    ("in_file", "variables", "config"),
    [
        ("", {}, "0 64 28 1 "),
        ("max_ctas = 8\np2p = false\ncost_model = 'a.costs'\nscratch_bytes = 3000000\n", {}, "3000000 8 0 0 a.costs"),
        ("max_ctas = 8\np2p = 0\n", {"MAX_CTAS": "32", "P2P": "1", "COST_MODEL": "a.costs"}, "0 32 0 1 a.costs"),
        ("", {"MAX_CTAS": "many", "P2P": "perhaps"}, "0 64 28 1 "),
        ("max_ctas = 8\n", {"MAX_CTAS": "auto"}, "0 64 28 1 "),
        ("", {"MAX_CTAS": "64"}, "0 64 0 1 "),
        ("max_ctas = 8\n", {"MAX_CTAS": "", "P2P": ""}, "0 8 0 1 "),
    ],
)
def test_settings_apply_to_communicators(preloaded, monkeypatch, tmp_path, in_file, variables, config):
    (tmp_path / "own.toml").write_text(in_file)
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "own.toml"))
    monkeypatch.setenv("TEST_CONFIGS", str(tmp_path / "configs"))
    for name, value in variables.items():
        monkeypatch.setenv(f"NARROWCAST_{name}", value)
    for correct in Ranks(preloaded)("every_operation", 2, count=10):
        assert set(correct) == OPERATIONS
    assert (tmp_path / "configs").read_text().splitlines() == [config] * 2


@pytest.mark.usefixtures("before_the_engine")
@pytest.mark.parametrize(
    ("variables", "level"),
    [({}, None), ({"DEBUG": "INFO"}, "INFO"), ({"COST_MODEL": "old.costs"}, "WARN")],
)
def test_costs_of_other_kernels_are_logged_once(on_ranks, monkeypatch, tmp_path, variables, level):
    warning = "the cost model was measured on other kernels"
    monkeypatch.setenv("TEST_COSTS_WARNING", warning)
    (tmp_path / "old.costs").write_text(COSTS.read_text())
    for name, value in variables.items():
        monkeypatch.setenv(f"NARROWCAST_{name}", str(tmp_path / value) if name == "COST_MODEL" else value)
    path = tmp_path / "log"
    assert on_ranks("logged", alone=True, path=str(path)) == [[True] * 9]
    lines = [line.split(" ", 1)[1] for line in path.read_text().splitlines() if warning in line]
    # One process has three communicators.
    assert lines == ([] if level is None else [f"narrowcast {level} predictions may be wrong: {warning}"])
