"""The drop-in with the real NCCL, on all GPUs: executed and forwarded calls give correct values.

NARROWCAST_TEST_RANKS_PER_GPU=k puts k ranks on each GPU, rank r on GPU r % gpus. NCCL then uses sockets.
"""

from __future__ import annotations

import pytest
from codec_names import EXACT
from narrowcast import errors
from narrowcast.cuda import device_count
from nccl_program import RANKS_PER_GPU
from nccl_ranks import OPERATIONS

RANKS = min(8, device_count() * RANKS_PER_GPU)

pytestmark = pytest.mark.skipif(RANKS < 2, reason="fewer than 2 GPUs")
in_one_process = pytest.mark.skipif(RANKS_PER_GPU > 1, reason="NCCL supports only one rank of a process per GPU")


@pytest.mark.parametrize("count", [1, 5000, 3_000_000])
@pytest.mark.parametrize("codec", ["auto", *(f"{one}!" for one in EXACT)])
def test_every_operation_is_executed(on_ranks, monkeypatch, codec, count):
    monkeypatch.setenv("NARROWCAST_CODEC", codec)
    for correct in on_ranks("every_operation", RANKS, count=count):
        assert set(correct) == OPERATIONS
    assert {forwarded for _, forwarded in on_ranks.taken().values()} == {0}
    if codec not in ("auto", "raw!") and count == 3_000_000:
        # Reductions use integers, which the codec does not compress.
        for operation in ("all_gather", "all_to_all", "broadcast", "gather", "scatter", "send"):
            links = on_ranks.links(operation).values()
            shrunk = [wire_bytes < raw_bytes for raw_bytes, wire_bytes in links if raw_bytes]
            assert shrunk
            assert all(shrunk)


