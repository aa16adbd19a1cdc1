"""What the calls of `narrowcast.store` report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import InvalidArgumentError


class RowIndexError(InvalidArgumentError, IndexError):
    """An index is negative or not below the number of rows. The message has its position and its value."""


@dataclass(frozen=True)
class BuildReport:
    """What `build` has written."""

    codec: str  #: such as "trim+window"
    layout: str  #: "stride", "packed" or "blocks"
    rows: int
    raw_bytes: int  #: of the rows as they were
    stored_bytes: int  #: of the rows as they are stored, with offsets and overflow entries
    file_bytes: int
    stride: int  #: bytes from one slot to the next; 0 for other layouts
    overflow_rows: int  #: rows that are longer than a slot
    fit: Any  #: how codec and layout were chosen: reasons, sampled rows, candidates and their ratios

    @property
    def ratio(self) -> float:
        """Stored bytes / raw bytes."""
        return self.stored_bytes / self.raw_bytes if self.raw_bytes else 1.0


@dataclass(frozen=True)
class Counters:
    """What the calls on one `Store` have done, on the host and on GPUs."""

    gathers: int
    fetches: int
    rows_read: int
    raw_bytes_read: int
    overflow_rows_read: int  #: rows that were read from overflow entries
    damaged_rows_read: int  #: rows that could not be decoded
    updates: int
    appends: int
    rows_updated: int
    rows_appended: int
    grace_waits: int  #: how often a change waited for readers
    fetched_bytes: int  #: encoded bytes that GPUs have read
    bad_indices: int  #: indices in GPU memory that had no row


@dataclass(frozen=True)
class CacheInfo:
    """A cache of `Store.cache`, and what gathers on its stream have found."""

    bytes: int  #: of GPU memory that rows, and what finds them, take; 0: there is no cache
    slot_bytes: int  #: of a row in the cache
    capacity: int  #: rows that fit
    rows: int  #: in the cache now
    hits: int  #: gathered rows that were in the cache
    misses: int  #: gathered rows that were not
    fills: int  #: rows that were put into the cache
    evictions: int  #: rows that made room for others
    dropped: int  #: rows that had been updated
    overflows: int  #: hits that did not serve: the encoded row was longer than slot_bytes, or in an overflow entry


@dataclass(frozen=True)
class VerifyReport:
    """The result of `verify`."""

    rows: int
    damaged_rows: int
    damaged: tuple[int, ...]  #: the indices of the first 100 of them
    faults: tuple[str, ...]  #: what is wrong, apart from these rows

    @property
    def good(self) -> bool:
        """Whether there is no damage."""
        return not self.damaged_rows and not self.faults


def verify_report(report: dict[str, Any]) -> VerifyReport:
    """From that of ncast_store_verify."""
    return VerifyReport(report["rows"], report["damaged_rows"], tuple(report["damaged"]), tuple(report["faults"]))
