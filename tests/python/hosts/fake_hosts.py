"""Hosts that are faked on this machine: network namespaces, joined by a bridge."""

from __future__ import annotations

import ctypes
import os
import subprocess

_CLONE_NEWNET = 0x40000000


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


class FakeHosts:
    """`hosts` namespaces. The parent reaches them through `bridge`."""

    def __init__(self, hosts: int) -> None:
        # Names of interfaces have at most 15 characters.
        self.hosts, self.bridge = hosts, f"ncf{os.getpid() % 100_000}"
        # Another subnet for each process, because tests may run side by side.
        self._network = f"10.{80 + os.getpid() % 100}.{os.getpid() // 100 % 250}"

    def _name(self, host: int) -> str:
        return f"{self.bridge}-{host}"

    def _address(self, host: int) -> str:
        return f"{self._network}.{host + 1}"

    def start(self) -> None:
        _ip("link", "add", self.bridge, "type", "bridge")
        _ip("addr", "add", f"{self._network}.254/24", "dev", self.bridge)
        _ip("link", "set", self.bridge, "up")
        for host in range(self.hosts):
            name = self._name(host)
            _ip("netns", "add", name)
            _ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
            _ip("link", "set", name, "master", self.bridge, "up")
            _ip("-n", name, "addr", "add", f"{self._address(host)}/24", "dev", "eth0")
            _ip("-n", name, "link", "set", "eth0", "up")
            _ip("-n", name, "link", "set", "lo", "up")

    def stop(self) -> None:
        for host in range(self.hosts):
            # Otherwise the interface is there until the kernel has cleared the namespace up.
            subprocess.run(["ip", "link", "del", self._name(host)], check=False, capture_output=True)
            subprocess.run(["ip", "netns", "del", self._name(host)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)

    def enter(self, host: int) -> None:
        """Moves this process there."""
        namespace = os.open(f"/run/netns/{self._name(host)}", os.O_RDONLY | os.O_CLOEXEC)
        if ctypes.CDLL(None, use_errno=True).setns(namespace, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(namespace)
        os.environ["NARROWCAST_SOCKET_IFNAME"] = "eth0"
        os.environ["NARROWCAST_TEST_NET_ADDRESS"] = self._address(host)

    def plug(self, host: int) -> None:
        _ip("link", "set", self._name(host), "master", self.bridge)

    def unplug(self, host: int) -> None:
        """Its packets are lost from now on. Nothing tells the host."""
        _ip("link", "set", self._name(host), "nomaster")
