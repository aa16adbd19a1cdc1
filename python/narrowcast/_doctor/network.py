"""Where ranks on other hosts would find a process of this machine."""

from __future__ import annotations

import json
from collections.abc import Mapping

from .._native.library import library
from .._native.plan import text_of
from ..errors import NarrowcastError
from .report import Section

_INTERFACES = ("NARROWCAST_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_NETWORK = "NARROWCAST_NET"
# What to correct, by the value of that variable.
_REMEDIES = {"plugin": "NCCL_NET_PLUGIN", "ucx": "NARROWCAST_UCX"}
_HOSTS = ("NARROWCAST_HOSTID", "NCCL_HOSTID")


def examine(environment: Mapping[str, str]) -> Section:
    """environment: that of this process, which the library reads, too."""
    section = Section("network", "Network")
    try:
        report = json.loads(text_of(library().ncast_network_report))
    except NarrowcastError:
        return section  # the library is missing: the versions say so
    host_setting = _first_set(_HOSTS, environment)
    _add(section, "host", report["host"], f"{host_setting} is set" if host_setting else "the name of the machine")
    _add(section, "host id", f"{report['host_id']:016x}", "the same where ranks can share memory")
    several = report["several_hosts"]
    _add(section, "ranks on several hosts", "yes" if several else "no", several or "no variable says so")
    setting = _first_set(_INTERFACES, environment)
    why = f"{setting} is {report['wanted_interfaces']}" if setting else "virtual interfaces and loopback come last"
    for place in report["addresses"]:
        what = "listens at" if place["listens"] else "does not listen at"
        _add(section, what, f"{place['ip']} ({place['interface']})", why)
    network, missing, transports = report["network"], report["carrier_error"], report["transports"]
    if missing:
        section.problem(missing, f"Correct {_REMEDIES.get(network, _NETWORK)}, or set {_NETWORK} to tcp.")
    else:
        why = f"{_NETWORK} is {network}" if environment.get(_NETWORK) else f"{_NETWORK} is not set"
        if report["why_tcp"]:
            why += f": {report['why_tcp']}"
        if transports == "tcp":
            why += ": it has no transport for InfiniBand or RoCE, and TCP without it is faster"
        name = f"{report['carrier']} ({transports})" if transports else report["carrier"]
        _add(section, "sends to other hosts by", name, why)
    if report["error"]:
        section.problem(
            report["error"],
            f"Set {setting or _INTERFACES[0]} to an interface that is up and that the other hosts can reach.",
        )
    return section


def _first_set(names: tuple[str, ...], environment: Mapping[str, str]) -> str | None:
    return next((name for name in names if environment.get(name)), None)


def _add(section: Section, what: str, value: str, why: str) -> None:
    section.rows.append({"what": what, "value": value, "why": why})
