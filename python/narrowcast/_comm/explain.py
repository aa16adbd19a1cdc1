"""What the CUDA backend would do with a call, why, and how long that should take, without making it."""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import byref
from dataclasses import dataclass
from typing import TypeVar

from .._native.codecs import codec_text, comm_codec_number
from .._native.integers import as_int, as_unsigned
from .._native.library import check, library
from .._native.structures import ExplanationC, PredictionC
from ..types import OPERATIONS, value_type
from .config import comm_config

T = TypeVar("T")


@dataclass(frozen=True)
class Prediction:
    """Microseconds that the cost model predicts for the ways of a call; None: not known, or not possible."""

    chosen: float | None  #: as the call is run; coded, with values that the codec shrinks as it does weights
    packets: float | None  #: raw, by packets
    raw: float | None  #: raw, by blocks
    window: float | None  #: coded, of values that shrink
    window_random: float | None  #: coded, of values that do not
    nccl: float | None  #: the best of NCCL's ways
    nccl_default: float | None  #: what NCCL does where the program asks for no other


@dataclass(frozen=True)
class Explanation:
    """How a rank's part in a call is run; `sentence` says all of it."""

    path: str  #: "packets", each 16 bytes of data and flag, or "blocks" of values, through slots
    path_why: str
    shots: int | None  #: of an all_reduce by packets: 2 when the ranks reduce a piece each and pass it on, else 1
    shots_why: str | None
    codec: str  #: "window" or "raw"
    codec_why: str
    ctas: int  #: 0: no kernel runs
    warps: int  #: of a CTA
    rings: int | None  #: by blocks: that share the largest piece that one rank sends another
    block_bytes: int | None  #: by blocks: of values
    packet_bytes: int | None  #: by packets: of one, with its flag
    link: str  #: "peer", or "host" where payloads go through host memory
    predicted: Prediction
    sentence: str


def explain(
    operation: str,
    count: int,
    *,
    dtype: str,
    ranks: int,
    codec: str = "auto",
    max_ctas: int = 0,
    p2p: bool | None = None,
    cost_model: str | os.PathLike[str] | None = None,
) -> Explanation:
    """Explains the call of this name on a communicator of GPUs that can reach each other, by the functions that decide
    for its calls. Needs no GPU. `Communicator.explain` tells what one communicator does.

    operation: "all_reduce" and the like, as the methods of Communicator are called.
    count: as the C API counts: values that one rank sends another, or all of them for all_reduce and reduce;
        all_to_all_v: of the largest piece.
    ranks: 1 to 8.
    max_ctas, p2p, cost_model: as the ranks' communicators are made with; 0 and None leave it to this process's
        environment.
    """
    made = ExplanationC()
    question = asked(operation, count, dtype, codec)
    ranks = as_int(ranks, "ranks")
    config = comm_config(max_ctas=max_ctas, p2p=p2p, cost_model=cost_model)
    check(library().ncast_explain(*question, ranks, byref(config), byref(made)))
    return explanation_of(made)


def changes(answer: Callable[[int], T], first: int, last: int) -> list[tuple[int, T]]:
    """From which numbers on the answer is another one, with it; `first` begins.

    A change that is undone before the number has doubled may be overlooked.
    """
    found = [(first, answer(first))]
    low = first
    while low < last:
        high = min(2 * low, last)
        if answer(high) != found[-1][1]:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if answer(middle) == found[-1][1] else (low, middle)
            found.append((high, answer(high)))
        low = high
    return found


def asked(operation: str, count: int, dtype: str, codec: str) -> tuple[int, int, int, int]:
    """A call as the C functions are asked about it; ValueError where it makes no sense."""
    if operation not in OPERATIONS:
        raise ValueError(f"{operation!r} is not an operation (known: {', '.join(OPERATIONS)})")
    return OPERATIONS[operation], as_unsigned(count, "count"), value_type(dtype).number, comm_codec_number(codec)


def explanation_of(made: ExplanationC) -> Explanation:
    """The C structure as one of Python's."""
    by_packets = bool(made.packets)
    has_shots = made.shots_why is not None
    return Explanation(
        path="packets" if by_packets else "blocks",
        path_why=made.path_why.decode(),
        shots=1 + made.two_shot if has_shots else None,
        shots_why=made.shots_why.decode() if has_shots else None,
        codec=codec_text(made.codec),
        codec_why=made.codec_why.decode(),
        ctas=made.ctas,
        warps=made.warps,
        rings=None if by_packets else made.rings,
        block_bytes=None if by_packets else made.block_bytes,
        packet_bytes=made.packet_bytes if by_packets else None,
        link="host" if made.over_host else "peer",
        predicted=Prediction(*(getattr(made.predicted, field[0]) or None for field in PredictionC._fields_)),
        sentence=made.sentence.decode(),
    )
