"""MSCCL XML: the plans of MSCCLang, TACCL, TE-CCL and RCCL."""

from .reader import read
from .writer import write

__all__ = ["read", "write"]
