"""Messages and reads over an agent of NIXL."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from .messages import Hello, Message, MessageError, pack, unpack
from .receiver import Peer

_log = logging.getLogger(__name__)


class Link:
    """An agent and the slots that are registered with it. Except for its creation, one thread uses it.

    agent: a `nixl_agent`.
    address, slots, slot_bytes: the slots, which are adjacent.
    memory, device: NIXL's name of the kind of memory, and where it is.
    """

    def __init__(self, agent: Any, address: int, slots: int, slot_bytes: int, memory: str, device: int) -> None:
        self._agent, self._address, self._slot_bytes = agent, address, slot_bytes
        self._memory, self._device = memory, device
        self._registered = agent.get_reg_descs([(address, slots * slot_bytes, device, "")], memory)
        agent.register_memory(self._registered)
        self.metadata: bytes = agent.get_agent_metadata()

    def connect(self, metadata: bytes) -> str:
        """Adds a peer, and returns its name."""
        name = self._agent.add_remote_agent(metadata)
        return name.decode() if isinstance(name, bytes) else str(name)

    def disconnect(self, peer: str) -> None:
        """Removes a peer."""
        self._agent.remove_remote_agent(peer)

    def send(self, peer: str, message: Message) -> None:
        """Sends a message."""
        self._agent.send_notif(peer, pack(message))

    def received(self) -> list[tuple[str, Message]]:
        """The messages that have arrived. A Hello adds its peer."""
        found: list[tuple[str, Message]] = []
        for peer, contents in self._agent.get_new_notifs().items():
            for content in contents:
                try:
                    message = unpack(content)
                    if isinstance(message, Hello):
                        self.connect(message.agent)
                    else:
                        found.append((peer, message))
                except MessageError as error:
                    _log.warning("%s: %s", peer, error)
                except Exception as error:
                    _log.warning("%s cannot be added: %s", peer, error)
        return found

    def read(self, peer: Peer, remote_slot: int, slot: int, stride: int, sizes: Sequence[int], then: Message) -> Any:
        """See `receiver.Reader`."""
        there, kind = peer.endpoint, self._memory
        here = self._address + slot * self._slot_bytes
        away = there.address + remote_slot * there.slot_bytes
        handle = self._agent.initialize_xfer(
            "READ",
            self._agent.get_xfer_descs([(here + i * stride, n, self._device) for i, n in enumerate(sizes)], kind),
            self._agent.get_xfer_descs(
                [(away + i * stride, n, there.device) for i, n in enumerate(sizes)], there.memory
            ),
            peer.name,
            pack(then),
        )
        try:
            self._agent.transfer(handle)
        except Exception as error:
            _log.warning("%s: a read could not be posted: %s", peer.name, error)  # its state is an error
        return handle

    def state(self, handle: Any) -> str:
        """See `receiver.Reader`."""
        try:
            return str(self._agent.check_xfer_state(handle))
        except Exception as error:
            _log.warning("a read failed: %s", error)
            return "ERR"

    def release(self, handle: Any) -> bool:
        """See `receiver.Reader`."""
        try:
            self._agent.release_xfer_handle(handle)
        except Exception:
            return False
        return True

    def close(self) -> None:
        """Unregisters the slots."""
        self._agent.deregister_memory(self._registered)
