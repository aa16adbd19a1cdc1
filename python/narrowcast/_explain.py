"""What the CUDA backend would do with a call, and why, without making it."""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass

from ._library import ExplanationC, check, library
from .types import CODEC_NAMES, OPERATIONS, comm_codec_number, value_type


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
    lanes: int | None  #: by blocks: that share the largest piece that one rank sends another
    block_bytes: int | None  #: by blocks: of values
    sentence: str


def explain(
    operation: str, count: int, *, dtype: str, ranks: int, codec: str = "auto", max_ctas: int = 0
) -> Explanation:
    """Explains the call of this name on a communicator of GPUs, by the functions that decide for its calls.

    Needs no GPU.

    operation: "all_reduce" and the like, as the methods of Communicator are called.
    count: as the C API counts: values that one rank sends another, or all of them for all_reduce and reduce;
        all_to_all_v: of the largest piece.
    ranks: 1 to 8.
    max_ctas: the least NARROWCAST_MAX_CTAS of the ranks; 0: this process's, or the most that there may be.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"{operation!r} is not an operation (known: {', '.join(OPERATIONS)})")
    if count < 0:
        raise ValueError(f"count is {count}, less than 0")
    made = ExplanationC()
    check(
        library().ncast_explain(
            OPERATIONS[operation],
            count,
            value_type(dtype).number,
            comm_codec_number(codec),
            ranks,
            max_ctas,
            byref(made),
        )
    )
    by_packets = bool(made.packets)
    has_shots = made.shots_why is not None
    return Explanation(
        path="packets" if by_packets else "blocks",
        path_why=made.path_why.decode(),
        shots=1 + made.two_shot if has_shots else None,
        shots_why=made.shots_why.decode() if has_shots else None,
        codec=CODEC_NAMES[made.codec],
        codec_why=made.codec_why.decode(),
        ctas=made.ctas,
        warps=made.warps,
        lanes=None if by_packets else made.lanes,
        block_bytes=None if by_packets else made.block_bytes,
        sentence=made.sentence.decode(),
    )
