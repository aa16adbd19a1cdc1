"""KV transfer of vLLM between prefill and decode instances, encoded, over NIXL.

    vllm serve MODEL --kv-transfer-config '{
      "kv_connector": "EncodedNixlConnector", "kv_connector_module_path": "narrowcast.integrations.vllm_transfer",
      "kv_role": "kv_producer"}'

Proxies for vLLM's `NixlConnector` work unchanged: its scheduler side is used as it is. Its workers are replaced. A
decode worker asks for the blocks that it does not have, in parts. The prefill worker encodes a part into a slot of
registered memory and answers with the sizes of the frames, which the decode worker reads and decodes into its KV cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import msgspec
import torch
import zmq
from vllm.distributed import get_tensor_model_parallel_rank
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole, KVConnectorTransferResults
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlBaseConnector
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import (
    GET_META_MSG,
    NixlHandshakePayload,
    compute_nixl_compatibility_hash,
)
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_scheduler import NixlPullConnectorScheduler
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.utils import get_representative_spec_type, zmq_ctx
from vllm.utils.network_utils import make_zmq_path
from vllm.v1.kv_cache_interface import (
    FullAttentionSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
    SlidingWindowSpec,
    group_kernel_blocks,
)

from .._kv.link import Link
from .._kv.messages import PROTOCOL_VERSION, Alive, Done, Endpoint, Hello, Offer, Refusal, pack, unpack
from .._kv.receiver import Blocks, Fetched, Peer, Receiver
from .._kv.sender import Sender
from .._native.library import library_version
from .._torch.kv_blocks import pages_of
from .._torch.kv_slots import BlockSlots

__all__ = ["EncodedNixlConnector"]

_log = logging.getLogger(__name__)
_BUFFER_BYTES = 512 << 20
_PART_BYTES = 64 << 20
_LEASE_SECONDS = 30  # vLLM's default
_HANDSHAKE_SECONDS = 5
# How often the thread looks for messages if any may come, and otherwise.
_BUSY_SECONDS, _IDLE_SECONDS = 0.0005, 0.1
_SPECS = (FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec, SlidingWindowMLASpec)
# That vLLM may have allocated here and not there, for a token to come.
_SPARE_BLOCKS = 2


def __dir__() -> list[str]:
    return sorted(__all__)


class EncodedNixlConnector(NixlBaseConnector):  # type: ignore[misc]
    """vLLM's `NixlConnector`, with KV blocks that are encoded on their way.

    In `kv_connector_extra_config`, besides `kv_lease_duration` and `backends` of `NixlConnector`:

    buffer_bytes: registered memory of a worker, beside the KV cache and on its device; by default 512 MiB. With the
        role kv_both, a half for each direction.
    part_bytes: the size of a slot, by default 64 MiB. It holds at least one block, with all of its layers.
    codec: by default "window".
    encoding_threads: for KV caches on the CPU; by default all.

    Both sides need the same versions of vLLM and Narrowcast, model, layout of the KV cache, codec and tensor
    parallelism. Pipeline and context parallelism, state-space layers and `bidirectional_kv_xfer` are errors.
    """

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        _require_support(vllm_config, kv_cache_config)
        if role == KVConnectorRole.SCHEDULER:
            self.connector_scheduler = NixlPullConnectorScheduler(vllm_config, self.engine_id, kv_cache_config)
            if self.connector_scheduler.use_host_buffer:
                raise ValueError("kv_buffer_device must be the device of the KV cache")
        else:
            self.connector_worker = _Worker(vllm_config, self.engine_id, kv_cache_config)

    def start_load_kv(self, forward_context: Any, **options: Any) -> None:
        """Begins to fetch blocks; vLLM calls it, as all methods."""
        self.connector_worker.start(self._connector_metadata)

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        """The requests whose blocks have been sent or received."""
        return self.connector_worker.results()

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str], set[str]]:
        """As `get_transfer_results`."""
        found = self.connector_worker.results()
        return found.finished_sending, found.finished_recving

    def get_handshake_metadata(self) -> Any:
        """What decode workers need to reach this one."""
        return self.connector_worker.handshake

    def wait_for_save(self) -> None:
        """Nothing is saved in a step."""

    def set_host_xfer_buffer_ops(self, copy_operation: Any) -> None:
        """Nothing is copied through host buffers."""

    def get_kv_connector_stats(self) -> None:
        """There are no statistics."""


def _require_support(config: Any, kv_cache_config: Any) -> None:
    for name in ("pipeline_parallel_size", "prefill_context_parallel_size", "decode_context_parallel_size"):
        if getattr(config.parallel_config, name) > 1:
            raise ValueError(f"EncodedNixlConnector does not support {name} above 1")
    if config.kv_transfer_config.get_from_extra_config("bidirectional_kv_xfer", False):
        raise ValueError("EncodedNixlConnector does not support bidirectional_kv_xfer")
    for group in kv_cache_config.transfer_groups:
        kind = get_representative_spec_type(group.kv_cache_spec)
        if kind not in _SPECS or group.host_resident:
            raise ValueError(f"EncodedNixlConnector does not support KV caches of {kind.__name__}")


def _paired(group: int, remote: Any, local: Sequence[int]) -> Blocks:
    """The blocks to fetch. A prefix may be here already: the ends of the lists correspond, except for spare blocks."""
    if not isinstance(remote, list | tuple) or not all(type(block) is int for block in remote):
        raise ValueError("remote_block_ids are not lists of numbers")
    if len(local) > len(remote) + _SPARE_BLOCKS:
        raise ValueError(f"{len(local)} blocks are needed, but only {len(remote)} exist")
    count = min(len(remote), len(local))
    return Blocks(group, list(remote[len(remote) - count :]), list(local[:count]))


def _shake_hands(host: str, port: int, rank: int, engine: str, compatibility: str) -> Endpoint:
    """Asks the scheduler side of another instance how its worker can be reached."""
    with zmq_ctx(zmq.REQ, make_zmq_path("tcp", host, port)) as socket:
        for option in (zmq.RCVTIMEO, zmq.SNDTIMEO):
            socket.setsockopt(option, 1000 * _HANDSHAKE_SECONDS)
        socket.send(msgspec.msgpack.encode((GET_META_MSG, 0, rank)))
        payload = msgspec.msgpack.decode(socket.recv_multipart()[0], type=NixlHandshakePayload)
    if payload.compatibility_hash != compatibility:
        raise ValueError(
            f"{host}:{port} has another connector, version of vLLM or Narrowcast, model, layout of the KV cache, "
            "codec or tensor parallelism"
        )
    endpoint = unpack(payload.agent_metadata_bytes)
    if not isinstance(endpoint, Endpoint) or endpoint.engine != engine:
        raise ValueError(f"{host}:{port} is not engine {engine}")
    return endpoint


class _Worker:
    """The worker side. A thread owns the agent, the slots and all state; calls of vLLM exchange work with it."""

    def __init__(self, config: Any, engine: str, kv_cache_config: Any) -> None:
        self._config, self._engine, self._kv_cache_config = config, engine, kv_cache_config
        self._option = config.kv_transfer_config.get_from_extra_config
        self._lease = float(self._option("kv_lease_duration", _LEASE_SECONDS))
        self._rank, self._ranks = get_tensor_model_parallel_rank(), config.parallel_config.tensor_parallel_size
        # Of models with several groups, vLLM accepts failures of whole requests only.
        self._has_groups = len(kv_cache_config.kv_cache_groups) > 1
        self.handshake: Any = None
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._sent: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._fetched: queue.SimpleQueue[Fetched] = queue.SimpleQueue()
        self._failed_blocks: set[int] = set()
        self._wake, self._stopping = threading.Event(), False
        self._executor = ThreadPoolExecutor(4, thread_name_prefix="narrowcast-kv-handshake")
        self._peers: dict[str, Peer] = {}  # by engine
        self._waiting: dict[str, list[Callable[[Peer | None, str], None]]] = {}  # for the handshake with an engine
        self._thread: threading.Thread | None = None

    # Called by vLLM.

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """Registers the slots and starts the thread."""
        groups, layout = [], []
        for group in self._kv_cache_config.transfer_groups:
            caches = [
                group_kernel_blocks(kv_caches[name], self._kv_cache_config.num_blocks) for name in group.layer_names
            ]
            layout.append([[list(one.shape[1:]), list(one.stride()[1:]), str(one.dtype)] for one in caches])
            # Layers may share their memory.
            groups.append([pages_of(one) for one in {one.data_ptr(): one for one in caches}.values()])
        part_bytes, role = int(self._option("part_bytes", _PART_BYTES)), self._config.kv_transfer_config.kv_role
        count = int(self._option("buffer_bytes", _BUFFER_BYTES)) // max(part_bytes, 1)
        if count < 1 + (role == "kv_both"):
            raise ValueError("buffer_bytes must be at least part_bytes, or twice as much for kv_both")
        self._slots = BlockSlots(
            groups,
            dtype=self._dtype(next(iter(kv_caches.values()))),
            slots=count,
            slot_bytes=part_bytes,
            codec=str(self._option("codec", "window")),
            threads=int(self._option("encoding_threads", 0)),
        )
        self._connect(layout)
        out = {"kv_producer": count, "kv_consumer": 0}.get(role, count // 2)
        self._sender = Sender(self._slots, range(out), self._lease, self._link.send, self._sent.put)
        self._receiver = Receiver(
            self._slots, range(out, count), self._link, self._link.send, self._fetched.put, self._forget
        )
        self._thread = threading.Thread(target=self._run, name="narrowcast-kv-transfer", daemon=True)
        self._thread.start()

    def start(self, metadata: Any) -> None:
        """Takes what the scheduler side has decided in a step."""
        ready = None
        if metadata.reqs_to_recv and self._slots.device.type == "cuda":
            ready = torch.cuda.Event()  # what is in progress may still write the blocks
            ready.record(torch.cuda.current_stream(self._slots.device))
        # Copies: the scheduler may run in this process and change them.
        alive = [(engine, one, tuple(one.req_ids)) for engine, one in metadata.heartbeat_by_engine.items()]
        self._soon(partial(self._take, metadata, alive, ready))

    def results(self) -> Any:
        """The requests that have been sent or received since the last call."""
        found = KVConnectorTransferResults()
        while not self._sent.empty():
            found.finished_sending.add(self._sent.get())
        while not self._fetched.empty():
            one = self._fetched.get()
            found.finished_recving.add(one.request)
            if not one.failed:
                _log.info(
                    "request %s: received %d bytes of KV blocks as %d", one.request, one.raw_bytes, one.wire_bytes
                )
            elif self._has_groups:
                found.failed_recving.add(one.request)
            else:
                self._failed_blocks.update(block for _, block in one.failed)
        return found

    def get_block_ids_with_load_errors(self) -> set[int]:
        """The blocks here that were not received since the last call."""
        found, self._failed_blocks = self._failed_blocks, set()
        return found

    def shutdown(self) -> None:
        """Stops the thread. What is in progress is abandoned."""
        self._stopping = True
        self._wake.set()
        self._executor.shutdown(wait=False, cancel_futures=True)
        if self._thread is not None:
            self._thread.join(timeout=_HANDSHAKE_SECONDS)
            if not self._thread.is_alive():
                self._link.close()
            self._thread = None

    def _soon(self, call: Callable[[], None]) -> None:
        self._calls.put(call)
        self._wake.set()

    # Creation.

    def _dtype(self, cache: torch.Tensor) -> Any:
        """The type of the values. vLLM keeps fp8 as bytes."""
        name = str(self._config.cache_config.cache_dtype)
        if cache.element_size() == 1 and name.startswith("fp8"):
            return "float8_e5m2" if "e5m2" in name else "float8_e4m3"
        return cache.dtype

    def _connect(self, layout: list[Any]) -> None:
        from vllm.distributed.nixl_utils import NixlWrapper, nixl_agent_config

        if NixlWrapper is None:
            raise RuntimeError("EncodedNixlConnector needs NIXL: pip install nixl")
        slots, backends = self._slots, list(self._option("backends", ["UCX"]))
        memory, device = ("VRAM", slots.device.index or 0) if slots.device.type == "cuda" else ("DRAM", 0)
        agent = NixlWrapper(str(uuid.uuid4()), nixl_agent_config(backends=backends))
        address = slots.memory.data_ptr()
        self._link = Link(agent, address, slots.slots, slots.slot_bytes, memory, device)
        names = sorted(one.get_name() for one in get_current_attn_backends(self._config))
        factors = [
            compute_nixl_compatibility_hash(self._config, ",".join(names), "encoded"),
            PROTOCOL_VERSION,
            library_version(),
            slots.codec,
            [kind.name for kind in slots.types],
            slots.block_bytes,
            layout,
            self._ranks,
        ]
        self._compatibility = hashlib.sha256(json.dumps(factors).encode()).hexdigest()
        endpoint = Endpoint(
            self._engine, self._link.metadata, address, device, memory, slots.slots, slots.slot_bytes, self._lease
        )
        self.handshake = NixlHandshakePayload(self._compatibility, pack(endpoint))

    # In the thread.

    def _run(self) -> None:
        on_stream: Any = contextlib.nullcontext()
        if self._slots.device.type == "cuda":
            torch.cuda.set_device(self._slots.device)
            on_stream = torch.cuda.stream(torch.cuda.Stream(self._slots.device))
        with on_stream:
            while not self._stopping:
                progress = False
                for step in (self._call, self._listen, self._sender.step, self._receiver.step):
                    try:
                        progress |= step()
                    except Exception:  # what it concerns ends at its deadline
                        _log.exception("a step of the KV transfer failed")
                if not progress:
                    active = self._sender.is_active or self._receiver.is_active
                    self._wake.wait(_BUSY_SECONDS if active else _IDLE_SECONDS)
                    self._wake.clear()

    def _call(self) -> bool:
        with contextlib.suppress(queue.Empty):
            self._calls.get_nowait()()
            return True
        return False

    def _listen(self) -> bool:
        found = self._link.received()
        for peer, message in found:
            side = self._receiver if isinstance(message, Offer | Refusal) else self._sender
            side.receive(peer, message)
        return bool(found)

    def _take(self, metadata: Any, alive: list[tuple[str, Any, tuple[str, ...]]], ready: Any) -> None:
        if ready is not None:
            torch.cuda.current_stream(self._slots.device).wait_event(ready)
        self._sender.expect(metadata.reqs_in_batch)
        self._sender.forget(metadata.reqs_not_processed)
        for request, until in metadata.reqs_to_send.items():
            self._sender.keep(request, until - metadata.scheduler_clock)
        for request, meta in metadata.reqs_to_recv.items():
            self._fetch(request, meta)
        for engine, one, requests in alive:
            self._reach(engine, one.host, one.port, one.tp_size, partial(self._say_alive, requests))

    def _fetch(self, request: str, meta: Any) -> None:
        remote = meta.remote
        awaited = meta.awaiting_kvs or any(meta.local_block_ids)

        def begin(peer: Peer | None, reason: str) -> None:
            try:
                if peer is None:
                    raise ConnectionError(reason)
                if not awaited:
                    return self._link.send(peer.name, Done(remote.request_id))
                groups = enumerate(zip(remote.block_ids, meta.local_block_ids, strict=True))
                blocks = [_paired(group, *both) for group, both in groups if both[1]]
                self._receiver.fetch(request, remote.request_id, peer, blocks)
            except Exception as error:
                _log.error("KV blocks of request %s cannot be fetched: %s", request, error)
                if awaited:
                    failed = [(group, block) for group, ids in enumerate(meta.local_block_ids) for block in ids]
                    self._fetched.put(Fetched(request, failed))

        self._reach(remote.engine_id, remote.host, remote.port, meta.tp_size, begin)

    def _say_alive(self, requests: tuple[str, ...], peer: Peer | None, _: str) -> None:
        if peer is not None:
            try:
                self._link.send(peer.name, Alive(requests))
            except Exception as error:
                _log.warning("%s cannot be reached: %s", peer.endpoint.engine, error)
                self._forget(peer)

    def _reach(self, engine: str, host: str, port: int, ranks: int, then: Callable[[Peer | None, str], None]) -> None:
        """Calls `then` with the peer when it is connected, or with a reason why it cannot be."""
        if engine in self._peers:
            return then(self._peers[engine], "")
        if ranks != self._ranks:
            return then(None, f"{engine} has a tensor parallelism of {ranks}, and this instance {self._ranks}")
        if engine in self._waiting:
            return self._waiting[engine].append(then)
        self._waiting[engine] = [then]
        handshake = self._executor.submit(_shake_hands, host, port, self._rank, engine, self._compatibility)
        return handshake.add_done_callback(lambda ended: self._soon(partial(self._greet, engine, ended)))

    def _greet(self, engine: str, handshake: Future[Endpoint]) -> None:
        peer, reason = None, ""
        try:
            found = Peer(self._link.connect(handshake.result().agent), handshake.result())
            self._link.send(found.name, Hello(self._link.metadata))
            self._peers[engine] = peer = found
        except Exception as error:
            reason = f"{engine} cannot be reached: {error!r}"
        for then in self._waiting.pop(engine):
            then(peer, reason)

    def _forget(self, peer: Peer) -> None:
        """Another handshake is needed before the next fetch."""
        if self._peers.get(peer.endpoint.engine) is peer:
            del self._peers[peer.endpoint.engine]
            with contextlib.suppress(Exception):
                self._link.disconnect(peer.name)
