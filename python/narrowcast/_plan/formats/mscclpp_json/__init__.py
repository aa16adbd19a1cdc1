"""Execution plans of MSCCL++ in JSON: the current schema, and that of versions before 0.8."""

from .reader import read, read_document
from .writer import write, write_earlier

__all__ = ["read", "read_document", "write", "write_earlier"]
