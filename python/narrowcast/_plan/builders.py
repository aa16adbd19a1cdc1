"""The plans of known algorithms, which the library builds."""

from __future__ import annotations

from .._native import plan as native
from .._native.codecs import codec_number
from .._native.numbers import as_int, as_positive
from .._native.operations import describe
from .model import PlanModel
from .plan import Plan


def builders() -> dict[str, tuple[str, ...]]:
    """The algorithms of `build`, with the operations that each supports."""
    return {builder.name: builder.operations for builder in native.builders()}


def build(
    name: str,
    operation: str,
    ranks: int,
    *,
    root: int = 0,
    codec: str = "raw",
    depth: int = 4,
    ranks_per_node: int = 1,
) -> Plan:
    """The plan of a known algorithm.

    name: one of `builders()`, such as "ring".
    root: of operations that have one.
    codec: of all messages.
    depth: how many messages every ring holds.
    ranks_per_node: of "two_level"; it must divide `ranks`.

    Raises InvalidArgumentError if the algorithm does not suit the operation or the number of ranks.
    """
    built = native.NativePlan.build(
        name,
        describe(operation).number,
        ranks=as_int(ranks, "ranks"),
        root=as_int(root, "root"),
        codec=codec_number(codec),
        depth=as_positive(depth, "depth"),
        ranks_per_node=as_positive(ranks_per_node, "ranks_per_node"),
    )
    return Plan(PlanModel.from_json(built.write()))
