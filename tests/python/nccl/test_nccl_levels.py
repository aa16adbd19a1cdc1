"""The drop-in between ranks that form two levels, as their environment says. On fakes and the host backend."""

from __future__ import annotations

from itertools import product

import pytest
from narrowcast import errors
from narrowcast.plan import build
from nccl_ranks import OPERATIONS, Ranks

PRIME = "the number of ranks has a prime factor above 7"
NOT_FASTER = "no call is predicted to be faster than in NCCL between its hosts"
SHORT = "the call is short, and no long call has made the hosts attach yet"
MEASURED = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "send", "all_to_all")
TWO_BY_FIVE, THREE_BY_FOUR, NINE_BY_TWO = [*"aaaaabbbbb"], [*"aaaabbbbcccc"], [*"aabbccddeeffgghhii"]


@pytest.fixture
def on_ranks(preloaded, monkeypatch):
    monkeypatch.setenv("NARROWCAST_SOCKET_IFNAME", "lo")
    monkeypatch.setenv("NARROWCAST_LEVELS", "2")  # as more than 8 GPUs do without this setting
    monkeypatch.setenv("XDG_CACHE_HOME", str(preloaded / "cache"))
    return Ranks(preloaded, "nccl_host_jobs")


@pytest.mark.parametrize(("hosts", "count"), [(TWO_BY_FIVE, 100), (THREE_BY_FOUR, 50_000)], ids=["2x5", "3x4"])
def test_every_operation_is_executed(on_ranks, hosts, count):
    for correct in on_ranks("every_operation", len(hosts), hosts=hosts, count=count):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == set()
    assert len(on_ranks.taken()) == 10


@pytest.mark.parametrize(
    ("hosts", "order"),
    [(TWO_BY_FIVE, "together"), (TWO_BY_FIVE, "shuffled"), (THREE_BY_FOUR, "apart"), (NINE_BY_TWO, "shuffled")],
)
def test_any_ranks_send_to_each_other_in_any_order(on_ranks, hosts, order):
    for correct in on_ranks("messages", len(hosts), hosts=hosts, order=order):
        assert all(correct)
    assert on_ranks.taken()["send"] == on_ranks.taken()["recv"] == (len(hosts), 0)
    assert on_ranks.reasons() == set()


@pytest.fixture
def on_two_hosts(on_ranks):
    """Runs a job on four ranks."""

    def run(job, **arguments):
        return on_ranks("on_hosts", 4, hosts=[*"aabb"], body=job, **arguments)

    return run


@pytest.mark.parametrize("off", ["", "all_gather", "send"])
def test_groups_nest_and_mix_communicators_streams_and_kinds(on_two_hosts, on_ranks, monkeypatch, off):
    monkeypatch.setenv("NARROWCAST_OFF", off)
    for found in on_two_hosts("nccl_jobs:groups"):
        assert found == [[True] * 4] * 3
    assert on_ranks.taken()["all_reduce"] == ((0, 3) if off == "all_gather" else (3, 0))
    assert on_ranks.taken()["send"] == ((0, 3) if off else (3, 0))  # without an executed collective nobody attaches


@pytest.mark.parametrize("verify", ["0", "1"])
def test_all_to_all_in_place_is_correct(on_two_hosts, on_ranks, monkeypatch, verify):
    monkeypatch.setenv("NARROWCAST_VERIFY", verify)
    assert on_two_hosts("nccl_jobs:exchanged_in_place") == [[True] * 3] * 4
    assert on_ranks.taken()["all_to_all"] == (3, 0)


def test_graphs_run_what_they_captured(on_two_hosts, on_ranks):
    for found in on_two_hosts("nccl_jobs:captured", before=False):
        assert found == [False, True, True]
    assert on_ranks.taken() == {"all_gather": (2, 0)}


def test_executed_and_forwarded_calls_keep_their_order(on_two_hosts, on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "broadcast")
    for found in on_two_hosts("nccl_jobs:kept_order"):
        assert found == [True] * 3
    assert on_ranks.taken() == {"all_gather": (6, 0), "broadcast": (0, 6)}


def test_sums_with_factors_are_executed(on_two_hosts, on_ranks):
    assert on_two_hosts("nccl_jobs:user_reduction", kind="float32") == [True] * 4
    assert on_ranks.reasons() == set()


def test_an_abort_ends_executed_calls(on_two_hosts):
    assert max(on_two_hosts("nccl_ends_jobs:aborted")) < 30  # all waits of the job are longer


def test_the_death_of_a_peer_is_reported_as_an_asynchronous_error(on_two_hosts, on_ranks):
    with pytest.raises(errors.RemoteError, match="signal 9"):
        on_two_hosts("nccl_ends_jobs:a_peer_dies")
    for rank in range(3):
        assert (on_ranks.folder / str(rank)).read_text().startswith("[0, ")
        assert not (on_ranks.folder / str(rank)).read_text().startswith("[0, 0]")


# The last form 3 groups of 3 groups of 2.
@pytest.mark.parametrize("hosts", ["aaaaabbbb", "abcdefghi", "aabbccddeeffgghhii"])
def test_other_ranks_form_groups(on_ranks, hosts):
    for correct in on_ranks("every_operation", len(hosts), hosts=[*hosts], count=5000):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == set()


