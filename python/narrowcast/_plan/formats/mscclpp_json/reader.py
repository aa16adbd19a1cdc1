"""Imports MSCCL++ plans of either schema."""

from __future__ import annotations

from ...model import PlanModel
from ..collectives import without_gc
from ..json_document import Value, load
from .calls import complete_calls
from .current import CurrentSchema
from .earlier import EarlierSchema
from .schema import Schema

__all__ = ["read", "read_document"]


def read(data: bytes) -> PlanModel:
    """The plan of a document.

    Raises InvalidArgumentError, with the path of the value, for a document that is wrong, and UnsupportedError for a
    collective that the library does not have.
    """
    return read_document(load(data))


def read_document(document: Value) -> PlanModel:
    """The plan of a document that is already parsed; see `read`."""
    with without_gc():
        first = next(iter(document["gpus"].items()), None)
        # The schemas have no version.
        schema: type[Schema] = EarlierSchema if first is not None and "inputChunks" in first else CurrentSchema
        plan = schema(document).plan
        complete_calls(plan)
        return plan
