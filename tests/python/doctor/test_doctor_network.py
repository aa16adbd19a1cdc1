"""What `narrowcast doctor` says about the network of this process."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import pytest
from doctor_report import problem
from narrowcast._doctor import network

_UNSET = dict.fromkeys(
    (
        "NARROWCAST_SOCKET_IFNAME",
        "NCCL_SOCKET_IFNAME",
        "NARROWCAST_HOSTID",
        "NCCL_HOSTID",
        "LOCAL_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "MPI_LOCALNRANKS",
        "SLURM_STEP_NUM_NODES",
        "NARROWCAST_NET",
        "NCCL_NET",
        "NCCL_NET_PLUGIN",
        "NARROWCAST_UCX",
    ),
    "",
)


@pytest.fixture
def report(cli):
    """The report of doctor, with these variables only."""

    def run(**variables):
        return json.loads(cli("doctor", "--json", **{**_UNSET, **variables}).stdout)

    return run


def values(report, what):
    return [(row["value"], row["why"]) for row in report["network"] if row["what"] == what]


def test_without_variables_ranks_are_expected_on_this_host(report):
    found = report()
    assert values(found, "host") == [(platform.node(), "the name of the machine")]
    assert values(found, "ranks on several hosts") == [("no", "no variable says so")]
    assert len(values(found, "listens at")) == 1


@pytest.mark.parametrize("variable", ["NARROWCAST_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"])
def test_a_variable_names_the_interface(report, variable):
    found = report(**{variable: "=lo"})
    assert ("127.0.0.1 (lo)", f"{variable} is =lo") in values(found, "listens at")
    assert values(found, "ranks on several hosts") == [("yes", f"{variable} is set")]


def test_the_launcher_and_the_name_of_the_host_are_shown(report):
    found = report(LOCAL_WORLD_SIZE="2", WORLD_SIZE="4", SLURM_STEP_NUM_NODES="")
    assert values(found, "ranks on several hosts") == [("yes", "LOCAL_WORLD_SIZE is less than WORLD_SIZE")]
    found, again = report(NCCL_HOSTID="one"), report(NARROWCAST_HOSTID="one")
    assert values(found, "host") == [("one", "NCCL_HOSTID is set")]
    assert values(again, "host") == [("one", "NARROWCAST_HOSTID is set")]
    assert values(found, "host id") == values(again, "host id")


def test_an_interface_that_does_not_exist_is_a_problem(report):
    found = report(NCCL_SOCKET_IFNAME="nosuch")
    assert values(found, "listens at") == []
    assert "NCCL_SOCKET_IFNAME" in problem(found, "no interface is up that 'nosuch' names")["remedy"]


def test_what_carries_bytes_is_shown(report, net_plugin):
    what = "sends to other hosts by"
    assert values(report(), what) == [("TCP", "NARROWCAST_NET is not set")]
    found = report(NARROWCAST_NET="plugin", NCCL_NET_PLUGIN=str(net_plugin(9)))
    assert values(found, what) == [("Test (version 9)", "NARROWCAST_NET is plugin")]
    ((value, why),) = values(report(NARROWCAST_NET="auto", NCCL_NET_PLUGIN="none"), what)
    if not Path("/sys/class/infiniband").exists():
        assert value == "TCP"
        assert why.startswith(
            "NARROWCAST_NET is auto: no network plugin of NCCL can be used; NCCL_NET_PLUGIN is none; "
        )
        assert why.endswith("no InfiniBand or RoCE devices for UCX")
    found = report(NARROWCAST_NET="plugin", NCCL_NET_PLUGIN="nosuch")
    assert values(found, what) == []
    assert "NCCL_NET_PLUGIN" in problem(found, "libnccl-net-nosuch.so")["remedy"]
    found = report(NARROWCAST_NET="ucx", NARROWCAST_UCX="/nowhere")
    assert values(found, what) == []
    assert "NARROWCAST_UCX" in problem(found, "UCX cannot be used; /nowhere: cannot open")["remedy"]


def test_ucx_is_shown_with_its_transports(report, carrier):
    found = report(**carrier("ucx"), UCX_TLS="tcp,self")
    ((value, why),) = values(found, "sends to other hosts by")
    assert re.fullmatch(r"UCX 1\.\d+\.\d+ \(tcp\)", value)
    assert why.startswith("NARROWCAST_NET is ucx: it has no transport for InfiniBand or RoCE")


def test_without_the_library_there_is_no_section(monkeypatch, tmp_path):
    monkeypatch.setattr(network, "library", lambda: (_ for _ in ()).throw(network.NarrowcastError("missing")))
    section = network.examine({})
    assert (section.rows, section.problems) == ([], [])
