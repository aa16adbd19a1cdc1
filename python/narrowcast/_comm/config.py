"""The options of communicators: their Python names, and the structure of the C API."""

from __future__ import annotations

import os
from ctypes import byref, sizeof
from typing import TYPE_CHECKING, TypedDict, cast

from .._native.library import library
from .._native.numbers import as_int, as_seconds, as_unsigned
from .._native.paths import path_bytes
from .._native.structures import BACKENDS, CommConfigC

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CommunicatorOptions(TypedDict, total=False):
    """Options that are absent or None have the default of the library."""

    scratch_bytes: int | None
    """Bytes of staging memory per rank, for all peers together. The same on every rank."""
    timeout_seconds: float | None
    """How long a call waits for a peer that is alive; 0: no limit."""
    create_timeout_seconds: float | None
    """How long the creation waits for all ranks; 0: timeout_seconds."""
    max_ctas: int | None
    """GPUs: the maximum number of CTAs (one per SM) of a call, 1 to 64. The minimum over all ranks applies."""
    max_collective_ctas: int | None
    """GPUs: the same for long collectives, which training runs beside compute: `all_reduce` calls of 4 MiB or more, and
    `all_gather` and `reduce_scatter` calls of 4 MiB or more for each rank. 0: no other limit than max_ctas."""
    p2p: bool | None
    """GPUs: False sends through host memory even if peer access is possible. One rank with False suffices."""
    cost_model: str | os.PathLike[str] | None
    """The file of the cost model (docs/guide/tuning.md); "": the built-in one. GPUs: the file of rank 0 applies. Host
    backend: the same on every rank."""


def comm_config(
    backend: str = "host", device: int | None = None, **options: Unpack[CommunicatorOptions]
) -> CommConfigC:
    """The options in the structure of the C API. TypeError for unknown options, ValueError for invalid values."""
    unknown = options.keys() - CommunicatorOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(CommunicatorOptions.__annotations__)
        raise TypeError(f"{unknown.pop()!r} is not an option of a communicator (known: {known})")
    if backend not in BACKENDS:
        raise ValueError(f"{backend!r} is not a backend (known: {', '.join(BACKENDS)})")
    config = CommConfigC()
    library().ncast_comm_config_defaults(byref(config), sizeof(config))
    config.backend = BACKENDS[backend]
    if device is not None:
        config.device = as_int(device, "device")
    if (scratch_bytes := options.get("scratch_bytes")) is not None:
        config.scratch_bytes = as_unsigned(scratch_bytes, "scratch_bytes")
    for limit in ("max_ctas", "max_collective_ctas"):
        if (ctas := options.get(limit)) is not None:
            setattr(config, limit, as_unsigned(cast(int, ctas), limit, 32))
    for name in ("timeout_seconds", "create_timeout_seconds"):
        if (seconds := options.get(name)) is not None:
            setattr(config, name, as_seconds(cast(float, seconds), name))
    p2p, cost_model = options.get("p2p"), options.get("cost_model")
    if p2p is not None:
        config.p2p = 1 if p2p else 0
    if cost_model is not None:
        config.cost_model = path_bytes(cost_model, "cost_model")
    return config
