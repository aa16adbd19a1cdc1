"""Agents of NIXL in one process: NIXL's own if it is installed, and ones that copy memory."""

from __future__ import annotations

import ctypes
import importlib.util
from typing import ClassVar


class CopyingAgent:
    """What `narrowcast._kv.link` uses of `nixl_agent`."""

    agents: ClassVar[dict[bytes, CopyingAgent]] = {}

    def __init__(self, name):
        self.name, self.peers, self.regions, self.inbox = name, set(), [], {}
        self.agents[name.encode()] = self

    def get_agent_metadata(self):
        return self.name.encode()

    def add_remote_agent(self, metadata):
        if metadata not in self.agents:
            raise RuntimeError("NIXL_ERR_MISMATCH")
        self.peers.add(metadata.decode())
        return metadata

    def remove_remote_agent(self, peer):
        self.peers.remove(peer)

    def get_reg_descs(self, descs, memory):
        return [tuple(desc) for desc in descs]

    def register_memory(self, descs):
        self.regions += descs

    def deregister_memory(self, descs):
        self.regions = [one for one in self.regions if one not in descs]

    def get_xfer_descs(self, descs, memory):
        return list(descs)

    def send_notif(self, peer, content):
        if peer not in self.peers:
            raise RuntimeError("NIXL_ERR_NOT_FOUND")
        self.agents[peer.encode()].inbox.setdefault(self.name, []).append(content)

    def get_new_notifs(self):
        found, self.inbox = self.inbox, {}
        return found

    def _holds(self, descs):
        return all(
            any(begin <= address and address + size <= begin + count for begin, count, *_ in self.regions)
            for address, size, _ in descs
        )

    def initialize_xfer(self, operation, local, remote, peer, content):
        assert operation == "READ"
        if peer not in self.peers or not self._holds(local) or not self.agents[peer.encode()]._holds(remote):
            raise RuntimeError("NIXL_ERR_NOT_FOUND")
        return {"state": "PROC", "pairs": list(zip(local, remote, strict=True)), "peer": peer, "content": content}

    def transfer(self, handle):
        for (here, size, _), (there, other, _) in handle["pairs"]:
            assert size == other
            ctypes.memmove(here, there, size)
        self.send_notif(handle["peer"], handle["content"])
        handle["state"] = "DONE"

    def check_xfer_state(self, handle):
        return handle["state"]

    def release_xfer_handle(self, handle):
        handle["state"] = "released"


def real_agent(name):
    from nixl._api import nixl_agent, nixl_agent_config

    return nixl_agent(name, nixl_agent_config(backends=["UCX"]))


AGENTS = {"copying": CopyingAgent} | ({"nixl": real_agent} if importlib.util.find_spec("nixl") else {})
