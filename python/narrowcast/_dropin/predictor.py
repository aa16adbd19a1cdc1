"""How the drop-in would run calls, with the settings of this process."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import CDLL, byref, c_char_p, c_uint64, c_void_p
from dataclasses import dataclass

from .._native.codecs import codec_text
from .._native.library import check, library
from .._native.plan_structures import PlanCallC
from .preload import built_drop_in

#: Settings with which the drop-in may run calls in another way than a communicator without it.
SETTINGS = tuple(f"NARROWCAST_{name}" for name in ("CODEC", "CONFIG", "OFF", "PLANS", "TAKE"))


def has_settings(environment: Mapping[str, str]) -> bool:
    """Whether there are settings about calls that only the drop-in reads."""
    return any(environment.get(name) for name in SETTINGS)


@dataclass(frozen=True)
class Decision:
    """What the settings say about a call."""

    codec: str  #: what the call allows
    result_codec: str  #: what it allows for the results of an all-reduce
    codec_from: str | None  #: the rule or setting that gives the codec; None: no one
    why_forwarded: str | None  #: why NCCL runs the call; None: Narrowcast does


def decide(predictor: c_void_p, call: PlanCallC, ranks: int, *, communicator: str) -> Decision:
    """predictor: of `predictor`, with the same ranks and communicator."""
    codecs, codec_from, why = [c_uint64(), c_uint64()], c_char_p(), c_char_p()
    decided = CDLL(str(built_drop_in())).narrowcast_nccl_decide
    decided.restype = None
    decided(predictor, ranks, communicator.encode(), byref(call), *map(byref, (*codecs, codec_from, why)))
    names = [None if one.value is None else one.value.decode() for one in (codec_from, why)]
    return Decision(*(codec_text(one.value) for one in codecs), *names)


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
