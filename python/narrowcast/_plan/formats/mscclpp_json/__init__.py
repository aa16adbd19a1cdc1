"""Execution plans of MSCCL++ in JSON: the current schema, and that of versions before 0.8, which is only read."""

from .reader import read, read_document
from .writer import write

__all__ = ["read", "read_document", "write"]
