"""Explains how a call would run, why, and how long it should take, without running it."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterable, Sequence
from ctypes import byref, c_double, c_uint64, c_void_p, pointer, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .._native.codecs import codec_text, comm_codec_number
from .._native.library import check, library
from .._native.numbers import as_int, as_unsigned
from .._native.operations import describe
from .._native.plan import NativePlan, json_of
from .._native.plan_structures import PLACEMENTS, PlanCallC, PlanUseC
from .._native.structures import CandidateC, DecisionC
from ..types import DType, reduction_number, value_type
from .config import CommunicatorOptions, comm_config

if TYPE_CHECKING:
    from typing_extensions import Unpack

T = TypeVar("T")


@dataclass(frozen=True)
class CandidateCost:
    """Microseconds that the cost model predicts for one candidate; None: not known, or it cannot run the call."""

    typical: float | None  #: with values that shrink as weights do
    incompressible: float | None  #: with values that do not shrink


@dataclass(frozen=True)
class PlanAlternative:
    """A plan for the operation of a call that can run instead of the built-in way."""

    plan: str  #: its name, such as "ring"
    microseconds: float | None  #: None: not measured
    why_not: str | None  #: why it does not run the call; None: it does


@dataclass(frozen=True)
class Prediction:
    """What the cost model predicts for a call, in microseconds."""

    chosen: float | None  #: for the call as it runs; None: not known
    candidates: dict[str, CandidateCost]  #: by name, such as "packets", "blocks:window", "nccl"

    @property
    def nccl(self) -> float | None:
        """NCCL's fastest variant."""
        return self._typical("nccl")

    @property
    def nccl_default(self) -> float | None:
        """NCCL without symmetric windows and copy engines."""
        return self._typical("nccl:default")

    def _typical(self, name: str) -> float | None:
        return self.candidates[name].typical if name in self.candidates else None


@dataclass(frozen=True)
class Explanation:
    """How a call runs on a rank. `sentence` describes it in words."""

    #: "packets", "blocks:raw", "blocks:window"; "copy", "none"; on the host backend "frames:raw", "frames:window"; the
    #: name of a plan that runs instead, such as "plan:ring"; "steps" in two levels
    candidate: str
    path: str  #: the candidate without its codec
    path_why: str
    shots: int | None  #: all_reduce by packets: 2 if each rank reduces a piece and sends the result, else 1
    shots_why: str | None
    codec: str  #: of the values on the link: "raw", or one that the call allows
    codec_why: str
    ctas: int  #: 0: no kernel runs
    warps: int  #: per CTA
    rings: int | None  #: by blocks: rings that carry the largest piece that one rank sends another
    block_bytes: int | None  #: by blocks: bytes of the values of a block
    packet_bytes: int | None  #: by packets: bytes of a packet with its flag
    #: "nvlink", "pcie", "host" (through host memory), "gpu_network" (GPUs of several hosts), "shm" (host backend),
    #: "network" (host backend, several hosts), or "two_levels"
    link: str
    predicted: Prediction
    costs_warning: str | None  #: why the cost model may not fit this library
    sentence: str
    plan: str | None  #: the plan that runs: "all_pairs", "relay", ...; None if no plan describes the call
    #: other plans for the operation, by the names of their costs, such as "plan:ring"
    plans: dict[str, PlanAlternative]
    allowed: str  #: the codecs that the call allows: "window, ...", "window!" if it is forced, "" if only raw
    #: `error_bound` of the call for values of at most 1; 0: exact; None: not known (plans of yours, two levels)
    error_bound: float | None
    result_codec: str  #: of the results of an all-reduce; `codec`, unless the call names another one