@pytest.fixture
def between_hosts(on_ranks, monkeypatch):
    """The environment of the ranks says that they are on several hosts, which reach each other by loopback."""
    for name, value in {"NARROWCAST_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "NCCL_NET": "Socket"}.items():
        monkeypatch.setenv(name, value)
    on_ranks.module = "nccl_host_jobs"
    return on_ranks


@pytest.mark.parametrize("count", [1, 5000, 3_000_000])
@pytest.mark.parametrize("codec", ["auto", "window!"])
def test_every_operation_is_executed_between_hosts(between_hosts, monkeypatch, codec, count):
    monkeypatch.setenv("NARROWCAST_CODEC", codec)
    hosts = [f"host {rank % 2}" for rank in range(RANKS)]
    for correct in between_hosts("every_operation", RANKS, hosts=hosts, count=count):
        assert set(correct) == OPERATIONS
    assert {forwarded for _, forwarded in between_hosts.taken().values()} == {0}
    if codec == "window!" and count == 3_000_000:
        assert all(0 < wire_bytes < raw_bytes for raw_bytes, wire_bytes in between_hosts.links("all_gather").values())


@pytest.mark.skipif(RANKS_PER_GPU > 1, reason="between ranks that share a GPU, NCCL may be as fast")
def test_ranks_measure_between_hosts_and_execute_long_calls(between_hosts, monkeypatch, tmp_path):
    monkeypatch.delenv("NARROWCAST_TAKE")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    arguments = {"counts": [16, 8 << 20], "split": True, "cut_off": False}
    assert between_hosts("sums", 2, **arguments) == [[[True] * 2] * 2] * 2
    said = (tmp_path / "log").read_text()
    assert said.count("measured the costs of 2 ranks over gpu_network in ") == 1
    assert said.count("uses the costs in this process\n") == 1
    # Each communicator makes two calls of either size. NCCL's sockets are slower for the long ones.
    taken = {place: one["all_reduce"]["taken"] for place, one in between_hosts.statistics().items()}
    assert len(taken) == 4
    assert min(taken.values()) >= 2


in_two_levels = pytest.mark.skipif(RANKS not in (4, 6, 8), reason="two levels of two hosts have 4, 6 or 8 ranks")
HOSTS = [f"host {2 * rank // RANKS}" for rank in range(RANKS)]


@in_two_levels
@pytest.mark.parametrize("count", [1, 5000, 3_000_000])
def test_every_operation_is_executed_in_two_levels(between_hosts, count):
    for correct in between_hosts("every_operation", RANKS, hosts=HOSTS, count=count):
        assert set(correct) == OPERATIONS
    assert {forwarded for _, forwarded in between_hosts.taken().values()} == {0}


@in_two_levels
def test_ranks_in_two_levels_measure_whole_calls(between_hosts, monkeypatch, tmp_path):
    monkeypatch.delenv("NARROWCAST_TAKE")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    arguments = {"counts": [16, 8 << 20], "split": False, "cut_off": False, "hosts": HOSTS}
    assert between_hosts("sums", RANKS, **arguments) == [[[True] * 2]] * RANKS
    assert f"measured the costs of {RANKS} ranks over two_levels in " in (tmp_path / "log").read_text()


def test_a_rejected_setting_on_one_rank_makes_all_ranks_forward(on_ranks):
    arguments = {"differing": 1, "name": "NARROWCAST_PATH", "value": "zip"}
    for correct in on_ranks("differing_settings", RANKS, **arguments):
        assert set(correct) == OPERATIONS
    assert on_ranks.reasons() == {"the ranks have different settings of Narrowcast: NARROWCAST_PATH"}


@pytest.fixture
def at_creation(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_ATTACH", "init")
    on_ranks.module = "nccl_creation_jobs"
    return on_ranks


@pytest.mark.parametrize("way", ["by rank", "with a configuration", "in a group"])
def test_programs_that_only_send_and_receive_are_executed(at_creation, way):
    assert at_creation("transfers", RANKS, way=way) == [[True] * 2] * RANKS
    assert at_creation.taken() == {"send": (2, 0), "recv": (2, 0)}


@pytest.mark.parametrize("job", ["one_way_first", "to_itself_first", "collective_first"])
def test_two_ranks_attach_at_their_first_call(on_ranks, job):
    on_ranks.module = "nccl_pair_jobs"
    assert all(all(correct) for correct in on_ranks(job, 2))
    assert on_ranks.statistics()[1]["recv"]["forwarded"] == 0


def test_two_ranks_do_not_attach_if_one_captures(on_ranks):
    on_ranks.module = "nccl_pair_jobs"
    assert on_ranks("captured_by_one", 2) == [[True] * 2] * 2
    assert on_ranks.taken() == {"send": (0, 2), "recv": (0, 2)}


@in_one_process
@pytest.mark.parametrize("grouped", [True, False])
def test_one_thread_creates_the_communicators_of_all_gpus(at_creation, grouped):
    assert at_creation("one_thread", RANKS, alone=True, grouped=grouped) == [[True] * RANKS]
    assert at_creation.reasons() == set()


@pytest.mark.parametrize("grouped", [True, False])
def test_ranks_of_a_split_attach(at_creation, grouped):
    assert at_creation("split", RANKS, grouped=grouped) == [[True] * 2] * (RANKS - 1) + [[True]]


@pytest.mark.parametrize("end", ["CommDestroy", "CommAbort"])
def test_a_communicator_may_be_destroyed_before_its_first_call(at_creation, end):
    assert at_creation("destroyed_before_use", RANKS, end=end) == [True] * RANKS


def test_captures_continue_while_a_communicator_is_created(at_creation):
    assert at_creation("during_a_capture", RANKS) == [[True] * 3] * RANKS
    assert at_creation.reasons() == set()


def test_forwarded_calls_are_correct(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_TAKE", "never")
    for correct in on_ranks("every_operation", RANKS, count=5000):
        assert set(correct) == OPERATIONS
    assert {taken for taken, _ in on_ranks.taken().values()} == {0}


@pytest.mark.parametrize("off", ["", "all_gather", "send"])
def test_groups_nest_and_mix_communicators_streams_and_kinds(on_ranks, monkeypatch, off):
    monkeypatch.setenv("NARROWCAST_OFF", off)
    for found in on_ranks("groups", RANKS):
        assert found == [[True] * 4] * 3


def test_forwarded_and_executed_transfers_run_concurrently(on_ranks, monkeypatch, tmp_path):
    (tmp_path / "rules.toml").write_text("[[rule]]\nmin_bytes = 1000\ntake = 'always'\n[[rule]]\ntake = 'never'\n")
    monkeypatch.setenv("NARROWCAST_CONFIG", str(tmp_path / "rules.toml"))
    monkeypatch.delenv("NARROWCAST_TAKE")
    assert on_ranks("unequal_groups", 2) == [[True] * 3] * 2


@pytest.mark.parametrize("verify", ["0", "1"])
def test_all_to_all_in_place_is_correct(on_ranks, monkeypatch, verify):
    monkeypatch.setenv("NARROWCAST_VERIFY", verify)
    assert on_ranks("exchanged_in_place", RANKS) == [[True] * 3] * RANKS
    assert on_ranks.taken()["all_to_all"] == (3, 0)


@in_one_process
def test_one_thread_drives_all_gpus(on_ranks):
    assert on_ranks("one_thread", RANKS, alone=True) == [[True] * 3 * RANKS]


@in_one_process
def test_a_thread_drives_each_gpu(on_ranks):
    assert on_ranks("threads", RANKS, alone=True) == [[True] * RANKS]


def test_a_rank_may_be_left_out_of_a_split(on_ranks):
    assert on_ranks("left_out_of_a_split", RANKS)[-1] == [False, True]


def test_executed_and_forwarded_calls_keep_their_order(on_ranks, monkeypatch):
    monkeypatch.setenv("NARROWCAST_OFF", "broadcast")
    for found in on_ranks("kept_order", RANKS):
        assert found == [True] * 3


@pytest.mark.parametrize("grouped", [True, False])
def test_user_defined_reductions_keep_their_order(on_ranks, grouped):
    for found in on_ranks("kept_order_with_a_user_reduction", RANKS, grouped=grouped):
        assert found == [True] * 3


@pytest.mark.parametrize("before", [True, False])
def test_graphs_run_what_they_captured(on_ranks, before):
    for found in on_ranks("captured", RANKS, before=before):
        assert found == [False, True, True]
    # One call before the capture. Such short calls use packets, whose replays are not counted.
    sent_bytes = 0 if before else 2000 * (RANKS - 1)
    for raw_bytes, wire_bytes in on_ranks.links("all_gather").values():
        assert raw_bytes == sent_bytes
        assert (wire_bytes > 0) == (not before)


def test_user_defined_reductions_of_integers_are_forwarded_immediately(on_ranks):
    assert on_ranks("user_reduction", RANKS, kind="int32") == [True] * RANKS


def test_nonblocking_communicators_work(on_ranks):
    assert on_ranks("nonblocking", RANKS) == [True] * RANKS


def test_an_abort_ends_executed_calls(on_ranks):
    on_ranks.module = "nccl_ends_jobs"
    assert max(on_ranks("aborted", RANKS)) < 30


def test_an_abort_of_a_peer_is_no_error_if_all_calls_are_complete(on_ranks):
    on_ranks.module = "nccl_ends_jobs"
    assert on_ranks("finalized_after_an_abort", RANKS, with_pending_call=False)[0] == 0


def test_a_message_arrives_although_its_sender_has_aborted_since(on_ranks):
    on_ranks.module = "nccl_ends_jobs"
    assert on_ranks("sender_leaves", RANKS)[1] == [True, 0]


def test_the_death_of_a_peer_is_reported_as_an_asynchronous_error(on_ranks, tmp_path):
    on_ranks.module = "nccl_ends_jobs"
    with pytest.raises(errors.RemoteError, match="signal 9"):
        on_ranks("a_peer_dies", RANKS)
    assert (tmp_path / "0").read_text().startswith("[0, 6] ")


@pytest.mark.parametrize("in_place", [True, False])
def test_values_are_verified_on_demand(on_ranks, monkeypatch, tmp_path, in_place):
    monkeypatch.setenv("NARROWCAST_VERIFY", "1")
    monkeypatch.setenv("NARROWCAST_DEBUG", "INFO")
    on_ranks.module = "nccl_verified_jobs"
    on_ranks("verified", RANKS, in_place=in_place, wrong=False)
    for rank in range(RANKS):
        log = (tmp_path / f"{rank}.log").read_text()
        assert log.count("values: the result ") == 4
        assert "WARN" not in log
