"""The calls of `plan run` and `plan bench`: their options, where the ranks are, and how results are checked."""

from __future__ import annotations

from typing import Annotated

import typer

from ..._bench import operations
from ..._plan.report import Report
from ...cuda import device_count
from ...errors import UnsupportedError
from ...plan import Plan

SizesOption = Annotated[
    str, typer.Option("--bytes", metavar="SIZES", help="Sizes of the larger buffer, as for `bench`, such as 1K,1M.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print a list of objects instead of the table.")]


def is_exact(proof: Report) -> bool:
    """Whether results must have the bits of a reduction in rank order that is rounded once."""
    return proof.roundings <= 1 and proof.rank_order and not proof.inexact_encodings


def check_comparable(plan: Plan, name: str) -> None:
    """Raises UnsupportedError if the library has no calls like those of the plan. name: of its file."""
    operation = plan.model.operation
    if plan.model.in_place == "yes" and not operations.describe(operation).in_place:
        raise UnsupportedError(
            f"{name}: the plan works in place only, which the library's own {operation} does not: "
            "there is nothing to compare it with"
        )


def are_on_gpus(backend: str | None, ranks: int, why: str = "") -> bool:
    """Whether ranks use a GPU each.

    backend: "host", "cuda", or None, for GPUs if there are enough.
    why: a sentence for the error, why ranks do not share a GPU.

    Raises UnsupportedError for "cuda" with fewer GPUs than ranks.
    """
    gpus = 0 if backend == "host" else device_count()
    if backend == "cuda" and gpus < ranks:
        raise UnsupportedError(
            f"the plan has {ranks} ranks, each of which needs its own GPU; number of GPUs found: {gpus}{why}"
        )
    return backend != "host" and gpus >= ranks
