"""How the drop-in would run calls, with the settings of this process."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import CDLL, byref, c_void_p

from .._native.library import check, library
from .preload import built_drop_in

#: Settings with which the drop-in may run calls in another way than a communicator without it.
SETTINGS = ("NARROWCAST_CONFIG", "NARROWCAST_PLANS")


def has_settings(environment: Mapping[str, str]) -> bool:
    """Whether the settings can name plans or a cost model that only the drop-in reads."""
    return any(environment.get(name) for name in SETTINGS)


def predictor(ranks: int, *, max_ctas: int, communicator: str) -> c_void_p:
    """A predictor of the C API for a communicator of GPUs. The drop-in reads its settings once, and logs their errors.

    max_ctas: 0: as in the settings. communicator: its name, commName of its configuration.
    Raises LibraryNotFoundError if the drop-in was not built.
    """
    path = built_drop_in()
    library()  # the one that the drop-in uses, too
    made = c_void_p()
    check(CDLL(str(path)).narrowcast_nccl_predictor(ranks, max_ctas, communicator.encode(), byref(made)))
    return made