class Predictor:
    """How a communicator of GPUs would run its calls, without the communicator."""

    def __init__(self, handle: c_void_p) -> None:
        """Takes over a predictor of the C API."""
        self.handle = handle
        self._destroy = weakref.finalize(self, library().ncast_predictor_destroy, handle)

    @classmethod
    def of(cls, ranks: int, **options: Unpack[CommunicatorOptions]) -> Predictor:
        """Of ranks that have these options."""
        made = c_void_p()
        check(library().ncast_predictor_create(as_int(ranks, "ranks"), byref(comm_config(**options)), byref(made)))
        return cls(made)

    def use(self, plan: Any, dtype: DType, op: str = "sum", *, always: bool = False) -> None:
        """Assumes `communicator.load_plan(plan, dtype, op=op).use(always=always)`, and raises the same errors."""
        native = NativePlan.read(json_of(plan))
        given = PlanUseC(struct_bytes=sizeof(PlanUseC), always=always)
        numbers = value_type(dtype).number, reduction_number(op)
        check(library().ncast_predictor_use_plan(self.handle, native.handle, *numbers, byref(given)))

    def explain(self, operation: str, count: int, **arguments: Any) -> Explanation:
        """As `Communicator.explain`."""
        call = plan_call(operation, count, **arguments)
        made = c_void_p()
        check(library().ncast_predictor_explain_call(self.handle, byref(call), byref(made)))
        return explanation_of(made)


def explain(
    operation: str,
    count: int,
    *,
    dtype: DType,
    ranks: int,
    codec: str = "auto",
    result_codec: str | None = None,
    op: str = "sum",
    root: int = 0,
    in_place: bool | None = None,
    max_ctas: int = 0,
    max_collective_ctas: int = 0,
    p2p: bool | None = None,
    cost_model: str | os.PathLike[str] | None = None,
    plans: Iterable[Any] = (),
    always: bool = False,
) -> Explanation:
    """Explains how a communicator of GPUs that can access each other's memory would run a call. Needs no GPU.

    It uses the same functions as the calls themselves. `Communicator.explain` explains calls of an existing
    communicator.

    operation: the name of a method of `Communicator`, such as "all_reduce".
    count: as in the C API: the values that one rank sends another; for all_reduce and reduce the whole vector; for
        all_to_all_v the largest piece.
    ranks: 1 to 8.
    result_codec: as in `Communicator.all_reduce`.
    op, root, in_place: only the choice between plans depends on them. in_place: None: not known; plans that only work
        in place, or only out of place, are then not considered.
    max_ctas, max_collective_ctas, p2p, cost_model: options of the communicator; 0 and None: as in the environment of
        this process.
    plans, always: the plans that it uses, as with `load_plan(plan, dtype, op=op).use(always=always)`, whose errors
        this raises.
    """
    limits = {"max_ctas": max_ctas, "max_collective_ctas": max_collective_ctas}
    predictor = Predictor.of(ranks, **limits, p2p=p2p, cost_model=cost_model)
    for plan in plans:
        predictor.use(plan, dtype, op, always=always)
    codecs = {"codec": codec, "result_codec": result_codec}
    return predictor.explain(operation, count, dtype=dtype, **codecs, op=op, root=root, in_place=in_place)


def error_bound(
    operation: str,
    codec: str,
    ranks: int,
    absmax: float | Sequence[float],
    *,
    dtype: DType = "bfloat16",
    op: str = "sum",
    result_codec: str | None = None,
) -> float:
    """The largest absolute error of a finite value in the result of a call, compared with the exact result.

    operation: the name of a method of `Communicator`. Values that are moved are encoded once. Reductions decode the
        contributions of all ranks but the one that computes a sum, add them in fp32 (float64: in fp64) and round once;
        all but a reduce-scatter then encode the sum.
    codec: that of the values on the link, forced or not. `codec.error_bound` has the error of one encoding.
    absmax: the largest finite magnitude of the values that ranks send: one number, or one for each rank.
    op: for operations that reduce. With a factor, absmax is that of the products.
    result_codec: that of the results of an all-reduce; None: `codec`.

    Returns 0 if the codec is exact or stores values of this type raw, and infinity if the result may overflow. Calls
    that run plans of yours have other bounds. Raises ValueError for invalid arguments.
    """
    ranks = as_int(ranks, "ranks")
    largest = [float(one) for one in absmax] if isinstance(absmax, Iterable) else [float(absmax)] * max(ranks, 0)
    if len(largest) != ranks:
        raise ValueError(f"absmax has {len(largest)} numbers for {ranks} ranks")
    number, kind = describe(operation).number, value_type(dtype)
    values = (c_double * len(largest))(*largest)
    codecs = [comm_codec_number(one) for one in (codec, result_codec) if one is not None]
    arguments = [kind.number, reduction_number(op), *codecs, ranks, values]
    if result_codec is None:
        bound = library().ncast_call_error_bound(number, *arguments)
    elif operation == "all_reduce":
        bound = library().ncast_all_reduce_error_bound(*arguments)
    else:
        raise ValueError(f"result_codec is only for all_reduce, not for {operation}")
    found = float(bound)
    if math.isnan(found):
        raise ValueError(library().ncast_last_error().decode().partition(": ")[2].replace("largest[", "absmax["))
    return found


