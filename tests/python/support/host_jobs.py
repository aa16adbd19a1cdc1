"""Functions for rank processes on several hosts, started by `narrowcast._bench.launch`."""

from __future__ import annotations

import hashlib
import os
from typing import Any

import narrowcast
import numpy as np
from narrowcast._bench import operations, samples
from narrowcast._native.codecs import forced
from narrowcast.types import value_type

KIND = value_type("bfloat16")


def values_of(count: int, rank: int) -> np.ndarray:
    """Normal random bfloat16, as bits."""
    return samples.of_rank(samples.sample("normal", KIND.name), rank, count)


def traffic(*, unique_id: str, rank: int, hosts: list[int], count: int, codecs: list[str], emit: Any) -> None:
    """The bytes that the rank sends to other hosts: {codec: {operation: bytes}}."""
    os.environ["NARROWCAST_HOSTID"] = f"host {hosts[rank]}"
    ranks = len(hosts)
    with narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=60) as comm:
        found: dict[str, dict[str, int]] = {codec: {} for codec in codecs}
        for codec in codecs:
            for name in operations.names():
                call = operations.Call(name, KIND, count, rank, ranks, root=ranks - 1)
                sent = np.resize(values_of(count, rank), call.send_elems)
                before = comm.counters().network_bytes
                call.run(comm, sent, np.zeros(call.recv_elems, KIND.numpy), codec=forced(codec))
                found[codec][name] = comm.counters().network_bytes - before
    emit(found)


def digests(*, unique_id: str, rank: int, hosts: list[int], count: int, emit: Any) -> None:
    """Digests of the results of the rank: {codec operation: digest}."""
    os.environ["NARROWCAST_HOSTID"] = f"host {hosts[rank]}"
    ranks = len(hosts)
    found = {}
    with narrowcast.Communicator(bytes.fromhex(unique_id), rank, ranks, timeout_seconds=60) as comm:
        for codec in ("raw", "window", "int8"):
            for name in operations.names():
                call = operations.Call(name, KIND, count, rank, ranks, root=ranks - 1)
                sent = np.resize(values_of(count, rank), call.send_elems)
                result = np.zeros(call.recv_elems, KIND.numpy)
                call.run(comm, sent, result, codec=forced(codec))
                found[f"{codec} {name}"] = hashlib.sha256(result.tobytes()).hexdigest()
    emit(found)
