"""Runs plans between ranks that are threads of this process, and checks their results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier, BrokenBarrierError
from typing import Any

from ..comm import Communicator, unique_id
from ..errors import AbortedError
from ..plan import Plan
from ..types import value_type
from . import operations, samples


@dataclass(frozen=True)
class Outcome:
    """Calls of a plan of one size."""

    nbytes: int  #: raw bytes of the larger buffer
    in_place: bool
    microseconds: float  #: of the fastest call, on the rank that took longest
    wrong: int  #: values on all ranks


def places_of(plan: Plan) -> tuple[bool, ...]:
    """Whether calls of a plan can be in place: False, True or both."""
    model = plan.model
    either = (False, True) if operations.describe(model.operation).in_place else (False,)
    return {"no": (False,), "yes": (True,), "either": either}[model.in_place]


def run_plan(
    plan: Plan,
    sizes: Sequence[int],
    *,
    dtype: str,
    op: str,
    iterations: int,
    exact: bool,
    timeout_seconds: float = 60.0,
) -> list[Outcome]:
    """Runs a plan on the host backend for calls of several sizes, out of place and in place as the plan permits.

    dtype, op: value type and reduction.
    exact: reductions must have the result of the library; otherwise one that any order of rounded additions can have.

    Raises the errors of `Communicator.load_plan`, and of a rank that failed.
    """
    model = plan.model
    kind = value_type(dtype)
    sample = samples.sample("normal", dtype)
    ranks, identity = len(model.ranks), unique_id(local=True)
    places = places_of(plan)
    together = Barrier(ranks)

    def measured(prepared: operations.Prepared) -> float:
        best = float("inf")
        for _ in range(iterations):
            prepared.poison()
            together.wait(timeout_seconds)
            began = time.perf_counter()
            prepared.run()
            best = min(best, time.perf_counter() - began)
        return best

    def run(rank: int) -> list[tuple[float, int]]:
        found = []
        try:
            with (
                Communicator(identity, rank, ranks, timeout_seconds=timeout_seconds) as comm,
                comm.load_plan(plan, dtype, op=op) as loaded,
            ):
                for nbytes in sizes:
                    count = operations.count_of(model.operation, nbytes, kind, ranks)
                    for in_place in places:
                        prepared = operations.prepare(
                            model.operation,
                            comm,
                            sample,
                            kind,
                            count,
                            codec="raw",
                            op=op,
                            root=model.root,
                            in_place=in_place,
                        )
                        prepared.run = partial(loaded, prepared.values, prepared.out, dtype=dtype)
                        best = measured(prepared)
                        wrong = prepared.call.count_wrong(prepared.out, sample, exact=exact)
                        found.append((best, wrong))
        except BaseException:
            together.abort()
            raise
        return found

    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(run, rank) for rank in range(ranks)]
        try:
            results: list[Any] = [_result(future) for future in futures]
        except BaseException:
            # A signal: the pool waits for its threads.
            together.abort()
            raise
    failures = [one for one in results if isinstance(one, BaseException)]
    if failures:
        # A broken barrier and an abort only say that another rank failed.
        follows = (BrokenBarrierError, AbortedError)
        raise next((one for one in failures if not isinstance(one, follows)), failures[0])
    calls = [(nbytes, in_place) for nbytes in sizes for in_place in places]
    return [
        Outcome(nbytes, in_place, 1e6 * max(own[i][0] for own in results), sum(own[i][1] for own in results))
        for i, (nbytes, in_place) in enumerate(calls)
    ]


def _result(future: Any) -> Any:
    try:
        return future.result()
    except Exception as error:
        return error