def changes(answer: Callable[[int], T], first: int, last: int) -> list[tuple[int, T]]:
    """The numbers from `first` to `last` at which the answer changes, with the new answer; begins with `first`.

    Uses a binary search between powers of two, so it may miss a change that is reverted within a factor of two.
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


def plan_call(
    operation: str,
    count: int,
    *,
    dtype: DType,
    codec: str = "auto",
    result_codec: str | None = None,
    op: str = "sum",
    root: int = 0,
    in_place: bool | None = None,
) -> PlanCallC:
    """A call in the structure of the C API. Raises ValueError for invalid arguments."""
    call = PlanCallC(
        struct_bytes=sizeof(PlanCallC),
        operation=describe(operation).number,
        count=as_unsigned(count, "count"),
        dtype=value_type(dtype).number,
        op=reduction_number(op),
        root=as_int(root, "root"),
        codec=comm_codec_number(codec),
        placement=PLACEMENTS[None if in_place is None else bool(in_place)],
    )
    if result_codec is not None:
        call.result_codec = pointer(c_uint64(comm_codec_number(result_codec)))
    return call


def explanation_of(made: c_void_p) -> Explanation:
    """Converts an explanation of the C API, and frees it."""
    try:
        decision = DecisionC(struct_bytes=sizeof(DecisionC))
        check(library().ncast_explanation_decision(made, byref(decision)))
        costs, plans = {}, {}
        for index in range(library().ncast_explanation_candidates(made)):
            candidate = CandidateC(struct_bytes=sizeof(CandidateC))
            check(library().ncast_explanation_candidate(made, index, byref(candidate)))
            if candidate.plan:
                why = candidate.why_not.decode() if candidate.why_not else None
                alternative = PlanAlternative(candidate.plan.decode(), candidate.microseconds or None, why)
                plans[candidate.name.decode()] = alternative
                continue
            costs[candidate.name.decode()] = CandidateCost(
                candidate.microseconds or None, candidate.incompressible_microseconds or None
            )
        name = decision.candidate.decode()
        has_shots = decision.shots_reason is not None
        return Explanation(
            candidate=name,
            path=name.partition(":")[0],
            path_why=decision.path_reason.decode(),
            shots=1 + decision.two_shot if has_shots else None,
            shots_why=decision.shots_reason.decode() if has_shots else None,
            codec=codec_text(decision.codec),
            codec_why=decision.codec_reason.decode(),
            ctas=decision.ctas,
            warps=decision.warps,
            rings=decision.rings or None,
            block_bytes=decision.block_bytes or None,
            packet_bytes=decision.packet_bytes or None,
            link=decision.link.decode(),
            predicted=Prediction(decision.microseconds or None, costs),
            costs_warning=decision.costs_warning.decode() if decision.costs_warning else None,
            sentence=decision.sentence.decode(),
            plan=decision.plan.decode() if decision.plan else None,
            plans=plans,
            allowed=decision.allowed.decode(),
            error_bound=None if math.isnan(decision.error_bound) else decision.error_bound,
            result_codec=codec_text(decision.result_codec),
        )
    finally:
        library().ncast_explanation_destroy(made)