def test_ranks_that_do_not_form_groups_are_left_to_nccl(on_ranks):
    for correct in on_ranks("every_operation", 11, hosts=[*"aaaaaabbbbb"], count=100):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == {PRIME}
    assert all(calls[0] == 0 for calls in on_ranks.taken().values())


def test_one_level_cannot_have_more_than_8_ranks(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_LEVELS", "1")
    for correct in on_ranks("every_operation", len(TWO_BY_FIVE), hosts=TWO_BY_FIVE, count=100):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == {"there are more than 8 ranks, and NARROWCAST_LEVELS is 1"}
    assert all(calls[0] == 0 for calls in on_ranks.taken().values())


def test_a_warning_says_that_plans_need_one_level(on_ranks, monkeypatch, tmp_path):
    folder = tmp_path / "plans"
    folder.mkdir()
    build("ring", "all_reduce", 4).save(folder / "ring.json")
    monkeypatch.setenv("NARROWCAST_PLANS", str(folder))
    arguments = {"counts": [20_000], "split": True, "cut_off": False, "hosts": [*"aabb"]}
    assert on_ranks("sums", 4, **arguments) == [[[True]] * 2] * 4
    assert on_ranks.taken() == {"all_reduce": (2, 0)}
    assert on_ranks.plans() == {}
    warning = "the plan is not used: communicators of two levels do not run plans; set NARROWCAST_LEVELS=1 "
    said = (on_ranks.folder / "log").read_text()
    assert said.count(f"WARN {folder}/ring.json: {warning}") == 4  # once in each process


def test_ranks_that_share_a_process_are_left_to_nccl(on_ranks):
    assert on_ranks("threads", 2, of_host=5) == [[True] * 5] * 2
    assert on_ranks.reasons() == {"there are more than 8 ranks, and a process has several"}


@pytest.mark.parametrize(("name", "value"), [("NARROWCAST_LEVELS", "auto"), ("NARROWCAST_PARTIAL_SUMS", "rounded")])
def test_ranks_that_disagree_about_levels_are_left_to_nccl(on_ranks, name, value):
    arguments = {"hosts": [*"aabb"], "name": name, "value": value}
    for correct in on_ranks("with_another_setting", 4, **arguments):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == {f"the ranks have different settings of Narrowcast: {name}"}


def test_a_setting_with_its_default_is_as_good_as_none(on_ranks):
    arguments = {"hosts": [*"aabb"], "name": "NARROWCAST_PARTIAL_SUMS", "value": "exact"}
    for correct in on_ranks("with_another_setting", 4, **arguments):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == set()


@pytest.mark.usefixtures("before_the_engine")
def test_ranks_attach_and_measure_whole_calls_at_the_first_long_one(on_ranks, monkeypatch):
    monkeypatch.delenv("NARROWCAST_TAKE")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    monkeypatch.setenv("NARROWCAST_CALIBRATE", "1")
    monkeypatch.setenv("TEST_COSTS", str(on_ranks.folder / "costs"))
    arguments = {"counts": [1000, 20_000, 1000], "split": True, "cut_off": False, "hosts": TWO_BY_FIVE}
    assert on_ranks("sums", 10, **arguments) == [[[True] * 3] * 2] * 10
    # The interposer predicts the same for all calls.
    assert on_ranks.taken() == {"all_reduce": (4, 2)}
    assert on_ranks.reasons() == {SHORT}
    said = (on_ranks.folder / "log").read_text()
    assert said.count("measured the costs of 10 ranks over two_levels in ") == 1
    assert said.count("uses the costs in this process\n") == 1
    curves = [line.split() for line in (on_ranks.folder / "costs").read_text().splitlines() if " two_levels " in line]
    assert {(curve[0], curve[3]) for curve in curves} == set(product(MEASURED, ("steps", "nccl", "nccl:default")))


def test_calls_are_executed_where_measured_times_are_shorter_than_those_of_nccl(on_ranks, monkeypatch):
    path = on_ranks.folder / "levels.costs"
    path.write_text(
        "narrowcast-costs 2 test\nall_reduce 10 two_levels steps 1000:100 1000000:1000\n"
        "all_reduce 10 two_levels nccl 1000:50 1000000:2000\n"
    )
    monkeypatch.delenv("NARROWCAST_TAKE")
    monkeypatch.setenv("NARROWCAST_COST_MODEL", str(path))
    arguments = {"counts": [250_000, 1000], "split": False, "cut_off": False, "hosts": TWO_BY_FIVE}
    assert on_ranks("sums", 10, **arguments) == [[[True] * 2]] * 10
    assert on_ranks.taken() == {"all_reduce": (2, 2)}
    assert on_ranks.reasons() == {"NCCL is predicted to be as fast"}


def test_calls_that_were_not_measured_are_left_to_nccl(on_ranks, monkeypatch):
    monkeypatch.delenv("NARROWCAST_TAKE")
    arguments = {"counts": [20_000], "split": False, "cut_off": False, "hosts": TWO_BY_FIVE}
    assert on_ranks("sums", 10, **arguments) == [[[True]]] * 10
    assert on_ranks.taken() == {"all_reduce": (0, 2)}
    assert on_ranks.reasons() == {NOT_FASTER}
